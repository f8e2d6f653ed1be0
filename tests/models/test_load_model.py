from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from importlib_metadata import EntryPoint, EntryPoints

from sayso import Agent, ServiceHost
from sayso.config import Config
from sayso.config.settings import ModelSettings
from sayso.errors import ConfigError
from sayso.installing import install_line
from sayso.models import Ask, Model, ModelError, NoModel, Text, Turn, load_model, never_blocks
from sayso.testing import scripted
from sayso_demo.offline import Offline


def test_offline_needs_nothing() -> None:
    made = load_model("offline", {})
    assert isinstance(made, Offline) and isinstance(made, Model)
    assert (made.provider, made.name) == ("offline", "offline")


@pytest.mark.parametrize(
    ("spec", "way_out"),
    [
        ("anthropic:claude-opus-5-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-5.5", "OPENAI_API_KEY"),
        ("anthropic:claude-opus-5-5", "SAYSO_MODEL__NAME=offline"),
        ("openai:gpt-5.5", "SAYSO_MODEL__NAME=offline"),
        ("openai", "openai:gpt"),
        ("gemini:gemini-3.8-flash", "GEMINI_API_KEY"),
        ("foundry:claude-opus-5-5", "ANTHROPIC_FOUNDRY_RESOURCE"),
        ("groq:llama", "GROQ_API_KEY"),
        ("vllm:llama", "VLLM_BASE_URL"),
        ("azure:gpt", "AZURE_OPENAI_ENDPOINT"),
        ("mystery:1", "with one of: anthropic, azure, bedrock"),
        ("antropic:claude-opus-5-5", "did you mean 'anthropic:claude-opus-5-5'?"),
        ("claud-sonnet-5-5", "did you mean 'anthropic:claude-sonnet-5-5'?"),
        ("olama:qwen3", "did you mean 'ollama:qwen3'?"),
        ("offlin", "did you mean 'offline'?"),
        ("claude-opus-5-5", "ANTHROPIC_API_KEY"),
        ("gpt-5.5", "OPENAI_API_KEY"),
        ("gemini-3.8-flash", "GEMINI_API_KEY"),
    ],
)
def test_what_is_missing_is_told_with_the_way_out(spec: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_model(spec, {})
    assert way_out in str(caught.value)


def test_empty_name_in_the_configuration_leaves_the_agents_own_model() -> None:
    agent = Agent(model="openai:gpt-5.5")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        ServiceHost.create(agent, Config(model=ModelSettings(name="")))


def test_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    assert load_model("anthropic:claude-opus-5-5", {}).provider == "anthropic"
    assert load_model("openai:gpt-5.5", {}).provider == "openai"


@pytest.mark.parametrize("spec", ["openai:x", "anthropic"])
@pytest.mark.parametrize(
    "address", ["localhost:11434", "ftp://host", "http://", "http://[::1", "http://host:99999"]
)
def test_wrong_address_stops_the_start(spec: str, address: str) -> None:
    with pytest.raises(ConfigError, match="no http"):
        load_model(spec, {"base_url": address, "api_key": "key"})


def test_wrong_address_in_the_environment_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "localhost:11434")
    with pytest.raises(ConfigError, match="no http"):
        load_model("anthropic", {})


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"])
@pytest.mark.parametrize("key", ["sk-5ecret\n", " sk-5ecret", "sk-5écret"])
def test_key_that_no_header_carries_stops_the_start_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    """A file with a line break gives such a key; each call would look like a lost connection."""
    monkeypatch.setenv(name, key)
    with pytest.raises(ConfigError, match="line end") as caught:
        load_model("openai:gpt-5.5" if name.startswith("OPENAI") else "anthropic", {})
    assert "ecret" not in str(caught.value) and "écret" not in str(caught.value)


NOTHING = EntryPoints([])


@pytest.mark.parametrize(
    ("spec", "extra"),
    [("anthropic", "anthropic"), ("openai:x", "openai"), ("offline", "demo")],
)
def test_distribution_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, spec: str, extra: str
) -> None:
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: NOTHING)
    with pytest.raises(ConfigError) as caught:
        load_model(spec, {})
    way = install_line(f"sayso[{extra}]")
    assert str(caught.value) == f"model {spec!r} is not installed; try: {way}"


