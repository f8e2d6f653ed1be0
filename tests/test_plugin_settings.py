"""Settings of other people's plugins: everything that pydantic allows is read and shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema_rs
import pytest

RICH = """
    from collections.abc import Callable
    import click
    from pydantic import BaseModel, Field, RootModel, create_model
    from sayso import Plugin, hookimpl

    class Names(RootModel[list[str]]):
        pass

    class Store(BaseModel):
        hosts: list[str] = []

    class Rich(Plugin):
        class Settings(Plugin.Settings):
            store: Store = Store()
            spare: Store | None = None
            names: Names = Names([])
            allowed: list[str] = Field(default=[], alias="allow")
            \"\"\"Who may.\"\"\"

        @hookimpl
        def register_commands(self, cli):
            cli.command("rich")(lambda: click.echo(self.settings.model_dump_json(by_alias=True)))

    class Working(Plugin):
        class Settings(Plugin.Settings):
            clock: Callable[[], int] = int

    class Dynamic(Plugin):
        Settings = create_model("Settings", __base__=Plugin.Settings, rate=(int, 3))
"""
OWN_WAYS = """
    import math
    from typing import Annotated, Literal
    import click
    from pydantic import (
        BaseModel, BeforeValidator, ConfigDict, Field, ImportString, PlainSerializer
    )
    from sayso import Plugin, hookimpl

    class Files(BaseModel):
        kind: Literal["files"]
        paths: list[str]

    class Page(BaseModel):
        kind: Literal["page"]
        paths: str

    def halves(value):
        return value.split(";") if isinstance(value, str) else value

    class Store(BaseModel):
        hosts: Annotated[list[str], BeforeValidator(halves)] = []

    class Own(Plugin):
        class Settings(Plugin.Settings):
            model_config = ConfigDict(populate_by_name=True)
            allowed: list[str] = Field(default=[], alias="allow")
            target: Files | Page | None = Field(default=None, discriminator="kind")
            store: Store = Store()
            read: Annotated[list[str], BeforeValidator(list)] | None = None

        @hookimpl
        def register_commands(self, cli):
            cli.command("own")(lambda: click.echo(self.settings.model_dump_json()))

    class Shown(Plugin):
        class Settings(Plugin.Settings):
            pin: Annotated[str, PlainSerializer(lambda pin: "****", when_used="json")] = "1234"
            measure: ImportString = math.cos
            mark: bytes = b"text"

    class Raw(Plugin):
        class Settings(Plugin.Settings):
            mark: bytes = b"\\xff"
            never: Annotated[None, "reserved"] | None = None

    class Twice(Plugin):
        class Settings(Plugin.Settings):
            host: str = Field(default="", alias="url")
            port: str = Field(default="", alias="url")
"""
NESTED = """
    from typing import Literal
    import click
    from pydantic import (
        AliasChoices, BaseModel, ConfigDict, Field, RootModel, model_validator
    )
    from sayso import Plugin, hookimpl

    class Store(BaseModel):
        hosts: list[str] = []
        table: str = Field(default="", alias="in")
        limit: int = Field(default=0, validation_alias=AliasChoices("most", "max"))

    class Stores(RootModel[list[Store]]):
        pass

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Careless(BaseModel):
        model_config = ConfigDict(extra="ignore")

    class Old(BaseModel):
        size: int = 0

        @model_validator(mode="before")
        @classmethod
        def renamed(cls, given):
            return {"size": given["length"]} if "length" in given else given

    class Changing(BaseModel):
        hosts: list[str] = []

        @model_validator(mode="before")
        @classmethod
        def split(cls, given):
            given["hosts"] = given.pop("from").split("+")
            return given

    class File(BaseModel):
        path: str

    class Nested(Plugin):
        class Settings(Plugin.Settings):
            store: Store | None = None
            many: Stores = Stores([])
            by_name: dict[str, Store] = {}
            either: File | Store | None = None
            each: list[File | Store] = []
            open: Open = Open()
            careless: Careless = Careless()
            old: Old = Old()
            changing: Changing | None = None

        @hookimpl
        def register_commands(self, cli):
            cli.command("nested")(lambda: click.echo(self.settings.model_dump_json()))
