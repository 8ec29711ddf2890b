"""Products on tensor cores, shared by several ops: tiles, instructions, copies (CUDA), and their launches (Python)."""
