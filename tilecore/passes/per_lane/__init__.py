"""Programs written per lane, and such programs as nests for targets without lanes."""
