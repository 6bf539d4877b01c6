"""Sessions written out: for people as documents, for programs as JSON, for other agents in their
own form.
"""
