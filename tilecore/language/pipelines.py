"""The author's own schedule of a pipelined loop: its lists, and whether they fit the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilecore.errors import Loc
from tilecore.ir.stmts import Block, PipelineSpec
from tilecore.language.locate import fail


def pipeline_spec(
    num_stages: int,
    order: Sequence[int] | None,
    stage: Sequence[int] | None,
    group: Sequence[Sequence[int]] | None,
) -> PipelineSpec:
    """The lists of `T.Pipelined`; what is wrong with them whatever the body is.

    Raises:
        LanguageError: at the author's line.
    """
    places = _integers(order or (), "order", -1)
    stages = _integers(stage or (), "stage", -1)
    groups = tuple(_integers(members, "group", 0) for members in _members(group or ()))
    if places and stages and len(places) != len(stages):
        fail("order and stage differ in length", expected=len(places), got=len(stages))
    if any(not members for members in groups):
        fail(
            "an empty list in group",
            expected="indices of statements",
            got=[list(members) for members in groups],
            hint="leave the list out: statements in no list are groups of their own",
        )
    named = [index for members in groups for index in members]
    twice = sorted({index for index in named if named.count(index) > 1})
    if twice:
        fail(
            f"statement {twice[0]} is in group twice",
            expected="each statement in one list at most",
            got=[list(members) for members in groups],
            hint="name all statements that stay together in one list",
        )
    if stages and not num_stages:
        num_stages = max(stages) + 1
    return PipelineSpec(num_stages, places, stages, groups)


def _members(group: Any) -> Sequence[Any]:
    """The lists of a group."""
    if not isinstance(group, list | tuple) or not all(isinstance(m, list | tuple) for m in group):
        fail(
            "group of T.Pipelined",
            expected="lists of indices of statements",
            got=repr(group),
            hint="group=[[0, 1]] keeps statements 0 and 1 together",
        )
    return group


def _integers(values: Any, what: str, at_least: int) -> tuple[int, ...]:
    """A list of plain numbers."""
    good = isinstance(values, list | tuple) and all(
        isinstance(value, int) and not isinstance(value, bool) and value >= at_least
        for value in values
    )
    if not good:
        fail(
            f"{what} of T.Pipelined",
            expected=f"a list of integers >= {at_least}",
            got=repr(values),
            hint="order=[0, 1, 2], stage=[0, 0, 1], group=[[0, 1]] fit a body of three statements",
        )
    return tuple(values)


def check_schedule(spec: PipelineSpec, body: Block, loc: Loc | None) -> None:
    """Refuse lists that do not fit the statements of a body.

    Raises:
        LanguageError: naming the loop's line and the body's statements.
    """
    count = len(body)
    missing = [index for members in spec.group for index in members if index >= count]
    if missing:
        fail(
            f"group names statement {missing[0]} of a body of {count}",
            expected=f"0 to {count - 1}",
            got=[list(members) for members in spec.group],
            hint=_statements(body),
            loc=loc,
        )
    groups = spec.groups(count)
    for what, values in (("order", spec.order), ("stage", spec.stage)):
        if values and spec.by_statement(values, count) is None:
            by_group = f", or {len(groups)}, one for each group" if spec.group else ""
            fail(
                f"{what} does not fit the loop's body",
                expected=f"{count} numbers, one for each statement{by_group}",
                got=f"{len(values)}: {list(values)}",
                hint=_statements(body),
                loc=loc,
            )
    stage = spec.by_statement(spec.stage, count) or () if spec.stage else ()
    for members in groups if stage else ():
        stages = [stage[index] for index in members]
        if len(set(stages)) > 1:
            fail(
                f"statements {list(members)} of one group have several stages",
                expected="one stage for a group",
                got=stages,
                hint="give them one stage, or leave one of them out of the group",
                loc=loc,
            )


def _statements(body: Block) -> str:
    """What is counted, for who counts otherwise."""
    kinds = ", ".join(f"{index} {type(stmt).__name__}" for index, stmt in enumerate(body))
    return f"the loop's statements are: {kinds}"
