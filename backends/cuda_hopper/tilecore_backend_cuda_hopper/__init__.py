"""The cuda_hopper backend: WGMMA, TMA and mbarriers."""
