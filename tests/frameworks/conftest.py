"""Adapters for frameworks, each with the framework's real release.

The ordinary run has the frameworks that are in the extra `test`; `./dev frameworks NAME` runs the
tests of one in an environment of its own.
"""

import os
from pathlib import Path

import pytest

APART: list[str] = [
    "test_agent_framework*",
    "test_agno*",
    "test_aiogram*",
    "test_langchain*",
    "test_langgraph*",
    "test_llama_index*",
    "test_openai_agents*",
    "test_pydantic_ai*",
]
"""Tests of frameworks that the ordinary run does not have."""

collect_ignore_glob = [] if os.environ.get("HOLDFAST_FRAMEWORKS") else APART


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store, once on each engine."""
    if request.param == "sqlite":
        return str(tmp_path / "agents.db")
    return request.getfixturevalue("databases")(schema=True)


# These need a framework that the ordinary run does not have; they are run by name, in an environment that has it.
collect_ignore = ["adk", "claude_agent", "strands_agents"]
