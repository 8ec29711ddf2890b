"""Launches that are prepared once, for a given GPU and given shapes."""
