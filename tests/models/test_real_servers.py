"""Servers that people run, from the registries: llama.cpp's own, and LiteLLM's proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from providers import OpenAIServer, stream

sys.path.insert(0, str(Path(__file__).parents[1]))

from pips import python_with
from ports import quiet_port
from sayso import Agent, tool
from sayso.models import load_model
from sayso.testing import served, user

pytestmark = pytest.mark.slow
LLAMA = ("xllamacpp==2026.10.11549", "gguf==0.19.0")
LITELLM = ("litellm[proxy]==1.108.7",)
KEY = "sk-0123456789abcdef0123456789abcdef"
deleted: list[str] = []


@tool(requires_approval=True)
def delete(name: str) -> str:
    """Delete a file."""
    deleted.append(name)
    return f"deleted {name}"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of llama.cpp's server, with a model of 4,096 tokens and random weights."""
    python = python_with("llama", *LLAMA)
    script = Path(__file__).with_name("llama_server.py")
    folder = tmp_path_factory.mktemp("llama")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [python, script, folder / "tiny.gguf"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, (folder / "log").read_text()
        yield address
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def behind() -> Iterator[OpenAIServer]:
    """The provider behind the proxy."""
    with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(behind: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of LiteLLM's proxy: `mock` answers by itself, `real` asks the provider."""
    python = python_with("litellm", *LITELLM)
    folder = tmp_path_factory.mktemp("litellm")
    own = behind.settings()
    real = {"model": "openai/m", "api_base": own["base_url"], "api_key": own["api_key"]}
    mock = {"model": "openai/m", "api_key": "none", "mock_response": "Hello there."}
    models = [
        {"model_name": "real", "litellm_params": real},
        {"model_name": "mock", "litellm_params": mock},
    ]
    config = folder / "config.yaml"
    # JSON is YAML, too.
    config.write_text(json.dumps({"model_list": models}))
    port = quiet_port()
    command = [python.with_name("litellm"), "--config", config, "--host", "127.0.0.1"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=folder,
            env={"LITELLM_MASTER_KEY": KEY, "PATH": "/usr/bin:/bin", "HOME": str(folder)},
            stdout=log,
            stderr=log,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health/liveliness", process, folder / "log")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)


def test_llama_cpp_streams_with_tools_and_counts_its_tokens(llama: str) -> None:
    model = load_model("llamacpp:tiny", {"base_url": f"{llama}/v1", "retries": 0})
    agent = Agent(name="desk", model=model, tools=[delete])
    with served(agent, config='plugins = ["v2"]\n') as service:
        reply = service.chat(user("hello"))
        usage = reply["meta_data"]["usage"]
        assert usage["input_tokens"] > 0 and usage["output_tokens"] > 0


def test_window_of_llama_cpps_model_is_read_from_its_list(llama: str) -> None:
    model = load_model("llamacpp:any-name", {"base_url": f"{llama}/v1", "retries": 0})
    agent = Agent(name="desk", model=model)
    with served(agent, config='plugins = ["v2"]\n') as service:
        service.chat(user("hello"))
        deadline = time.monotonic() + 20
        while getattr(model, "context_window", None) is None:
            assert time.monotonic() < deadline, "the list was not read"
            time.sleep(0.01)
    assert model.context_window == 4096


def test_talk_longer_than_llama_cpps_window_is_shortened_after_its_refusal(llama: str) -> None:
    model = load_model("llamacpp:tiny", {"base_url": f"{llama}/v1", "retries": 0})
    history: list[Any] = []
    for number in range(8):
        history.append(user(f"question {number} " + "w" * 1_000))
        history.append({"role": "assistant", "content": f"answer {number}"})
    with served(Agent(name="desk", model=model), config='plugins = ["v2"]\n') as service:
        reply = service.chat(*history, user("the last one"))
        assert 0 < reply["meta_data"]["usage"]["input_tokens"] < 4096


def test_litellms_own_answer_is_streamed(proxy: str) -> None:
    model = load_model("openai:mock", {"base_url": proxy, "api_key": KEY, "retries": 0})
    with served(Agent(name="desk", model=model), config='plugins = ["v2"]\n') as service:
        reply = service.chat(user("hello"))
        assert reply["content"] == "Hello there."
        assert reply["meta_data"]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("approved", [True, False])
def test_conversation_through_litellm_goes_on_after_a_decision(
    proxy: str, behind: OpenAIServer, approved: bool
) -> None:
    deleted.clear()
    model = load_model("openai:real", {"base_url": proxy, "api_key": KEY, "retries": 0})
    agent = Agent(name="desk", model=model, tools=[delete])
    behind.then(
        stream(behind.message("", [("call_1", "delete", '{"name": "a"}')])),
        stream(behind.message("Done.")),
    )
    with served(agent, config='plugins = ["v2"]\n') as service:
        talk = service.conversation()
        talk.say("delete a")
        assert deleted == []
        reply = talk.approve() if approved else talk.reject("too early")
        assert reply["content"] == "Done."
    assert deleted == (["a"] if approved else [])
    assert behind.refusals == []
