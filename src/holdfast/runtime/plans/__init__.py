"""Logic written once for threads and for asyncio: plans, and what drives them."""
