from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError, BadRequestError, InternalServerError, OpenAI, UnprocessableEntityError

from sayso import Agent, Call, ModelError, tool
from sayso.testing import Served, Service, scripted

HELLO: Any = [{"role": "user", "content": "hello"}]


class Gateway:
    """Serves an agent and gives the official client of it."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._clients: list[OpenAI] = []

    def __call__(self, agent: Agent) -> OpenAI:
        service: Service = self._served(agent)
        client = OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def gateway(sayso_served: Served) -> Iterator[Gateway]:
    made = Gateway(sayso_served)
    yield made
    made.close()


def test_reply_comes_whole(gateway: Gateway) -> None:
    client = gateway(Agent(name="kube", model=scripted("Hello there.")))
    reply = client.chat.completions.create(model="kube", messages=HELLO)
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello there.", "stop")
    assert reply.model == "kube"


def test_reply_comes_in_pieces(gateway: Gateway) -> None:
    client = gateway(Agent(model=scripted("One two three four.")))
    chunks = list(client.chat.completions.create(model="any", messages=HELLO, stream=True))
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert "".join(texts) == "One two three four."
    assert len(texts) > 1
    assert [c.choices[0].finish_reason for c in chunks][-2:] == [None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_history_system_prompt_and_parts_reach_the_model(gateway: Gateway) -> None:
    model = scripted("fine")
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": "two"},
        *HELLO,
    ]
    agent = Agent(model=model, system_prompt="Look after the cluster.")
    gateway(agent).chat.completions.create(model="any", messages=messages)
    (ask,) = model.asks
    assert (ask.system, ask.context) == ("Look after the cluster.", "Be brief.")
    assert [turn.role for turn in ask.turns] == ["user", "assistant", "user"]


@pytest.mark.parametrize("stream", [False, True])
def test_call_waits_and_is_approved_by_sending_it_back(gateway: Gateway, stream: bool) -> None:
    ran: list[str] = []

    @tool(requires_approval=True)
    def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    model = scripted([Call("1", "delete", {"name": "a"})], "It is gone.")
    client = gateway(Agent(model=model, tools=[delete]))
    if stream:
        chunks = list(client.chat.completions.create(model="m", messages=HELLO, stream=True))
        deltas = [chunk.choices[0].delta for chunk in chunks]
        text = "".join(delta.content or "" for delta in deltas)
        (data,) = [d.model_extra["data"] for d in deltas if d.model_extra]
    else:
        reply = client.chat.completions.create(model="m", messages=HELLO).choices[0].message
        text, data = reply.content or "", (reply.model_extra or {})["data"]
    (call,) = data["tool_calls"]
    assert f"waits for approval: delete ({call['id']})" in text
    assert ran == []
    decided = {"tool_calls": [{**call, "execute": True}]}
    messages: Any = [*HELLO, {"role": "user", "content": "", "data": decided}]
    done = client.chat.completions.create(model="m", messages=messages)
    assert done.choices[0].message.content == "It is gone."
    assert ran == ["a"]


def test_models_are_listed(gateway: Gateway) -> None:
    client = gateway(Agent(name="kube", model=scripted()))
    assert [model.id for model in client.models.list()] == ["kube"]


def test_failures_are_errors_of_the_client(gateway: Gateway) -> None:
    broken = ModelError("server", "the model is away")
    client = gateway(Agent(model=scripted(broken, broken)))
    create = client.chat.completions.create
    with pytest.raises(InternalServerError, match="the model is away"):
        create(model="any", messages=HELLO)
    with pytest.raises(APIError, match="the model is away"):
        list(create(model="any", messages=HELLO, stream=True))
    with pytest.raises((BadRequestError, UnprocessableEntityError)):
        create(model="any", messages=[])
    picture: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(UnprocessableEntityError, match="messages are texts"):
        create(model="any", messages=picture)
