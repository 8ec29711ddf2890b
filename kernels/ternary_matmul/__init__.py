"""ternary_matmul: int8 activations times packed ternary weights (W2A8), exact in int32."""
