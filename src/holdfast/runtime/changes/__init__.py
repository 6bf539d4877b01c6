"""Changes to a session outside a turn's own messages: recording lists, compaction, rewinding,
forking, erasing.
"""
