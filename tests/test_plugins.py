"""The plugin host: discovery, selection, checks, order, lifespans (design, sections 3 and 4)."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import click
import pytest
from fastapi import APIRouter
from importlib_metadata import EntryPoint
from starlette.routing import Mount, Route, Router

from sayso.config import Config, load_config
from sayso.config.settings import ServerSettings
from sayso.errors import ConfigError, PluginError
from sayso.hookspecs import HOOKS, hookimpl
from sayso.installing import install_line
from sayso.plugins import Plugin, Plugins, discovery
from sayso.plugins.discovery import Installed, discover, select
from sayso.plugins.versions import admits

NONE = Config(plugins=[])
HOST = cast("Any", SimpleNamespace(config=NONE))


def installed(*names: str) -> dict[str, Installed]:
    """The result of `discover` for these names."""
    return {
        name: Installed(name, f"dist-{name}", "1.0", EntryPoint(name, "nowhere", "sayso"))
        for name in sorted(names)
    }


def configured(folder: Path, toml: str = "", **keywords: Any) -> Config:
    (folder / "sayso.toml").write_text(toml, "utf-8")
    return load_config(environ=keywords.pop("environ", {}), directory=folder, **keywords)


def chosen(config: Config, *names: str) -> list[str]:
    return [choice.name for choice in select(config, installed(*names)).chosen]


ALL = ("a2a", "acme", "console", "mcp", "router", "v1", "v2")


class TestSelection:
    def test_installed_ones_are_active_by_name_but_not_the_quiet_ones(self, tmp_path: Path) -> None:
        assert chosen(configured(tmp_path), *reversed(ALL)) == ["acme", "v1", "v2"]

    def test_list_says_all_and_the_order(self, tmp_path: Path) -> None:
        config = configured(tmp_path, 'plugins = ["v2", "a2a", "acme"]\n')
        assert chosen(config, *ALL) == ["v2", "a2a", "acme"]

    def test_empty_list_chooses_none(self, tmp_path: Path) -> None:
        assert chosen(configured(tmp_path, "plugins = []\n"), *ALL) == []

    @pytest.mark.parametrize(
        "toml",
        ["[server]\nmcp = true\n", "[plugin.mcp]\n", "[plugin.mcp]\nport = 9\n", "[plugin.MCP]\n"],
    )
    def test_switch_or_table_in_the_file_activates(self, tmp_path: Path, toml: str) -> None:
        assert chosen(configured(tmp_path, toml), *ALL) == ["acme", "mcp", "v1", "v2"]

    @pytest.mark.parametrize(
        "keywords",
        [
            {"overrides": {"server.mcp": True}},
            {"environ": {"SAYSO_SERVER__MCP": "true"}},
            {"activate": ["mcp"]},
        ],
    )
    def test_flag_adds_to_the_list(self, tmp_path: Path, keywords: dict[str, Any]) -> None:
        config = configured(tmp_path, 'plugins = ["v2"]\n', **keywords)
        assert chosen(config, *ALL) == ["v2", "mcp"]

    @pytest.mark.parametrize(
        "keywords",
        [
            {"overrides": {"plugin.mcp.port": 9}},
            {"environ": {"SAYSO_PLUGIN__MCP__PORT": "9"}},
        ],
    )
    def test_option_never_activates(self, tmp_path: Path, keywords: dict[str, Any]) -> None:
        assert "mcp" not in chosen(configured(tmp_path, **keywords), *ALL)
        assert "mcp" not in chosen(configured(tmp_path, **keywords), "v1")

    @pytest.mark.parametrize(
        "toml", ["", "[plugin.mcp]\n", 'plugins = ["mcp"]\n', "[server]\nmcp = true\n"]
    )
    def test_explicit_false_always_wins(self, tmp_path: Path, toml: str) -> None:
        config = configured(tmp_path, toml, overrides={"server.mcp": False})
        selection = select(config, installed(*ALL))
        assert "mcp" not in [choice.name for choice in selection.chosen]
        assert selection.left_out["mcp"] == "switched off by server.mcp, flag --mcp"

    @pytest.mark.parametrize(
        "toml",
        [
            'plugins = ["v1"]\n[server]\nmcp = true\n',
            'plugins = ["v1", "mcp"]\n[server]\nmcp = false\n',
            'plugins = ["v1"]\n[plugin.mcp]\n',
            'plugins = ["v1"]\n[plugin.acme]\n',
        ],
    )
    def test_list_that_disagrees_with_its_own_file_is_an_error(
        self, tmp_path: Path, toml: str
    ) -> None:
        with pytest.raises(ConfigError, match=r"sayso\.toml has .*; change one of the two"):
            select(configured(tmp_path, toml), installed(*ALL))

    def test_list_of_a_flag_narrows_what_the_file_switches_on(self, tmp_path: Path) -> None:
        toml = "[server]\nmcp = true\n[plugin.a2a]\n"
        config = configured(tmp_path, toml, overrides={"plugins": ["v1"]})
        assert chosen(config, *ALL) == ["v1"]

    def test_named_and_missing_says_how_to_install(self, tmp_path: Path) -> None:
        way = re.escape(install_line("sayso[a2a]"))
        with pytest.raises(PluginError, match=f"'a2a' .*not installed; try: {way}"):
            select(configured(tmp_path, "[server]\na2a = true\n"), installed("v1"))
        with pytest.raises(PluginError, match=r"'redct' .* not installed; .*did you mean 'redact'"):
            select(configured(tmp_path, 'plugins = ["redct"]\n'), installed("redact"))

    def test_option_of_an_unknown_plugin_suggests_the_right_one(self, tmp_path: Path) -> None:
        config = configured(tmp_path, environ={"SAYSO_PLUGIN__MPC__PORT": "1"})
        with pytest.raises(ConfigError, match=r"no plugin 'mpc' \(environ.*did you mean 'mcp'"):
            select(config, installed("v1"))

    def test_each_left_out_plugin_has_a_reason(self, tmp_path: Path) -> None:
        selection = select(configured(tmp_path, 'plugins = ["v1"]\n'), installed(*ALL))
        assert set(selection.left_out) == set(ALL) - {"v1"}
        assert selection.left_out["v2"] == "not named in plugins, sayso.toml"

    def test_nothing_is_imported_to_choose(self, tmp_path: Path) -> None:
        # Each entry point names a module that does not exist.
        assert len(chosen(configured(tmp_path), *ALL)) == 3


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder of distributions; only these count as installed."""
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.folder))
    monkeypatch.setattr(
        "sayso.plugins.discover",
        lambda: {name: plugin for name, plugin in discover().items() if name in made.names},
    )
    modules = set(sys.modules)
    yield made
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()
        folder.mkdir()

    def install(self, name: str, source: str, target: str = "", requires: str = "sayso") -> None:
        module = f"plug_{name.replace('-', '_')}"
        info = self.folder / f"dist_{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: dist-{name}\nVersion: 1.5\nRequires-Dist: {requires}\n",
            "utf-8",
        )
        (info / "entry_points.txt").write_text(f"[sayso]\n{name} = {module}{target}\n", "utf-8")
        (self.folder / f"{module}.py").write_text(textwrap.dedent(source), "utf-8")
        self.names.add(name)


