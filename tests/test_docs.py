"""The documentation is true: files are written, shell blocks run, signatures compared.

A fence says what its block is: `python NAME` and `toml NAME` are files, `sh` is run in their
folder, `sh install` installs that folder, `python signature` is a hook, `not-run` is only read.
Other `python` blocks must compile, and their imports from sayso must exist.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import sayso
from sayso import Agent, LocalShell, NotGranted, RequestError, Tool, TurnError, hookspecs
from sayso.config import load_config
from sayso.config.targets import load_agent
from sayso.hookspecs import HOOKS

sys.path.insert(0, str(Path(__file__).parent))

from newcomer import blocks

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))


def run(folder: Path, *command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(folder / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"


def install(folder: Path) -> None:
    """Put the distribution of `folder` where Python finds it, as an installer does."""
    out = folder / "wheels"
    run(folder, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out))
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agents.md", "plugins.md", "hooks.md"])
def test_page_can_be_followed_from_top_to_bottom(tmp_path: Path, name: str) -> None:
    for block in blocks(ROOT / "docs" / name):
        match block.language, block.words:
            case _, ["not-run", *_] | ["signature"]:
                continue
            case "python" | "toml", [file]:
                (tmp_path / file).write_text(block.text, "utf-8")
            case "sh", ["install"]:
                install(tmp_path)
            case "sh", []:
                run(tmp_path, "sh", "-e", "-c", block.text)
    for written in tmp_path.glob("*.py"):
        compile(written.read_text("utf-8"), written.name, "exec")


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_python_blocks_compile_and_import_what_is_there(path: Path) -> None:
    for block in blocks(path):
        if block.language != "python" or block.words == ["signature"]:
            continue
        # Fragments may await.
        tree = compile(block.text, f"{path.name}:{block.line}", "exec", _FLAGS)
        assert isinstance(tree, ast.Module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "sayso":
                missing = {alias.name for alias in node.names} - set(sayso.__all__)
                assert not missing, f"{path.name}, line {block.line}"


_FLAGS = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_configuration_blocks_are_accepted(path: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(path)):
        # [project] is a package's own metadata.
        if (
            block.language == "toml"
            and "not-run" not in block.words
            and "[project" not in block.text
        ):
            file = tmp_path / f"{number}.toml"
            file.write_text(block.text, "utf-8")
            load_config(file, environ={})


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), target


def test_index_names_each_page() -> None:
    named = set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "README.md").read_text("utf-8")))
    assert named == {path.name for path in DOCS} - {"README.md"}


def test_each_error_that_a_caller_sees_is_documented() -> None:
    page = (ROOT / "docs" / "http.md").read_text("utf-8")
    kinds = (*RequestError.__subclasses__(), *TurnError.__subclasses__())
    # Other tests import plugins, which have codes and pages of their own.
    codes = {kind.code for kind in kinds if kind.__module__.partition(".")[0] == "sayso"}
    codes -= {RequestError.code}  # Each refusal of a field has its type as its code
    assert [code for code in codes if f"`{code}`" not in page] == []


SOURCES = [
    path
    for folder in ("core", "plugins")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "tests" not in path.parts
]


def test_each_code_has_its_cause_on_the_troubleshooting_page() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    found = set(NotGranted._WORDS)
    for path in SOURCES:
        text = path.read_text("utf-8")
        found |= set(re.findall(r'^ +(?:self\.)?code(?:: \w+)? = "([A-Z_]+)"$', text, re.MULTILINE))
    assert {"BUSY", "RATE_LIMITED", "SEEN_REQUIRED"} < found
    # The simple A2A adapter states these as a task's error, beside its text.
    found -= {"FAILED", "REJECTED"}
    assert [code for code in sorted(found) if f"`{code}`" not in page] == []


def test_texts_on_the_troubleshooting_page_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    texts = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(texts) > 25
    # Adjoining literals are one text, and each value in it is a gap.
    source = "\n".join(path.read_text("utf-8") for path in SOURCES)
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    for text in texts:
        for part in re.split(r"…|'", text):
            assert part.strip(" :;") in joined, text


def test_options_of_tools_and_agents_are_documented() -> None:
    page = (ROOT / "docs" / "agents.md").read_text("utf-8")
    for described in (Tool, Agent, LocalShell):
        for name in {*inspect.signature(described).parameters} - {"fn"}:
            assert re.search(rf"\b{name}\b", page), f"{described.__name__}: {name}"


def signature(hook: str) -> str:
    """The hook's signature as source; its annotations are texts."""
    shown = str(inspect.signature(getattr(hookspecs, hook)))
    return f"def {hook}{shown}".replace("'", "")


