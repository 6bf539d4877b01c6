"""Conformance with the protocol (`docs/PROTOCOL.md`), as data: stories of requests, some with
faults, that any server must tell in the same way.

    python -m holdfast.testing.wire http://127.0.0.1:8642 --token … --other-token …
"""
