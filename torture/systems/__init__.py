"""Healed stores in the hands of the programs they are for: Hermes, goose and OpenViking, real
releases of them.
"""
