"""The `sayso` command: exit codes, errors of one line, the output of each sub-command."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import jsonschema_rs
import pytest

from databases import empty_schema
from sayso import cli
from sayso.cli import group
from sayso.config import Config, load_config
from sayso.config.settings import ServerSettings
from sayso.errors import ConfigError
from sayso.hookspecs import hookimpl
from sayso.installing import install_line
from sayso.ledger.stores import open_store
from sayso.plugins import Plugin, Plugins
from sayso.plugins.discovery import COMMANDS_ALONE, discover
from terminal import terminal


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SAYSO_")]:
        monkeypatch.delenv(name)
    return tmp_path


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


class Served:
    def __init__(self) -> None:
        self.config: Any = None

    def __call__(self, *, config: object = None, on_ready: object = None) -> None:
        self.config = config


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """The arguments with which `sayso.server.serve` would have been called."""
    instead = Served()
    monkeypatch.setattr("sayso.server.serve", instead)
    return instead


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["serve", "--prot", "1"], 2, "--prot"),
        (["serve", "--port", "x"], 2, "is not a valid integer"),
        (["serv"], 2, "No such command 'serv'; did you mean 'serve'?"),
        (["serve", "--port", "99999"], 2, "'--port': 99999 is not in the range 0<=x<=65535"),
        (["demo", "--port", "-1"], 2, "'--port': -1 is not in the range 0<=x<=65535"),
        (["serve", "--workers", "0"], 2, "'--workers': 0 is not in the range x>=1"),
        (["dev", "--worker-loops", "0"], 2, "'--worker-loops': 0 is not in the range x>=1"),
        (
            ["serve", "--ws-ping-interval", "-1"],
            2,
            "'--ws-ping-interval': -1.0 is not in the range",
        ),
        (["serve", "--drain-timeout", "soon"], 2, "'--drain-timeout': expected a duration"),
        (["serve", "--reload", "--workers", "2"], 1, "'reload' and 'workers'"),
        (["--config", "nope.toml", "config"], 1, "no configuration file 'nope.toml'"),
        (["config", "--config", "nope.toml"], 1, "no configuration file 'nope.toml'"),
        (["approvals", "list", "--limit", "-3"], 2, "'--limit': -3 is not in the range x>=1"),
        (["approvals", "purge", "--older-than", "x"], 2, "'--older-than': expected a duration"),
        # It would forget calls that nobody has decided yet.
        (["approvals", "purge", "--older-than", "-9e9"], 2, "'--older-than': must be at least 0"),
        (
            ["approvals", "purge", "--log-older-than", "-9e9"],
            2,
            "'--log-older-than': must be at least 0",
        ),
    ],
)
def test_error_is_one_line_with_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int, line: str
) -> None:
    got, out, err = outcome(capsys, *arguments)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("sayso: ")
    assert line in err


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "x"], ["approve", "x"], ["verify"], ["export"], ["purge"]]
)
def test_approvals_of_a_mistyped_store_are_an_error_and_make_no_store(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: Sequence[str]
) -> None:
    (folder / "sayso.toml").write_text('[approvals]\nledger = "sqlite:///state/mistyped.db"\n')
    got = outcome(capsys, "approvals", *arguments)
    store = f"sqlite:///{folder / 'state' / 'mistyped.db'}"
    said = f"sayso: there is no approvals store {store!r}; a service makes it when it starts: "
    assert got == (1, "", f"{said}check 'approvals.ledger' and --config\n")
    assert not (folder / "state").exists()


def test_approvals_of_a_database_without_a_store_make_none_there(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    with empty_schema() as url:
        (folder / "sayso.toml").write_text(f"[approvals]\nledger = {json.dumps(url)}\n")
        for _ in range(2):
            code, out, err = outcome(capsys, "approvals", "verify")
            assert (code, out) == (1, "")
            assert err.startswith("sayso: there is no approvals store 'postgresql://")
        store = open_store(url, folder, folder)
        asyncio.run(store.open())
        asyncio.run(store.close())
        assert outcome(capsys, "approvals", "verify") == (0, "the log is whole: 0 rows\n", "")


def test_approvals_of_a_store_inside_the_service_name_that_store(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "inside.py").write_text(
        "from sayso.ledger.memory import MemoryStore\n"
        "class Inside(MemoryStore):\n"
        "    def __init__(self, url): super().__init__(); self.url = url\n"
    )
    info = folder / "inside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sayso.ledgers]\ninside = inside:Inside\n")
    monkeypatch.syspath_prepend(folder)
    (folder / "sayso.toml").write_text('[approvals]\nledger = "inside://here"\n')
    code, _, err = outcome(capsys, "approvals", "list")
    assert code == 1
    assert err.startswith("sayso: the ledger 'inside://here' lives in the service's process")


@pytest.mark.parametrize(
    "arguments", [["config", "--config", "nope.toml"], ["serve", "nope.py", "--port", "0"]]
)
def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    _, _, err = outcome(capsys, "--debug", *arguments)
    assert "Traceback" in err


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no such folder here")
def test_folder_that_cannot_be_written_is_one_plain_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    code, _, err = outcome(capsys, "new", "agent", "mine")
    assert (code, err) == (1, "sayso: No such file or directory: '/proc/mine'\n")


def test_text_that_the_terminal_cannot_encode_is_written_as_escapes(folder: Path) -> None:
    (folder / "ops.py").write_text("agent = lambda messages, context: 'Gr\u00fc\u00dfe'\n", "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sayso", "chat", "ops.py", "-m", "hello"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "XDG_STATE_HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Gr\\xfc\\xdfe\n"


def test_chat_without_a_standard_input_is_no_conversation(folder: Path) -> None:
    (folder / "ops.py").write_text("agent = lambda messages, context: 'hello'\n", "utf-8")
    chat = f"{sys.executable} -m sayso chat ops.py"
    done = subprocess.run(
        f"{chat} -m hello <&- && {chat} <&-",
        shell=True,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "--help")
    assert code == 0
    for name in ("serve", "dev", "plugins", "config"):
        assert f"  {name} " in out


@pytest.mark.parametrize("arguments", [(), ("approvals",), ("new",)])
def test_group_without_a_sub_command_shows_its_help_as_it_is(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    code, _, err = outcome(capsys, *arguments)
    assert (code, err) == (2, outcome(capsys, *arguments, "--help")[1])


def test_each_server_setting_is_an_option_that_explains_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = outcome(capsys, "serve", "--help")
    for name in ServerSettings.model_fields:
        assert f"--{name.replace('_', '-')} " in out
    assert "Seconds between WebSocket pings; 0: no" in out
    words = " ".join(out.split())
    assert "--drain-timeout DURATION How long running turns may go on after SIGTERM" in words
    assert "after SIGTERM; then they are cancelled. [default: 30s]" in words
    assert "TCP port of the service; 0 takes a free one. [default: 8000] [0<=x<=65535]" in words


@pytest.mark.parametrize("group", [(), ("new",), ("plugins",), ("config",), ("approvals",)])
def test_help_says_what_each_command_does_in_a_whole_sentence(
    capsys: pytest.CaptureFixture[str], group: tuple[str, ...]
) -> None:
    _, out, _ = outcome(capsys, *group, "--help")
    _, _, commands = out.partition("Commands:")
    assert commands
    assert "..." not in commands.partition("\n\n")[0]


def test_help_of_dev_tells_its_own_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = outcome(capsys, "dev", "--help")
    assert "[default: 127.0.0.1]" in out
    assert "[default: 0.0.0.0]" not in out
    assert out.count("[default: on]") == 3


def test_options_of_serve_become_the_configuration(served: Served) -> None:
    arguments = (
        "serve ops.py --port 9000 --ws-ping-interval 0 --no-mcp --a2a --plugins v1,v2 "
        "--mcp-port 7 --model offline --cors-origins http://a,http://b "
        "--cors-origins http://c --hosts d,e, --drain-timeout 2m"
    )
    assert cli.run(arguments.split()) == 0
    config = served.config
    assert (config.agent, config.plugins, config.model.name) == ("ops.py", ["v1", "v2"], "offline")
    assert (config.server.port, config.server.ws_ping_interval) == (9000, None)
    assert (config.server.a2a, config.server.mcp) == (True, False)
    assert config.server.cors_origins == ["http://a", "http://b", "http://c"]
    assert config.server.hosts == ["d", "e"]
    assert config.server.drain_timeout == 120.0
    assert config.plugin == {"mcp": {"port": 7}}
    assert config.origins["server.port"] == "flag --port"
    assert config.origins["server.host"] == "default"


def test_dev_is_local_and_reloads_unless_told_otherwise(served: Served, folder: Path) -> None:
    (folder / "sayso.toml").write_text('[server]\nhost = "0.0.0.0"\nworkers = 4\n', "utf-8")
    assert cli.run(["dev", "ops.py"]) == 0
    server = served.config.server
    assert (server.host, server.workers, server.reload, server.docs) == ("127.0.0.1", 1, True, True)
    assert cli.run(["dev", "ops.py", "--host", "::1", "--no-reload"]) == 0
    assert (served.config.server.host, served.config.server.reload) == ("::1", False)


def test_dev_without_an_agent_ends_instead_of_waiting_for_a_change(folder: Path) -> None:
    command = [sys.executable, "-m", "sayso", "dev", "--port", "0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("sayso: there is no agent; name one as 'path/to/file.py:object'")


@pytest.mark.skipif("console" not in discover(), reason="the console is not installed")
def test_dev_prints_the_address_of_the_console_page(folder: Path) -> None:
    (folder / "ops.py").write_text("agent = lambda messages, context: 'hello'\n", "utf-8")
    arguments = ["-m", "sayso", "dev", "ops.py", "--port", "0"]
    with terminal(arguments, folder, {"XDG_STATE_HOME": str(folder)}) as person:
        person.shows("sayso: console ")
        address = person.shows("/console")
        with urllib.request.urlopen(address, timeout=60) as page:
            assert page.headers["Content-Type"].startswith("text/html")
        person.keys("\x03")
        assert person.ended() == 0


def test_config_shows_values_origins_and_no_secret(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sayso.toml").write_text(
        '[auth.tokens]\nann = "hunter2"\n'
        '[approvals]\nledger = "postgresql://u:hunter2@db/x"\n'
        '[plugin.a2a]\napi_key = "hunter2"\nnested = {list = [{password = "hunter2"}]}\n',
        "utf-8",
    )
    monkeypatch.setenv("SAYSO_SERVER__PORT", "9000")
    code, out, _ = outcome(capsys, "config", "--json")
    values = json.loads(out)
    assert code == 0
    assert values["server.port"] == {"value": 9000, "origin": "environment SAYSO_SERVER__PORT"}
    assert values["server.host"] == {"value": "0.0.0.0", "origin": "default"}
    assert values["auth.tokens.ann"]["origin"] == "sayso.toml"
    assert values["approvals.ledger"]["value"] == "postgresql://********@db/x"
    assert "hunter2" not in out + outcome(capsys, "config")[1]


def test_config_keeps_its_columns_whatever_the_values_are(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = "sqlite:////a/long/way/to/the/folder/of/the/state/approvals.db"
    monkeypatch.setenv("SAYSO_APPROVALS__LEDGER", ledger)
    (folder / "sayso.toml").write_text("[server]\nport = 9000\n", "utf-8")
    lines = outcome(capsys, "config")[1].splitlines()[1:]
    origins = {
        "approvals.ledger": "environment SAYSO_APPROVALS__LEDGER",
        "server.port": "sayso.toml",
        "server.host": "default",
    }
    starts = {line.index(origins[key]) for line in lines if (key := line.split()[0]) in origins}
    assert len(starts) == 1
    assert f'environment SAYSO_APPROVALS__LEDGER  "{ledger}"' in "\n".join(lines)


def test_config_tells_of_a_token_whose_variable_is_not_set(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sayso.toml").write_text(
        '[auth]\nscheme = "bearer"\n[auth.tokens]\ndesk = "env:SAYSO_TOKEN_DESK"\n', "utf-8"
    )
    missing = "# auth.tokens.desk names the environment variable 'SAYSO_TOKEN_DESK'"
    assert missing in outcome(capsys, "config")[1]
    monkeypatch.setenv("SAYSO_TOKEN_DESK", "a-token-for-the-desk")
    assert "SAYSO_TOKEN_DESK" not in outcome(capsys, "config")[1]


def test_config_waits_for_no_pipe_of_tokens(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    os.mkfifo(folder / "tokens")
    (folder / "sayso.toml").write_text(
        '[auth]\nscheme = "bearer"\ntokens_file = "tokens"\n', "utf-8"
    )
    assert outcome(capsys, "config")[0] == 0


def test_config_tells_of_variables_that_are_no_settings(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_COLOUR", "red")
    assert "# environment SAYSO_COLOUR is no setting\n" in outcome(capsys, "config")[1]


@pytest.mark.parametrize(
    ("ledger", "shown"),
    [
        ("postgresql://u@h/db?password=SECRETQ", "postgresql://********@h/db?password=********"),
        (
            "postgresql://h/db?sslkey=a&sslpassword=SECRETQ;x#y&connect_timeout=3",
            "postgresql://h/db?sslkey=********&sslpassword=********&connect_timeout=3",
        ),
        ("postgresql://u:SECRETQ@SECRETQ?@h/db", "postgresql://********@h/db"),
        ("postgresql://u:SECRETQ/SECRETQ@h/db", "postgresql://********@h/db"),
        ("https://h:8443/@scope/x", "https://h:8443/@scope/x"),
        ("postgresql://h/db?pass%77ord=SECRETQ", "postgresql://h/db?pass%77ord=********"),
        ("host=h password=SECRETQ&SECRETQ port=1", "host=h password=******** port=1"),
        ("password = 'a \\'SECRETQ' host=h", "password = ******** host=h"),
        ("password=a\\ SECRETQ host=h", "password=******** host=h"),
        ("password='a SECRETQ", "password=********"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("postgresql:u:SECRETQ@h/db", "postgresql:********@h/db"),
        ("postgresql:/u:SECRETQ/SECRETQ@h/db", "postgresql:/********@h/db"),
        ("postgresql:////u:SECRETQ@h/db", "postgresql://********@h/db"),
        (" Postgres:u:SECRET Q@h/db", " Postgres:********@h/db"),
        ("//u:SECRETQ@h/db", "//********@h/db"),
        ("postgresql:h/db?port=1&password=SECRETQ", "postgresql:h/db?port=********"),
        ("postgresql://h/db?password%3DSECRETQ", "postgresql://h/db?password%3D********"),
        (
            "postgresql://h/db?options=-c%20a.password%3DSECRETQ&port=1",
            "postgresql://h/db?options=********&port=1",
        ),
        ("postgresql://h/db?port=1;password=SECRETQ", "postgresql://h/db?port=********"),
        ("host=h options='-c a.password=SECRETQ' port=1", "host=h options=******** port=1"),
        ("host=h password=a://SECRETQ port=1", "host=********"),
    ],
)
def test_config_shows_addresses_without_their_secrets(
    capsys: pytest.CaptureFixture[str], folder: Path, ledger: str, shown: str
) -> None:
    toml = f"[approvals]\nledger = {json.dumps(ledger)}\n"
    toml += '[model]\nname = "openai:m@1"\nbase_url = "https://h/v1?key=SECRETQ&x=1"\n'
    (folder / "sayso.toml").write_text(toml, "utf-8")
    _, out, _ = outcome(capsys, "config", "--json")
    assert json.loads(out)["approvals.ledger"]["value"] == shown
    assert json.loads(out)["model.base_url"]["value"] == "https://h/v1?key=********&x=1"
    assert json.loads(out)["model.name"]["value"] == "openai:m@1"
    assert "SECRETQ" not in out + outcome(capsys, "config")[1]


@pytest.mark.parametrize(
    ("ledger", "scheme"),
    [
        ("host=h password=SECRETQ", "host"),
        ("postgres:SECRETQ", "postgres"),
        ("a SECRETQ", "a"),
        ("=SECRETQ", ""),
        ("mysql://u:SECRETQ@h", "mysql"),
    ],
)
def test_unknown_ledger_is_refused_without_its_secrets(
    folder: Path, ledger: str, scheme: str
) -> None:
    with pytest.raises(ConfigError, match=f"unknown scheme '{scheme}'") as caught:
        open_store(ledger, folder, folder)
    assert "SECRETQ" not in str(caught.value)


@pytest.mark.parametrize(
    ("ledger", "meant"),
    [
        ("postgres://h/d", "did you mean 'postgresql'?"),
        ("sqllite:///a.db", "did you mean 'sqlite'?"),
        ("approvals.db", "a file is written sqlite:///NAME.db"),
    ],
)
def test_unknown_ledger_is_told_with_what_was_meant(folder: Path, ledger: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(ledger, folder, folder)
    assert meant in str(caught.value)


def test_tool_is_no_agent(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "ops.py").write_text(
        "from sayso import tool\n@tool\ndef load() -> str:\n    return '1'\n", "utf-8"
    )
    code, _, err = outcome(capsys, "serve", "ops.py:load", "--port", "0")
    assert code == 1
    assert "ops.py:load: an agent is a sayso.Agent or a callable (messages, context)" in err


def test_schema_accepts_what_the_loader_accepts_and_explains_each_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = json.loads(outcome(capsys, "config", "schema")[1])
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid({"server": {"port": 1, "drain_timeout": "30s"}, "plugins": ["v1"]})
    assert validator.is_valid({"limits": {"body": "10MiB"}, "plugin": {"own": {"x": 1}}})
    assert validator.is_valid({"server": {"ws_ping_interval": 0, "ws_ping_timeout": 0}})
    assert not validator.is_valid({"server": {"prot": 1}})
    assert not validator.is_valid({"plugin": {"v1": {"unknown": 1}}})
    server = schema["$defs"]["ServerSettings"]["properties"]
    assert all(server[name]["description"] for name in ServerSettings.model_fields)


def test_plugins_shows_those_of_this_repository(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "plugins", "--json")
    infos = {info["name"]: info for info in json.loads(out)}
    assert code == 0
    assert infos["v2"]["distribution"] == "sayso-v2"
    assert "POST /api/chat" in infos["v2"]["routes"]
    assert infos["v1"]["hooks"] == ["register_routes"]


def test_plugins_keep_their_columns_whatever_their_names_are(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder)
    (folder / "pigeon_post_of_the_company.py").write_text(
        "from sayso import hookimpl\n@hookimpl\ndef on_event(event): ...\n", "utf-8"
    )
    info = folder / "pigeon-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    module = "pigeon_post_of_the_company"
    (info / "entry_points.txt").write_text(f"[sayso]\n{module} = {module}\n")
    lines = outcome(capsys, "plugins")[1].splitlines()
    states = [line for line in lines if not line.startswith(" ")]
    assert any(line.startswith(module) for line in states)
    titles = ("not active: ", "active: ")
    assert len({min(line.find(t) for t in titles if t in line) for line in states}) == 1


def test_plugins_name_the_table_that_would_switch_one_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = outcome(capsys, "plugins")
    assert code == 0 and "or give it a [plugin.router] table" in out


@pytest.mark.parametrize("words", [("plugins",), ("plugins", "check"), ("plugins", "check", "v2")])
def test_plugins_are_shown_and_checked_also_where_several_processes_are_configured(
    capsys: pytest.CaptureFixture[str], folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "sayso.toml").write_text("[server]\nworkers = 4\n", "utf-8")
    code, out, err = outcome(capsys, *words)
    assert (code, err) == (0, ""), out
    assert "v2" in out


def test_plugins_hides_the_secrets_in_their_settings(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    database = "postgresql+psycopg://me:hunter2@db/tasks"
    table = (
        f'[plugin.a2a]\nadapter = "both"\ndatabase = "{database}"\n'
        'options = { api_key = "hunter2", rate = 5 }\n'
    )
    (folder / "sayso.toml").write_text(table, "utf-8")
    code, out, _ = outcome(capsys, "plugins")
    assert code == 0
    assert "hunter2" not in out
    assert 'database = "postgresql+psycopg://********@db/tasks"' in out
    shown = outcome(capsys, "plugins", "--json")[1]
    assert "hunter2" not in shown
    settings = next(info["settings"] for info in json.loads(shown) if info["name"] == "a2a")
    assert settings["options"] == {"api_key": "********", "rate": 5}


SOUND = """
from fastapi import APIRouter
from sayso import Plugin, hookimpl
class Sound(Plugin):
    @hookimpl
    def on_event(self, event): pass
