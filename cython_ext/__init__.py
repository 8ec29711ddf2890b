"""tritmark.cython_ext: the native code. One extension module an op; each checks shapes once and runs C without the
GIL."""
