"""The conformance suite: what a backend must do, as data, and a pytest plugin that runs it."""
