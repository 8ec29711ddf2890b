"""A GPU's driver and compiler as a backend."""
