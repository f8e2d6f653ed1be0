"""The bodies of requests, as far as they are used; all other fields are accepted and ignored.

Null stands for each field that has a default, as at OpenAI.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool
from starlette.requests import Request

from sayso import BodyReader, Host, InvalidRequest, Shown, read_body
from sayso_openai_api.cards import parts_of, reported_in

Json = dict[str, Any]


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class Said(_Open):
    """A message of the conversation; `content` is a text or a list of parts."""

    role: str
    content: str | list[Json] | None = None


class StreamOptions(_Open):
    """Options for a stream beside its text."""

    include_usage: bool | None = False


class ChatBody(_Open):
    """The body of `POST /v1/chat/completions`."""

    model: str
    messages: list[Said]
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None


class ResponseBody(_Open):
    """The body of `POST /v1/responses`."""

    model: str
    input: str | list[Json] = []
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Json | None = None
    stream: StrictBool | None = False
    background: StrictBool | None = False
    store: StrictBool | None = True
    metadata: dict[str, str] | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Null is the default."""
        self.background = bool(self.background)
        self.store = self.store is not False


chat_bodies = BodyReader(ChatBody)
response_bodies = BodyReader(ResponseBody, unique=True)


async def raw_body(host: Host, request: Request) -> bytes:
    """The body as it was sent; raises RequestError."""
    return await read_body(request.scope, request.receive, host.config.limits.body)


def text_of(content: object) -> str:
    """The text of a message; parts that are no text are skipped."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def conversation(host: Host, body: ChatBody) -> tuple[list[Shown], str, set[str]]:
    """The messages, the texts of `system` and `developer`, and the calls whose outcome was
    reported.

    Calls and results of the client's own tools belong to other software and are left out.
    """
    shown: list[Shown] = []
    instructions: list[str] = []
    reported: set[str] = set()
    for said in body.messages:
        text = text_of(said.content)
        if said.role in ("system", "developer"):
            instructions.append(text)
        elif said.role == "user":
            shown.append(Shown("user", text))
        elif said.role == "assistant":
            reported |= reported_in(text)
            shown += [Shown("assistant", *part) for part in parts_of(text)]
    if not shown or shown[-1].role != "user":
        raise InvalidRequest.at(
            ["body", "messages"], "last_message_not_user", "the last message must be a user's"
        )
    check_count(host, len(shown))
    return shown, "\n\n".join(text for text in instructions if text.strip()), reported


def check_count(host: Host, count: int) -> None:
    """Raise InvalidRequest for more messages than `limits.messages`."""
    if count > (most := host.config.limits.messages):
        raise InvalidRequest.at(
            ["body", "messages"], "too_long", f"there are more than {most} messages"
        )
