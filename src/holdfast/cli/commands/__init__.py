"""The commands, a file each; those of `sessions` and `store` in folders of their own."""
