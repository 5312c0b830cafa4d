"""tilecore on CPUs: tile programs to LLVM IR with vectors, packing and threads."""
