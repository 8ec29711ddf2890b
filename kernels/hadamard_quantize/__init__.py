"""hadamard_quantize: rows times signs and a Walsh-Hadamard matrix in blocks, as floats or int8 codes with a scale."""
