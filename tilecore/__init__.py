"""tilecore: one tile program, every kind of hardware."""
