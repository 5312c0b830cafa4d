"""Every error that tilecore raises on purpose.

A message is one line of reason. Where they are known it also says what was expected, what came,
and the line of the user's program: ``Loc`` is carried by every IR node for that purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's source: file path and 1-based line number."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class TilecoreError(Exception):
    """Base of all tilecore errors.

    Args:
        reason: one sentence that says what is wrong.
        expected: what would have been right, if that can be said.
        got: what was found instead.
        loc: the user's line.
        hint: what to change.
    """

    def __init__(
        self,
        reason: str,
        *,
        expected: object = None,
        got: object = None,
        loc: Loc | None = None,
        hint: str | None = None,
    ) -> None:
        self.reason = reason
        self.expected = expected
        self.got = got
        self.loc = loc
        self.hint = hint
        super().__init__(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        """Whatever a subclass is made from: pools of processes pass errors on."""
        return _restored, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        text = self.reason
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.got is not None:
            text += f"{',' if self.expected is not None else ';'} got {self.got}"
        if self.loc is not None:
            text = f"{self.loc}: {text}"
        if self.hint is not None:
            text += f" (hint: {self.hint})"
        return text


def _restored(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class CacheWarning(UserWarning):
    """A cache could not do its work; the kernel is right, only compiled again."""


class LanguageError(TilecoreError):
    """The program misuses the language: wrong rank, dtype, scope, or unsupported Python."""


class VerifyError(TilecoreError):
    """IR that is not legal at its level: a fault of a pass or of a hand-written IR text."""


class ParseError(TilecoreError):
    """IR text that does not parse."""


class LoweringError(TilecoreError):
    """A legal program that a pass cannot lower, with the buffers and sizes that conflict."""


class UnsupportedError(TilecoreError):
    """An operation, dtype or size that this target has no way to execute."""


class ResourceError(LoweringError):
    """The kernel does not fit: shared memory, registers, threads or grid limits."""


class BackendError(TilecoreError):
    """A backend plugin is missing, broken, or answered a hook with something illegal."""


class ToolchainError(TilecoreError):
    """The backend's compiler is missing or refused the generated source."""


class LaunchError(TilecoreError):
    """A kernel could not be launched, or it failed on the device."""


class ArgumentError(LaunchError, ValueError):
    """A call's arguments do not fit the kernel's parameters: a `ValueError` as well."""


class EmulatorFault(LaunchError):
    """The emulator saw the kernel do something undefined (race, out of bounds, deadlock...)."""


class DeviceAssertError(LaunchError):
    """A T.device_assert of the kernel did not hold."""
