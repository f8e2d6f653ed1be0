"""A talk by LangChain with a service at the address in `argv`: streamed text, then over Responses
an approval; prints the last answer."""

from __future__ import annotations

import sys
from typing import Any

from langchain_openai import ChatOpenAI


def talk(url: str, way: str) -> str:
    """The last answer."""
    responses = way == "responses"
    model = ChatOpenAI(
        model="desk", base_url=url, api_key="any", use_responses_api=responses, max_retries=0
    )
    text = "".join(chunk.text for chunk in model.stream("hello"))
    return approved(model) if responses else text


def approved(model: Any) -> str:
    """The answer after the approval of a call."""
    asked = {"role": "user", "content": "delete a"}
    first = model.invoke([asked])
    (request,) = [b for b in first.content if b.get("type") == "mcp_approval_request"]
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": True,
    }
    last = model.invoke([asked, first, {"role": "user", "content": [answer]}])
    return str(last.text)


print(talk(*sys.argv[1:]))
