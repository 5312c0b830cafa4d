"""Target-free kernels, each with its reference, its shapes and its tuning space."""
