"""The factories of the models behind OpenAI's two APIs, one for each endpoint by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sayso import ConfigError, Model
from sayso.models.adapters import Connection, Key, checked_address, key_for
from sayso_openai.presets import OPENAI, PRESETS, Preset, Wire

Settings = Mapping[str, Any]


def connect(preset: Preset, wire: Wire | None, name: str, settings: Settings) -> Model:
    """The model `name` at `base_url`, else where `preset` has it.

    `wire` forces one of the APIs; without it OpenAI's own address is spoken to by Responses, which
    alone takes tools for its current models, any other one by what the preset says. Raises
    ConfigError for a missing name, address or key.
    """
    address = str(settings.get("base_url") or preset.base_url())
    spec = f"{preset.name}:{name}"
    if not name:
        example = {"openai": "gpt-5.5", "ollama": "qwen3"}.get(preset.name, "NAME")
        raise ConfigError(
            f"model {preset.name!r} needs a model name, for example '{preset.name}:{example}'"
        )
    if not address:
        variable = f", or {preset.addresses[0]}" if preset.addresses else ""
        raise ConfigError(
            f"model {spec!r} needs its address; set model.base_url{variable}, "
            f"for example to {preset.example!r}"
        )
    url = checked_address(address, preset.name, preset.example)
    official = (url.host or "").endswith("api.openai.com")
    key = key_for(spec, settings, *preset.keys)
    if not key.value and (official or (preset.needs_key and preset is not OPENAI)):
        raise _no_key(preset, spec)
    spoken = wire or ("responses" if official else preset.wire)
    return _made(spoken, preset, name, str(url), key, Connection.of(settings))


def _made(
    wire: Wire, preset: Preset, name: str, address: str, key: Key, connection: Connection
) -> Model:
    # Imported only when chosen, because the SDK takes seconds to import.
    if wire == "responses":
        from sayso_openai.responses import ResponsesModel

        return ResponsesModel.at(address, name, preset, key, connection)
    from sayso_openai.chat import ChatModel

    return ChatModel.at(address, name, preset, key, connection)


def _no_key(preset: Preset, spec: str) -> ConfigError:
    other = ", or OPENAI_BASE_URL for another endpoint" if preset is OPENAI else ""
    return ConfigError(
        f"there is no key for model {spec!r}; set {preset.keys[0]}{other}, or model.options.key, "
        "or, to do without a language model, SAYSO_MODEL__NAME=offline"
    )


openai = partial(connect, OPENAI, None)
chat = partial(connect, OPENAI, "chat")
responses = partial(connect, OPENAI, "responses")
azure = partial(connect, PRESETS["azure"], None)
bedrock_compatible = partial(connect, PRESETS["bedrock-compatible"], None)
deepseek = partial(connect, PRESETS["deepseek"], None)
groq = partial(connect, PRESETS["groq"], None)
llamacpp = partial(connect, PRESETS["llamacpp"], None)
mistral = partial(connect, PRESETS["mistral"], None)
ollama = partial(connect, PRESETS["ollama"], None)
openrouter = partial(connect, PRESETS["openrouter"], None)
vllm = partial(connect, PRESETS["vllm"], None)
xai = partial(connect, PRESETS["xai"], None)
