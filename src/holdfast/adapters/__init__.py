"""Holdfast under programs and frameworks that were written without it: one file or folder each.

An adapter is imported by the one who uses it, never by the rest of Holdfast. It needs its
extra, and says which when that is missing.
"""
