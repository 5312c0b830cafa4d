"""The ``tilecore`` command."""
