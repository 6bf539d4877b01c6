"""OpenViking under faults: its own server and ours, its own client and ours."""
