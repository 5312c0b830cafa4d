"""Runs another framework's public programs through `tilecore.migrate`, and records what happens.

``python -m tools.compatibility CHECKOUT`` with the path of a checkout of TileLang, which the caller
has fetched: nothing of it is stored here. Needs torch, pytest and the CPU backend.
"""
