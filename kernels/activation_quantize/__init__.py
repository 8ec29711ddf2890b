"""activation_quantize: float32 rows to int8 by their largest magnitude, with the sum of each row's codes."""
