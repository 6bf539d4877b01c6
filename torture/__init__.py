"""Faults against real stores, for hours if need be: real servers, real processes, really killed."""
