"""absmean_quantize: float32 weights to ternary codes and one scale, the rule of BitNet b1.58."""
