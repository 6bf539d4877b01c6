"""The Agent Client Protocol: messages and tool calls that arrive in pieces."""