def test_agent_without_a_model_says_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: NOTHING)
    config = Config(plugins=[])
    with pytest.raises(ConfigError, match=r"set model\.name or .*plugins/demo"):
        ServiceHost.create(Agent(), config)


def test_plain_callable_needs_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: NOTHING)
    model = ServiceHost.create(lambda messages, context: "fine", Config(plugins=[])).model
    assert isinstance(model, NoModel) and isinstance(model, Model) and never_blocks(model)

    async def ask() -> None:
        async for _ in model.stream(Ask([Turn("user", [Text("hello")])])):
            pass

    with pytest.raises(ModelError, match="has no model"):
        asyncio.run(ask())


def test_model_says_by_itself_that_it_never_blocks() -> None:
    assert never_blocks(scripted()) and never_blocks(Offline())
    assert never_blocks(load_model("anthropic", {"api_key": "x"}))
    assert never_blocks(load_model("openai:x", {"api_key": "x"}))
    assert never_blocks(load_model("gemini", {"api_key": "x"}))
    assert not never_blocks(type("Own", (), {"provider": "own", "name": ""})())


def test_models_of_others_are_found_by_their_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", "sayso_demo.offline:connect", "sayso.models")
    found = EntryPoints([entry])
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: found)
    assert load_model("mine:seven", {}).name == "seven"
    with pytest.raises(ConfigError, match="llamacpp, mine, mistral"):
        load_model("yours", {})


def test_error_of_a_foreign_package_is_not_taken_for_a_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str, settings: Any) -> Model:
        raise ModuleNotFoundError("no", name="some_library")

    entry = type("Entry", (), {"name": "mine", "dist": None, "load": lambda self: broken})()
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: [entry])
    with pytest.raises(ConfigError, match="'mine' cannot be made: ModuleNotFoundError") as caught:
        load_model("mine", {})
    assert "pip install" not in str(caught.value)


FAILING = """
import sys
def broken(name, settings): raise OSError("no key")
def leaves(name, settings): sys.exit(3)
class Panic(BaseException): ...
def panics(name, settings): raise Panic("no memory")
def wrong(name, settings): return 5
async def later(name, settings): ...
class halfway:
    def __init__(self, name, settings): self.name = name
number = 5
"""


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("broken", "cannot be made: OSError: no key; mend its distribution 'strange 1.0'"),
        ("leaves", "cannot be made: SystemExit: 3"),
        ("panics", "cannot be made: Panic: no memory"),
        ("number", "cannot be made: TypeError"),
        ("wrong", "(distribution 'strange 1.0') made int, which is no model"),
        ("later", "made coroutine, which is no model"),
        ("halfway", "made halfway, which is no model: it has no 'provider', 'stream'"),
        ("missing", "cannot be imported: AttributeError"),
        ("twice", "'other 1.0' and 'strange 1.0' both have a model 'twice'"),
    ],
)
def test_factory_of_others_that_fails_is_named_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cause: str
) -> None:
    for distribution, entries in (
        ("strange", f"{name} = foreign_{name}:{name}"),
        ("other", "twice = x"),
    ):
        folder = tmp_path / f"{distribution}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        (folder / "entry_points.txt").write_text(f"[sayso.models]\n{entries}\n")
    (tmp_path / f"foreign_{name}.py").write_text(FAILING)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        load_model(f"{name}:x", {})
    assert f"the model {name!r}" in str(caught.value) or name == "twice"
    assert cause in str(caught.value)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("raise OSError('no libssl')", "OSError: no libssl"),
        ("class Panic(BaseException): ...\nraise Panic('no memory')", "Panic: no memory"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_client_that_cannot_be_imported_is_named_with_the_way_out(
    tmp_path: Path, source: str, cause: str
) -> None:
    (tmp_path / "anthropic.py").write_text(source)
    code = (
        "from sayso.errors import ConfigError\nfrom sayso.models import load_model\n"
        "try: load_model('anthropic:x', {'api_key': 'x'})\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == (
        f"the model 'anthropic' cannot be imported: {cause}; "
        f"try: {install_line('--force-reinstall', 'sayso[anthropic]')}\n"
    ), done.stderr


def test_importing_models_imports_no_client() -> None:
    code = (
        "import sys, sayso.models.adapters, sayso_demo.offline, sayso.testing; "
        "print(sorted({'anthropic', 'httpx2', 'httpx', 'openai', 'fastapi'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
