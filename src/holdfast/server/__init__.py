"""HTTP: a store served to agents in any language, as `docs/PROTOCOL.md` says.

`app` puts it together, `serving` listens. A route says what it needs by `auth.needs`; what goes
wrong is told by `problems`; everything else is one module for each subject, with its `routes`.
"""
