"""float_widen: float16 or bfloat16 to float32."""
