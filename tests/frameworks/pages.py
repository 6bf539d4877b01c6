"""The examples of a page in docs/, so that tests run what is written there."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def example(page: str, having: str) -> str:
    """The code block of this page that has these words."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    [found] = [block for block in blocks if having in block]
    return found