"""
OTHER = """
    from pydantic import BaseModel
    from sayso import Plugin

    class Store(BaseModel):
        table: int

    class Other(Plugin):
        class Settings(Plugin.Settings):
            store: Store | None = None
"""
PLAIN = """
    import click
    from pydantic import BaseModel
    from sayso import Plugin, hookimpl

    class Plain(Plugin):
        class Settings(BaseModel):
            rate: int = 3

        @hookimpl
        def register_commands(self, cli):
            cli.command("plain")(lambda: click.echo(self.settings.rate))
"""
PLUGINS = {"rich": "Rich", "working": "Working", "dynamic": "Dynamic"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    install(tmp_path, "rich_ones", RICH, PLUGINS)
    install(tmp_path, "other_one", OTHER, {"other": "Other"})
    return tmp_path


def install(folder: Path, module: str, source: str, plugins: dict[str, str]) -> None:
    (folder / f"{module}.py").write_text(textwrap.dedent(source), "utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name} = {module}:{target}" for name, target in plugins.items()]
    (info / "entry_points.txt").write_text("\n".join(["[sayso]", *lines, ""]))


def sayso(folder: Path, *words: str, **environ: str) -> str:
    """The output of the command; its standard error if it fails."""
    ran = subprocess.run(
        [sys.executable, "-m", "sayso", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environ},
        capture_output=True,
        text=True,
    )
    return ran.stderr if ran.returncode else ran.stdout


def test_list_in_a_table_of_a_plugin_is_comma_separated_in_the_environment(folder: Path) -> None:
    named = {
        "SAYSO_PLUGIN__RICH__STORE__HOSTS": "a, b",
        "SAYSO_PLUGIN__RICH__SPARE__HOSTS": "c",
        "SAYSO_PLUGIN__RICH__ALLOW": '["ann"]',
    }
    settings = json.loads(sayso(folder, "rich", **named))
    assert settings["store"] == {"hosts": ["a", "b"]}
    assert settings["spare"] == {"hosts": ["c"]}
    assert settings["allow"] == ["ann"]


def test_misspelt_alias_is_told_as_the_file_has_it(folder: Path) -> None:
    said = sayso(folder, "rich", SAYSO_PLUGIN__RICH__ALOW="ann")
    assert "did you mean 'allow'?" in said


def test_settings_that_are_a_plain_model_refuse_unknown_keys_too(tmp_path: Path) -> None:
    install(tmp_path, "plain_one", PLAIN, {"plain": "Plain"})
    assert sayso(tmp_path, "plain") == "3\n"
    assert sayso(tmp_path, "plain", SAYSO_PLUGIN__PLAIN__RATE="5") == "5\n"
    (tmp_path / "sayso.toml").write_text("[plugin.plain]\nrate = 5\nrates = 6\n")
    said = sayso(tmp_path, "plain")
    assert "'plugin.plain.rates' (sayso.toml); did you mean 'rate'?" in said


def test_table_where_a_plugin_takes_nothing_is_refused_with_its_key(tmp_path: Path) -> None:
    install(tmp_path, "own_ways", OWN_WAYS, {"raw": "Raw", "own": "Own"})
    (tmp_path / "sayso.toml").write_text("[plugin.raw.never]\nx = 1\n")
    said = sayso(tmp_path, "own")
    assert "has wrong settings: plugin.raw.never (sayso.toml): input should" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("store.hostz = []", "'plugin.nested.store.hostz' (sayso.toml); did you mean 'store.hos"),
        ("store.table = ''", "'plugin.nested.store.table' (sayso.toml); known here: hosts, in"),
        ("store.limit = 1", "'plugin.nested.store.limit' (sayso.toml); known here: hosts, in, mo"),
        ("many = [{hosts = []}, {x = 1}]", "'plugin.nested.many.1.x' (sayso.toml)"),
        ("by_name = {a = {in = ''}, b = {x = 1}}", "'plugin.nested.by_name.b.x' (sayso.toml)"),
        ("either = {path = '', in = ''}", "'plugin.nested.either.in' (sayso.toml)\n"),
        ("each = [{path = '', hosts = []}]", "'plugin.nested.each.0.hosts' (sayso.toml)\n"),
    ],
)
def test_unknown_key_in_a_table_of_a_plugin_is_refused(
    tmp_path: Path, line: str, said: str
) -> None:
    install(tmp_path, "nested_ones", NESTED, {"nested": "Nested"})
    (tmp_path / "sayso.toml").write_text(f"[plugin.nested]\n{line}\n")
    assert f"unknown key {said}" in sayso(tmp_path, "nested")


def test_table_of_a_plugin_may_have_what_its_settings_admit(tmp_path: Path) -> None:
    install(tmp_path, "nested_ones", NESTED, {"nested": "Nested"})
    (tmp_path / "sayso.toml").write_text(
        """
        [plugin.nested]
        open = {anything = {at = "all"}}
        careless = {of = 1}
        old = {length = 3}
        changing = {from = "a+b"}
        either = {in = "t", hosts = [], max = 3}
        """
    )
    settings = json.loads(sayso(tmp_path, "nested"))
    assert settings["open"] == {"anything": {"at": "all"}}
    assert settings["old"] == {"size": 3}
    assert settings["changing"] == {"hosts": ["a", "b"]}
    assert settings["either"] == {"table": "t", "hosts": [], "limit": 3}


def test_settings_that_read_their_table_their_own_way_get_what_it_says(tmp_path: Path) -> None:
    install(tmp_path, "own_ways", OWN_WAYS, {"own": "Own"})
    (tmp_path / "sayso.toml").write_text(
        """
        [plugin.own]
        target = {kind = "page", paths = "a, b"}
        store = {hosts = "a,b;c"}
        """
    )
    lists = {"SAYSO_PLUGIN__OWN__ALLOWED": "ann, bo", "SAYSO_PLUGIN__OWN__READ": "cy, di"}
    settings = json.loads(sayso(tmp_path, "own", **lists))
    assert settings == {
        "allowed": ["ann", "bo"],
        "read": ["cy", "di"],
        "target": {"kind": "page", "paths": "a, b"},
        "store": {"hosts": ["a,b", "c"]},
    }


def test_plugins_are_shown_as_their_settings_write_themselves(tmp_path: Path) -> None:
    install(tmp_path, "own_ways", OWN_WAYS, {"shown": "Shown", "raw": "Raw", "twice": "Twice"})
    infos = json.loads(sayso(tmp_path, "plugins", "--json"))
    settings = {info["name"]: info["settings"] for info in infos}
    assert settings["shown"] == {"pin": "****", "measure": "math.cos", "mark": "text"}
    assert settings["raw"] == {}
    plugins = json.loads(sayso(tmp_path, "config", "schema"))["properties"]["plugin"]
    assert list(plugins["properties"]["twice"]["properties"]) == ["url"]


def test_plugins_are_shown_also_with_settings_that_are_no_json(folder: Path) -> None:
    infos = json.loads(sayso(folder, "plugins", "--json"))
    settings = {info["name"]: info["settings"] for info in infos}
    assert settings["working"] == {"clock": "<class 'int'>"}
    assert settings["dynamic"] == {"rate": 3}
    assert settings["rich"]["allow"] == []


def test_schema_has_the_plugins_that_can_be_described_each_with_its_own_models(
    folder: Path,
) -> None:
    schema = json.loads(sayso(folder, "config", "schema"))
    allow = schema["properties"]["plugin"]["properties"]["rich"]["properties"]["allow"]
    assert allow["description"] == "Who may."
    validator = jsonschema_rs.validator_for(schema)
    for sound in ({"rich": {"store": {"hosts": ["a"]}}}, {"other": {"store": {"table": 1}}}):
        assert validator.is_valid({"plugin": sound})
    assert not validator.is_valid({"plugin": {"rich": {"store": {"hosts": 1}}}})
    assert not validator.is_valid({"plugin": {"dynamic": {"rate": "x"}}})
