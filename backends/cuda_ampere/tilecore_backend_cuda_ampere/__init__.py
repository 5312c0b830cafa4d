"""The cuda_ampere backend: mma.sync, ldmatrix and cp.async, compiled by NVRTC."""