class Misspelt(Plugin):
    @hookimpl
    def on_evnt(self, event): pass
class Empty(Plugin):
    pass
class Healthy(Plugin):
    @hookimpl
    def register_routes(self, host):
        router = APIRouter()
        router.get("/health")(lambda: "fine")
        return router
class Serving(Plugin):
    @hookimpl
    def register_commands(self, cli):
        cli.command("serve")(lambda: None)
"""


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("Sound", 0, ": ok"),
        ("Misspelt", 1, "did you mean on_event(event, host)?"),
        ("Empty", 1, "it implements no hook"),
        ("Missing", 1, "has no 'Missing'"),
        ("Healthy", 1, "GET /health is claimed by 'sayso itself' and by plugin 'healthy'"),
        ("Serving", 1, "'serve' is claimed by 'sayso itself' and by plugin 'serving'"),
    ],
)
def test_check_of_a_plugin_that_is_not_installed(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, code: int, expected: str
) -> None:
    (folder / "plug_check.py").write_text(SOUND, "utf-8")
    got, out, _ = outcome(capsys, "plugins", "check", f"plug_check.py:{name}")
    assert got == code
    assert expected in out


def test_check_of_a_name_that_is_not_installed_says_what_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = outcome(capsys, "plugins", "check", "rout")
    assert code == 1
    assert out.startswith("rout: no plugin of this name is installed (there are: a2a, ")
    assert "configuration" not in out


def test_check_finds_the_plugins_of_this_repository_sound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(capsys, "plugins", "check", "v1", "v2")[:2] == (0, "v1: ok\nv2: ok\n")


def test_check_of_all_finds_what_is_sound_alone_but_not_with_the_others(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = folder / "site" / "taker-1.0.dist-info"
    info.mkdir(parents=True)
    head = "Metadata-Version: 2.1\nName: taker\nVersion: 1.0\nRequires-Dist: sayso\n"
    (info / "METADATA").write_text(head)
    (info / "entry_points.txt").write_text("[sayso]\ntaker = plug_taker:Healthy\n")
    (info.parent / "plug_taker.py").write_text(SOUND.replace('get("/health")', 'post("/api/chat")'))
    monkeypatch.syspath_prepend(str(info.parent))
    assert outcome(capsys, "plugins", "check", "taker")[:2] == (0, "taker: ok\n")
    code, out, _ = outcome(capsys, "plugins", "check")
    assert (code, "taker: ok\n" in out) == (1, True)
    assert out.splitlines()[-1].startswith("together: POST /api/chat is claimed by 'taker' and by")


class Audit(Plugin):
    @hookimpl
    def register_commands(self, cli: click.Group) -> None:
        cli.add_command(click.Command("audit", callback=lambda: click.echo("audited")))


def test_sub_command_of_a_plugin_runs_and_is_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = Plugins.load(load_config(environ={}, overrides={"plugins": []}), [Audit])
    monkeypatch.setattr("sayso.plugins.Plugins.load", lambda config: loaded)
    monkeypatch.setattr(group.cli, "commands", {})
    assert outcome(capsys, "audit") == (0, "audited\n", "")
    assert "  audit" in outcome(capsys, "--help")[1]


def test_installed_but_quiet_plugins_bring_their_sub_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Config] = []

    def load(config: Config) -> Plugins:
        seen.append(config)
        return Plugins(1.0)

    monkeypatch.setattr("sayso.plugins.Plugins.load", load)
    monkeypatch.setattr(
        "sayso.plugins.discovery.discover", lambda: {"chat": None, "mcp": None, "v2": None}
    )
    monkeypatch.setattr(group.cli, "commands", {})
    assert outcome(capsys, "--help")[0] == 0
    assert seen[0].activated == ("chat", "mcp")


@pytest.mark.parametrize("name", ["chat", "demo"])
def test_sub_command_that_needs_no_service_runs_whatever_is_configured(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    (folder / "sayso.toml").write_text('plugins = ["v1"]\nport = 1\n', "utf-8")
    code, out, _ = outcome(capsys, name, "--help")
    assert code == 0 and f"sayso {name}" in out


def test_sub_command_that_cannot_be_imported_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sayso_chat", None)
    code, _, err = outcome(capsys, "chat")
    assert code == 1 and err.endswith(f"try: {install_line('--force-reinstall', 'sayso[chat]')}\n")


def test_sub_command_that_needs_no_service_loads_no_plugin_host() -> None:
    code = (
        "import sys; from sayso import cli; cli.run(['chat', '--help']);"
        "print({'pydantic', 'sayso.plugins', 'sayso_demo'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n"), done.stdout


def test_help_lists_what_a_newcomer_needs_first(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    _, out, _ = outcome(capsys, "--help")
    listed = re.findall(r"^  (\w+)  ", out.partition("Commands:")[2], re.MULTILINE)
    assert listed[:5] == ["serve", "dev", "demo", "chat", "approvals"] and "mcp" in listed


def test_plugins_that_only_bring_a_sub_command_are_shown_as_such(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert set(group.ALONE) == set(COMMANDS_ALONE)
    _, out, _ = outcome(capsys, "plugins")
    assert re.search(r"^chat +sayso-chat \S+ +not active: only needed for: sayso chat$", out, re.M)


@pytest.mark.parametrize("name", ["chat", "demo", "mcp"])
def test_sub_command_of_a_plugin_that_is_not_installed_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("sayso.plugins.discovery.discover", dict)
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: ())
    code, _, err = outcome(capsys, name, "ops.py")
    assert code == 2
    way = install_line(f"sayso[{name}]")
    assert err.startswith(f"sayso: No such command {name!r}; try: {way}")


def test_help_survives_a_broken_configuration(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "sayso.toml").write_text("port = 1\n", "utf-8")
    code, out, err = outcome(capsys, "--help")
    assert (code, "serve" in out, "chat" in out) == (0, True, True)
    assert "did you mean 'server.port'?" in err


def test_built_in_sub_command_loads_neither_plugins_nor_the_server() -> None:
    code = (
        "import sys; from sayso.cli import run; run(['config', '--json']); "
        "print(*sorted({n.partition('.')[0] for n in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert {"fastapi", "uvicorn", "sayso_v1", "sayso_v2"} & set(done.stderr.split()) == set()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_output_that_finds_no_room_is_one_line(folder: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sayso", "config"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "sayso: No space left on device\n")


def test_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m sayso config schema | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300
    )
    assert "Traceback" not in done.stderr
