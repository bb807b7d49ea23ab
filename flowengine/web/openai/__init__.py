"""Serves flows as models, in the form of OpenAI's API. Begin with `openai_routes`."""
