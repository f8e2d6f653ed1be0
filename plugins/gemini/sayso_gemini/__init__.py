"""Google's Gemini models; `sayso_gemini.model` imports the SDK, which takes seconds."""
