import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sayso_echo_model import Echo

from sayso import Agent
from sayso.testing import MODEL_CHECKS, Served


@pytest.mark.parametrize("check", MODEL_CHECKS, ids=lambda check: str(check.__name__))
def test_it_is_a_model(check: Callable[..., Any]) -> None:
    asyncio.run(check(Echo))


@pytest.mark.parametrize(("name", "said"), [("echo", "hello there"), ("echo:loud", "HELLO THERE")])
def test_it_is_found_by_its_name(sayso_served: Served, name: str, said: str) -> None:
    service = sayso_served(Agent(model=name))
    assert service.chat("hello there")["content"].strip() == said
