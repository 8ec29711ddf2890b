"""tritmark.kernels.public: parts of the public functions: arrays of other libraries, 16-bit inputs, `device`."""
