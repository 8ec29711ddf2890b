"""ternary_matmul_experts: int8 activations times the packed ternary weights of the experts of each row (W2A8)."""
