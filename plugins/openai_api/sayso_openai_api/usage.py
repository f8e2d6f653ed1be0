"""The tokens of a turn, as counted in `meta_data.usage` of its `done`, in OpenAI's two forms."""

from collections.abc import Mapping
from typing import Any

from sayso_openai_api.answers import Json

_NAMES = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


class Tokens:
    """The tokens of one or more turns; nothing is reported if no provider counted any."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, meta_data: Mapping[str, Any]) -> None:
        """Add those of a turn that is done."""
        usage = meta_data.get("usage")
        if isinstance(usage, Mapping):
            for name in _NAMES:
                self._counts[name] = self._counts.get(name, 0) + int(usage.get(name, 0))

    def of_chat(self) -> Json | None:
        """The form of a chat completion."""
        if not self._counts:
            return None
        counts = self._counts
        return {
            "prompt_tokens": counts["input_tokens"],
            "completion_tokens": counts["output_tokens"],
            "total_tokens": counts["input_tokens"] + counts["output_tokens"],
            "prompt_tokens_details": {"cached_tokens": counts["cached_tokens"]},
            "completion_tokens_details": {"reasoning_tokens": counts["reasoning_tokens"]},
        }

    def of_response(self) -> Json | None:
        """The form of a response."""
        if not self._counts:
            return None
        counts = self._counts
        return {
            "input_tokens": counts["input_tokens"],
            "input_tokens_details": {
                "cached_tokens": counts["cached_tokens"],
                "cache_write_tokens": counts["cache_write_tokens"],
            },
            "output_tokens": counts["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": counts["reasoning_tokens"]},
            "total_tokens": counts["input_tokens"] + counts["output_tokens"],
        }
