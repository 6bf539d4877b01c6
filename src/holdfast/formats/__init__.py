"""How others shape a message: payload to message and back, chunks to message; one file for each
format.
"""
