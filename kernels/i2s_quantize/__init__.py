"""i2s_quantize: float32 to signed 2-bit codes, one a byte."""
