"""The command line: one file for each command, and what that command alone needs beside it."""
