"""The model of a service, as its configuration or its agent names it."""

from __future__ import annotations

from sayso.config import Config
from sayso.config.factories import installed
from sayso.errors import ConfigError
from sayso.installing import install_line
from sayso.models import Model, NoModel, checked_model, load_model
from sayso.models.fallback import Fallback
from sayso.models.names import split


def chosen_model(given: str | Model | None, config: Config, *, plain_callable: bool) -> Model:
    """The model of the service: the configured one, else the agent's (`given`), else the offline
    responder; followed by the configured fallbacks.

    Raises ConfigError.
    """
    named = config.model.name or given
    if named is None and plain_callable:
        return NoModel()
    model = _first(named, config)
    own = split(named)[0] if isinstance(named, str) else model.provider
    others = [
        load_model(spec, config.model_connection(own=split(spec)[0] == own))
        for spec in config.model.fallback
    ]
    return Fallback([model, *others]) if others else model


def _first(named: str | Model | None, config: Config) -> Model:
    if named is not None and not isinstance(named, str):
        return checked_model(named)
    if named is None and "offline" not in installed("sayso.models"):
        raise ConfigError(
            "no model is configured; set model.name or Agent(model=...), for example "
            "'anthropic:claude-sonnet-5-5'; for the offline model, which needs no key, "
            f"try: {install_line('sayso[demo]')}"
        )
    return load_model(named or "offline", config.model_connection(own=True))
