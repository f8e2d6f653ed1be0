import time

import pytest
from sayso_redact import Redact

from sayso import Agent, Call, tool
from sayso.testing import Served, scripted, user

CARD, MAIL, TOKEN = "4111 1111 1111 1111", "ann@example.org", "sk-live_0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"write to {MAIL}.", "write to [e-mail]."),
        (f"pay with {CARD}!", "pay with [card number]!"),
        (f"key={TOKEN}", "key=[token]"),
        ("Bearer eyJhbGci.eyJzdWIi.c2lnbmVk", "Bearer [token]"),
        ("order 1234 5678 9012 3456 is late", "order 1234 5678 9012 3456 is late"),
        ("nothing to hide @ noon", "nothing to hide @ noon"),
    ],
)
def test_secrets_are_found_and_other_text_is_left(text: str, clean: str) -> None:
    assert Redact().clean(text) == clean


@pytest.mark.parametrize("part", ["a", "eyJ-", "1 ", "sk-"])
def test_long_text_that_matches_almost_everywhere_holds_nobody_up(part: str) -> None:
    text = part * (100_000 // len(part))
    began = time.process_time()
    Redact().clean(text)
    assert time.process_time() - began < 5.0


def test_model_never_sees_a_secret(sayso_served: Served) -> None:
    model = scripted("fine")
    service = sayso_served(Agent(model=model))
    service.chat(
        user(f"I am {MAIL}"), {"role": "assistant", "content": TOKEN}, user(f"my card: {CARD}")
    )
    assert all(secret not in str(model.asks[0]) for secret in (CARD, MAIL, TOKEN))
    assert "[e-mail]" in str(model.asks[0])


def test_nothing_leaks_on_any_protocol(sayso_served: Served) -> None:
    # A secret that arrives in several pieces is caught as well.
    model = scripted(*[[f"Ask {MAIL}", f" or pay {CARD}"]] * 4)
    service = sayso_served(Agent(model=model))
    body = {"messages": [user("whom do I ask?")]}
    for path in ("chat", "chat-stream", "sendMessage", "sendMessageStream"):
        answer = service.post(f"/api/{path}", body)
        assert answer.status == 200
        assert MAIL not in answer.text and CARD not in answer.text, path
        assert "[e-mail]" in answer.text and "[card number]" in answer.text, path


def test_outputs_of_approved_calls_are_clean(sayso_served: Served) -> None:
    @tool(requires_approval=True)
    def read_mail() -> str:
        return f"from {MAIL}"

    model = scripted([Call("1", "read_mail", {})], "done")
    talk = sayso_served(Agent(model=model, tools=[read_mail])).conversation()
    talk.say("read it")
    (outcome,) = talk.approve()["data"]["executed_tool_calls"]
    assert outcome["output"] == "from [e-mail]"


def test_own_patterns(sayso_served: Served) -> None:
    config = "[plugin.redact.patterns]\nemployee = '\\bE\\d{6}\\b'\n"
    service = sayso_served(Agent(model=scripted("ask E123456")), config=config)
    assert service.chat("who?")["content"] == "ask [employee]"
