"""Replies as Markdown on a terminal, line by line as they arrive (a reply is never repainted)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import dropwhile, takewhile

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Renderables
from rich.padding import Padding
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from sayso import visible

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
# HTML and definitions would not be shown; definitions and underlines change what stands above them.
_PARSER.disable(["html_block", "html_inline", "reference", "lheading"])

_ENDS = ("x*", "x**", "x_", "x__", "x`", "x``", "x~~", "x](x)", "x)", "x>")
"""Texts that end a span of emphasis, code or a link."""

_DEEPEST = 16
"""Levels of a text that is Markdown; the parser leaves out what lies deeper than some more."""
_ROOM = 8
"""Columns that the deepest text needs; each level takes two at most."""

_SHARE = 4
"""One part in so many of the time may be spent on rendering a block that is not complete."""

_STYLES = {
    "code": "cyan",
    "code_block": "none",
    "h1": "bold underline",
    "h2": "bold underline",
    "h3": "bold",
    "h4": "bold",
    "h5": "bold",
    "h6": "bold",
    "block_quote": "italic",
    "item.bullet": "none",
    "item.number": "none",
    "link": "underline",
    "link_url": "underline",
    "table.border": "dim",
    "table.header": "bold",
}
_THEME = Theme({f"markdown.{name}": style for name, style in _STYLES.items()})


class Reply:
    """The lines of a reply that arrives in pieces; each line is given once, when it is final."""

    def __init__(self, width: int, *, colour: bool) -> None:
        self._width = width
        self._colour = colour
        self._text = ""
        self._given = 0
        self._follows = False
        self._next = 0.0

    def add(self, piece: str) -> list[str]:
        """The lines that are final with this piece."""
        self._text += piece
        now = time.monotonic()
        if now < self._next:
            return []
        lines = [*self._complete(), *self._certain()]
        took = time.monotonic() - now
        self._next = now + took * _SHARE
        return lines

    def end(self) -> list[str]:
        """All other lines; the next piece begins another text."""
        new = self._new(self._lines(self._text))
        self._text, self._given, self._follows = "", 0, False
        return new

    def _complete(self) -> list[str]:
        """The further lines of all blocks but the last one, which may go on."""
        ended, _, _ = self._text.rpartition("\n")
        starts = [token.map[0] for token in _PARSER.parse(ended) if token.map and not token.level]
        if not starts or not starts[-1]:
            return []
        lines = self._text.split("\n")
        done, rest = lines[: starts[-1]], lines[starts[-1] :]
        self._text = "\n".join(rest)
        whole = self._lines("\n".join(done))
        new = self._new(whole)
        # An empty line stands between two blocks.
        self._given = max(0, self._given - len(whole) - 1)
        return new

    def _certain(self) -> list[str]:
        """The further lines of the last block that nothing of what may follow can change."""
        unfinished = not self._text.endswith("\n")
        if len(self._lines(self._text)) <= self._given + unfinished:
            return []
        texts = [self._lines(text) for text in _continued(self._text, self._width)]
        alike = takewhile(lambda lines: len(set(lines)) == 1, zip(*texts, strict=False))
        return self._new(_without_empty_end([lines[0] for lines in alike]))

    def _new(self, lines: Sequence[str]) -> list[str]:
        new = list(lines[self._given :])
        self._given = max(self._given, len(lines))
        if new and not self._follows:
            self._follows = True
        elif new and self._given == len(new):
            new.insert(0, "")
        return new

    def _lines(self, text: str) -> list[str]:
        return rendered(text, self._width, colour=self._colour)


def _continued(text: str, width: int) -> Iterator[str]:
    """The text with several beginnings of what may follow."""
    yield from (text + end for end in _ENDS)
    # The last line may become the head of a table, and a table may get a wide row.
    lines = text.removesuffix("\n").split("\n")
    inner = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip("> "))]
    yield "\n".join([*lines, f"{inner}| {'w' * width} |"])
    if not lines[-1].strip("|-: >") and len(lines) > 1:
        lines.pop()
    cells = lines[-1].lstrip("> ").strip("| ").count("|") + 1
    yield "\n".join([*lines, inner + "|-" * cells + "|"])


def _without_empty_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def rendered(text: str, width: int, *, colour: bool) -> list[str]:
    """The lines of a Markdown text on a terminal of `width` columns, without hidden content."""
    tokens = [*_shown(_PARSER.parse(text))]
    deepest = max((token.level for token in tokens), default=0)
    # A text without any room is not shown at all.
    fits = deepest <= min(_DEEPEST, (width - _ROOM) // 2)
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard",
        no_color=not colour,
        legacy_windows=False,
        theme=_THEME,
    )
    with console.capture() as captured:
        console.print(_Markdown(tokens) if fits else Text(text, overflow="fold"))
    lines = [line.rstrip() for line in captured.get().split("\n")]
    # The first block, too, may come after an empty line.
    return _without_empty_end([*dropwhile(lambda line: not line, lines)])


def _shown(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens with nothing invisible, with line ends as they were written, the addresses of
    images, and no address that its link's text states already."""
    plain = 0
    for number, token in enumerate(tokens):
        if token.type == "link_open":
            said = "".join(one.content for one in tokens[number + 1 : number + 2])
            plain += token.attrs.get("href") == said
        token.content = visible(token.content)
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrs[name] = visible(str(token.attrs[name]), strict=True)
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "image":
            said = f"![{token.content}]({token.attrs['src']})"
            token = Token("text", "", 0, content=said)
        elif token.children:
            token.children = [*_shown(token.children)]
        if plain and token.type in ("link_open", "link_close"):
            plain -= token.type == "link_close"
            continue
        yield token


class _Code(rich_markdown.CodeBlock):
    """A block of code, indented, on the background that the terminal has."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax("", self.lexer_name, theme="ansi_dark", word_wrap=True)
        text = code.highlight(str(self.text).rstrip())
        text.rstrip()
        text.expand_tabs(4)
        text.overflow = "fold"
        yield Padding(text, (0, 0, 0, 2))


class _Item(rich_markdown.ListItem):
    """An item of a list; the place of its text does not depend on how many there are."""

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        return _marked(self.elements, f"{number:>2}. ", console, options)

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _marked(self.elements, " • ", console, options)


class _Quote(rich_markdown.BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return _marked(self.elements, "▌ ", console, options, again=True)


def _marked(
    elements: Renderables,
    mark: str,
    console: Console,
    options: ConsoleOptions,
    *,
    again: bool = False,
) -> RenderResult:
    """The lines of `elements` behind a mark: the first one, or each if `again`."""
    inner = options.update(width=max(1, options.max_width - len(mark)))
    for number, line in enumerate(console.render_lines(elements, inner, pad=False)):
        yield Segment(mark if again or not number else " " * len(mark))
        yield from line
        yield Segment.line()


class _Table(rich_markdown.TableElement):
    """A table whose cells are wrapped, and never cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                table.show_edge = False
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Rule(rich_markdown.HorizontalRule):
    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment("─" * min(options.max_width, 20))
        yield Segment.line()


class _Heading(rich_markdown.Heading):
    LEVEL_ALIGN = {}


class _Markdown(rich_markdown.Markdown):
    elements = {
        **rich_markdown.Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "list_item_open": _Item,
        "blockquote_open": _Quote,
        "table_open": _Table,
        "hr": _Rule,
        "heading_open": _Heading,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = tokens
