"""tritmark.kernels.numerics: dtypes of inputs, and conversion between them."""
