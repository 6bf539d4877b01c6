"""OpenAI's two APIs, Chat Completions and Responses: messages, streams, and how a dialogue is
worded.
"""
