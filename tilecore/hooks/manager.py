"""Finding backends, and calling their hooks with checked results.

One `pluggy.PluginManager` per backend: core's defaults, then the backend's bases, then the
backend. Installing one backend therefore never changes what another generates.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import pluggy

from tilecore.errors import BackendError
from tilecore.forking import FreshLock
from tilecore.hooks import specs
from tilecore.target import Target

ENTRY_POINT_GROUP = "tilecore.backends"

_registered: dict[str, object] = {}
_lock = FreshLock()


def register_backend(name: str, plugin: object) -> None:
    """Make a backend known without installing it: for tests and notebooks.

    `plugin` is a module or object with hook implementations, as an entry point would name.
    """
    with _lock:
        _registered[name] = plugin
        language_of.cache_clear()
        hooks_of.cache_clear()
        targets_of.cache_clear()


def unregister_backend(name: str) -> None:
    """Forget a backend that `register_backend` made known."""
    with _lock:
        _registered.pop(name, None)
        language_of.cache_clear()
        hooks_of.cache_clear()
        targets_of.cache_clear()


def installed_backends() -> tuple[str, ...]:
    """Names of all backends that can be asked for, sorted; none is imported."""
    found = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return tuple(sorted(found | set(_registered)))


@functools.cache
def language_of(name: str) -> tuple[tuple[str, str], ...]:
    """(family, module of its extras) of a backend, and of those that it builds on.

    A plugin says ``TILECORE_LANGUAGE = (family, module)``: see `language.families`.
    """
    found = (getattr(plugin, "TILECORE_LANGUAGE", None) for _, plugin in _chain(name, _load(name)))
    return tuple((str(one[0]), str(one[1])) for one in found if one is not None)


def _load(name: str) -> object:
    if name in _registered:
        return _registered[name]
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not points:
        raise BackendError(
            f"no backend named {name!r} is installed",
            expected=f"one of {', '.join(installed_backends()) or '(none installed)'}",
            hint=_meant(name) or _installation(name),
        )
    point = next(iter(points))
    try:
        return point.load()
    except Exception as error:
        raise BackendError(
            f"backend {name!r} does not import: {type(error).__name__}: {error}",
            hint=f"entry point {point.value}",
        ) from error


def _meant(name: str) -> str | None:
    """The installed backends whose name holds `name` as a part, or that it may be misspelt for."""
    installed = installed_backends()
    parts = [one for one in installed if name and name.lower() in one.split("_")]
    close = parts or difflib.get_close_matches(name, installed, n=1, cutoff=0.8)
    return f"did you mean {' or '.join(close)}?" if close else None


def _installation(name: str) -> str | None:
    """How to install a backend that core's own extras name; None for those of strangers."""
    try:
        required = importlib.metadata.requires("tilecore") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    distributions = {re.split(r"[^\w-]", one, maxsplit=1)[0] for one in required}
    for one in sorted(distributions, key=len, reverse=True):
        family = one.removeprefix("tilecore-backend-")
        if family != one and f"{name}_".startswith(family.replace("-", "_") + "_"):
            return f"pip install {one}"
    return None


def _chain(name: str, plugin: object) -> list[tuple[str, object]]:
    """(name, plugin) pairs, bases first."""
    chain: list[tuple[str, object]] = []
    for base in getattr(plugin, "TILECORE_BASE_BACKENDS", ()):
        chain.extend(_chain(base, _load(base)))
    return [*chain, (name, plugin)]


class Hooks:
    """The hooks of one backend's chain. Call `call` with the hook's name and its arguments.

    Attributes:
        name: the backend.
        chain: names of its plugins, bases first.
        packages: the packages that these come from; their code decides what a binary is.
    """

    def __init__(self, name: str, chain: list[tuple[str, object]]) -> None:
        self.name = name
        self.chain = tuple(plugin_name for plugin_name, _ in chain)
        self.packages = tuple(
            plugin.__name__.partition(".")[0]
            for _, plugin in chain
            if isinstance(plugin, ModuleType) and "." in plugin.__name__
        )
        self._manager = pluggy.PluginManager("tilecore")
        self._manager.add_hookspecs(specs)
        defaults = importlib.import_module("tilecore.defaults")
        self._manager.register(defaults, "tilecore.defaults")
        for plugin_name, plugin in chain:
            self._register(plugin_name, plugin)
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise BackendError(f"backend {name!r} implements an unknown hook: {error}") from error

    def _register(self, plugin_name: str, plugin: object) -> None:
        wanted = getattr(plugin, "TILECORE_HOOK_API", specs.HOOK_API)
        if wanted != specs.HOOK_API:
            raise BackendError(
                f"backend {plugin_name!r} was written for another hook interface",
                expected=specs.HOOK_API,
                got=wanted,
                hint="upgrade the backend or tilecore so that their minor versions agree",
            )
        try:
            self._manager.register(plugin, plugin_name)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise BackendError(f"backend {plugin_name!r} cannot be registered: {error}") from error
        self._refuse_misspelt(plugin_name, plugin)

    def _refuse_misspelt(self, plugin_name: str, plugin: object) -> None:
        known = {name for name in dir(specs) if name.startswith("tilecore_")}
        for name in dir(plugin):
            if name.startswith("tilecore_") and name not in known:
                raise BackendError(
                    f"backend {plugin_name!r} defines an unknown hook {name!r}",
                    expected=f"one of {', '.join(sorted(known))}",
                )

    def call(self, hook: str, **arguments: Any) -> Any:
        """The result of a hook (or the list of results, for collecting hooks).

        Raises:
            BackendError: the answer is not of the kind that the specification states.
        """
        result = getattr(self._manager.hook, hook)(**arguments)
        from tilecore.hooks.checks import check_result

        return check_result(self.name, hook, arguments, result)

    def implementers(self, hook: str) -> tuple[str, ...]:
        """Names of the plugins in the chain that implement a hook, first asked first."""
        impls = getattr(self._manager.hook, hook).get_hookimpls()
        return tuple(impl.plugin_name for impl in reversed(impls))


@functools.lru_cache(maxsize=64)
def hooks_of(name: str) -> Hooks:
    """The hooks of one backend, loaded on first use.

    Raises:
        BackendError: unknown, not importable, or with broken hooks.
    """
    return Hooks(name, _chain(name, _load(name)))


@functools.lru_cache(maxsize=64)
def targets_of(name: str) -> tuple[Target, ...]:
    """What a backend can compile for, best first.

    Targets that one of its bases describes are the backend's own here: with the base's name all
    further questions would go to the base alone.
    """
    found = hooks_of(name).call("tilecore_describe_targets")
    return tuple(replace(target, backend=name) for target in found)
