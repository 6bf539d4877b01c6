"""The Claude Agent SDK. Its runner is Claude Code, a program of its own that asks for turns in its own
words: the tests kill it, and judge its next request.
"""

INSTALL = ["claude-agent-sdk>=0.2.182", "trio"]
TESTS = ["tests/frameworks/claude_agent"]
