"""ternary_matmul_a16: products of 16-bit floating-point activations and packed ternary weights (W2A16)."""
