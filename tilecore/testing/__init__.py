"""Oracles, tolerances and assertions, shipped so that outside backends can use them."""

from tilecore.testing.compare import assert_close
from tilecore.testing.ir_assert import assert_program, assert_rewrites, assert_round_trip
from tilecore.testing.oracle import oracle
from tilecore.testing.tolerances import Tolerance, contraction, function, reduction, rounding

__all__ = [
    "Tolerance",
    "assert_close",
    "assert_program",
    "assert_rewrites",
    "assert_round_trip",
    "contraction",
    "function",
    "oracle",
    "reduction",
    "rounding",
]
