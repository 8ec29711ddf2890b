"""ternary_linear: activations quantized by row and multiplied by packed ternary weights, as one op."""
