"""The commands of `holdfast sessions`."""
