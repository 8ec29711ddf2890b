"""i2s_dequantize: signed 2-bit codes, one a byte, back to float32."""
