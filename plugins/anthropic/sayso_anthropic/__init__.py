"""Anthropic's models; `sayso_anthropic.model` imports the SDK, which takes seconds."""
