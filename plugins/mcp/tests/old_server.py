"""A small MCP server of 2025-11-25 in plain JSON-RPC over stdio, for the tests of the client.

python old_server.py FOLDER [NAME...]      records its calls in FOLDER; adds tools called NAME

- `shapeless` returns an invalid result, and `unlike` one that its schema does not allow.
- `named` has arguments with odd names, and returns them.
- `latin` writes a byte that is not UTF-8; `half` returns a text cut within a surrogate pair.
- `long` returns 1 MiB.
- `null` and `deep` return unreadable results, `nameless` an error without an id.
- `untyped` has an input schema, and `anything` an output schema, without a type.
- `missing` is listed and not found; `shrink` removes `odd.name` from the list.

With `silent` the first process lists no tools; with `restless` each listing is followed by a
notification that the list has changed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}
NAMED = ["_request", "arguments", "context", "name", "request", "self", "session"]
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
names = ["echo", "ask", "crash", "grow", "refuse", "odd.name", "environment"]
names += sys.argv[2:]


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask() -> str:
    params = {"message": "May I?", "requestedSchema": FORM}
    send(id="question", method="elicitation/create", params=params)
    while (answer := json.loads(sys.stdin.readline())).get("id") != "question":
        pass
    action: str = answer["result"]["action"]
    return action


def record(name: str) -> int:
    """The number of calls recorded in this folder."""
    with (FOLDER / name).open("a") as file:
        file.write(f"{name}\n")
    return len((FOLDER / name).read_text().splitlines())


def call(name: str, text: str) -> dict[str, Any] | str:
    match name:
        case "shapeless":
            return {"text": text}
        case "ask":
            text = ask()
        case "crash":
            os._exit(1)
        case "grow":
            names.append("grown")
            send(method="notifications/tools/list_changed")
        case "shrink":
            names.remove("odd.name")
            send(method="notifications/tools/list_changed")
        case "half":
            text = "the first 20 units \ud83d"
        case "null":
            return "null"
        case "deep":
            return "[" * 5000 + "]" * 5000
        case "nameless":
            return "error"
        case "long":
            text = "x" * 2**20
        case "latin":
            os.write(1, b"caf\xe9\n")
        case "unlike":
            wrong = {"text": 1}
            return {"content": [{"type": "text", "text": text}], "structuredContent": wrong}
        case "environment":
            text = os.environ.get("OTHER", "none")
    content = [{"type": "text", "text": text}]
    return {"content": content, "isError": name == "refuse"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | str | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "old", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            record("listed")
            if "restless" in names:
                send(method="notifications/tools/list_changed")
            shape = {"inputSchema": OBJECT, "annotations": {"readOnlyHint": True}}
            named = {"type": "object", "properties": {n: {"type": "string"} for n in NAMED}}
            more = {
                "unlike": {"outputSchema": OBJECT},
                "named": {"inputSchema": named},
                "untyped": {"inputSchema": {"properties": OBJECT["properties"]}},
                "anything": {"outputSchema": {}},
            }
            return {"tools": [{"name": n, **shape, **more.get(n, {})} for n in names]}
        case "tools/call" if params["name"] == "missing":
            return None
        case "tools/call" if params["name"] == "named":
            return call("named", json.dumps(params["arguments"]))
        case "tools/call":
            return call(params["name"], params.get("arguments", {}).get("text", ""))
    return None


starts = record("started")
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    if request["method"] == "tools/list" and "silent" in names and starts == 1:
        continue
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        send(id=request["id"], error={"code": -32601, "message": "Method not found"})
    elif result == "error":
        send(id=None, error={"code": -32600, "message": "what was that?"})
    elif isinstance(result, str):
        os.write(1, b'{"jsonrpc": "2.0", "id": %d, "result": ' % request["id"])
        os.write(1, result.encode() + b"}\n")
    else:
        send(id=request["id"], result=result)
