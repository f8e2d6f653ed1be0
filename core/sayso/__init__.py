"""Sayso: one tool-calling agent behind HTTP, streams, WebSocket, A2A and MCP.

Nothing dangerous runs without your say-so. All public names come from here; they are
imported when they are first used, so `import sayso` stays light.
"""

# One block a module, though the names have aliases: `ruff: isort` would make it one a name.
# ruff: isort: skip_file
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sayso.garbage import no_collecting

if TYPE_CHECKING:
    # The aliases tell type checkers that the names are public.
    from sayso._version import __version__ as __version__
    from sayso.agent import Agent as Agent
    from sayso.app import create_app as create_app
    from sayso.commands import LocalShell as LocalShell
    from sayso.config import Config as Config, load_config as load_config, state_dir as state_dir
    from sayso.config.settings import Duration as Duration, Size as Size
    from sayso.config.targets import load_agent as load_agent
    from sayso.config.variables import secret_text as secret_text
    from sayso.context import (
        Caller as Caller,
        DecidedCall as DecidedCall,
        RequestContext as RequestContext,
    )
    from sayso.decisions.shapes import (
        CallFilter as CallFilter,
        GrantShown as GrantShown,
        ShownCall as ShownCall,
        ShownItem as ShownItem,
        View as View,
        iso as iso,
        shown_call as shown_call,
        shown_grant as shown_grant,
        shown_item as shown_item,
    )
    from sayso.errors import (
        AgentError as AgentError,
        Blocked as Blocked,
        Busy as Busy,
        ConfigError as ConfigError,
        InvalidRequest as InvalidRequest,
        LedgerUnavailable as LedgerUnavailable,
        ModelError as ModelError,
        NotGranted as NotGranted,
        PluginError as PluginError,
        RequestError as RequestError,
        SaysoError as SaysoError,
        Silence as Silence,
        StartupError as StartupError,
        StillRunning as StillRunning,
        Stopping as Stopping,
        StreamGone as StreamGone,
        StreamUnknown as StreamUnknown,
        TooLarge as TooLarge,
        ToolInputError as ToolInputError,
        TooMany as TooMany,
        TurnError as TurnError,
        Unauthenticated as Unauthenticated,
    )
    from sayso.gate import Outcome as Outcome
    from sayso.hookspecs import hookimpl as hookimpl
    from sayso.host import ServiceHost as ServiceHost
    from sayso.hosting import Host as Host
    from sayso.hosting.record import Notes as Notes, Ruling as Ruling
    from sayso.hosting.grants import Grantable as Grantable
    from sayso.hosting.erasing import KeptBeside as KeptBeside, Removed as Removed
    from sayso.hosting.numbers import Backlog as Backlog, Load as Load
    from sayso.hosting.resent import Asked as Asked, Shown as Shown, asked as asked
    from sayso.hosting.streams import EventStream as EventStream
    from sayso.http.access import check_access as check_access
    from sayso.http.authentication import authenticate as authenticate
    from sayso.http.endpoints import (
        ChatEndpoint as ChatEndpoint,
        caller_of as caller_of,
        read_body as read_body,
        standard_error as standard_error,
        turn_to_read as turn_to_read,
    )
    from sayso.http.operations import (
        openapi_fields as openapi_fields,
        openapi_operation as openapi_operation,
        openapi_query as openapi_query,
        openapi_shape as openapi_shape,
    )
    from sayso.http.request_ids import RequestIds as RequestIds
    from sayso.http.sockets import Socket as Socket
    from sayso.http.sse import sse_frame as sse_frame, sse_reply as sse_reply
    from sayso.installing import install_line as install_line
    from sayso.ledger import (
        Decision as Decision,
        Head as Head,
        LogRow as LogRow,
        Owner as Owner,
        Pending as Pending,
        Proposal as Proposal,
        Reading as Reading,
        Store as Store,
        SuspendedTurn as SuspendedTurn,
        Transaction as Transaction,
    )
    from sayso.ledger.erasing import Subject as Subject
    from sayso.ledger.grants import StandingGrant as StandingGrant
    from sayso.ledger.log import checkpoint as checkpoint, log_row as log_row
    from sayso.ledger.outbox import LogPage as LogPage
    from sayso.ledger.people import Comment as Comment, Terms as Terms, Vote as Vote
    from sayso.ledger.voting import needed_approvals as needed_approvals, why_barred as why_barred
    from sayso.listener.protocol import Http as Http
    from sayso.models import (
        Ask as Ask,
        Attachment as Attachment,
        Call as Call,
        Model as Model,
        Reply as Reply,
        Result as Result,
        Text as Text,
        Thought as Thought,
        ToolDefinition as ToolDefinition,
        ToolStart as ToolStart,
        Turn as Turn,
        Usage as Usage,
        load_model as load_model,
    )
    from sayso.observing import (
        ApprovalChange as ApprovalChange,
        CallerRefused as CallerRefused,
        Delivered as Delivered,
        LedgerOperation as LedgerOperation,
        ModelCallBegan as ModelCallBegan,
        ModelCallEnded as ModelCallEnded,
        Observer as Observer,
        SlotAwaited as SlotAwaited,
        ToolCallBegan as ToolCallBegan,
        ToolCallEnded as ToolCallEnded,
        TurnBegan as TurnBegan,
        TurnEnded as TurnEnded,
    )
    from sayso.plugins import Plugin as Plugin
    from sayso.principals import Principal as Principal
    from sayso.screening import Screening as Screening
    from sayso.server import serve as serve
    from sayso.service.stderr import StandardError as StandardError
    from sayso.threaded import running as running
    from sayso.tools import Tool as Tool, tool as tool
    from sayso.tools.values import (
        AudioContent as AudioContent,
        ImageContent as ImageContent,
        ResourceContent as ResourceContent,
        TextContent as TextContent,
        ToolResult as ToolResult,
    )
    from sayso.tools.sources import SourceHost as SourceHost, ToolSource as ToolSource
    from sayso.wire.json_bytes import BodyReader as BodyReader
    from sayso.wire.characters import pretty as pretty, unseen as unseen, visible as visible
    from sayso.wire.chat import encode as encode, unbroken as unbroken
    from sayso.wire.events import (
        AgentEvent as AgentEvent,
        ApprovalRequested as ApprovalRequested,
        Approvals as Approvals,
        Commands as Commands,
        ConversationStarted as ConversationStarted,
        Done as Done,
        ErrorEvent as ErrorEvent,
        Event as Event,
        ExecutedApprovals as ExecutedApprovals,
        ExecutedCommands as ExecutedCommands,
        ExecutedToolCalls as ExecutedToolCalls,
        IntermittentUpdate as IntermittentUpdate,
        MessageAdded as MessageAdded,
        ModelCalled as ModelCalled,
        TextDelta as TextDelta,
        ToolCallApproved as ToolCallApproved,
        ToolCallRejected as ToolCallRejected,
        ToolCalls as ToolCalls,
        ToolExecuted as ToolExecuted,
        ToolExecutionFailed as ToolExecutionFailed,
        fold as fold,
        outcomes_of as outcomes_of,
    )
    from sayso.wire.failures import Failure as Failure
    from sayso.wire.masking import mask as mask
    from sayso.wire.messages import (
        AgentMessage as AgentMessage,
        Approval as Approval,
        ChatRequest as ChatRequest,
        Command as Command,
        CommandFile as CommandFile,
        Data as Data,
        ExecutedApproval as ExecutedApproval,
        ExecutedCommand as ExecutedCommand,
        ExecutedToolCall as ExecutedToolCall,
        Message as Message,
        Party as Party,
        PlatformContext as PlatformContext,
        ToolCall as ToolCall,
        URLConfig as URLConfig,
    )
    from sayso.wire.chat import parse_request as parse_request
    from sayso.context import Session as Session
    from sayso.wire.masking import hidden_trace as hidden_trace
    from sayso.workers import per_loop as per_loop

