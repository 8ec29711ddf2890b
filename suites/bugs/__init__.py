"""tritmark.bugs: faulty kernels of our own, each with a fault that was reported of another project in public.

corpus.toml says of each what has to come of it; `tritmark selftest --bugs` judges them, and each of them again with the
macro FIXED, by which it is right.
"""
