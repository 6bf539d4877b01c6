"""Messages that are still being spoken: what pulls their chunks, and what they are pushed into."""
