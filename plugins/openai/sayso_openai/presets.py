"""The endpoints that many run, each with its address, its key and the API that it speaks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Wire = Literal["chat", "responses"]

OFFICIAL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Preset:
    """An endpoint by name; what the settings say counts for more.

    `address` may hold `{NAME}` for variables of the environment. `addresses` and `keys` are the
    variables that may hold its address and its key. `lists_windows` says that its list of models
    states how many tokens each can read.
    """

    name: str
    address: str = ""
    addresses: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    needs_key: bool = True
    key_header: str = "authorization"
    wire: Wire = "chat"
    lists_windows: bool = False
    example: str = "http://127.0.0.1:11434/v1"

    def base_url(self) -> str:
        """The address in the environment, else the preset's own; empty where neither is known."""
        for name in self.addresses:
            if found := os.environ.get(name):
                return found if "://" in found else f"http://{found}"
        try:
            return self.address.format_map(_Environment())
        except KeyError:
            return ""


class _Environment(dict[str, str]):
    def __missing__(self, names: str) -> str:
        found = next((os.environ[n] for n in names.split("|") if os.environ.get(n)), "")
        if not found:
            raise KeyError(names)
        return found


OPENAI = Preset("openai", OFFICIAL, ("OPENAI_BASE_URL",), ("OPENAI_API_KEY",))

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "azure",
            addresses=("AZURE_OPENAI_ENDPOINT",),
            keys=("AZURE_OPENAI_API_KEY",),
            key_header="api-key",
            wire="responses",
            example="https://NAME.openai.azure.com",
        ),
        Preset(
            "bedrock-compatible",
            "https://bedrock-runtime.{AWS_REGION|AWS_DEFAULT_REGION}.amazonaws.com/openai/v1",
            keys=("AWS_BEARER_TOKEN_BEDROCK",),
            example="https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1",
        ),
        Preset("deepseek", "https://api.deepseek.com/v1", keys=("DEEPSEEK_API_KEY",)),
        Preset(
            "groq", "https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), lists_windows=True
        ),
        Preset(
            "llamacpp",
            "http://127.0.0.1:8080/v1",
            keys=("LLAMA_API_KEY",),
            needs_key=False,
            example="http://127.0.0.1:8080/v1",
            lists_windows=True,
        ),
        Preset(
            "mistral", "https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",), lists_windows=True
        ),
        Preset("ollama", "http://127.0.0.1:11434/v1", ("OLLAMA_HOST",), needs_key=False),
        Preset(
            "openrouter",
            "https://openrouter.ai/api/v1",
            keys=("OPENROUTER_API_KEY",),
            lists_windows=True,
        ),
        # Its own default, port 8000, is that of Sayso: the service would ask itself.
        Preset(
            "vllm",
            addresses=("VLLM_BASE_URL",),
            keys=("VLLM_API_KEY",),
            needs_key=False,
            example="http://127.0.0.1:8001/v1",
            lists_windows=True,
        ),
        Preset("xai", "https://api.x.ai/v1", keys=("XAI_API_KEY",)),
    )
}
