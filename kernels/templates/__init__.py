"""Kernels to begin with, one a file: `tritmark new OP` copies them, `tritmark check` passes them as they are."""
