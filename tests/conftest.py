"""How Hypothesis looks for counter-examples: the same ones every time, or others with HOLDFAST_EXPLORE=1."""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("HOLDFAST_EXPLORE") else "steady")

pytest_plugins = ["fix_postgres"]
