"""Docstrings of every style: the prose, and the descriptions of parameters."""

from __future__ import annotations

import pytest

from sayso.tools.docstrings import read_docstring

PROSE = "Scale a deployment.\n\nWaits until it is done."
SAID = {"name": "What to scale.", "count": "How many, at least one."}


def read(text: str) -> tuple[str, dict[str, str]]:
    def fn() -> None: ...

    fn.__doc__ = text
    found = read_docstring(fn)
    return found.prose, dict(found.parameters)


STYLES = {
    "google": """
Args:
    name: What to scale.
    count: How many,
        at least one.""",
    "google with types": """
Arguments:
  name (:class:`str`): What to scale.

  count (int, optional): How many, at
    least one.""",
    "a list": """
Parameters:
- name: What to scale.
- count: How many,
  at least one.""",
    "a list with marks": """
Args:
    * `name`: What to scale.
    * **count** (int): How many,
      at least one.""",
    "numpy": """
Parameters
----------
name : str
    What to scale.
count : int, optional
    How many,
    at least one.""",
    "numpy without types": """
Parameters
----------
name
    What to scale.

count: {1, 2}

    How many, at least one.""",
    "sphinx": """
:param name: What to scale.
:param int count: How many,
    at least one.
:type name: str""",
    "sphinx, other words": """
:keyword name:
    What to scale.
:arg count: How many, at least one.""",
    "epydoc": """
@param name: What to scale.
@param count: How many, at least one.""",
}
ENDS = {
    "nothing": "",
    "google": """
Returns:
    count: not a parameter

Raises:
    ValueError: never""",
    "numpy": """
Returns
-------
count : int
    not a parameter""",
    "sphinx": """
:returns: a word
:raises ValueError: never""",
}


@pytest.mark.parametrize("parameters", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_each_style_gives_prose_and_parameters(parameters: str, end: str) -> None:
    assert read(f"{PROSE}\n{parameters}\n{end}") == (PROSE, SAID)


def test_several_names_of_one_entry_share_its_description() -> None:
    numpy = "Draw.\n\nParameters\n----------\nx, y : float\n    Where.\n*args, **kwargs\n    More."
    assert read(numpy)[1] == {"x": "Where.", "y": "Where.", "args": "More.", "kwargs": "More."}
    sphinx = "Draw.\n\n:param \\*\\*kwargs: More."
    assert read(sphinx)[1] == {"kwargs": "More."}


def test_other_parameters_are_described_as_well() -> None:
    text = "Draw.\n\nArgs:\n    x: Where.\n\nOther Parameters:\n    y: How high."
    assert read(text)[1] == {"x": "Where.", "y": "How high."}


@pytest.mark.parametrize(
    "text",
    [
        "List the pods.",
        "List the pods of a namespace\n:class:`Pod` by :class:`Pod`: all of them.\n\nNote: slow.",
        "List the pods.\n\nNote:\n    It asks the cluster.\n\nArgs are none.",
        "",
    ],
)
def test_prose_without_parts_stays_whole(text: str) -> None:
    assert read(text) == (text, {})


def test_what_only_looks_like_an_entry_describes_nothing() -> None:
    text = "Draw.\n\nArgs:\n    where it goes\n    x: Where.\n    two words: no name\n\nSee: there."
    assert read(text) == ("Draw.\n\nSee: there.", {"x": "Where."})


def test_a_paragraph_behind_a_field_belongs_to_no_parameter() -> None:
    assert read("Draw.\n\n:param x: Where.\n\nTo draw more, call it again.")[1] == {"x": "Where."}


def test_a_docstring_in_indented_code_reads_as_any() -> None:
    text = "Draw.\n\n        Args:\n            x: Where,\n                and how.\n        "
    assert read(text) == ("Draw.", {"x": "Where, and how."})
