"""The house rules, one function each: from a tree (or a part of the library) to the sentences that
say what to mend.

`test_tidy.py` holds the project to them; `test_tidy_rules.py` shows that each one finds what it
looks for.
"""
