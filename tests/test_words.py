"""Comments, docstrings and names use the field's words, and sentences name their actor.

CONTRIBUTING.md has the rule. This test has its limits: it knows openings and words, not meaning.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

OPENINGS = re.compile(
    r"(?:Who|Whoever|Whom|Whose|What|Whatever|Which|Whichever|Where|Wherever|So|As|Else|Neither|Nor"
    r"|That|Those (?:that|which|who))\b"
)
"""The beginnings of a bare relative clause, or of half a sentence. Name the actor instead."""

WORDS = re.compile(
    r"\b(?:given up|gives? up|gave up|heard of|owed|untold|whoever"
    r"|where none is|what is no|(?:for|from|of|to) who(?:ever)?(?= [a-z]+s\b)"
    r"|(?:in|from|of) which(?:ever|soever)|words of our(?:s| own))\b",
    re.I,
)
"""Words with another one in the glossary (docs/architecture.md): withdraw, abandon, pending,
report, the client, continue; and clauses that stand for a noun: "for who mistypes one" is "after a
typing error"."""

NAMES = frozenset({"begun", "deaf", "hear", "heard", "owed", "tell", "tells", "told", "untell"})
"""Words that no name of the code is, or has as one of its words, for the same reason."""

SENTENCE = re.compile(r"(?<=[.;:!?])[)\"'`*]*\s+")
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"")


def sources() -> list[Path]:
    """The Python files of the repository."""
    found = [ROOT / "conftest.py"]
    for folder in ("core", "plugins", "tests", "benchmarks", "examples", "docs"):
        found += sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if _is_ours(path)]


def pages() -> list[Path]:
    """The documentation's pages."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("plugins/*/README.md")]
    return sorted({*found, *ROOT.glob("examples/**/*.md")} - {ROOT / "CHANGELOG.md"})


def _is_ours(path: Path) -> bool:
    return not {"build", "node_modules", ".venv"} & set(path.relative_to(ROOT).parts)


class Read(NamedTuple):
    """The comments of a Python file, consecutive lines as one, and the replaced names in it."""

    comments: list[tuple[int, str]]
    names: list[tuple[int, str]]


@cache
def read(path: Path) -> Read:
    """One file, which takes a while: all files together some seconds."""
    found = Read([], [])
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and NAMES & set(parts(token.string)):
            found.names.append((line, token.string))
        elif token.type == tokenize.COMMENT:
            words = token.string.lstrip("#:").strip()
            if line == last + 1 and token.line.lstrip().startswith("#"):
                first, before = found.comments.pop()
                found.comments.append((first, f"{before}\n{words}"))
            else:
                found.comments.append((line, words))
            last = line
    return found


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Each docstring of a file with its line, those of attributes included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for each in node.body:
            match each:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield each.lineno, text


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Each paragraph of a page with its line, without code, tables and headings."""
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and line.strip() and not re.match(r"\s{4,}|#|\||<", line):
            yield number, line


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, and the parts between a colon or semicolon and the next one."""
    for paragraph in PARAGRAPH.split(text):
        flat = " ".join(QUOTED.sub("`…`", paragraph).split()).lstrip("-* ")
        yield from SENTENCE.split(flat)


def faults(text: str) -> Iterator[str]:
    """The sentences of a text that begin badly or have a replaced word."""
    for sentence in sentences(text):
        asks = sentence.rstrip("\"')*").endswith("?")
        if (OPENINGS.match(sentence) and not asks) or WORDS.search(sentence):
            yield sentence


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Who waits is served.", 1),
        ("Wait.  What is left follows.", 1),
        ("First line.\n\nNor is this one.", 1),
        ("- Where it is slow, it waits.", 1),
        ("It was given up.", 1),
        ("Names for who mistypes one.", 1),
        ("The model of it; empty where none is.", 1),
        ("The person who signs, for whom it waits.", 0),
        ("What runs without approval?", 0),
        ("Tools; whose names are listed.", 0),
        ("`What` is a word.", 0),
        ("Whether it waits.", 0),
    ],
)
def test_bad_sentence_is_found(text: str, found: int) -> None:
    assert len(list(faults(text))) == found


def test_comments_and_docstrings_are_sentences_with_an_actor() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in sources()
        for line, text in (*read(path).comments, *docstrings(path))
        for fault in faults(text)
        if path != Path(__file__)
    ]
    assert found == [], "\n".join(found)


def test_pages_are_sentences_with_an_actor() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in pages()
        for line, text in paragraphs(path)
        for fault in faults(text)
    ]
    assert found == [], "\n".join(found)


def paragraphs(path: Path) -> Iterator[tuple[int, str]]:
    """The paragraphs of a page, each with the number of its first line."""
    start, lines = 0, list[str]()
    for number, line in prose(path):
        item = re.match(r"\s*(?:[-*]|\d+\.)\s", line)
        if lines and (number != start + len(lines) or item):
            yield start, "\n".join(lines)
            lines = []
        if not lines:
            start = number
        lines.append(line)
    if lines:
        yield start, "\n".join(lines)


def test_names_use_the_glossary() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources()
        for line, name in read(path).names
    ]
    assert found == [], "\n".join(found)


def parts(name: str) -> list[str]:
    """The words of a name: `_Told` and `told_later` have `told`. Names of tests are sentences."""
    if name.startswith("test_"):
        return []
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
