"""Digests: equal for equal values in every process, different for different ones."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecore.runtime.fingerprint import cache_key, digest_of, package_fingerprint
from tilecore.target import Target

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain, plain)
def test_digest_is_equal_exactly_for_equal_values(a: object, b: object) -> None:
    assert (digest_of(a) == digest_of(b)) == (repr_of(a) == repr_of(b))


def repr_of(value: object) -> str:
    """An independent canonical form: repr with mappings ordered, nan as one value."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{k!r}:{repr_of(v)}" for k, v in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(repr_of(item) for item in value) + "]"
    return repr(value)


def test_types_do_not_collide() -> None:
    values = [1, True, 1.0, "1", b"1", None, [1], [[1]], {"1": 1}, frozenset({1}), ["", ""], [""]]
    assert len({digest_of(value) for value in values}) == len(values)
    assert digest_of("a", "bc") != digest_of("ab", "c")


def test_functions_have_no_digest() -> None:
    with pytest.raises(TypeError, match="no stable digest"):
        digest_of(print)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    note: str = field(default="", compare=False)


def test_dataclasses_and_enums() -> None:
    assert digest_of(Point(1)) != digest_of(Point(2))
    assert digest_of(Point(1, "here")) == digest_of(Point(1, "there"))
    assert digest_of(Color.RED) != digest_of(Color.BLUE)


TARGET = Target("cpu_llvm", "a", capabilities=frozenset({"bf16", "fp16", "dot", "wide"}))


@pytest.mark.parametrize(
    "changed",
    [
        {"ir_text": "kernel b"},
        {"target": replace(TARGET, arch="b")},
        {"target": replace(TARGET, capabilities=frozenset())},
        {"target": replace(TARGET, device="emulator")},
        {"toolchain": "compiler 2"},
        {"options": {"fast": False}},
        {"options": {}},
        {"code": "other"},
    ],
)
def test_everything_that_changes_the_binary_changes_the_key(changed: dict[str, object]) -> None:
    base = {
        "ir_text": "kernel a",
        "target": TARGET,
        "toolchain": "compiler 1",
        "options": {"fast": True},
        "code": "one",
    }
    assert cache_key(**{**base, **changed}) != cache_key(**base)


def test_key_is_the_same_in_another_process() -> None:
    """Set order depends on the hash seed, the key must not."""
    program = (
        "from tilecore.runtime.fingerprint import cache_key; from tilecore.target import Target;"
        "t = Target('cpu_llvm', 'a', capabilities=frozenset({'bf16', 'fp16', 'dot', 'wide'}));"
        "print(cache_key('kernel', t, 'c', {'b': 1, 'a': 2}))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert keys == {cache_key("kernel", TARGET, "c", {"a": 2, "b": 1})}


def test_package_fingerprint_covers_content_and_names(tmp_path, monkeypatch) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    (package / "device.cuh").write_text("int f();\n")
    (package / "notes.txt").write_text("not code\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def fresh() -> str:
        package_fingerprint.cache_clear()
        return package_fingerprint("some_package")

    first = fresh()
    (package / "notes.txt").write_text("still not code\n")
    assert fresh() == first
    (package / "device.cuh").write_text("int g();\n")
    second = fresh()
    assert second != first
    (package / "device.cuh").rename(package / "other.cuh")
    assert fresh() not in (first, second)
    package_fingerprint.cache_clear()


def test_missing_package_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        package_fingerprint("no_such_package")
