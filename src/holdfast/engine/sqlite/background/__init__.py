"""What goes on beside the writer of a file: looking for what other processes have written."""
