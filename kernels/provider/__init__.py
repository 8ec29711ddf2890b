"""tritmark.kernels.provider: what the entry point tritmark.providers supplies, except ops and kernels themselves."""
