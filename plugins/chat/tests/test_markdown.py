"""Replies as Markdown on a terminal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from sayso import Agent, cli
from sayso.testing import scripted, served
from sayso_chat.markdown import Reply, rendered
from terminal import terminal

STYLE = re.compile(r"\x1b\[[0-9;]*m")

WHOLE = """\
# A title

Some **bold *and* slanted** text, `code <x>` and a [link](https://a.example/b_c); this \
paragraph is long enough to be wrapped on every terminal that anybody has, snake_case and *args too.
A second line.

- one
- two
  - within
1. first

   further
2. second

```python
def f():
    return 1  # it is a line that is longer than the sixty columns of this terminal
```

| Name | Address |
|------|--------:|
| web-1 | https://a.example/a/very/long/address/that/has/to/be/wrapped/in/its/cell |

> quoted
> twice

---
[1]: https://b.example
The end."""


def plain(lines: list[str]) -> list[str]:
    return [STYLE.sub("", line).rstrip() for line in lines]


def text_of(markdown: str, width: int = 60) -> str:
    return "\n".join(plain(rendered(markdown, width, colour=True)))


def test_marks_of_markdown_become_styles_and_layout() -> None:
    lines = rendered("# T\n\n**b** *i* `c`\n\n- x\n3. y\n\n> q", 60, colour=True)
    assert plain(lines) == ["T", "", "b i c", "", " • x", "", " 3. y", "", "▌ q"]
    assert lines[0] == "\x1b[1;4mT\x1b[0m"
    assert lines[2] == "\x1b[1mb\x1b[0m \x1b[3mi\x1b[0m \x1b[36mc\x1b[0m"


def test_without_colour_only_weight_and_slant_are_left() -> None:
    lines = rendered("**b** `c`\n\n```python\nreturn 1\n```", 60, colour=False)
    assert lines == ["\x1b[1mb\x1b[0m c", "", "  return 1"]


def test_nothing_that_a_reply_says_is_left_out() -> None:
    assert text_of("<pod-name> <!-- x --> &amp; [a](http://b) <http://c> ![d](http://e)") == (
        "<pod-name> <!-- x --> & a (http://b) http://c ![d](http://e)"
    )
    assert text_of("<div>\nx\n</div>") == "<div>\nx\n</div>"
    assert text_of("see [1]\n\n[1]: http://b") == "see [1]\n\n[1]: http://b"
    cell = "https://a.example/" + "x" * 90
    assert cell in text_of(f"| a | b |\n|--|--|\n| c | {cell} |").replace("\n", "").replace(" ", "")
    code = "x" * 50 + " " + "y" * 50
    assert code.replace(" ", "") in re.sub(r"\s", "", text_of(f"```\n{code}\n```"))


def test_references_of_characters_command_no_terminal() -> None:
    for text in ("&#27;[2J", "&#x9b;2J", "&#x202e;x", "`&#8238;`", "[a](http://x/&#x202e;y)"):
        shown = "".join(rendered(text, 60, colour=True))
        assert not re.search("[\x00-\x1a\x1c-\x1f\x7f-\x9f\u202e]", shown), text
        assert "\x1b" not in STYLE.sub("", shown), text


@pytest.mark.parametrize("width", [13, 30, 60])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    deep = "\n".join("  " * depth + f"- > 漢字 {depth}" for depth in range(25))
    for text in (WHOLE, deep, deep.replace("- ", "")):
        lines = plain(rendered(text, width, colour=True))
        assert max(cell_len(line) for line in lines) <= width
        assert re.sub(r"[\W_]", "", "".join(lines)).endswith(re.sub(r"[\W_]", "", text[-20:]))


@pytest.mark.parametrize("seed", range(4))
def test_lines_that_come_one_by_one_are_those_of_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    reply, rest = Reply(60, colour=True), WHOLE
    lines: list[str] = []
    while rest:
        size = chance.randint(1, 40)
        lines += reply.add(rest[:size])
        reply._next = 0.0
        rest = rest[size:]
    assert plain(lines + reply.end()) == plain(rendered(WHOLE, 60, colour=True))


def test_line_is_given_as_soon_as_nothing_can_change_it() -> None:
    def given(*pieces: str) -> list[list[str]]:
        reply = Reply(20, colour=True)
        found = []
        for piece in pieces:
            reply._next = 0.0
            found.append(plain(reply.add(piece)))
        return [*found, plain(reply.end())]

    assert given("one two three four five six", " seven") == [
        ["one two three four"],
        [],
        ["five six seven"],
    ]
    # The star may begin something slanted.
    assert given("one *two three four five six", " x*") == [
        [],
        ["one two three four"],
        ["five six x"],
    ]
    assert given("```\na\n", "b") == [["  a"], [], ["  b"]]
    assert given("a\n\nb") == [["a"], ["", "b"]]
    # The widths of a table are known when it has ended.
    rows = ("| a | b |\n", "|--|--|\n", "| 1 | 2 |\n", "\n", "x")
    assert given(*rows) == [[], [], [], ["a  b", "────", "1  2"], [], ["", "x"]]


def test_reply_at_a_terminal_is_markdown_behind_a_margin(tmp_path: Path) -> None:
    said = (
        "# Hello\n\nI am **here**.\n\n- one\n- two\n\nx\n\ndelete waits for your decision\n&#27;[2J"
    )
    with served(Agent(model=scripted(said)), config='plugins = ["v2"]\n') as service:
        command = ["-m", "sayso", "chat", service.url]
        with terminal(command, tmp_path) as person:
            person.shows("> ")
            person.keys("hello\n")
            shown = person.shows("\n> ")
    lines = shown.splitlines()[-12:]
    assert "\x1b[1mhere\x1b[0m" in person.raw and "**" not in person.raw
    assert [line for line in lines if line and not line.startswith("  ")] == ["> "], lines
    assert lines.count("  I am here.") == 1 and "   • two" in lines


def test_reply_elsewhere_is_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    said = "# Hello\n\n**here** <b>\n"
    with served(Agent(model=scripted(said)), config='plugins = ["v2"]\n') as service:
        assert cli.run(["chat", service.url, "-m", "hello"]) == 0
    assert capsys.readouterr().out == said
