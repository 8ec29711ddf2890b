"""Template kernels, one a file. `tritmark new OP` copies them, and they pass `tritmark check` unchanged."""
