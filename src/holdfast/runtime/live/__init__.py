"""What is read of a session that others may be writing to, and the leases that protect
its turns.
"""
