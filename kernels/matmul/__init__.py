"""matmul: dense products of float32, float16 and bfloat16 matrices with float32 sums, and the choice between them."""
