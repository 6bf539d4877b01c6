"""Where sessions are kept. An engine knows bytes, ids and guards; it never knows what a message
means.
"""
