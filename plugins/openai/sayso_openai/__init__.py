"""Models behind OpenAI's chat completions, at whatever endpoint."""
