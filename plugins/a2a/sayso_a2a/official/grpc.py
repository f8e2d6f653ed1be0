"""The official protocol over gRPC, on a port of its own: the SDK's servicer on our handler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.utils.errors import A2AError, VersionNotSupportedError

from sayso import Caller, Host, PluginError, authenticate, install_line
from sayso_a2a.incoming import PROTOCOL
from sayso_a2a.official.callers import OVER_GRPC, context_of
from sayso_a2a.official.handler import Handler

_LARGEST = 4 * 2**20
"""Most bytes of a message, unless `limits.body` is less: a message of gRPC is read whole."""
_LAST = 2.0
"""Seconds for answers under way when the service stops."""
_caller: ContextVar[Caller] = ContextVar("caller")


@asynccontextmanager
async def serving(host: Host, handler: Handler, port: int) -> AsyncIterator[int]:
    """The gRPC server while the body runs; yields its port.

    Raises PluginError if its packages are missing, or the port is taken.
    """
    try:
        import grpc
        from a2a.server.request_handlers.grpc_handler import GrpcHandler
        from a2a.types import a2a_pb2_grpc
    except ImportError as error:
        raise PluginError(
            f"plugin.a2a.grpc_port needs further packages ({error}); "
            f"try: {install_line('sayso-a2a[grpc]')}"
        ) from error
    options = [
        ("grpc.max_receive_message_length", min(host.config.limits.body, _LARGEST)),
        # Each worker process has the port; with one process a port that is taken is an error.
        ("grpc.so_reuseport", int(host.config.server.workers > 1)),
    ]
    server = grpc.aio.server(interceptors=[_authentication(host)], options=options)
    served: Any = a2a_pb2_grpc
    served.add_A2AServiceServicer_to_server(GrpcHandler(handler, _builder()), server)
    address = host.config.server.host
    named = f"[{address}]" if ":" in address else address
    try:
        bound = server.add_insecure_port(f"{named}:{port}")
    except RuntimeError as error:
        raise PluginError(
            f"plugin 'a2a': port {port} of {address} cannot be listened on for gRPC; choose "
            "another with plugin.a2a.grpc_port"
        ) from error
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(_LAST)


def _authentication(host: Host) -> Any:
    """An interceptor that authenticates each caller, by `[auth]` and the plugins."""
    import grpc

    class Authentication(grpc.aio.ServerInterceptor):  # type: ignore[misc]
        async def intercept_service(
            self, continuation: Callable[[Any], Awaitable[Any]], details: Any
        ) -> Any:
            found = await continuation(details)
            try:
                _caller.set(await _caller_of(host, details))
            except Exception as error:
                return _refusing(host.failure(error), found)
            return found

    return Authentication()


async def _caller_of(host: Host, details: Any) -> Caller:
    headers = [
        (name.lower().encode("latin-1"), _bytes(value))
        for name, value in details.invocation_metadata or ()
    ]
    scope = {"type": "http", "method": "POST", "path": details.method, "headers": headers}
    scope |= {"root_path": "", "query_string": b"", "client": None, "scheme": "http"}
    return Caller(PROTOCOL, await authenticate(host, scope, PROTOCOL))


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")


def _refusing(failure: Any, found: Any) -> Any:
    """A refusal of any kind of call, because its caller is unknown."""
    import grpc

    unknown = failure.status == 401
    code = grpc.StatusCode.UNAUTHENTICATED if unknown else grpc.StatusCode.UNAVAILABLE

    async def refuse(request: Any, context: Any) -> None:
        await context.abort(code, failure.message)

    async def refuse_stream(request: Any, context: Any) -> AsyncIterator[None]:
        await context.abort(code, failure.message)
        yield

    if found is not None and found.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse_stream)
    return grpc.unary_unary_rpc_method_handler(refuse)


def _builder() -> Any:
    from a2a.extensions.common import get_requested_extensions
    from a2a.server.request_handlers.grpc_handler import GrpcServerCallContextBuilder

    class Contexts(GrpcServerCallContextBuilder):
        """Puts the authenticated caller into each call."""

        def build(self, context: Any) -> ServerCallContext:
            """The context of one call. Raises VersionNotSupportedError."""
            metadata = [(name.lower(), value) for name, value in context.invocation_metadata()]
            given = {name: value for name, value in metadata if isinstance(value, str)}
            _check_version(given.get("a2a-version", ""))
            named = get_requested_extensions(
                [value for name, value in metadata if name == "a2a-extensions"]
            )
            made = context_of(_caller.get(), given | {"a2a-version": "1.0"}, named)
            made.state[OVER_GRPC] = True
            return made

    return Contexts()


def _check_version(version: str) -> None:
    if version.strip() not in ("", "1.0"):
        error: A2AError = VersionNotSupportedError(message="over gRPC this agent speaks A2A 1.0")
        raise error
