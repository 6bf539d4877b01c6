"""The benchmark: Holdfast beside raw SQLite and its fastest peer in one run; `python -m bench`
prints it.
"""
