"""Oracles and tolerances, shipped so that outside backends can use them."""
