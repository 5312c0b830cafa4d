"""The names that rewritten code refers to, in one place (`rewriter` binds this module)."""

from __future__ import annotations

from tilecore.language.bindings import (
    UNBOUND,
    assign,
    hint,
    inplace,
    inplace_item,
    setitem,
    settle_many,
    use,
)
from tilecore.language.control import (
    Branch,
    Loop,
    WhileLoop,
    and_,
    assert_,
    both,
    break_,
    continue_,
    not_,
    or_,
    range_,
    ternary,
    with_,
)
from tilecore.language.declare import annotated, declare, return_

slice = slice

__all__ = [
    "UNBOUND",
    "Branch",
    "Loop",
    "WhileLoop",
    "and_",
    "annotated",
    "assert_",
    "assign",
    "both",
    "break_",
    "continue_",
    "declare",
    "hint",
    "inplace",
    "inplace_item",
    "not_",
    "or_",
    "range_",
    "return_",
    "setitem",
    "settle_many",
    "slice",
    "ternary",
    "use",
    "with_",
]
