"""Configuration: layers, origins, errors (design, section 8)."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from programs import until
from sayso.config import Config, load_config, state_dir
from sayso.config.approvals import ApprovalSettings
from sayso.config.exact import VariableText
from sayso.config.options import configured
from sayso.config.settings import (
    Duration,
    LimitSettings,
    ModelSettings,
    Section,
    ServerSettings,
    Size,
    meanings,
    seconds,
    size,
)
from sayso.config.targets import load_agent
from sayso.config.tokens import bearer_tokens
from sayso.errors import ConfigError, InvalidRequest
from sayso.plugins.discovery import select
from sayso.wire.chat import parse_request


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fresh_modules() -> Iterator[None]:
    modules, path = dict(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def loaded(
    folder: Path, toml: str = "", environ: Mapping[str, str] | None = None, **keywords: Any
) -> Config:
    (folder / "sayso.toml").write_text(toml, encoding="utf-8")
    return load_config(environ=environ or {}, directory=folder, **keywords)


def refused(
    folder: Path, toml: str = "", environ: Mapping[str, str] | None = None, **keywords: Any
) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, toml, environ, **keywords)
    return str(caught.value)


def test_configuration_file_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    assert loaded(folder, "\ufeff[server]\nport = 8123").server.port == 8123


def test_defaults_are_the_contracts() -> None:
    server = ServerSettings()
    assert (server.port, server.host, server.reload, server.log_level) == (
        8000,
        "0.0.0.0",
        False,
        "info",
    )
    assert (server.workers, server.timeout_keep_alive) == (1, 5)
    assert (server.ws_ping_interval, server.ws_ping_timeout) == (20.0, 20.0)
    assert (server.a2a, server.mcp) == (None, None)
    assert ModelSettings().temperature == 0.1


def test_defaults_of_limits_and_approvals_are_the_designs() -> None:
    limits, approvals = LimitSettings(), ApprovalSettings()
    assert (limits.body, limits.frame, limits.messages, limits.nesting) == (
        10 * 2**20,
        10 * 2**20,
        10_000,
        64,
    )
    assert (limits.tool_output, limits.command_output) == (2**20, 256 * 2**10)
    assert (limits.turn_time, limits.turns, limits.model_calls) == (600.0, 256, 25)
    assert (approvals.ttl, approvals.retention, approvals.lease) == (86_400.0, 2_592_000.0, 15.0)


def test_flags_win_over_the_environment_and_the_environment_over_the_file(folder: Path) -> None:
    toml = '[server]\nport = 1\nhost = "a"\nworkers = 3\n'
    config = loaded(
        folder,
        toml,
        {"SAYSO_SERVER__PORT": "2", "SAYSO_SERVER__HOST": "b"},
        overrides={"server.port": 3},
    )
    assert (config.server.port, config.server.host, config.server.workers) == (3, "b", 3)
    assert config.origins["server.port"] == "flag --port"
    assert config.origins["server.host"] == "environment SAYSO_SERVER__HOST"
    assert config.origins["server.workers"] == "sayso.toml"
    assert config.origins["server.reload"] == "default"


def test_keyword_is_named_as_keyword(folder: Path) -> None:
    overrides = {"server.port": 3, "plugin.mcp.port": 4}
    config = loaded(folder, overrides=overrides, source="keyword")
    assert config.origins["server.port"] == "keyword port"
    assert config.origins["plugin.mcp.port"] == "keyword mcp_port"


def test_pyproject_table_is_the_file_when_there_is_no_sayso_toml(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.sayso.server]\nport = 7\n", "utf-8")
    config = load_config(environ={}, directory=folder)
    assert (config.server.port, config.file) == (7, folder / "pyproject.toml")
    assert loaded(folder, "[server]\nport = 8\n").server.port == 8


def test_pyproject_of_another_project_is_no_configuration(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n', "utf-8")
    config = load_config(environ={}, directory=folder)
    assert (config.file, config.directory) == (None, folder)


@pytest.mark.parametrize(
    ("toml", "overrides", "expected"),
    [
        ("server = 1\n", {"server.port": 9000}, r"server \(sayso\.toml\): expected a table"),
        ('model = "offline"\n', {"model.name": "offline"}, r"write \[model\] and below it name"),
        ("plugin = 1\n", {"plugin.mcp.port": 9001}, r"plugin \(sayso\.toml\): expected a table"),
        (
            "plugin.mcp = 1\n",
            {"plugin.mcp.port": 9001},
            r"plugin\.mcp \(sayso\.toml\): expected a table",
        ),
    ],
)
def test_section_that_is_no_table_is_refused_also_where_a_flag_sets_one_of_its_keys(
    folder: Path, toml: str, overrides: dict[str, Any], expected: str
) -> None:
    (folder / "sayso.toml").write_text(toml, "utf-8")
    with pytest.raises(ConfigError, match=expected):
        load_config(environ={}, overrides=overrides, directory=folder)


@pytest.mark.parametrize("text", ["[tool]\nsayso = 3\n", '[[tool.sayso]]\nagent = "x"\n'])
@pytest.mark.parametrize("file", [None, "pyproject.toml"])
def test_tool_sayso_that_is_no_table_is_refused(folder: Path, text: str, file: str | None) -> None:
    (folder / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"tool\.sayso \(pyproject\.toml\): expected a table"):
        load_config(file, environ={}, directory=folder)


def test_named_file_that_is_missing_is_an_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file 'other\.toml'"):
        load_config(Path("other.toml"), environ={}, directory=folder)


def test_variable_names_the_file_where_nothing_else_does(folder: Path) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "ops.toml").write_text('agent = "a.py"\n[server]\nport = 7\n', "utf-8")
    (folder / "other.toml").write_text("[server]\nport = 9\n", "utf-8")
    environ = {"SAYSO_CONFIG": "etc/ops.toml"}
    config = loaded(folder, "[server]\nport = 8\n", environ)
    assert (config.server.port, config.directory) == (7, folder / "etc")
    assert (config.origins["server.port"], config.unread) == ("ops.toml", {})
    named = load_config("other.toml", environ=environ, directory=folder)
    assert named.server.port == 9
    assert loaded(folder, "[server]\nport = 8\n", {"SAYSO_CONFIG": ""}).server.port == 8


def test_missing_file_that_a_variable_names_is_an_error_that_names_the_variable(
    folder: Path,
) -> None:
    reported = refused(folder, environ={"SAYSO_CONFIG": "gone.toml"})
    assert reported == "there is no configuration file 'gone.toml' (environment SAYSO_CONFIG)"


def test_sayso_toml_that_cannot_be_read_stops_where_defaults_would_serve_without_auth(
    folder: Path,
) -> None:
    # Docker makes such a folder if the file to be mounted is missing.
    (folder / "sayso.toml").mkdir()
    with pytest.raises(ConfigError, match=r"sayso\.toml cannot be read: it is a folder, no file"):
        load_config(environ={}, directory=folder)
    (folder / "sayso.toml").rmdir()
    (folder / "sayso.toml").symlink_to("gone.toml")
    with pytest.raises(ConfigError, match=r"^sayso\.toml cannot be read: No such file"):
        load_config(environ={}, directory=folder)


@pytest.mark.parametrize("named", [None, "sayso.toml"])
def test_configuration_that_is_a_pipe_or_a_device_is_told_and_not_waited_for(
    folder: Path, named: str | None
) -> None:
    os.mkfifo(folder / "sayso.toml")
    with pytest.raises(ConfigError, match=r"sayso\.toml cannot be read: it is a pipe, no file"):
        load_config(named, environ={}, directory=folder)
    (folder / "sayso.toml").unlink()
    (folder / "sayso.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"sayso\.toml cannot be read: it is a device, no file"):
        load_config(named, environ={}, directory=folder)


def test_folder_that_is_named_as_the_configuration_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: it is a folder, no file"):
        load_config(str(folder), environ={})


def test_file_is_named_by_text_or_by_path(folder: Path) -> None:
    (folder / "other.toml").write_text("[server]\nport = 7\n", "utf-8")
    for name in ("other.toml", str(folder / "other.toml"), Path("other.toml")):
        assert load_config(name, environ={}, directory=folder).server.port == 7


def test_broken_toml_is_an_error_with_its_place(folder: Path) -> None:
    assert "sayso.toml is not valid TOML" in refused(folder, "port = = 1")


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (
            "[server]\nprot = 1\n",
            "unknown key 'server.prot' (sayso.toml); did you mean 'server.port'?",
        ),
        ("[server]\nmcp_port = 1\n", "(sayso.toml); write it as 'port' under [plugin.mcp]"),
        ("mcp_transport = 'sse'\n", "; write it as 'transport' under [plugin.mcp]"),
        ("[server]\na2a_adapter = 'a2a'\n", "; write it as 'adapter' under [plugin.a2a]"),
        ("[server.a2a_agent_card]\nname = 'x'\n", "; write it as a table [plugin.a2a.agent_card]"),
        ("[server]\nchannel_router = 'x:y'\n", "; name it as 'router' under [plugin.router]"),
        ("[server]\nadditional_routers = []\n", "; they are objects: pass them to serve()"),
        ("port = 1\n", "unknown key 'port' (sayso.toml); did you mean 'server.port'?"),
        ("[sever]\nport = 1\n", "unknown key 'sever' (sayso.toml); did you mean 'server'?"),
        ("[limits]\ntemperature = 1\n", "did you mean 'model.temperature'?"),
        (
            '[[approvals.rules]]\naction = "deny"\ntol = "x"\n',
            "did you mean 'approvals.rules.0.tool'?",
        ),
    ],
)
def test_unknown_key_suggests_the_right_one(folder: Path, toml: str, expected: str) -> None:
    assert expected in refused(folder, toml)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"SAYSO_SERVER__PROT": "1"},
            "environment SAYSO_SERVER__PROT); did you mean 'server.port'",
        ),
        ({"SAYSO_PORT": "1"}, "did you mean SAYSO_SERVER__PORT?"),
        ({"SAYSO_LOG_LEVEL": "debug"}, "did you mean SAYSO_SERVER__LOG_LEVEL?"),
        ({"SAYSO_PLUGIN": "v1"}, "plugin"),
        ({"SAYSO_AGNET": "x"}, "did you mean SAYSO_AGENT?"),
        ({"SAYSO_MCP_PORT": "1"}, "did you mean SAYSO_PLUGIN__MCP__PORT?"),
        ({"SAYSO_CHANNEL_ROUTER": "x"}, "did you mean SAYSO_PLUGIN__ROUTER__ROUTER?"),
        ({"SAYSO_CONFG": "x.toml"}, "did you mean SAYSO_CONFIG?"),
    ],
)
def test_misspelt_variable_suggests_the_right_one(
    folder: Path, environ: dict[str, str], expected: str
) -> None:
    assert expected in refused(folder, environ=environ)


def test_variables_that_kubernetes_sets_for_a_service_are_no_settings(folder: Path) -> None:
    environ = {
        "SAYSO_SERVICE_HOST": "10.0.0.1",
        "SAYSO_SERVICE_PORT": "8000",
        "SAYSO_SERVICE_PORT_HTTP": "8000",
        "SAYSO_PORT": "tcp://10.0.0.1:8000",
        "SAYSO_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "SAYSO_PORT_8000_TCP_PROTO": "tcp",
        "SAYSO_PORT_8000_TCP_PORT": "8000",
        "SAYSO_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    assert loaded(folder, environ=environ).server.port == 8000


@pytest.mark.parametrize("name", ["SAYSO_PORT", "SAYSO_SERVER_PORT"])
def test_port_under_a_name_that_is_no_setting_is_refused(folder: Path, name: str) -> None:
    # Kubernetes sets it to an address.
    assert loaded(folder, environ={name: "tcp://10.0.0.1:80"}).server.port == 8000
    with pytest.raises(ConfigError, match=f"{name} is no setting; did you mean SAYSO_SERVER__"):
        loaded(folder, environ={name: "9000"})


def test_variable_that_resembles_no_key_is_told_with_the_nearest_one(folder: Path) -> None:
    environ = {"SAYSO_THREAD_LIMIT": "5", "SAYSO_COLOUR": "red", "SAYSO_TOKEN": "s3cret"}
    unread = loaded(folder, environ=environ).unread
    assert list(unread.values()) == [
        "environment SAYSO_COLOUR is no setting",
        "environment SAYSO_THREAD_LIMIT is no setting; did you mean SAYSO_SERVER__THREADS?",
    ]


def test_empty_variable_is_not_set(folder: Path) -> None:
    assert loaded(folder, environ={"SAYSO_SERVER__STATE_DIR": ""}).server.state_dir is None


@pytest.mark.parametrize("text", ["v1,v2", " v1 , v2 ", '["v1", "v2"]'])
def test_list_in_the_environment_is_comma_separated_or_json(folder: Path, text: str) -> None:
    assert loaded(folder, environ={"SAYSO_PLUGINS": text}).plugins == ["v1", "v2"]


def test_table_in_the_environment_is_json(folder: Path) -> None:
    config = loaded(folder, environ={"SAYSO_AUTH__TOKENS": '{"ann": "s3cret"}'})
    assert config.auth.tokens["ann"].get_secret_value() == "s3cret"


def test_plugin_setting_from_the_environment_joins_the_table_whatever_its_spelling(
    folder: Path,
) -> None:
    toml = "[plugin.my-plugin]\nport = 1\nhost = 'x'\n"
    config = loaded(folder, toml, {"SAYSO_PLUGIN__MY_PLUGIN__PORT": "2"})
    assert config.plugin_settings("my_plugin") == ("plugin.my-plugin", {"port": "2", "host": "x"})
    assert config.tables == {"my-plugin"}
    assert (
        config.origin("plugin.my-plugin.port").text == "environment SAYSO_PLUGIN__MY_PLUGIN__PORT"
    )
    assert config.origin("plugin.my_plugin.host").text == "sayso.toml"


def test_path_of_a_plugin_from_the_environment_is_relative_to_the_working_folder(
    folder: Path,
) -> None:
    (folder / "deploy").mkdir()
    (folder / "deploy" / "prod.toml").write_text("[plugin.my-plugin]\nport = 1\n")
    environ = {"SAYSO_PLUGIN__MY_PLUGIN__LOG": "log"}
    config = load_config(Path("deploy/prod.toml"), environ=environ, directory=folder)
    assert config.path("plugin.my-plugin.log", "log") == folder / "log"
    assert config.path("plugin.my-plugin.port", "log") == folder / "deploy" / "log"


def test_unknown_plugin_is_named_with_where_its_own_settings_stand(folder: Path) -> None:
    config = loaded(folder, "[plugin.mcp]\nport = 1\n", {"SAYSO_PLUGIN__M__PORT": "2"})
    with pytest.raises(ConfigError, match="no plugin 'm' .environment SAYSO_PLUGIN__M__PORT."):
        select(config, {})


def test_wrong_value_names_key_origin_and_expectation_but_never_itself(folder: Path) -> None:
    message = refused(folder, '[limits]\nbody = "hunter2"\n')
    assert message == (
        "limits.body (sayso.toml): expected a size: bytes, or text such as '256KiB', '10MiB'"
    )
    message = refused(folder, environ={"SAYSO_AUTH__SCHEME": "hunter2"})
    assert "auth.scheme (environment SAYSO_AUTH__SCHEME): input should be 'none'" in message
    assert "hunter2" not in message


def test_nesting_can_be_no_more_than_the_parser_reads(folder: Path) -> None:
    def body(levels: int) -> str:
        deep = "[" * (levels - 1) + "]" * (levels - 1)
        return '{"messages": [{"role": "user", "content": "x"}], "deep": ' + deep + "}"

    most = loaded(folder, "[limits]\nnesting = 200\n").limits.nesting
    assert parse_request(body(most), nesting=most).request_fields
    with pytest.raises(InvalidRequest, match="nested deeper than 200 levels"):
        parse_request(body(most + 1), nesting=most)
    assert "less than or equal to 200" in refused(folder, "[limits]\nnesting = 201\n")


def test_missing_value_is_named_with_the_way_out(folder: Path) -> None:
    assert refused(folder, '[[approvals.rules]]\ntool = "a"\n') == (
        "approvals.rules.0.action (sayso.toml): it is missing and has no default; set it"
    )


def test_every_wrong_key_gets_a_line(folder: Path) -> None:
    lines = refused(folder, '[server]\nport = "x"\nworkers = 0\nprot = 1\n').splitlines()
    assert len(lines) == 3


@pytest.mark.parametrize(("zero", "variable"), [("0", "0"), ("0.0", "0.0"), ("0", "null")])
def test_zero_turns_pings_off(folder: Path, zero: str, variable: str) -> None:
    toml = f"[server]\nws_ping_interval = {zero}\n"
    config = loaded(folder, toml, {"SAYSO_SERVER__WS_PING_TIMEOUT": variable})
    assert (config.server.ws_ping_interval, config.server.ws_ping_timeout) == (None, None)


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[server]\nport = true\n", "server.port (sayso.toml): expected a whole number"),
        ('[server]\nport = "80"\n', "server.port (sayso.toml): expected a whole number"),
        ('[server]\nreload = "yes"\n', "server.reload (sayso.toml): expected true or false"),
        ("[server]\nmcp = 1\n", "server.mcp (sayso.toml): expected true or false"),
        ("[model]\ntemperature = true\n", "model.temperature (sayso.toml): expected a number"),
        ('[model]\ntemperature = "0.5"\n', "model.temperature (sayso.toml): expected a number"),
        ('[server]\nws_ping_timeout = "5"\n', "ws_ping_timeout (sayso.toml): expected a number"),
        ('[server]\nws_ping_timeout = "0"\n', "ws_ping_timeout (sayso.toml): expected a number"),
        ('[server]\nws_ping_interval = "none"\n', "ws_ping_interval (sayso.toml): expected a nu"),
        ("[limits]\nturns = true\n", "limits.turns (sayso.toml): expected a whole number"),
        ("[model]\nmax_tokens = 0\n", "model.max_tokens (sayso.toml): input should be greater"),
        ('model = "offline"\n', 'write [model] and below it name = "offline"'),
        ("server = 1\n", "server (sayso.toml): expected a table, [server]"),
        ("plugin = 1\n", "plugin (sayso.toml): expected a table, [plugin]"),
        ("auth.tokens = 1\n", "auth.tokens (sayso.toml): expected a table, [auth.tokens]"),
        ('plugins = "v1"\n', "plugins (sayso.toml): expected a list, [...]"),
        (
            '[approvals.rules]\naction = "deny"\n',
            "approvals.rules (sayso.toml): expected a list of tables, [[approvals.rules]]",
        ),
        (
            "approvals.rules = [1]\n",
            "approvals.rules.0 (sayso.toml): expected a table, [[approvals.rules]]",
        ),
        (
            '[[approvals.rules]]\ntool = "a"\naction = "deny"\nplatform = 1\n',
            "approvals.rules.0.platform (sayso.toml): expected a table, [approvals.rules.plat",
        ),
        ('[server]\ncors_origins = ["*", "a.b"]\n', "server.cors_origins (sayso.toml): exp"),
        ('[server]\ncors_origins = ["https://a.b/"]\n', "such as 'https://example.com', without"),
    ],
)
def test_value_of_another_type_is_refused(folder: Path, toml: str, expected: str) -> None:
    assert expected in refused(folder, toml)


def test_text_of_a_variable_is_read_as_the_settings_type(folder: Path) -> None:
    environ = {
        "SAYSO_SERVER__PORT": "80",
        "SAYSO_SERVER__RELOAD": "yes",
        "SAYSO_SERVER__WORKER_LOOPS": "2",
        "SAYSO_LIMITS__BODY": "1KiB",
        "SAYSO_MODEL__TEMPERATURE": "0.5",
    }
    config = loaded(folder, "[server]\nport = 81\n", environ)
    server = config.server
    assert (server.port, server.reload, server.worker_loops) == (80, True, 2)
    assert (config.limits.body, config.model.temperature) == (1024, 0.5)


def test_settings_of_a_plugin_are_as_strict_as_the_others() -> None:
    class Settings(Section):
        port: int = 1
        most: Size | None = None
        wait: Duration | None = None

    values = {"port": VariableText("7"), "most": "1KiB", "wait": "2s"}
    assert Settings.model_validate(values) == Settings(port=7, most=1024, wait=2.0)
    for wrong in (True, "7"):
        with pytest.raises(ValueError, match="expected a whole number"):
            Settings.model_validate({"port": wrong})


def test_keyword_of_a_plugin_wins_over_its_table_however_that_is_spelt(folder: Path) -> None:
    config, _ = configured({"mcp_port": 5}, loaded(folder, "[plugin.MCP]\nport = 4\n"))
    assert config.plugin_settings("mcp") == ("plugin.MCP", {"port": 5})
    assert config.origins["plugin.mcp.port"] == "keyword mcp_port"


def test_null_keyword_turns_pings_off(folder: Path) -> None:
    config = loaded(folder, overrides={"server.ws_ping_interval": None})
    assert config.server.ws_ping_interval is None


def test_reload_with_workers_is_a_value_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="'reload' and 'workers'"):
        ServerSettings(reload=True, workers=2)
    message = refused(
        folder, "[server]\nport = 1\nreload = true\n", overrides={"server.workers": 2}
    )
    assert message.startswith("server (sayso.toml, flag --workers): 'reload' and 'workers' above")
    with pytest.raises(ConfigError, match=r"^server \(keyword reload, keyword workers\): "):
        configured({"port": 0, "reload": True, "workers": 2}, Config())
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("24h", 86_400.0),
        ("30s", 30.0),
        ("10m", 600.0),
        ("7d", 604_800.0),
        ("1h30m", 5_400.0),
        ("250ms", 0.25),
        ("1.5h", 5_400.0),
        (5, 5.0),
        (0.5, 0.5),
        ("12", 12.0),
    ],
)
def test_duration_is_text_or_seconds(value: object, expected: float) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize("value", ["", "h", "10x", "-5s", "1h x", True, None, float("nan"), "inf"])
def test_what_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        seconds(value)


@pytest.mark.parametrize("value", ["36501d", "9" * 400 + "d", 1e300, "1e10", 10**400])
def test_duration_beyond_what_a_clock_can_time_is_refused(value: object) -> None:
    assert seconds("36500d") == 36_500 * 86_400.0
    with pytest.raises(ValueError, match="at most 100 years, '36500d'"):
        seconds(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10MiB", 10 * 2**20),
        ("256KiB", 262_144),
        ("1 kB", 1000),
        ("17", 17),
        (17, 17),
        ("2b", 2),
    ],
)
def test_size_is_text_or_bytes(value: object, expected: int) -> None:
    assert size(value) == expected


@pytest.mark.parametrize("value", ["", "MiB", "10XB", 1.5, True, None, "-1", "9" * 400 + "MiB"])
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        size(value)


@given(st.integers(0, 10**6))
def test_duration_in_whole_seconds_reads_back(number: int) -> None:
    assert seconds(f"{number}s") == seconds(str(number)) == seconds(number) == float(number)


def test_model_keys_that_were_given_are_known_from_defaults(folder: Path) -> None:
    config = loaded(folder, '[model]\nname = "offline"\ntop_p = 0.5\n')
    assert config.model.given() == {"top_p": 0.5}
    assert loaded(folder, "[model]\ntemperature = 0.1\n").model.given() == {"temperature": 0.1}


@pytest.mark.parametrize("temperature", [-0.1, 1.1])
def test_temperature_is_between_zero_and_one(temperature: float) -> None:
    with pytest.raises(ValidationError):
        ModelSettings(temperature=temperature)


def test_plugin_named_twice_is_an_error(folder: Path) -> None:
    assert "names 'v1' twice" in refused(folder, 'plugins = ["v1", "v2", "v1"]\n')
    assert "names 'My_Own' twice" in refused(folder, 'plugins = ["my-own", "My_Own"]\n')


def test_path_in_the_file_is_relative_to_it_and_one_of_a_flag_to_the_working_directory(
    folder: Path,
) -> None:
    deploy = folder / "deploy"
    deploy.mkdir()
    (deploy / "prod.toml").write_text('[server]\nstate_dir = "state"\n', "utf-8")
    config = load_config(Path("deploy/prod.toml"), environ={}, directory=folder)
    assert state_dir(config) == deploy / "state"
    config = load_config(
        Path("deploy/prod.toml"),
        environ={},
        directory=folder,
        overrides={"server.state_dir": "here"},
    )
    assert state_dir(config) == folder / "here"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folder of other platforms")
def test_state_folder_is_the_users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert state_dir(Config(), {"XDG_STATE_HOME": "/var/x"}) == Path("/var/x/sayso")
    assert state_dir(Config(), {"XDG_STATE_HOME": "x"}) == Path("/home/ann/.local/state/sayso")
    assert state_dir(Config(), {}) == Path("/home/ann/.local/state/sayso")


def test_configuration_reaches_another_process_whole(folder: Path) -> None:
    config = loaded(folder, "[plugin.a2a]\n[server]\nport = 5\n", activate=["router"])
    copy = pickle.loads(pickle.dumps(config))
    assert (copy, copy.origins, copy.tables) == (config, config.origins, config.tables)
    assert (copy.directory, copy.activated) == (folder, ("router",))


def test_each_setting_says_what_it_means() -> None:
    sections: list[type[BaseModel]] = [
        Config,
        ServerSettings,
        ModelSettings,
        LimitSettings,
        ApprovalSettings,
    ]
    silent = [name for s in sections for name, text in meanings(s).items() if not text]
    assert silent == []


def test_tokens_come_from_file_variable_and_configuration(folder: Path) -> None:
    lines = "# staff\nann = t1\nbob = t=2  # until May\nleo = t#5\nbot = env:BOT\n\n"
    (folder / "tokens").write_text(lines, "utf-8")
    toml = '[auth]\ntokens_file = "tokens"\n[auth.tokens]\ncarl = "env:CARL"\ndora = "t4"\n'
    tokens = bearer_tokens(loaded(folder, toml), {"CARL": "t3\n", "BOT": "t6"})
    assert {name: token.secret.get_secret_value() for name, token in tokens.items()} == {
        "ann": "t1",
        "bob": "t=2",
        "leo": "t#5",
        "bot": "t6",
        "carl": "t3",
        "dora": "t4",
    }
    assert "t1" not in repr(tokens)


@pytest.mark.parametrize("lines", ["ann = t1\n", "# staff\nann = t1\n"])
def test_byte_order_mark_is_no_part_of_the_first_name_in_the_tokens_file(
    folder: Path, lines: str
) -> None:
    (folder / "tokens").write_text(f"\ufeff{lines}", "utf-8")
    assert list(bearer_tokens(loaded(folder, '[auth]\ntokens_file = "tokens"\n'))) == ["ann"]


def test_tokens_come_from_a_pipe_and_the_wait_for_its_writer_is_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(folder / "tokens")
    config = loaded(folder, '[auth]\ntokens_file = "tokens"\n')
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(bearer_tokens, config)
        until(lambda: "the start waits until its writer has ended" in caplog.text)
        (folder / "tokens").write_text("ann = t1\n", "utf-8")
        assert list(reading.result()) == ["ann"]
    assert str(folder / "tokens") in caplog.text


@pytest.mark.parametrize(
    ("toml", "lines", "expected"),
    [
        ("", None, "there is no token"),
        ('tokens_file = "/dev/zero"', None, "cannot be read: '/dev/zero': it is a device"),
        ('tokens_file = "."', None, "it is a folder"),
        ('tokens_file = "missing"', None, "cannot be read"),
        ('tokens_file = "tokens"', "hunter2", "line 1: expected 'name = token'"),
        ('tokens_file = "tokens"', "ann = a\nann = b", "line 2: the name 'ann' was there before"),
        ('tokens_file = "tokens"', "ann = hunter2\nbob = hunter2", "'ann' and 'bob' have the same"),
        ('tokens_file = "tokens"', 'ann = "hunter2"', "line 1: write the token of 'ann' without"),
        ('tokens_file = "tokens"', "ann =", "auth.tokens.ann is empty"),
        ('tokens = {ann = "env:NOPE"}', None, "'NOPE', which is not set"),
        ('tokens_file = "tokens"', "ann = env:NOPE", "'NOPE', which is not set"),
        ('tokens_file = "tokens"', "ann = hunter2é", "auth.tokens.ann has a character that no"),
        ('tokens = {ann = "hunter2\\u0000"}', None, "auth.tokens.ann has a character that no"),
        ('tokens = {ann = " \\n"}', None, "auth.tokens.ann is empty"),
        ('tokens = {"" = "secret"}', None, "a token without a name"),
    ],
)
def test_wrong_tokens_are_refused_without_showing_them(
    folder: Path, toml: str, lines: str | None, expected: str
) -> None:
    if lines is not None:
        (folder / "tokens").write_text(lines, "utf-8")
    with pytest.raises(ConfigError) as caught:
        bearer_tokens(loaded(folder, f"[auth]\n{toml}\n"), {})
    assert expected in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_origins_are_taken_as_browsers_write_them(folder: Path) -> None:
    origins = ["HTTPS://Desk.Example:443", "http://a.example:80", "https://b.example:80"]
    written = loaded(folder, f"[server]\ncors_origins = {origins}\n").server.cors_origins
    assert written == ["https://desk.example", "http://a.example", "https://b.example:80"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hosts", "http://desk.test"),
        ("hosts", "desk.test/chat"),
        ("hosts", "*.desk.test"),
        ("hosts", "desk.test:*"),
        ("hosts", "bücher.test"),
        ("hosts", ""),
        ("hosts", "[::1"),
        ("cors_origins", "https://*.desk.test"),
        ("cors_origins", "https://desk.test/"),
        ("cors_origins", "https://me@desk.test"),
        ("cors_origins", "https://bücher.test"),
        ("cors_origins", "desk.test"),
    ],
)
def test_name_that_no_request_can_have_is_refused(folder: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"server.{key} \(sayso.toml\): expected \w+ such as"):
        loaded(folder, f'[server]\n{key} = ["{value}"]\n')


def test_origins_of_every_kind_are_taken(folder: Path) -> None:
    origins = ["*", "null", "https://a.example", "http://[::1]:3000", "chrome-extension://abc"]
    assert loaded(folder, f"[server]\ncors_origins = {origins}\n").server.cors_origins == origins


def test_secrets_do_not_show_in_the_configuration(folder: Path) -> None:
    config = loaded(folder, '[auth.tokens]\nann = "hunter2"\n')
    assert "hunter2" not in repr(config) + config.model_dump_json()


@pytest.mark.usefixtures("fresh_modules")
class TestLoadAgent:
    def test_module_is_found_beside_the_configuration(self, folder: Path) -> None:
        (folder / "ops_one.py").write_text("agent = 'it'\nother = 'that'\n", "utf-8")
        assert load_agent("ops_one", folder) == "it"
        assert load_agent("ops_one:other", folder) == "that"

    def test_file_may_have_any_name(self, folder: Path) -> None:
        (folder / "my-agent.py").write_text("import helper_x\nagent = helper_x.VALUE\n", "utf-8")
        (folder / "helper_x.py").write_text("VALUE = 5\n", "utf-8")
        assert load_agent("my-agent.py", folder) == 5

    def test_file_named_as_a_standard_module_does_not_take_its_place(self, folder: Path) -> None:
        import email

        (folder / "email.py").write_text("agent = 5\n", "utf-8")
        assert load_agent("email.py", folder) == 5
        assert sys.modules["email"] is email

    def test_file_in_a_package_can_import_its_siblings(self, folder: Path) -> None:
        package = folder / "pkg_y" / "sub"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package.parent / "__init__.py").touch()
        (package / "tools.py").write_text("VALUE = 6\n", "utf-8")
        (package / "main.py").write_text("from .tools import VALUE as agent\n", "utf-8")
        assert load_agent("pkg_y/sub/main.py", folder) == 6
        assert "pkg_y.sub.main" in sys.modules

    def test_file_is_imported_once(self, folder: Path) -> None:
        (folder / "ops_two.py").write_text("agent = object()\n", "utf-8")
        assert load_agent("ops_two.py", folder) is load_agent("ops_two:agent", folder)

    def test_guarded_serve_does_not_run(self, folder: Path) -> None:
        text = "agent = 1\nif __name__ == '__main__':\n    raise SystemExit('served')\n"
        (folder / "script_z.py").write_text(text, "utf-8")
        assert load_agent("script_z.py", folder) == 1

    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            ("nope_nope:agent", "there is no module 'nope_nope'"),
            ("nope.py", "there is no file"),
            ("broken.py", "importing it raised ZeroDivisionError"),
            ("broken", "importing it raised ZeroDivisionError"),
            ("broken.py", "broken.py, line 1)"),
            ("broken", "broken.py, line 1)"),
            ("builds.py", "builds.py, line 2)"),
            ("leaves.py", "importing it raised SystemExit: 3"),
            ("leaves", "importing it raised SystemExit: 3"),
            ("panics.py", "importing it raised Panic: no memory (/"),
            ("panics", "importing it raised Panic: no memory (/"),
            ("syntax.py", "SyntaxError: invalid syntax (/"),
            ("syntax.py", "syntax.py, line 1)"),
            ("needs.py", "No module named 'not_there_at_all'"),
            ("needs:agent", "No module named 'not_there_at_all'"),
            ("good.py:agnt", "has no 'agnt'; did you mean 'agent'?"),
            ("good.py:x", "has no 'x'; write one that it has after a colon"),
            (":agent", "names no agent"),
            ("good.py:", "names no agent"),
            ("./good", "names no agent"),
            ("two.py", "has no 'agent'; write 'two.py:blue' or 'two.py:red'"),
            ("two", "has no 'agent'; write 'two:blue' or 'two:red'"),
            ("two.py:rde", "has no 'rde'; did you mean 'red'?"),
            ("callable.py", "has no 'agent'; write one that it has after a colon"),
            ("sub/good", "there is no module 'sub/good' in"),
            ("sub/good", "; did you mean the file 'sub/good.py'?"),
            ("sub/good:agent", "; did you mean the file 'sub/good.py'?"),
            ("sub/good.txt", "there is no module 'sub/good.txt' in"),
            ("folder.py", "folder.py' is a folder, no file"),
            ("loop.py", "there is no file"),
        ],
    )
    def test_failure_says_what_is_wrong(self, folder: Path, target: str, expected: str) -> None:
        (folder / "sub").mkdir()
        (folder / "folder.py").mkdir()
        (folder / "loop.py").symlink_to("loop.py")
        for name, text in {
            "broken": "1 / 0",
            "builds": "from sayso import Agent\nagent = Agent(tools=[1])",
            "leaves": "import sys; sys.exit(3)",
            "panics": "class Panic(BaseException): ...\nraise Panic('no memory')",
            "syntax": "def",
            "needs": "import not_there_at_all",
            "good": "agent = 1",
            "sub/good": "agent = 1",
            "callable": "from sayso import Agent\ndef answer(messages, context): ...",
            "two": "from sayso import Agent\nred = Agent(tools=[])\nblue = Agent(tools=[])",
        }.items():
            (folder / f"{name}.py").write_text(text, "utf-8")
        with pytest.raises(ConfigError) as caught:
            load_agent(target, folder)
        assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"log_retention": "1d"}, "must be at least 'retention' and 'ttl'"),
        ({"log_retention": "1d", "retention": "1h", "ttl": "2d"}, "at least"),
        ({"log_retention": "90d", "accept_unissued": True}, "exclude each other"),
    ],
)
def test_a_log_that_would_be_forgotten_too_early_is_an_error(
    settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        ApprovalSettings(**settings)  # type: ignore[arg-type]
    assert ApprovalSettings(log_retention="90d").log_retention == 90 * 86_400  # type: ignore[arg-type]
