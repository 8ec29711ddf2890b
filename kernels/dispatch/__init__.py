"""tritmark.kernels.dispatch: which kernel runs, on which device."""