def test_each_hook_is_documented_with_its_exact_signature() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text("utf-8")
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    assert [name for name in sections if name in HOOKS] == list(HOOKS)
    for hook in HOOKS:
        assert f"```python signature\n{signature(hook)}\n```" in sections[hook]


def test_agents_of_the_hook_reference_work(tmp_path: Path) -> None:
    from sayso.testing import served, user

    files = {b.words[0]: b.text for b in blocks(ROOT / "docs" / "hooks.md") if len(b.words) == 1}
    for name in ("agent_hooks.py", "callable_agent.py"):
        (tmp_path / name).write_text(files[name], "utf-8")
    config = f'agent = "{tmp_path}/agent_hooks.py"\n'
    with served(config=config) as service:
        assert service.chat("hello")["meta_data"]["blocked"] == {"code": "NOT_STAFF"}
        staff = user("remember(fact='a')", platform_context={"tenant_name": "staff"})
        reply = service.chat(staff)
        assert reply["content"].endswith("\n-- kube")
        assert reply["data"]["session"] == {"facts": ["a"]}
    with served(config=f'agent = "{tmp_path}/callable_agent.py"\n') as service:
        assert service.chat("hi")["content"] == "You said: hi"


def test_protocol_of_the_hook_reference_works(tmp_path: Path) -> None:
    from sayso.testing import scripted, served, user

    for block in blocks(ROOT / "docs" / "hooks.md"):
        if block.words == ["sayso_ask.py"]:
            (tmp_path / "sayso_ask.py").write_text(block.text, "utf-8")
    plugin = load_agent("sayso_ask.py:Ask", tmp_path, "plugin")
    with served(Agent(model=scripted("Noon.", "One.")), [plugin]) as service:
        assert service.get("/ask?question=when").text == "Noon."
        refused = service.get("/ask?question=")
        assert (refused.status, json.loads(refused.text)["error"][:13]) == (422, "body.messages")
        talked = service.post("/talk", {"messages": [user("when?")]})
        assert json.loads(talked.text)["content"] == "One."


def test_pictures_are_there_are_described_and_are_small() -> None:
    pages = [ROOT / "README.md", *DOCS]
    shown: set[Path] = set()
    for page in pages:
        for text, where in re.findall(r"!\[([^\]]*)\]\((?!http)([^)]+)\)", page.read_text("utf-8")):
            assert len(text) > 20, f"{page.name}: {where} needs a description"
            shown.add((page.parent / where).resolve())
    made = set((ROOT / "docs" / "pictures").iterdir())
    assert shown >= made and all(file.is_file() for file in shown)
    assert sum(file.stat().st_size for file in made) < 600_000


def generator(name: str = "generate") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_configuration_reference_is_what_the_models_say() -> None:
    made = generator()
    assert made.FILE.read_text("utf-8") == made.page(), "run: python docs/generate.py"


def test_python_reference_is_what_the_docstrings_say() -> None:
    made = generator("reference")
    assert made.FILE.read_text("utf-8") == made.page(), "run: python docs/generate.py"


def test_python_reference_shows_types_as_a_reader_writes_them() -> None:
    page = generator("reference").page()
    for machinery in ("Annotated[", "Optional[", "FieldInfo", "Literal['", "Parser callback"):
        assert machinery not in page, machinery
    assert "Runtime representation" not in page
    assert "(*args, **kwargs)" not in page


def test_each_key_has_a_meaning() -> None:
    for line in generator().page().splitlines():
        if line.startswith("| `"):
            assert line.split(" | ")[-1].strip(" |"), line


def test_router_of_the_router_page_works(tmp_path: Path) -> None:
    from sayso.testing import served

    for block in blocks(ROOT / "docs" / "router.md"):
        if block.words and block.words[0] in ("team_agent.py", "router.toml"):
            (tmp_path / block.words[0]).write_text(block.text, "utf-8")
    (tmp_path / "sayso.toml").write_text(
        'agent = "team_agent.py"\n' + (tmp_path / "router.toml").read_text("utf-8"), "utf-8"
    )
    with served(config=tmp_path / "sayso.toml") as service:
        assert service.chat("lunch at noon?", source="team-chat")["content"] == ""
        assert service.chat("@kube are you there?", source="team-chat")["content"] != ""
