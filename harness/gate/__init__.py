"""`tritmark gate BASE HEAD`: whether a change made kernels slower, with the evidence."""
