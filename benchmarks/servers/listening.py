"""The way every server under load listens: on the port that is its first argument."""

import sys
from typing import Any

import uvicorn


def listen(app: Any, **options: Any) -> None:
    """Serve `app` on uvicorn with its fastest settings, and no log of requests."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        access_log=False,
        loop="uvloop",
        http="httptools",
        backlog=2048,
        **options,
    )
