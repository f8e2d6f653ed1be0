"""Models behind OpenAI's chat completions, at any endpoint."""
