"""Tokens in OpenAI's forms."""

from __future__ import annotations

from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage

from sayso_openai_api.usage import Tokens

COUNTS = {
    "input_tokens": 10,
    "output_tokens": 4,
    "cached_tokens": 3,
    "cache_write_tokens": 2,
    "reasoning_tokens": 1,
}


def test_the_tokens_of_several_turns_are_added() -> None:
    tokens = Tokens()
    assert tokens.of_chat() is None and tokens.of_response() is None
    tokens.add({"usage": COUNTS})
    tokens.add({})
    tokens.add({"usage": {"input_tokens": 1, "output_tokens": 1}})
    chat = CompletionUsage.model_validate(tokens.of_chat(), strict=True)
    assert (chat.prompt_tokens, chat.completion_tokens, chat.total_tokens) == (11, 5, 16)
    response = ResponseUsage.model_validate(tokens.of_response(), strict=True)
    assert (response.total_tokens, response.input_tokens_details.cached_tokens) == (16, 3)
