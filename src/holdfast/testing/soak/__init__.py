"""Random worlds on a real store and on the reference engine at once."""
