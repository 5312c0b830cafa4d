"""The rocm_cdna3 backend: MFMA on 64-lane wavefronts."""
