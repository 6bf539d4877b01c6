"""The parts of a message, whatever its format: what `Message.parts` is a list of.

A payload is kept as its provider shaped it. Its parts are a reading of it that is the same for all
formats, so that a program can look at any message with one `match`.
"""

from holdfast.domain.message import (
    Call,
    Image,
    Other,
    Part,
    Refusal,
    Result,
    Text,
    Thinking,
)

__all__ = ["Call", "Image", "Other", "Part", "Refusal", "Result", "Text", "Thinking"]

for _each in (Call, Image, Other, Refusal, Result, Text, Thinking):
    _each.__module__ = __name__
del _each
