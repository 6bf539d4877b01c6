"""Turns that HTTP clients work on: `held` by this process, begun by `start`, and worked on by
`steps`.
"""
