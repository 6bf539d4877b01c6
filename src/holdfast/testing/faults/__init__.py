"""Faults on demand: failing disks, power cuts, killed processes."""
