"""A toy backend for tilecore: tile programs to plain Python."""
