"""The sockets of the service: the only code that uses uvicorn's internals.

uvicorn does not guarantee any of this; check each new version of it against this page.

- `listener`: `uvicorn.Server` and `uvicorn.Config` as base classes. Overridden are `Config.load`,
  and of the server `startup`, `shutdown` and `capture_signals`; read are `server_state` (its
  `connections` and `tasks`), `lifespan`, `started`, `config.app`; set are `should_exit` and
  `Config.lifespan_class`.
- `protocol`: `HttpToolsProtocol` and `RequestResponseCycle`. Overridden are the callbacks of
  asyncio and of the parser (`connection_made`, `on_message_begin`, `on_headers_complete`,
  `on_body`, `on_message_complete`, ...), `_should_upgrade` and `handle_websocket_upgrade`; used are
  `cycle`, `pipeline`, `flow`, `parser`, `scope`, `url` and `_unset_keepalive_if_required`.
- `unchunked`: `RequestResponseCycle` as a base class, with `send` overridden; set are
  `chunked_encoding` and `expected_content_length`.
- `exchange`: takes the place of a `RequestResponseCycle`, whose attributes `keep_alive`,
  `more_body`, `response_complete`, `disconnected` and `message_event` the protocol looks at;
  `STATUS_LINE` and `ServerState.default_headers` make the head of a reply.
- `frames`: `WebSocketsSansIOProtocol`. Overridden are `connection_made`, `data_received`,
  `handle_parser_exception`, `handle_ping`, `keepalive_timeout`, `send` and
  `send_receive_event_to_app`; used are `conn`, `queue`, `loop`, `close_timer`, `writable`,
  `read_paused`, `initial_response`, `handshake_complete`, `close_sent` and `disconnected`.
- `connections`: `FlowControl` as a base class, and `timeout_keep_alive_handler` of the protocol; a
  transport of asyncio's in a wrapper that passes on whatever it does not have itself; the socket of
  a transport is asked, by `TCP_INFO`, whether its peer has refused it.

`server.py` alone imports uvicorn beside these, by modules, since its package imports all of them.
"""
