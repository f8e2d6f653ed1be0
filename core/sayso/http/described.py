"""The meaning of each field of the contract and of each operation, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

_SHARED: Mapping[str, str] = {
    "type": "The kind of the object.",
    "id": "The id of the call; Sayso's own for calls that need approval.",
    "name": "The name of the tool, or `command`.",
    "input": "The arguments of the call, or the command with its files.",
    "execute": "True approves the call; it is false while the call waits.",
    "rejection_reason": "A text here rejects the call, with this reason.",
    "reason": "The reason of an approval.",
    "editable": "The parameters whose values an approver may change; true means all.",
    "seen": "The digest of what the approver was shown; send it back to approve exactly that.",
    "intent": "The sentence with which the agent explains why it wants the call.",
    "input_description": "The meaning of each argument.",
    "output": "The output; it begins with `Error:`, `Rejected:` or `Outcome unknown:` if the call "
    "did not succeed.",
    "command": "The command line.",
    "files": "Files that are written before the command runs.",
    "session": "The state of the conversation; send it back unchanged with the next turn.",
    "timestamp": "When the message was made, in ISO 8601.",
    "user": "The person or program that sent the message, by its own account.",
    "agent": "The agent that answered.",
    "meta_data": "Facts about the turn, such as `stop_reason`, `usage` and `blocked`.",
    "tool_calls": "The proposed tool calls; in a request, the decisions on them.",
    "cmds": "The proposed commands; in a request, the decisions on them.",
    "commands": "The proposed commands.",
    "approvals": "The proposals, tool calls and commands in one shape; in a request, decisions.",
    "executed_tool_calls": "The outcomes of approved tool calls.",
    "executed_cmds": "The outcomes of approved commands.",
    "executed_approvals": "The outcomes of everything that was decided through `approvals`.",
    "url_configs": "Links that the reply offers.",
    "text": "The text.",
    "content": "The text of the message.",
    "data": "Proposals, decisions, outcomes and the session.",
    "role": "Who speaks: `user` or `assistant`.",
}

_OWN: Mapping[str, str] = {
    "Approval.bound": "The agent, tool and place that an approval binds beside the input.",
    "Approval.description": "The description of the tool.",
    "Approval.preview": "The effect that the call would have, as the tool foretells it.",
    "Approval.revision": "The number of the input: 1 is the proposed one.",
    "Approval.votes": "The approvals so far, and how many the call needs.",
    "ToolCall.tool_description": "The description of the tool.",
    "ChatRequest.messages": "The whole conversation, the newest message last.",
    "ChatRequest.source": "The program that asks.",
    "CommandFile.file_path": "The path of the file, relative to the command's folder.",
    "CommandFile.file_content": "The content of the file.",
    "Done.stop_reason": "Why the turn stopped; `approval_required` asks for a decision.",
    "Done.data": "The rest of the reply's data.",
    "ErrorEvent.error": "The error, for the caller.",
    "ErrorEvent.code": "The code of the error.",
    "ErrorEvent.incident": "The id by which the log has the cause.",
    "IntermittentUpdate.content": "Details of the status, such as the tool that runs.",
    "Message.platform_context": "Credentials and places for the agent's tools; never shown to "
    "a model.",
    "Party.name": "The name.",
    "Party.id": "The id.",
    "PlatformContext.aws_credentials": "Credentials for AWS; a secret.",
    "PlatformContext.k8s_namespace": "The namespace in Kubernetes.",
    "PlatformContext.kubeconfig": "A kubeconfig; a secret.",
    "PlatformContext.platform_base_url": "The address of the platform.",
    "PlatformContext.platform_token": "A token for the platform; a secret.",
    "PlatformContext.tenant_name": "The tenant, unless the credentials of the caller prove one.",
    "PlatformContext.user_id": "The user on the platform.",
    "URLConfig.url": "The address.",
    "URLConfig.description": "The text of the link.",
    "Status.status": "`ok`, or why not.",
    "Ticket.ticket": "The ticket: valid once.",
    "Ticket.expires_in": "Seconds for which it is valid.",
    "Error.detail": "The error: a text, or with 422 a list with `loc`, `msg` and `type` of each.",
    "Error.code": "The code of the error, for programs; with 422 each `type` has it.",
    "Error.data": "The approved calls that were carried out before the turn failed.",
    "Error.error": "The error as a text.",
    "Error.incident": "The id by which the log has the cause of a failure.",
    "Error.pending": "The ids of the calls that wait for a decision.",
}

OPERATIONS: Mapping[str, str] = {
    "/health": "Answers as long as the process lives. It asks for no credentials.",
    "/ready": "Answers 503 while the service takes no new turns, and says why.",
    "/auth/ticket": "A page in a browser cannot set a header when it opens a WebSocket: it "
    "requests a ticket here and opens `/api/chat-ws?ticket=...`.",
}

CHAT = (
    "Send the whole conversation. A reply with `stop_reason` `approval_required` has proposals: "
    "send the reply back as a message, and behind it a user message whose `data` has the same "
    "calls with `execute: true`, or with a `rejection_reason`."
)
STREAM = (
    f"{CHAT} Each line is one event; the last one is `done` or `error`. A turn that fails has "
    "already been answered with 200."
)

REQUESTS: Mapping[str, Any] = {
    "question": {
        "summary": "A question",
        "value": {"messages": [{"role": "user", "content": "Which pods are failing?"}]},
    },
    "approval": {
        "summary": "An approval of a proposed call",
        "value": {
            "messages": [
                {"role": "user", "content": "Delete the failing pod."},
                {
                    "role": "assistant",
                    "content": "",
                    "data": {"tool_calls": [{"id": "8f0c", "name": "delete_pod", "input": {}}]},
                },
                {
                    "role": "user",
                    "content": "",
                    "data": {
                        "tool_calls": [
                            {"id": "8f0c", "name": "delete_pod", "input": {}, "execute": True}
                        ]
                    },
                },
            ]
        },
    },
}

ERROR: Mapping[str, Any] = {
    "type": "object",
    "description": "A refused or failed request.",
    "properties": {
        "detail": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
        "code": {"type": "string"},
        "incident": {"type": "string"},
        "data": {"type": "object"},
        "pending": {"type": "array", "items": {"type": "string"}},
    },
}


class BodySchema(GenerateJsonSchema):
    """Schemas of bodies as `BodyReader` takes them: null stands for any optional field but a
    boolean. Schemas of answers are pydantic's own."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """The schema of an optional field."""
        made = super().default_schema(schema)
        if self.mode == "serialization" or made.get("type") == "boolean":
            return made
        default = {"default": made.pop("default")} if "default" in made else {}
        forms = made["anyOf"] if made.keys() == {"anyOf"} else [made]
        null = {"type": "null"}
        return {"anyOf": forms if null in forms else [*forms, null], **default}


def described(
    name: str, schema: dict[str, Any], meanings: Mapping[str, str] = {}
) -> dict[str, Any]:
    """The schema of the model `name`, with a description at each field that has none: that of
    `meanings`, else that of the contract's field."""
    # pydantic names the forms of a model in bodies and in answers after it.
    name = name.removesuffix("-Input").removesuffix("-Output")
    fields = schema.get("properties", {})
    for key, field in fields.items():
        whole = f"{name}.{key}"
        said = meanings.get(whole) or meanings.get(key) or _OWN.get(whole) or _SHARED.get(key)
        if said and "description" not in field:
            fields[key] = {"description": said, **field}
    return schema
