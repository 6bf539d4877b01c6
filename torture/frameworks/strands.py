"""Strands Agents: its session repository and its managers on Holdfast."""

from pathlib import Path

INSTALL = ["strands-agents[openai]==1.62.0"]
TESTS = ["tests/frameworks/strands_agents"]


def suite(environment: Path) -> tuple[int, int, list[str]]:
    from torture.frameworks import strands_suite

    return strands_suite.suite(environment)