_MODULES = {
    "_version": "__version__",
    "agent": "Agent",
    "context": "Caller DecidedCall RequestContext Session",
    "app": "create_app",
    "wire.json_bytes": "BodyReader",
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
    "wire.chat": "encode parse_request unbroken",
    "wire.events": (
        "AgentEvent ApprovalRequested Approvals Commands ConversationStarted Done ErrorEvent Event "
        "ExecutedApprovals ExecutedCommands ExecutedToolCalls IntermittentUpdate MessageAdded "
        "ModelCalled TextDelta ToolCallApproved ToolCallRejected ToolCalls ToolExecuted "
        "ToolExecutionFailed fold outcomes_of"
    ),
    "hookspecs": "hookimpl",
    "host": "ServiceHost",
    "decisions.shapes": (
        "CallFilter GrantShown ShownCall ShownItem View iso shown_call shown_grant shown_item"
    ),
    "hosting": "Host",
    "hosting.erasing": "KeptBeside Removed",
    "hosting.grants": "Grantable",
    "hosting.numbers": "Backlog Load",
    "hosting.record": "Notes Ruling",
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
    "ledger.erasing": "Subject",
    "ledger.grants": "StandingGrant",
    "ledger.log": "checkpoint log_row",
    "ledger.outbox": "LogPage",
    "ledger.people": "Comment Terms Vote",
    "ledger.voting": "needed_approvals why_barred",
    "wire.masking": "hidden_trace mask",
    "wire.messages": (
        "AgentMessage Approval ChatRequest Command CommandFile Data ExecutedApproval "
        "ExecutedCommand ExecutedToolCall Message Party PlatformContext ToolCall URLConfig"
    ),
    "models": (
        "Ask Attachment Call Model Reply Result Text Thought ToolDefinition ToolStart Turn Usage "
        "load_model"
    ),
    "observing": (
        "ApprovalChange CallerRefused Delivered LedgerOperation ModelCallBegan ModelCallEnded "
        "Observer SlotAwaited ToolCallBegan ToolCallEnded TurnBegan TurnEnded"
    ),
    "plugins": "Plugin",
    "principals": "Principal",
    "screening": "Screening",
    "server": "serve",
    "service.stderr": "StandardError",
    "threaded": "running",
    "tools": "Tool tool",
    "tools.values": "AudioContent ImageContent ResourceContent TextContent ToolResult",
    "tools.sources": "SourceHost ToolSource",
    "wire.failures": "Failure",
    "gate": "Outcome",
    "hosting.streams": "EventStream",
    "workers": "per_loop",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sayso' has no attribute {name!r}")
    with no_collecting():
        value = getattr(importlib.import_module(f"sayso.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *globals()]
