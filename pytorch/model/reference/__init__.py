"""The graphs of bitnet, llama, qwen3 and qwen3_moe in NumPy, float64: from a folder's tensors and config.json alone."""
