"""`./dev page`: the page in a real browser, on a real server, with a store in which everything has happened that it
can show. It needs Debian's chromium, or another one that `HOLDFAST_CHROMIUM` names.
"""
