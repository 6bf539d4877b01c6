"""The commands of `holdfast store`."""
