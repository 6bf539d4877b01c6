"""Messages as frameworks shape them. Nothing of a framework is needed to read one."""
