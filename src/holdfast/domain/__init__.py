"""What things are: values and pure decisions. No clock, no chance, no I/O."""
