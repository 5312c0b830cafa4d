"""The conformance suite: what holds for every backend."""