QUIET = """
    from sayso import Plugin, hookimpl
    class P(Plugin):
        active_by_default = False
        class Settings(Plugin.Settings):
            port: int = 5
            names: list[str] = []
            secret: int = 1
        @hookimpl
        def on_event(self, event): pass
"""
MODULE = """
    from sayso.hookspecs import hookimpl
    @hookimpl
    def on_event(event): pass
"""

# Extension modules in Rust raise an exception that is no Exception.
PANIC = "class Panic(BaseException): ...\n"


class TestLoading:
    def test_installing_a_distribution_is_all_it_takes(self, site: Site) -> None:
        site.install("acme", MODULE)
        plugins = Plugins.load(Config())
        assert plugins.names == ("acme",)
        (info,) = plugins.info()
        assert (info.distribution, info.version, info.hooks) == ("dist-acme", "1.5", ("on_event",))

    def test_third_party_may_be_inactive_by_default(self, site: Site) -> None:
        site.install("quiet", QUIET, ":P")
        plugins = Plugins.load(Config())
        assert plugins.names == ()
        assert "not active by default" in plugins.info()[0].why
        assert Plugins.load(Config(plugins=["quiet"])).names == ("quiet",)

    def test_settings_come_from_the_table_and_the_environment(
        self, site: Site, tmp_path: Path
    ) -> None:
        site.install("quiet", QUIET, ":P")
        config = configured(
            tmp_path,
            "[plugin.quiet]\nport = 6\n",
            environ={"SAYSO_PLUGIN__QUIET__NAMES": "a,b", "SAYSO_PLUGIN__QUIET__SECRET": "3"},
        )
        settings = cast("Plugin", Plugins.load(config).get("quiet")).settings
        assert (settings.port, settings.names, settings.secret) == (6, ["a", "b"], 3)

    @pytest.mark.parametrize(
        ("toml", "expected"),
        [
            (
                'secret = "hunter2"',
                "plugin.quiet.secret (sayso.toml): expected a whole number",
            ),
            ("prot = 1", "unknown key 'plugin.quiet.prot' (sayso.toml); did you mean"),
        ],
    )
    def test_wrong_settings_stop_the_start(
        self, site: Site, tmp_path: Path, toml: str, expected: str
    ) -> None:
        site.install("quiet", QUIET, ":P")
        with pytest.raises(ConfigError) as caught:
            Plugins.load(configured(tmp_path, f"[plugin.quiet]\n{toml}\n"))
        assert expected in str(caught.value)
        assert "plugin 'quiet' (distribution 'dist-quiet 1.5')" in str(caught.value)
        assert "hunter2" not in str(caught.value)

    def test_module_without_settings_refuses_a_table(self, site: Site, tmp_path: Path) -> None:
        site.install("acme", MODULE)
        with pytest.raises(ConfigError, match=r"takes no settings; take plugin\.acme\.port"):
            Plugins.load(configured(tmp_path, "[plugin.acme]\nport = 1\n"))

    def test_object_given_in_code_refuses_a_table(self, tmp_path: Path) -> None:
        given = type("Given", (Plugin,), {})()
        with pytest.raises(ConfigError, match=r"with its settings; take plugin\.given\.port"):
            Plugins.load(configured(tmp_path, "[plugin.given]\nport = 1\n"), [given])

    @pytest.mark.parametrize(
        ("source", "target", "requires", "cause"),
        [
            ("1 / 0", "", "sayso", "ZeroDivisionError"),
            ("import sys; sys.exit('no')", "", "sayso", "SystemExit: no"),
            (
                f"{PANIC}raise Panic('called `unwrap()`')",
                "",
                "sayso",
                "cannot be imported: Panic: called `unwrap()`",
            ),
            (
                f"{PANIC}from sayso import Plugin\nclass P(Plugin):\n"
                "    def __init__(self, settings): raise Panic('no memory')",
                ":P",
                "sayso",
                "cannot be made: Panic: no memory",
            ),
            (
                f"{PANIC}from sayso import Plugin, hookimpl\nclass P(Plugin):\n"
                "    @property\n    def public_paths(self): raise Panic('no files')",
                ":P",
                "sayso",
                "cannot be registered: Panic: no files",
            ),
            ("import time; time.sleep(60)", "", "sayso", "did not come back within 1 second"),
            ("P = 5", ":P", "sayso", "neither a subclass of sayso.Plugin nor a module"),
            (
                "from sayso import Plugin\nP = Plugin()",
                ":P",
                "sayso",
                "neither a subclass of sayso.Plugin nor a module, but an object of Plugin",
            ),
            ("", ":P", "sayso", "has no attribute 'P'"),
            (MODULE, "-x:P", "sayso", "'plug_bad-x:P', which is no 'module:object'"),
            (
                "from sayso import Plugin, hookimpl\nclass P(Plugin):\n"
                "    @hookimpl\n    def on_event(self, event): pass",
                "",
                "sayso",
                "has no hooks; mark its functions with @hookimpl, or name a subclass of Plugin",
            ),
            (MODULE, "", "sayso>=99", "requires 'sayso>=99', but this is sayso"),
            (
                MODULE.replace("on_event(", "on_evnt("),
                "",
                "sayso",
                "did you mean on_event(event, host)?",
            ),
            (
                MODULE.replace("(event)", "(evnt)"),
                "",
                "sayso",
                "the hook is on_event(event, host)",
            ),
        ],
    )
    def test_failing_plugin_stops_the_start_when_named_and_is_left_out_when_installed(
        self,
        site: Site,
        caplog: pytest.LogCaptureFixture,
        source: str,
        target: str,
        requires: str,
        cause: str,
    ) -> None:
        site.install("bad", source, target, requires)
        site.install("good", MODULE)
        server = {"server": {"start_timeout": 1 if "sleep" in source else 120}}
        with pytest.raises(PluginError) as caught:
            Plugins.load(Config.model_validate({"plugins": ["bad"], **server}))
        assert cause in str(caught.value)
        assert "plugin 'bad' (distribution 'dist-bad 1.5')" in str(caught.value)
        sys.modules.pop("plug_bad", None)
        with caplog.at_level(logging.WARNING):
            plugins = Plugins.load(Config.model_validate(server))
        assert plugins.names == ("good",)
        assert cause in caplog.text
        assert cause in next(info.why for info in plugins.info() if info.name == "bad")

    def test_interrupt_ends_the_import_of_a_plugin(self, site: Site) -> None:
        site.install("slow", "raise KeyboardInterrupt")
        with pytest.raises(KeyboardInterrupt):
            Plugins.load(Config())

    def test_two_distributions_with_one_name_are_a_conflict(self, site: Site) -> None:
        site.install("acme", MODULE)
        site.install("other", MODULE)
        (site.folder / "dist_plug_other-1.5.dist-info" / "entry_points.txt").write_text(
            "[sayso]\nacme = plug_other\n", "utf-8"
        )
        with pytest.raises(PluginError, match=r"'dist-\w+' and 'dist-\w+' both have a plugin"):
            Plugins.load(Config(plugins=["acme"]))

    @pytest.mark.parametrize(("name", "ours"), [("v2", "sayso-v2"), ("acme", "dist-acme")])
    def test_two_distributions_with_one_name_stop_the_start_though_nobody_named_it(
        self, site: Site, name: str, ours: str
    ) -> None:
        for plugin in {"acme", "foreign"} - {"acme" if name == "v2" else ""}:
            site.install(plugin, MODULE)
        site.names.add(name)
        (site.folder / "dist_plug_foreign-1.5.dist-info" / "entry_points.txt").write_text(
            f"[sayso]\n{name} = plug_foreign\n", "utf-8"
        )
        with pytest.raises(PluginError, match=rf"plugin '{name}' .*both have .*uninstall one") as e:
            Plugins.load(Config())
        assert "'dist-foreign'" in str(e.value)
        assert repr(ours) in str(e.value)
        assert Plugins.load(Config(plugins=[])).names == ()

    @pytest.mark.parametrize("named", ["my-plug", "My_Plug"])
    def test_two_spellings_of_one_name_are_a_conflict(self, site: Site, named: str) -> None:
        site.install("my-plug", MODULE)
        site.install("other", MODULE)
        site.names.add("My_Plug")
        (site.folder / "dist_plug_other-1.5.dist-info" / "entry_points.txt").write_text(
            "[sayso]\nMy_Plug = plug_other\n", "utf-8"
        )
        with pytest.raises(PluginError, match=r"'dist-other' and 'dist-my-plug' both have"):
            Plugins.load(Config(plugins=[named]))

    def test_requirement_that_cannot_be_read_is_the_plugins_alone(
        self, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        site.install("acme", MODULE, requires="sayso>=")
        assert Plugins.load(Config()).names == ()
        assert "its requirement 'sayso>=' cannot be read" in caplog.text

    def test_plugin_with_the_name_of_the_agents_own_is_left_out_with_a_warning(
        self, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        site.install("agent", MODULE)
        site.install("zoo", MODULE)
        given = [interceptor("agent", lambda self: None)]
        assert Plugins.load(Config(), given).names == ("zoo", "agent")
        caplog.clear()
        plugins = Plugins.load(Config())
        assert plugins.names == ("zoo",)
        (line,) = [line for line in caplog.messages if "rename its entry point" in line]
        assert line.startswith("plugin 'agent' (distribution 'dist-agent 1.5') cannot be used: ")
        assert line.endswith("; it is left out")
        (left_out,) = [info.why for info in plugins.info() if info.name == "agent"]
        assert left_out.endswith("agent's own interceptors; rename its entry point")
        with pytest.raises(PluginError, match="rename its entry point"):
            Plugins.load(Config(plugins=["agent"]))

    @pytest.mark.parametrize(
        ("settings", "cause"),
        [
            ("class Settings: ...", "write class Settings(Plugin.Settings)"),
            (
                "class Settings(Plugin.Settings):\n"
                "        key: int = 1\n"
                "        @model_validator(mode='before')\n"
                "        @classmethod\n"
                "        def fail(cls, values): raise OSError('no disk')",
                "cannot read its settings: OSError: no disk",
            ),
            (
                "class Settings(Plugin.Settings):\n"
                "        key: int = 1\n"
                "        @model_validator(mode='before')\n"
                "        @classmethod\n"
                "        def fail(cls, values): raise SystemExit('no disk')",
                "cannot read its settings: SystemExit: no disk",
            ),
        ],
    )
    def test_settings_that_fail_are_the_plugins_alone(
        self, site: Site, caplog: pytest.LogCaptureFixture, settings: str, cause: str
    ) -> None:
        source = "from sayso import Plugin\nfrom pydantic import BaseModel, model_validator\n"
        site.install("acme", f"{source}class P(Plugin):\n    {settings}\n", ":P")
        assert Plugins.load(Config()).names == ()
        assert "plugin 'acme' (distribution 'dist-acme 1.5')" in caplog.text
        assert cause in caplog.text
        with pytest.raises(PluginError) as caught:
            Plugins.load(Config(plugins=["acme"]))
        assert cause in str(caught.value)


class Given(Plugin):
    name = "given"

    @hookimpl
    def on_event(self, event: object) -> None: ...


class TestChecks:
    def refusal(self, plugin: object) -> str:
        with pytest.raises(PluginError) as caught:
            Plugins.load(NONE, [plugin])
        return str(caught.value)

    def test_hook_without_a_mark_is_refused(self) -> None:
        class Forgot(Plugin):
            def intercept_request(self, request: object) -> None: ...

        assert "put @hookimpl above it" in self.refusal(Forgot)

    def test_hook_that_is_no_function_is_refused_for_it_would_never_be_called(self) -> None:
        class Marked(Plugin):
            intercept_request = hookimpl(partialmethod(print))

        class Named(Plugin):
            check = hookimpl(specname="intercept_request")(partialmethod(print))

        class Wrapped(Plugin):
            intercept_request = partialmethod(print)

        for marked in (Marked, Named):
            assert "which is no function, so it would never be called" in self.refusal(marked)
        assert "has 'intercept_request' without a mark" in self.refusal(Wrapped)

    def test_what_only_resembles_a_hook_is_the_plugins_own(self) -> None:
        class Own(Plugin):
            anything = MagicMock()

            @property
            def resources(self) -> object:
                return print

        assert Plugins.load(NONE, [Own]).names == ("own",)

    def test_module_of_hooks_may_use_the_function_that_asks_who_calls(self, site: Site) -> None:
        site.install("door", f"from sayso import authenticate\n{textwrap.dedent(MODULE)}")
        assert Plugins.load(Config(plugins=["door"])).names == ("door",)

    def test_wrapper_and_order_marks_are_refused(self) -> None:
        class Wraps(Plugin):
            @hookimpl(wrapper=True)
            def on_event(self, event: object) -> Iterator[None]:
                yield

        class First(Plugin):
            @hookimpl(tryfirst=True)
            def on_event(self, event: object) -> None: ...

        assert "wrapper, tryfirst or trylast" in self.refusal(Wraps)
        assert "order of the `plugins` setting" in self.refusal(First)

    def test_argument_that_the_hook_has_not_is_refused_with_its_signature(self) -> None:
        class Wrong(Plugin):
            @hookimpl
            def intercept_request(self, request: object, session: object) -> None: ...

        message = self.refusal(Wrong)
        assert "'intercept_request' has the argument 'session'" in message
        assert "intercept_request(request, context, host)" in message

    def test_hook_without_self_is_refused(self) -> None:
        class Wrong(Plugin):
            @hookimpl
            def intercept_request(request, context) -> None: ...  # type: ignore[no-untyped-def]

        class Without(Plugin):
            @hookimpl
            def register_routes() -> None: ...  # type: ignore[misc]

        class Fine(Plugin):
            @staticmethod
            @hookimpl
            def intercept_request(request: object) -> None: ...

        assert "'register_routes' has no `self`" in self.refusal(Without)
        assert "'request' in the place of `self`" in self.refusal(Wrong)
        assert Plugins.load(NONE, [Fine]).names == ("fine",)

    def test_hook_that_yields_is_refused_with_the_way_out(self) -> None:
        class Yields(Plugin):
            @hookimpl
            def intercept_request(self, request: object) -> Iterator[None]:
                yield

        class Bare(Plugin):
            @hookimpl
            async def lifespan(self, host: object) -> AsyncIterator[None]:
                yield

        assert "'intercept_request' has a `yield`; return the result" in self.refusal(Yields)
        assert "put @asynccontextmanager above the function" in self.refusal(Bare)

    def test_misspelt_hook_is_refused_with_the_nearest(self) -> None:
        class Wrong(Plugin):
            @hookimpl
            def intercept_requests(self, request: object) -> None: ...

        assert "did you mean intercept_request(request, context, host)?" in self.refusal(Wrong)

    def test_argument_with_a_default_is_the_plugins_own(self) -> None:
        class Fine(Plugin):
            @hookimpl
            def on_event(self, event: object, prefix: str = "x") -> str:
                return prefix

        (impl,) = Plugins.load(NONE, [Fine]).implementations("on_event")
        assert asyncio.run(impl(event=1, host=2)) == "x"

    def test_two_given_plugins_of_one_name_are_refused(self) -> None:
        with pytest.raises(PluginError, match="one name"):
            Plugins.load(NONE, [Given(), Given()])


def interceptor(name: str, function: Callable[..., Any]) -> Plugin:
    made = type("Made", (Plugin,), {"name": name, "intercept_request": hookimpl(function)})
    plugin: Plugin = made()
    return plugin


class TestCalling:
    def test_order_is_that_of_the_list_then_of_those_given(self) -> None:
        plugins = [interceptor(name, lambda self: None) for name in ("c", "a", "b", "own")]
        loaded = Plugins.load(Config(plugins=["b", "a"]), plugins)
        assert loaded.names == ("b", "a", "c", "own")
        order = [impl.plugin for impl in loaded.implementations("intercept_request")]
        assert order == ["b", "a", "c", "own"]

    def test_hook_that_nobody_implements_has_no_implementations(self) -> None:
        plugins = Plugins.load(NONE, [Given])
        assert [hook for hook in HOOKS if plugins.implementations(hook)] == ["on_event"]

    def test_each_gets_only_what_it_names(self) -> None:
        def plain(self: Any, host: str) -> str:
            return host

        async def later(self: Any, request: str, context: str) -> tuple[str, str]:
            return request, context

        plugins = Plugins.load(NONE, [interceptor("a", plain), interceptor("b", later)])

        async def results() -> list[Any]:
            available = {"request": "r", "context": "c", "host": "h"}
            impls = plugins.implementations("intercept_request")
            return [await impl(**available) for impl in impls]

        assert asyncio.run(results()) == ["h", ("r", "c")]

    def test_plain_function_that_returns_an_awaitable_is_awaited(self) -> None:
        async def late() -> int:
            return 7

        plugins = Plugins.load(NONE, [interceptor("a", lambda self: late())])
        (impl,) = plugins.implementations("intercept_request")
        assert asyncio.run(impl(request=1, context=2, host=3)) == 7

    def test_plugins_of_two_hosts_do_not_meet(self) -> None:
        one, two = Plugins.load(NONE, [Given]), Plugins.load(NONE)
        assert (one.names, two.names) == (("given",), ())


def router(*routes: tuple[str, str]) -> APIRouter:
    made = APIRouter()
    for method, path in routes:
        if method == "WEBSOCKET":
            made.add_api_websocket_route(path, lambda websocket: None)
        elif method == "MOUNT":
            made.mount(path, Router())
        else:
            made.add_api_route(path, lambda: None, methods=[method])
    return made


def routed(name: str, *routes: tuple[str, str], inside: str = "") -> Plugin:
    def register_routes(self: Any, host: object) -> APIRouter:
        if not inside:
            return router(*routes)
        outer = APIRouter()
        outer.include_router(router(*routes), prefix=inside)
        return outer

    made: Plugin = type(
        "Made", (Plugin,), {"name": name, "register_routes": hookimpl(register_routes)}
    )()
    return made


class TestRoutes:
    def test_each_plugin_brings_its_router(self) -> None:
        plugins = Plugins.load(NONE, [routed("a", ("GET", "/x")), routed("b", ("POST", "/x"))])
        assert [name for name, _ in plugins.routes(HOST)] == ["a", "b"]
        assert [info.routes for info in plugins.info(HOST) if info.active] == [
            ("GET /x",),
            ("POST /x",),
        ]

    @pytest.mark.parametrize(
        "other",
        [
            routed("b", ("GET", "/x/{id}")),
            routed("b", ("POST", "/x/{name}"), ("GET", "/x/{name}")),
            routed("b", ("GET", "/{id}"), inside="/x"),
        ],
    )
    def test_two_that_claim_one_route_are_both_named(self, other: Plugin) -> None:
        plugins = Plugins.load(NONE, [routed("a", ("GET", "/x/{id}")), other])
        with pytest.raises(
            PluginError, match=r"GET /x/\{\w+\} is claimed by 'a' and by plugin 'b'"
        ):
            plugins.routes(HOST)

    @pytest.mark.parametrize("first", ["all", "one"])
    def test_all_methods_of_a_path_are_no_other_plugins(self, first: str) -> None:
        async def answer(scope: Any, receive: Any, send: Any) -> None:
            pass

        def register_routes(self: Any) -> APIRouter:
            everything = type("Everything", (), {"__call__": staticmethod(answer)})()
            return APIRouter(routes=[Route("/x/{name}", everything)])

        hooks = {"name": "b", "register_routes": hookimpl(register_routes)}
        both = [routed("a", ("POST", "/x/{id}")), type("Made", (Plugin,), hooks)()]
        plugins = Plugins.load(NONE, both if first == "one" else both[::-1])
        with pytest.raises(
            PluginError, match=r"POST /x/\{\w+\} is claimed by '.' and by plugin '.'"
        ):
            plugins.routes(HOST)

    def test_what_is_mounted_beside_a_path_is_no_conflict(self) -> None:
        def register_routes(self: Any) -> APIRouter:
            return APIRouter(routes=[Mount("/x", app=router(("GET", "/y")))])

        hooks = {"name": "b", "register_routes": hookimpl(register_routes)}
        plugins = Plugins.load(NONE, [routed("a", ("GET", "/x")), type("Made", (Plugin,), hooks)()])
        assert len(plugins.routes(HOST)) == 2
        again = Plugins.load(NONE, [type("Made", (Plugin,), hooks | {"name": n})() for n in "bc"])
        with pytest.raises(PluginError, match="claimed by 'b' and by plugin 'c'; uninstall one"):
            again.routes(HOST)

    @pytest.mark.parametrize(
        ("wide", "narrow", "expected"),
        [
            (("MOUNT", "/api"), ("POST", "/api/chat"), "covers POST /api/chat of plugin"),
            (("MOUNT", "/api"), ("WEBSOCKET", "/api/ws"), "covers WEBSOCKET /api/ws of plugin"),
            (("MOUNT", "/api"), ("MOUNT", "/api/v9"), "covers MOUNT /api/v9 of plugin"),
            (("MOUNT", "/{team}"), ("GET", "/api/{id}"), r"covers GET /api/\{id\} of plugin"),
            (("GET", "/{rest:path}"), ("GET", "/api/list"), "covers GET /api/list of plugin"),
            (("GET", "/{rest:path}"), ("MOUNT", "/api"), "covers MOUNT /api of plugin"),
            (("GET", "/api/{name}"), ("GET", "/api/list"), "covers GET /api/list of plugin"),
            (("GET", "/api/{name}"), ("GET", "/api/{id:int}"), "is claimed by"),
        ],
    )
    @pytest.mark.parametrize("first", ["wide", "narrow"])
    def test_route_that_covers_another_plugins_stops_the_start_whichever_is_first(
        self, wide: tuple[str, str], narrow: tuple[str, str], expected: str, first: str
    ) -> None:
        both = [routed("wide", wide), routed("narrow", narrow)]
        plugins = Plugins.load(NONE, both if first == "wide" else both[::-1])
        with pytest.raises(PluginError, match=expected) as caught:
            plugins.routes(HOST)
        said = str(caught.value)
        assert "plugin 'wide'" in said or "by 'wide'" in said
        assert "plugin 'narrow'" in said or "by 'narrow'" in said
        assert wide[1] in said or narrow[1] in said

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (("MOUNT", "/api"), ("GET", "/apis")),
            (("MOUNT", "/api"), ("MOUNT", "/apis")),
            (("MOUNT", "/api/files"), ("GET", "/api/{name}")),
            (("POST", "/{rest:path}"), ("GET", "/api/list")),
            (("GET", "/{rest:path}"), ("WEBSOCKET", "/api/ws")),
            (("GET", "/api/{id:int}"), ("GET", "/api/list")),
        ],
    )
    def test_routes_that_no_request_reaches_both_of_are_no_conflict(
        self, one: tuple[str, str], other: tuple[str, str]
    ) -> None:
        plugins = Plugins.load(NONE, [routed("a", one), routed("b", other)])
        assert len(plugins.routes(HOST)) == 2

    def test_plugin_may_cover_its_own_routes_and_come_after_the_services(self) -> None:
        routes = ("GET", "/{rest:path}"), ("GET", "/page"), ("MOUNT", "/page")
        assert len(Plugins.load(NONE, [routed("a", *routes)]).routes(HOST)) == 1

    def test_websocket_and_get_of_one_path_are_two_routes(self) -> None:
        plugins = Plugins.load(NONE, [routed("a", ("GET", "/x")), routed("b", ("WEBSOCKET", "/x"))])
        assert len(plugins.routes(HOST)) == 2

    def test_health_is_the_cores(self) -> None:
        with pytest.raises(PluginError, match="by 'sayso itself' .*; give it another path$"):
            Plugins.load(NONE, [routed("a", ("GET", "/health"))]).routes(HOST)

    @pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
    def test_documents_are_the_cores_where_it_serves_them(self, path: str) -> None:
        plugins = Plugins.load(NONE, [routed("a", ("GET", path))])
        assert len(plugins.routes(HOST)) == 1
        documented = Config(plugins=[], server=ServerSettings(docs=True))
        said = rf"GET {path} is claimed by 'sayso itself' and by plugin 'a'; .* set server.docs"
        with pytest.raises(PluginError, match=said):
            plugins.routes(cast("Any", SimpleNamespace(config=documented)))

    def test_route_without_a_path_names_the_plugin(self) -> None:
        plugins = Plugins.load(NONE, [routed("a", ("GET", ""))])
        with pytest.raises(PluginError, match="plugin 'a': a route of its router has no path"):
            plugins.routes(HOST)

    def test_mount_of_all_paths_is_told_where_to_mount(self) -> None:
        def register_routes(self: Any) -> Router:
            return Router([Mount("/", app=router(("GET", "/y")))])

        hooks = {"name": "a", "register_routes": hookimpl(register_routes)}
        plugins = Plugins.load(NONE, [type("Made", (Plugin,), hooks)()])
        with pytest.raises(PluginError, match="a Mount that of all, '/'; .* or mount at '/name'"):
            plugins.routes(HOST)

    def test_async_implementation_and_a_running_loop_are_fine(self) -> None:
        class Late(Plugin):
            @hookimpl
            async def register_routes(self, host: object) -> APIRouter:
                return router(("GET", "/x"))

        async def inside() -> int:
            return len(Plugins.load(NONE, [Late]).routes(HOST))

        assert asyncio.run(inside()) == 1

    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (lambda self, host: 1 / 0, "register_routes raised ZeroDivisionError"),
            (lambda self, host: 5, "returned int; return a fastapi.APIRouter"),
            (lambda self, host: sys.exit("no"), "register_routes raised SystemExit: no"),
            (lambda self, host: time.sleep(600), "did not return within 1 second"),
        ],
    )
    def test_failure_names_the_plugin(self, function: Callable[..., Any], expected: str) -> None:
        made = type("Made", (Plugin,), {"name": "bad", "register_routes": hookimpl(function)})
        limit = 1 if "within" in expected else 120
        config = Config.model_validate({"plugins": [], "server": {"start_timeout": limit}})
        with pytest.raises(PluginError) as caught:
            Plugins.load(config, [made]).routes(HOST)
        assert expected in str(caught.value)
        assert "plugin 'bad': register_routes" in str(caught.value)


