"""Kernels whose warps have roles: producers that load, consumers that compute; blocks that stay."""
