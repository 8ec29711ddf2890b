"""tritmark.kernels.weights: packed weights as an object, and the kernels that compute from them."""
