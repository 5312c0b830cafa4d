"""`pass_configs`: options of another compiler's passes, by key, and what becomes of each.

The table is data (``pass_configs.txt``): ``NAME<TAB>key<TAB>kind<TAB>reason``. Kinds: ``option``
has a typed equivalent in `CompileOptions`; ``advice`` never changes a result, and the decision is
the backend's; ``print`` shows a stage of the program, with its layouts; ``refused`` asks for what
tilecore does not do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tilecore.errors import UnsupportedError
from tilecore.hooks.records import CompileOptions


@dataclass(frozen=True, slots=True)
class PassConfig:
    """One key: its attribute name, its string, its kind and the reason for that."""

    name: str
    key: str
    kind: str
    reason: str


@functools.cache
def known_configs() -> tuple[PassConfig, ...]:
    """All keys of the table."""
    text = resources.files("tilecore.compat").joinpath("pass_configs.txt").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple(PassConfig(*row.split("\t", 3)) for row in rows)


def find_config(key: object) -> PassConfig | None:
    """The row of a key, given as its attribute name or as its string."""
    text = str(key)
    return next((row for row in known_configs() if text in (row.name, row.key)), None)


class _Keys:
    """``PassConfigKey.NAME`` gives the key's string."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        found = find_config(name)
        if found is None:
            raise UnsupportedError(f"PassConfigKey.{name} is not known")
        return found.key


PassConfigKey = _Keys()
"""Names of the keys, as programs import them."""


def compile_options(configs: Mapping[Any, Any] | None) -> CompileOptions:
    """Typed options for a program's `pass_configs`.

    Raises:
        UnsupportedError: a key that asks for what tilecore does not do, with the reason.
    """
    fast_math = debug = False
    for key, value in (configs or {}).items():
        found = find_config(key)
        if found is None:
            raise UnsupportedError(f"pass_configs key {str(key)!r} is not known")
        if found.kind == "refused" and value:
            raise UnsupportedError(
                f"pass_configs key {found.key!r} is not supported: {found.reason}"
            )
        if found.kind == "option":
            fast_math |= found.reason == "fast_math" and bool(value)
            debug |= found.reason == "debug" and bool(value)
    return CompileOptions(fast_math=fast_math, debug=debug)


def printed_stages(configs: Mapping[Any, Any] | None) -> tuple[str, ...]:
    """Stages of the compiler that a program's `pass_configs` ask to see."""
    found = ((find_config(key), value) for key, value in (configs or {}).items())
    return tuple(one.reason for one, value in found if one and one.kind == "print" and value)
