"""The reference interpreter: tile programs executed in NumPy, as an oracle and a debugger."""

from tilecore.reference.launcher import ReferenceLauncher
from tilecore.reference.run import run

__all__ = ["ReferenceLauncher", "run"]
