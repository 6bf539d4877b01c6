"""Faults of the kind a tired engineer makes, put into the source one at a time: does a
test notice?
"""
