"""The rows of `state.db`: those that could not be written, and those that a kill has left out."""
