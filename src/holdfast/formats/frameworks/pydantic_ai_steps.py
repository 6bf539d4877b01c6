"""`pydantic_ai.steps`: what pydantic-ai-harness keeps of a run beside its messages, one record for each
event, snapshot and effect of a tool. No model sees it, and nothing in it is said by anybody.
"""

from msgspec.structs import replace

from holdfast.domain.message import MessageNote, Payload
from holdfast.formats.langchain.steps import LangGraph

NAME = "pydantic_ai.steps"


class PydanticAISteps(LangGraph):
    """Records of the harness."""

    name = NAME

    def note(self, payload: Payload) -> MessageNote:
        return replace(super().note(payload), format=NAME)
