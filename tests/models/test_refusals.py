"""Why a provider refused: callers read a sentence that says what to do, the log what it said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers import SECRET

from sayso.models.adapters import status_fault
from sayso.models.refusals import said_in

TOO_LONG = [
    "prompt is too long: 215000 tokens > 200000 maximum",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
    "the request exceeds the available context size, try increasing it",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Input is too long for requested model.",
]


@pytest.mark.parametrize(
    ("status", "body", "kind", "expected"),
    [
        *(
            (400, {"error": {"message": m}}, "context", "begin a new conversation")
            for m in TOO_LONG
        ),
        (413, {"message": "too large"}, "context", "send less"),
        (
            429,
            {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}},
            "quota",
            "plan or billing",
        ),
        (400, {"error": {"message": "Your credit balance is too low"}}, "quota", "plan or billing"),
        (402, None, "quota", "plan or billing"),
        (429, {"error": {"message": "Rate limit reached"}}, "rate_limit", "limiting the rate"),
        (401, None, "auth", "key for it has to be checked"),
        (400, {"error": {"message": "API key not valid."}}, "auth", "key for it"),
        (403, b"<html>forbidden</html>", "auth", "key for it"),
        (404, {"error": {"message": "no such model"}}, "not_found", "model.name"),
        (400, {"error": {"message": "The model `x` does not exist"}}, "not_found", "model.name"),
        (400, {"error": {"message": "messages: at least one"}}, "bad_request", "refused"),
        (
            400,
            {"error": {"message": "'temperature' is not supported with this model"}},
            "bad_request",
            "refused",
        ),
        (500, "oops", "server", "failed"),
    ],
)
def test_callers_read_what_to_do(status: int, body: Any, kind: str, expected: str) -> None:
    error = status_fault("openai", status, {}, body)
    assert error.kind == kind and expected in str(error)
    assert error.reason not in str(error) or not error.reason


@pytest.mark.parametrize(
    ("body", "message", "parameter"),
    [
        ({"error": {"message": "no", "param": "top_k"}}, "no", "top_k"),
        ({"error": "model 'x' not found"}, "model 'x' not found", ""),
        ({"object": "error", "message": "no", "param": None}, "no", ""),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, '[{"loc": ["body"], "msg": "no"}]', ""),
        ([{"error": {"message": "no", "status": "INVALID_ARGUMENT"}}], "no", ""),
        ({"message": "no"}, "no", ""),
        ("plain words", "plain words", ""),
        ("<html>page</html>", "", ""),
        (None, "", ""),
    ],
)
def test_words_of_each_form_of_refusal_are_read(body: Any, message: str, parameter: str) -> None:
    for given in (body, json.dumps(body).encode() if not isinstance(body, str | None) else body):
        said = said_in(given)
        assert (said.message, said.parameter) == (message, parameter)


def test_reason_is_one_short_line_without_any_key() -> None:
    quoted = (
        f"bad key {SECRET}\nor sk-proj-abcdef0123456789 or AIzaSyA0123456789abcdefghij or "
        "Bearer abcdefgh.ijkl-mnop or AKIAIOSFODNN7EXAMPLE of token-of-the-platform " + "x" * 2000
    )
    headers = {"x-request-id": "req_1"}
    secrets = (SECRET, "token-of-the-platform")
    error = status_fault("openai", 400, headers, {"error": {"message": quoted}}, secrets=secrets)
    for key in (SECRET, "sk-proj", "AIza", "ijkl", "AKIA", "token-of"):
        assert key not in error.why
    assert len(error.reason) <= 500 and "\n" not in error.reason
    assert error.why.endswith("(request req_1)")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("You exceeded your current quota, please check your plan. Please retry in 11.5s.", 11.5),
        ("Rate limit reached for gpt-5.5. Please try again in 350ms.", 0.35),
        ("Rate limit reached. Please try again in 6m3s.", 363),
    ],
)
def test_wait_that_a_refusal_writes_in_its_text_is_kept(words: str, seconds: float) -> None:
    body = {"error": {"code": 429, "message": words, "status": "RESOURCE_EXHAUSTED"}}
    error = status_fault("gemini", 429, {}, body)
    assert (error.kind, error.retry_after) == ("rate_limit", seconds)
    assert status_fault("gemini", 429, {"retry-after": "7"}, body).retry_after == 7


def test_name_of_a_model_that_was_mistyped_is_answered_with_the_right_one() -> None:
    error = status_fault("anthropic", 404, {}, None, model="claude-sonet-5-5")
    assert "did you mean 'claude-sonnet-5-5'?" in str(error)
    right = status_fault("anthropic", 404, {}, None, model="claude-sonnet-5-5")
    assert "did you mean" not in str(right)
