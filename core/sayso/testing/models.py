"""A scripted model, and the requirements for every model, as checks that any test suite can run.

    import asyncio, pytest
    from sayso.testing import MODEL_CHECKS

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: check.__name__)
    def test_my_model_conforms(check):
        asyncio.run(check(lambda: MyModel("small")))

A check gets a factory of models. The checks leave the model free in its words, not in their form.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sayso.models import (
    Ask,
    Call,
    Model,
    ModelError,
    ModelEvent,
    Reply,
    Result,
    Text,
    TextDelta,
    Thought,
    ToolDefinition,
    ToolStart,
    Turn,
    dump_turns,
    load_turns,
)
from sayso.testing.script import Scripted, Step

Factory = Callable[[], Model]
Check = Callable[[Factory], Awaitable[None]]

LOOK_UP = ToolDefinition(
    "look_up",
    "Look up the price of an article.",
    {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]},
)
DECISION = {
    "type": "object",
    "properties": {"wanted": {"type": "boolean"}, "why": {"type": "string"}},
    "required": ["wanted", "why"],
    "additionalProperties": False,
}


def scripted(*steps: Step) -> Scripted:
    """A model that answers its calls with `steps`, one after another; `asks` records its input.

    A step is a text, a list of `Call`, `Text`, `Thought` and texts, a `Reply`, an exception to
    raise, or a function `(ask)`, plain or async, that returns one of these. A call beyond the last
    step raises ModelError.
    """
    return Scripted(steps)


def _said(*texts: str) -> Turn:
    return Turn("user", tuple(Text(text) for text in texts))


async def _events(model: Model, ask: Ask) -> list[ModelEvent]:
    return [event async for event in model.stream(ask)]


def _reply(events: Sequence[ModelEvent]) -> Reply:
    replies = [event for event in events if isinstance(event, Reply)]
    assert len(replies) == 1, f"exactly one Reply ends a call, not {len(replies)}"
    assert events[-1] is replies[0], "nothing follows the Reply"
    return replies[0]


async def it_has_a_provider_and_a_name(factory: Factory) -> None:
    """Both are texts, and the provider is not empty."""
    model = factory()
    assert isinstance(model, Model), "a Model has provider, name and stream(ask)"
    assert isinstance(model.provider, str) and model.provider
    assert isinstance(model.name, str)


async def a_call_ends_with_one_reply(factory: Factory) -> None:
    """Deltas first, then exactly one Reply of an assistant, whose texts are the deltas."""
    events = await _events(factory(), Ask((_said("What is an article?"),), system="Be brief."))
    reply = _reply(events)
    for event in events[:-1]:
        assert isinstance(event, TextDelta | Thought | ToolStart), repr(event)
    assert reply.turn.role == "assistant"
    deltas = "".join(event.text for event in events if isinstance(event, TextDelta))
    texts = "".join(block.text for block in reply.turn.blocks if isinstance(block, Text))
    assert deltas.strip() == texts.strip(), "the deltas are the text of the reply"
    assert all(b.text.strip() for b in reply.turn.blocks if isinstance(b, Text)), "no blank text"


async def a_reply_survives_the_ledger(factory: Factory) -> None:
    """A turn that was written as JSON while it waits for a decision is read back equal."""
    events = await _events(factory(), Ask((_said("look up the price of tea"),), tools=(LOOK_UP,)))
    turn = _reply(events).turn
    stored = json.loads(json.dumps(dump_turns([turn])))
    (again,) = load_turns(stored)
    assert dump_turns([again]) == stored
    assert list(again.blocks) == list(turn.blocks)


async def calls_are_of_offered_tools(factory: Factory) -> None:
    """Each call has an id of its own, a tool that was offered, and an object as its input."""
    events = await _events(factory(), Ask((_said("look up the price of tea"),), tools=(LOOK_UP,)))
    _check_calls(_reply(events), {LOOK_UP.name})


def _check_calls(reply: Reply, names: set[str]) -> None:
    calls = [block for block in reply.turn.blocks if isinstance(block, Call)]
    assert len({call.id for call in calls}) == len(calls), "ids of calls are unique"
    for call in calls:
        assert call.id and call.name in names, repr(call)
        assert isinstance(dict(call.input), dict)
    assert (reply.stop == "tool_use") <= bool(calls), "tool_use has calls to run"


async def without_tools_there_are_no_calls(factory: Factory) -> None:
    """A model that was offered no tool calls none."""
    events = await _events(factory(), Ask((_said("look up the price of tea"),)))
    _check_calls(_reply(events), set())


async def results_are_taken(factory: Factory) -> None:
    """An outcome, a failure and a text beside them are answered like any turn."""
    calls = (Call("one", "look_up", {"article": "tea"}), Call("two", "look_up", {"article": "x"}))
    results = (Result("one", "4.20"), Result("two", "Error: there is no x", is_error=True))
    turns = (
        _said("look up tea and x"),
        Turn("assistant", calls),
        Turn("user", (*results, Text("thank you"))),
    )
    _check_calls(_reply(await _events(factory(), Ask(turns, tools=(LOOK_UP,)))), {LOOK_UP.name})


async def a_schema_is_kept_to(factory: Factory) -> None:
    """With a schema the whole text is one JSON document of it; ModelError if that is impossible."""
    ask = Ask((_said("Is tea wanted? Decide."),), schema=DECISION)
    try:
        reply = _reply(await _events(factory(), ask))
    except ModelError:
        return
    document = json.loads(
        "".join(block.text for block in reply.turn.blocks if isinstance(block, Text))
    )
    assert set(document) == {"wanted", "why"}, document
    assert isinstance(document["wanted"], bool) and isinstance(document["why"], str)


async def a_call_can_be_left(factory: Factory) -> None:
    """A caller that closes the stream after its first event does not affect later calls."""
    model = factory()
    stream: Any = model.stream(Ask((_said("Tell a long story."),)))
    await anext(stream)
    await stream.aclose()
    _reply(await _events(model, Ask((_said("And now?"),))))


async def one_model_serves_several_loops(factory: Factory) -> None:
    """One instance answers on several event loops at once."""
    model = factory()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            _reply(asyncio.run(_events(model, Ask((_said("hello"),)))))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    _reply(await _events(model, Ask((_said("hello"),))))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert not errors, errors


MODEL_CHECKS: tuple[Check, ...] = (
    it_has_a_provider_and_a_name,
    a_call_ends_with_one_reply,
    a_reply_survives_the_ledger,
    calls_are_of_offered_tools,
    without_tools_there_are_no_calls,
    results_are_taken,
    a_schema_is_kept_to,
    a_call_can_be_left,
    one_model_serves_several_loops,
)
