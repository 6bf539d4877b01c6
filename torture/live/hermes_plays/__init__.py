"""The rows of `./dev live hermes`, each a function that is given a way to open a lab."""
