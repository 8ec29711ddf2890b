"""float_narrow: float32 to float16 or bfloat16."""
