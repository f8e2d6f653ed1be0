"""The site is built from the pages, loads nothing from elsewhere, and has each page in its menu."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_of_docs", ROOT / "docs" / "build_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(node: Any) -> Iterator[str]:
    """The pages in the menu."""
    if isinstance(node, str):
        yield node
    for each in node.values() if isinstance(node, dict) else node:
        if not isinstance(node, str):
            yield from entries(each)


def test_each_page_stands_in_the_menu_once() -> None:
    menu = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    named = list(entries(menu))
    assert len(named) == len(set(named))
    assert [name for name in named if not (ROOT / name).is_file()] == []
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(named)


def test_words_behind_a_fence_become_its_title_or_go() -> None:
    shown = builder().with_titles
    assert shown("```python ops.py\nx\n```\n") == '```python title="ops.py"\nx\n```\n'
    assert shown("  ```sh not-run\n") == "  ```sh\n"
    assert shown("```sh\n") == "```sh\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("zensical")
    folder: Path = tmp_path_factory.mktemp("site") / "site"
    builder().build(folder)
    return folder


@pytest.mark.slow
def test_site_is_built_with_every_link_checked(site: Path) -> None:
    assert (site / "index.html").is_file()
    assert (site / "docs" / "tutorial" / "index.html").is_file()
    assert (site / "deploy" / "nginx.conf").is_file()
    headings = (site / "docs" / "agents" / "index.html").read_text("utf-8")
    assert 'id="any-callable"' in headings


@pytest.mark.slow
def test_a_link_that_leads_nowhere_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zensical")
    made = builder()
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Begin\n\n[no](docs/a.md#nowhere)\n", "utf-8")
    (tmp_path / "docs" / "a.md").write_text("# A page\n", "utf-8")
    settings = tmp_path / "docs" / "zensical.toml"
    settings.write_text('[project]\nsite_name = "x"\ndocs_dir = "pages"\nsite_dir = "site"\n')
    monkeypatch.setattr(made, "ROOT", tmp_path)
    monkeypatch.setattr(made, "SETTINGS", settings)
    with pytest.raises(SystemExit, match="anchor does not exist"):
        made.build(tmp_path / "out")


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        why = "there is no chromium on the path; on Debian: apt-get install chromium"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    playwright = pytest.importorskip("playwright.sync_api")
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index.html", "docs/concepts/index.html", "docs/api/index.html"):
            page.goto((site / name).as_uri())
            page.locator("h1").first.wait_for()
        browser.close()
    assert [url for url in asked if not re.match(r"file:|data:|blob:", url)] == []
