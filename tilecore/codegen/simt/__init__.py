"""Lane-level IR to C++, for every lane-parallel target."""
