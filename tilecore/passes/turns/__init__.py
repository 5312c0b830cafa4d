"""Chained contractions of wide results: tiles by turns of two teams of warps."""
