"""tritmark.kernels.linear: linear layers over packed ternary weights."""