def living(
    name: str,
    log: list[str],
    start: Callable[[], Any] = lambda: None,
    end: Callable[[], Any] = lambda: None,
) -> Plugin:
    @asynccontextmanager
    async def lifespan(self: Any, host: object) -> AsyncIterator[None]:
        started = start()
        if started is not None:
            await started
        log.append(f"{name} in")
        yield
        log.append(f"{name} out")
        end()

    made: Plugin = type("Made", (Plugin,), {"name": name, "lifespan": hookimpl(lifespan)})()
    return made


def fail() -> None:
    raise OSError("no pool")


class TestLifespans:
    def live(self, *plugins: Plugin, timeout: float = 120.0, **keywords: Any) -> None:
        config = Config.model_validate({"plugins": [], "server": {"start_timeout": timeout}})
        loaded = Plugins.load(config, plugins)

        async def life() -> None:
            async with loaded.lifespans(HOST, **keywords):
                pass

        asyncio.run(life())

    def test_entered_in_order_and_left_in_reverse(self) -> None:
        log: list[str] = []
        self.live(living("a", log), living("b", log))
        assert log == ["a in", "b in", "b out", "a out"]

    def test_only_those_named_have_theirs_here(self) -> None:
        log: list[str] = []
        self.live(living("a", log), living("b", log), only=["b"])
        assert log == ["b in", "b out"]

    def test_failure_at_the_start_names_the_plugin_and_leaves_those_before(self) -> None:
        log: list[str] = []
        with pytest.raises(PluginError, match=r"plugin 'b': lifespan raised OSError: no pool"):
            self.live(living("a", log), living("b", log, start=fail))
        assert log == ["a in", "a out"]

    def test_failure_at_the_end_is_logged_and_the_others_are_left(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log: list[str] = []
        self.live(living("a", log), living("b", log, end=fail), living("c", log, end=sys.exit))
        assert log == ["a in", "b in", "c in", "c out", "b out", "a out"]
        assert "plugin 'b': lifespan failed at its end" in caplog.text
        assert "plugin 'c': lifespan failed at its end" in caplog.text

    def test_one_that_blocks_at_the_end_is_interrupted_and_the_others_are_left(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        log: list[str] = []
        hung = living("b", log, end=lambda: time.sleep(600))
        self.live(living("a", log), hung, timeout=0.2)
        assert log == ["a in", "b in", "b out", "a out"]
        assert "'b': lifespan failed at its end: it took longer than 0.2 seconds" in caplog.text

    @pytest.mark.parametrize("start", [lambda: asyncio.sleep(600), lambda: time.sleep(600)])
    def test_hang_at_the_start_ends_and_names_the_plugin(self, start: Callable[[], Any]) -> None:
        with pytest.raises(PluginError, match=r"'b': lifespan did not start within 0\.2 seconds"):
            self.live(living("b", [], start=start), timeout=0.2)

    def test_alarm_for_code_that_blocks_spares_a_late_clean_up_and_the_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sayso.plugins.lifespans.PATIENCE", 0.1)
        log: list[str] = []

        async def start() -> None:
            try:
                await asyncio.sleep(600)
            finally:
                # Longer than the alarm waits after the timeout.
                await asyncio.sleep(0.5)
                log.append("cleaned up")

        with pytest.raises(PluginError, match=r"'b': lifespan did not start within 0\.2 seconds"):
            self.live(living("b", log, start=start), timeout=0.2)
        assert log == ["cleaned up"]

    def test_system_exit_at_the_start_names_the_plugin(self) -> None:
        with pytest.raises(PluginError, match=r"'b': lifespan raised SystemExit: 3"):
            self.live(living("b", [], start=lambda: sys.exit(3)))

    def test_cancellation_that_a_plugin_lets_out_is_its_failure_and_names_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def cancelled() -> None:
            raise asyncio.CancelledError

        with pytest.raises(PluginError, match=r"'b': lifespan raised CancelledError"):
            self.live(living("b", [], start=cancelled))
        log: list[str] = []
        self.live(living("a", log), living("b", log, end=cancelled))
        assert log == ["a in", "b in", "b out", "a out"]
        assert "plugin 'b': lifespan failed at its end" in caplog.text

    def test_timeout_error_of_the_plugin_itself_is_not_taken_for_a_hang(self) -> None:
        def late() -> None:
            raise TimeoutError("database")

        with pytest.raises(PluginError, match="lifespan raised TimeoutError: database"):
            self.live(living("b", [], start=late))

    def test_what_is_no_context_manager_is_refused(self) -> None:
        class Wrong(Plugin):
            @hookimpl
            async def lifespan(self, host: object) -> int:
                return 5

        with pytest.raises(PluginError, match="returned int, which is no async context manager"):
            self.live(Wrong())

    def test_error_of_the_service_passes_through_and_is_nobodys(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        loaded = Plugins.load(NONE, [living("a", [])])

        async def life() -> None:
            async with loaded.lifespans(HOST):
                raise KeyError("service")

        with pytest.raises(KeyError, match="service"):
            asyncio.run(life())
        assert caplog.text == ""

    def test_own_process_plugins_are_known(self) -> None:
        class Alone(Plugin):
            own_process = True

        assert Plugins.load(NONE, [Alone, Given]).own_process == ("alone",)


class TestCommands:
    def commanding(self, name: str, command: str) -> Plugin:
        def register_commands(self: Any, cli: click.Group) -> None:
            cli.add_command(click.Command(command))

        made: Plugin = type(
            "Made", (Plugin,), {"name": name, "register_commands": hookimpl(register_commands)}
        )()
        return made

    def test_plugin_adds_a_command(self) -> None:
        group = click.Group()
        Plugins.load(NONE, [self.commanding("a", "audit")]).register_commands(group)
        assert list(group.commands) == ["audit"]

    def test_taken_name_is_refused(self) -> None:
        plugins = Plugins.load(NONE, [self.commanding("a", "x"), self.commanding("b", "x")])
        with pytest.raises(
            PluginError, match="'x' is claimed by 'a' and by plugin 'b'; uninstall one of them"
        ):
            plugins.register_commands(click.Group())
        with pytest.raises(PluginError, match="claimed by 'sayso itself'"):
            plugins.register_commands(click.Group(), ["x"])

    @pytest.mark.parametrize(
        ("function", "cause"),
        [
            (lambda self, cli: sys.exit(4), "register_commands raised SystemExit: 4"),
            (lambda self, cli: time.sleep(600), "did not return within 0.2 seconds"),
            (lambda self, cli: cli.commands.update(x=5), "'x' is no click.Command"),
        ],
    )
    def test_failure_names_the_plugin(self, function: Callable[..., Any], cause: str) -> None:
        made = type("Made", (Plugin,), {"name": "bad", "register_commands": hookimpl(function)})
        server = {"start_timeout": 0.2 if "within" in cause else 120}
        plugins = Plugins.load(Config.model_validate({"plugins": [], "server": server}), [made])
        with pytest.raises(PluginError) as caught:
            plugins.register_commands(click.Group())
        assert str(caught.value).startswith("plugin 'bad': ")
        assert cause in str(caught.value)


@pytest.mark.parametrize(
    ("requirement", "version", "expected"),
    [
        ("sayso", "0.1.0", True),
        ("sayso>=0.1,<0.2", "0.1.0", True),
        ("sayso<0.2,>=0.1", "0.2.0", False),
        ("sayso~=0.1.3", "0.1.2", False),
        ("sayso~=0.1", "0.9", True),
        ("sayso==0.1.*", "0.1.7", True),
        ("sayso!=0.1.*", "0.1.7", False),
        ("sayso<1", "1.0rc1", False),
        ("sayso>=1", "1.0rc1", False),
        ("sayso (>=2)", "1.0", False),
        ("sayso[v2]>=2", "1.0", False),
        ('sayso>=2; extra == "x"', "1.0", True),
        ("sayso-extra>=2", "1.0", True),
        ("Sayso>=2", "1.0", False),
        ("sayso==1", "1.0.0", True),
    ],
)
def test_requirement_admits_versions_as_packaging_says(
    requirement: str, version: str, expected: bool
) -> None:
    assert admits(requirement, "sayso", version) is expected


def test_built_in_names_and_switches_agree() -> None:
    assert set(discovery.SWITCHES) <= {n for n, on in discovery.BUILT_IN.items() if not on}
