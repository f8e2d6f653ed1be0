"""Sayso: one tool-calling agent behind HTTP, streams, WebSocket, A2A and MCP.

Nothing dangerous runs without your say-so. All public names come from here; they are
imported when they are first used, so `import sayso` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sayso.garbage import no_collecting

if TYPE_CHECKING:
    from sayso._version import __version__
    from sayso.agent import Agent
    from sayso.app import create_app
    from sayso.commands import LocalShell
    from sayso.config import Config, load_config, state_dir
    from sayso.config.settings import Duration, Size
    from sayso.config.targets import load_agent
    from sayso.config.variables import secret_text
    from sayso.context import Caller, DecidedCall, RequestContext
    from sayso.decisions.filters import CallFilter
    from sayso.decisions.shapes import (
        GrantShown,
        ShownCall,
        ShownItem,
        View,
        iso,
        shown_call,
        shown_grant,
        shown_item,
    )
    from sayso.errors import (
        AgentError,
        Blocked,
        Busy,
        ConfigError,
        InvalidRequest,
        LedgerUnavailable,
        ModelError,
        NotGranted,
        PluginError,
        RequestError,
        SaysoError,
        Silence,
        StartupError,
        StillRunning,
        Stopping,
        StreamGone,
        StreamUnknown,
        TooLarge,
        ToolInputError,
        TooMany,
        TurnError,
        Unauthenticated,
    )
    from sayso.gate import Outcome
    from sayso.hookspecs import hookimpl
    from sayso.host import ServiceHost
    from sayso.hosting import Host, Notes, Ruling
    from sayso.hosting.grants import Grantable
    from sayso.hosting.numbers import Backlog, Load
    from sayso.hosting.resent import Asked, Shown, asked
    from sayso.hosting.streams import EventStream
    from sayso.http.access import check_access
    from sayso.http.authentication import authenticate
    from sayso.http.endpoints import (
        ChatEndpoint,
        caller_of,
        read_body,
        standard_error,
        turn_to_read,
    )
    from sayso.http.operations import (
        openapi_fields,
        openapi_operation,
        openapi_query,
        openapi_shape,
    )
    from sayso.http.request_ids import RequestIds
    from sayso.http.sockets import Socket
    from sayso.http.sse import sse_frame, sse_reply
    from sayso.installing import install_line
    from sayso.ledger import (
        Decision,
        Head,
        LogRow,
        Owner,
        Pending,
        Proposal,
        Reading,
        Store,
        SuspendedTurn,
        Transaction,
    )
    from sayso.ledger.grants import StandingGrant
    from sayso.ledger.log import checkpoint, log_row
    from sayso.ledger.outbox import LogPage
    from sayso.ledger.people import Comment, Terms, Vote
    from sayso.ledger.voting import needed_approvals
    from sayso.listener.protocol import Http
    from sayso.models import (
        Ask,
        Attachment,
        Call,
        Model,
        Reply,
        Result,
        Text,
        Thought,
        ToolDefinition,
        ToolStart,
        Turn,
        Usage,
        load_model,
    )
    from sayso.observing import (
        ApprovalChange,
        Delivered,
        LedgerOperation,
        ModelCallBegan,
        ModelCallEnded,
        Observer,
        SlotAwaited,
        ToolCallBegan,
        ToolCallEnded,
        TurnBegan,
        TurnEnded,
    )
    from sayso.plugins import Plugin
    from sayso.principals import Principal
    from sayso.screening import Screening
    from sayso.server import serve
    from sayso.service.stderr import StandardError
    from sayso.threaded import running
    from sayso.tools import Tool, tool
    from sayso.tools.results import (
        AudioContent,
        ImageContent,
        ResourceContent,
        TextContent,
        ToolResult,
    )
    from sayso.tools.sources import SourceHost, ToolSource
    from sayso.wire.bodies import BodyReader
    from sayso.wire.characters import pretty, unseen, visible
    from sayso.wire.encoding import encode, unbroken
    from sayso.wire.events import (
        AgentEvent,
        ApprovalRequested,
        Approvals,
        Commands,
        ConversationStarted,
        Done,
        ErrorEvent,
        Event,
        ExecutedApprovals,
        ExecutedCommands,
        ExecutedToolCalls,
        IntermittentUpdate,
        MessageAdded,
        ModelCalled,
        TextDelta,
        ToolCallApproved,
        ToolCallRejected,
        ToolCalls,
        ToolExecuted,
        ToolExecutionFailed,
        fold,
        outcomes_of,
    )
    from sayso.wire.failures import Failure
    from sayso.wire.masking import mask
    from sayso.wire.messages import (
        AgentMessage,
        Approval,
        ChatRequest,
        Command,
        CommandFile,
        Data,
        ExecutedApproval,
        ExecutedCommand,
        ExecutedToolCall,
        Message,
        Party,
        PlatformContext,
        ToolCall,
        URLConfig,
    )
    from sayso.wire.requests import parse_request
    from sayso.wire.session import Session
    from sayso.wire.traces import hidden_trace
    from sayso.workers import per_loop

_MODULES = {
    "_version": "__version__",
    "agent": "Agent",
    "context": "Caller DecidedCall RequestContext",
    "app": "create_app",
    "wire.bodies": "BodyReader",
    "wire.characters": "pretty unseen visible",
    "commands": "LocalShell",
    "config": "Config load_config state_dir",
    "config.settings": "Duration Size",
    "config.targets": "load_agent",
    "config.variables": "secret_text",
    "errors": (
        "AgentError SaysoError Blocked Busy ConfigError InvalidRequest LedgerUnavailable "
        "ModelError NotGranted PluginError RequestError Silence StartupError StillRunning Stopping "
        "StreamGone StreamUnknown TooLarge TooMany ToolInputError TurnError Unauthenticated"
    ),
    "wire.encoding": "encode unbroken",
    "wire.events": (
        "AgentEvent ApprovalRequested Approvals Commands ConversationStarted Done ErrorEvent Event "
        "ExecutedApprovals ExecutedCommands ExecutedToolCalls IntermittentUpdate MessageAdded "
        "ModelCalled TextDelta ToolCallApproved ToolCallRejected ToolCalls ToolExecuted "
        "ToolExecutionFailed fold outcomes_of"
    ),
    "hookspecs": "hookimpl",
    "host": "ServiceHost",
    "decisions.filters": "CallFilter",
    "decisions.shapes": "GrantShown ShownCall ShownItem View iso shown_call shown_grant shown_item",
    "hosting": "Host Notes Ruling",
    "hosting.grants": "Grantable",
    "hosting.numbers": "Backlog Load",
    "hosting.resent": "Asked Shown asked",
    "http.access": "check_access",
    "http.authentication": "authenticate",
    "http.operations": "openapi_fields openapi_operation openapi_query openapi_shape",
    "http.request_ids": "RequestIds",
    "http.endpoints": "ChatEndpoint caller_of read_body standard_error turn_to_read",
    "listener.protocol": "Http",
    "http.sockets": "Socket",
    "http.sse": "sse_frame sse_reply",
    "installing": "install_line",
    "ledger": "Decision Head LogRow Owner Pending Proposal Reading Store SuspendedTurn Transaction",
    "ledger.grants": "StandingGrant",
    "ledger.log": "checkpoint log_row",
    "ledger.outbox": "LogPage",
    "ledger.people": "Comment Terms Vote",
    "ledger.voting": "needed_approvals",
    "wire.masking": "mask",
    "wire.messages": (
        "AgentMessage Approval ChatRequest Command CommandFile Data ExecutedApproval "
        "ExecutedCommand ExecutedToolCall Message Party PlatformContext ToolCall URLConfig"
    ),
    "models": (
        "Ask Attachment Call Model Reply Result Text Thought ToolDefinition ToolStart Turn Usage "
        "load_model"
    ),
    "observing": (
        "ApprovalChange Delivered LedgerOperation ModelCallBegan ModelCallEnded Observer "
        "SlotAwaited ToolCallBegan ToolCallEnded TurnBegan TurnEnded"
    ),
    "plugins": "Plugin",
    "principals": "Principal",
    "wire.requests": "parse_request",
    "screening": "Screening",
    "server": "serve",
    "service.stderr": "StandardError",
    "wire.session": "Session",
    "threaded": "running",
    "tools": "Tool tool",
    "tools.results": "AudioContent ImageContent ResourceContent TextContent ToolResult",
    "tools.sources": "SourceHost ToolSource",
    "wire.traces": "hidden_trace",
    "wire.failures": "Failure",
    "gate": "Outcome",
    "hosting.streams": "EventStream",
    "workers": "per_loop",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "Agent",
    "AgentError",
    "AgentEvent",
    "AgentMessage",
    "Approval",
    "ApprovalChange",
    "ApprovalRequested",
    "Approvals",
    "Ask",
    "Asked",
    "Attachment",
    "AudioContent",
    "Backlog",
    "Blocked",
    "BodyReader",
    "Busy",
    "Call",
    "CallFilter",
    "Caller",
    "ChatEndpoint",
    "ChatRequest",
    "Command",
    "CommandFile",
    "Commands",
    "Comment",
    "Config",
    "ConfigError",
    "ConversationStarted",
    "Data",
    "DecidedCall",
    "Decision",
    "Delivered",
    "Done",
    "Duration",
    "ErrorEvent",
    "Event",
    "EventStream",
    "ExecutedApproval",
    "ExecutedApprovals",
    "ExecutedCommand",
    "ExecutedCommands",
    "ExecutedToolCall",
    "ExecutedToolCalls",
    "Failure",
    "GrantShown",
    "Grantable",
    "Head",
    "Host",
    "Http",
    "ImageContent",
    "IntermittentUpdate",
    "InvalidRequest",
    "LedgerOperation",
    "LedgerUnavailable",
    "Load",
    "LocalShell",
    "LogPage",
    "LogRow",
    "Message",
    "MessageAdded",
    "Model",
    "ModelCallBegan",
    "ModelCallEnded",
    "ModelCalled",
    "ModelError",
    "NotGranted",
    "Notes",
    "Observer",
    "Outcome",
    "Owner",
    "Party",
    "Pending",
    "PlatformContext",
    "Plugin",
    "PluginError",
    "Principal",
    "Proposal",
    "Reading",
    "Reply",
    "RequestContext",
    "RequestError",
    "RequestIds",
    "ResourceContent",
    "Result",
    "Ruling",
    "SaysoError",
    "Screening",
    "ServiceHost",
    "Session",
    "Shown",
    "ShownCall",
    "ShownItem",
    "Silence",
    "Size",
    "SlotAwaited",
    "Socket",
    "SourceHost",
    "StandardError",
    "StandingGrant",
    "StartupError",
    "StillRunning",
    "Stopping",
    "Store",
    "StreamGone",
    "StreamUnknown",
    "SuspendedTurn",
    "Terms",
    "Text",
    "TextContent",
    "TextDelta",
    "Thought",
    "TooLarge",
    "TooMany",
    "Tool",
    "ToolCall",
    "ToolCallApproved",
    "ToolCallBegan",
    "ToolCallEnded",
    "ToolCallRejected",
    "ToolCalls",
    "ToolDefinition",
    "ToolExecuted",
    "ToolExecutionFailed",
    "ToolInputError",
    "ToolResult",
    "ToolSource",
    "ToolStart",
    "Transaction",
    "Turn",
    "TurnBegan",
    "TurnEnded",
    "TurnError",
    "URLConfig",
    "Unauthenticated",
    "Usage",
    "View",
    "Vote",
    "__version__",
    "asked",
    "authenticate",
    "caller_of",
    "check_access",
    "checkpoint",
    "create_app",
    "encode",
    "fold",
    "hidden_trace",
    "hookimpl",
    "install_line",
    "iso",
    "load_agent",
    "load_config",
    "load_model",
    "log_row",
    "mask",
    "needed_approvals",
    "openapi_fields",
    "openapi_operation",
    "openapi_query",
    "openapi_shape",
    "outcomes_of",
    "parse_request",
    "per_loop",
    "pretty",
    "read_body",
    "running",
    "secret_text",
    "serve",
    "shown_call",
    "shown_grant",
    "shown_item",
    "sse_frame",
    "sse_reply",
    "standard_error",
    "state_dir",
    "tool",
    "turn_to_read",
    "unbroken",
    "unseen",
    "visible",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sayso' has no attribute {name!r}")
    with no_collecting():
        value = getattr(importlib.import_module(f"sayso.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *globals()]
