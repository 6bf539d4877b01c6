"""Google's Agent Development Kit on Holdfast: its session service, and a plug-in that makes streamed
text durable before it is shown.
"""

from holdfast.adapters.framework import missing

try:
    import google.adk.sessions as _kit  # noqa: F401
except ImportError as error:
    raise missing("google.adk", "adk") from error

from holdfast.adapters.adk.plugin import HoldfastPlugin
from holdfast.adapters.adk.service import HoldfastSessionService
from holdfast.adapters.adk.take_over import take_over

__all__ = ["HoldfastPlugin", "HoldfastSessionService", "take_over"]
