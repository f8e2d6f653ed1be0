"""`GET /v1/models`: the agent is the only model."""

import time

from starlette.requests import Request
from starlette.types import ASGIApp

from sayso import Host
from sayso_openai_api.answers import Json, answered, check_model


class Models:
    """The agent as a list of models, and as one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._created = int(time.time())

    async def listed(self, request: Request) -> ASGIApp:
        """`{"object": "list", "data": [...]}`."""
        return answered({"object": "list", "data": [self._model()]})

    async def one(self, request: Request) -> ASGIApp:
        """The model of that name, or 404."""
        check_model(self._host, request.path_params["model"])
        return answered(self._model())

    def _model(self) -> Json:
        shown: Json = {
            "id": self._host.agent.name,
            "object": "model",
            "created": self._created,
            "owned_by": "sayso",
        }
        stated = self._host.config.model.context_window
        if window := stated or getattr(self._host.model, "context_window", None):
            shown["context_window"] = window
        return shown
