"""The names of OpenTelemetry's conventions for generative AI, and Sayso's own.

They follow semantic-conventions-genai v0.1.0, in which everything is in development; a package of
constants would bring each of its changes unasked.
"""

VERSION = "0.1.0"
"""The version of the conventions."""

OPERATION = "gen_ai.operation.name"
AGENT = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR = "error.type"

REQUEST_CONFIG = {
    "temperature": "gen_ai.request.temperature",
    "max_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "thinking_level": "gen_ai.request.reasoning.level",
}
"""The model-config keys that have a name in the conventions."""

# With content alone.
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURED = {"SPAN_ONLY", "SPAN_AND_EVENT", "TRUE"}
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
INSTRUCTIONS = "gen_ai.system_instructions"
DEFINITIONS = "gen_ai.tool.definitions"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

# Sayso's own: the conventions have none for approvals yet.
STOP = "sayso.stop_reason"
PROTOCOL = "sayso.protocol"
TURN = "sayso.turn.id"
APPROVAL = "sayso.approval.id"
DECISION = "sayso.approval.decision"
WAITED = "sayso.approval.wait"
INPUT_DIGEST = "sayso.approval.input.digest"
DECIDER = "sayso.approval.who"
EVENT = "sayso.approval."
"""The beginning of the names of spans for approvals; the event of the log follows."""
