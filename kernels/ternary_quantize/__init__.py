"""ternary_quantize: float32 to ternary codes with a scale for each block, one code a byte or packed."""
