"""Names as C++ can print them: the author's own where possible.

A name that is a word of C++ or of the kernel vocabulary, that a header may define as a macro, or
that is no ASCII identifier gets another spelling; one name never gets the spelling of another.
Buffers, variables and kernels are renamed before anything is printed, so printers and the
backends' emit rules need not think of it. No spelling has two underscores in a row, so that names
which printers make up (``i__left``, ``A__map``) meet no author's.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any

from tilecore.codegen.simt import block_order
from tilecore.errors import Loc
from tilecore.ir.buffers import Buffer
from tilecore.ir.dtypes import DType
from tilecore.ir.expr import Const, Var
from tilecore.ir.program import Kernel, Program

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false final float for friend goto if import inline int long module mutable namespace new noexcept
not not_eq nullptr operator or or_eq override private protected public register reinterpret_cast
requires restrict return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
volatile wchar_t while xor xor_eq

tc smem store_pair std main printf tile_counter lane lane_group

blockIdx blockDim threadIdx gridDim warpSize dim3 half bfloat16 uchar ushort uint ulong longlong
ulonglong clock_t

int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t intptr_t
uintptr_t

NULL EOF NAN INFINITY HUGE_VAL BUFSIZ RAND_MAX CHAR_BIT INT_MAX INT_MIN UINT_MAX LONG_MAX
FLT_MAX DBL_MAX M_PI M_E assert errno stdin stdout stderr offsetof signbit isnan isinf isfinite
isnormal linux unix i386 major minor makedev setjmp va_list va_start va_end va_arg
"""
RESERVED = frozenset(_WORDS.split()) | block_order.NAMES
"""Words that no name of a kernel's text may be."""
_OWN = {"lane.index": "lane", "lane.group": "lane_group"}
"""Spellings of the compiler's own variables; all are reserved words."""

_LIBRARY = """
abort abs acos acosh asin asinh atan atan2 atanh atexit atof atoi atol bcmp bcopy bsearch bzero
calloc cbrt ceil clock copysign cos cosh div erf erfc exit exp exp2 expm1 fabs fclose fdim fflush
floor fma fmax fmin fmod fopen fread free frexp fwrite getc getenv hypot index ilogb isalnum isalpha
isdigit islower isspace isupper j0 j1 jn ldexp lgamma llrint log log10 log1p log2 logb lrint lround
malloc memchr memcmp memcpy memmove memset modf nan nearbyint nextafter open pow putc puts qsort
rand random read realloc remainder remove rename rindex rint round scanf sin sinh sqrt srand strcat
strchr strcmp strcpy strlen system tan tanh tgamma time tolower toupper trunc write y0 y1 yn

min max umin umax llmin llmax ullmin ullmax clock64 rsqrt rcbrt sincos sinpi cospi sincospi normcdf
normcdfinv erfinv erfcinv erfcx cyl_bessel_i0 cyl_bessel_i1 norm rnorm norm3d rnorm3d norm4d rnorm4d
rhypot labs llabs
"""
_FUNCTIONS = frozenset(_LIBRARY.split())  # clash with a kernel, whose name has C linkage
_VECTOR_TYPE = re.compile(
    r"(u?(char|short|int|long|longlong)|float|double|half|n?v?_?bfloat16)[1-4]"
)
_RESERVED_PREFIXES = ("TC_",)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def spelling(name: str, taken: Iterable[str] = (), is_kernel: bool = False) -> str:
    """A C++ identifier for `name` that is none of `taken`; `name` itself where that is one."""
    made = "".join(c if c.isascii() and (c.isalnum() or c == "_") else _code(c) for c in name)
    made = re.sub("__+", "_", made)  # double underscores belong to the implementation
    if not _IDENTIFIER.fullmatch(made):
        made = f"n{made}"
    if re.match("_[A-Z]", made) or made.startswith(_RESERVED_PREFIXES):
        made = f"n_{made.lstrip('_')}"
    if is_reserved(made) or (is_kernel and _is_function(made)):
        made = f"{made}_kernel" if is_kernel else f"{made}_"
    unique, count = made, 0
    while unique in taken:
        count += 1
        unique = f"{made}_{count}"
    return unique


def is_reserved(name: str) -> bool:
    """Whether C++, a header or the printer itself reads `name` as something else."""
    return name in RESERVED or _VECTOR_TYPE.fullmatch(name) is not None


def _is_function(name: str) -> bool:
    """Whether a library has a function of this name with C linkage, as kernels have it too."""
    return name in _FUNCTIONS or name.removesuffix("f") in _FUNCTIONS


def _code(character: str) -> str:
    return "_" if character in ".- " else f"u{ord(character):x}"


def spelled(program: Program, namespaces: frozenset[str] = frozenset()) -> Program:
    """`program` with names that can be printed; itself where all can be.

    Kernels have names of their own, apart from those of buffers and variables, which are unique in
    a program (docs/architecture.md). They share a scope with the header's `namespaces`.
    """
    names = sorted(_names_in(program))
    good = {name for name in names if spelling(name) == name}
    mapping: dict[str, str] = {}
    for name in names:
        if name in _OWN:
            mapping[name] = _OWN[name]
        elif name not in good:
            mapping[name] = spelling(name, {*good, *mapping.values()})
    kernels: dict[str, str] = {}
    for kernel in program.kernels:
        others = {*kernels.values(), *namespaces}
        kernels[kernel.name] = spelling(kernel.name, others, is_kernel=True)
    if not mapping and all(old == new for old, new in kernels.items()):
        return program
    renamed = _Renamer(mapping)
    return dataclasses.replace(
        program,
        params=renamed.of(program.params),
        workspaces=renamed.of(program.workspaces),
        symbols=renamed.of(program.symbols),
        kernels=tuple(
            dataclasses.replace(
                renamed.of(kernel),
                name=kernels[kernel.name],
                hints=_hints(kernel, mapping),
                layouts=tuple((mapping.get(of, of), layout) for of, layout in kernel.layouts),
            )
            for kernel in program.kernels
        ),
    )


def _hints(kernel: Kernel, mapping: dict[str, str]) -> Any:
    """Hints that are kept by buffer: ``smem.NAME``, ``staged.NAME``."""
    result = []
    for name, value in kernel.hints:
        kind, dot, of = name.partition(".")
        result.append((f"{kind}{dot}{mapping.get(of, of)}", value))
    return tuple(sorted(result))


@functools.cache
def _fields_of(kind: type) -> tuple[str, ...]:
    """Names of a record's fields; none for what is no record, and for records without names."""
    if kind in (Const, DType, Loc) or not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


def _names_in(node: Any) -> set[str]:
    found: set[str] = set()
    seen: set[int] = set()
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, tuple):
            pending += one
        elif (fields := _fields_of(type(one))) and id(one) not in seen:
            seen.add(id(one))  # parts of the program, which stays alive
            if isinstance(one, Var | Buffer):
                found.add(one.name)
            pending += [getattr(one, field) for field in fields]
    return found


class _Renamer:
    """Rebuilds whatever holds a name that changes; what occurs at several places, once."""

    def __init__(self, mapping: dict[str, str]) -> None:
        self.mapping = mapping
        self._done: dict[int, tuple[Any, Any]] = {}

    def of(self, node: Any) -> Any:
        """`node`, which is a tuple, a record of the IR or a plain value, with other names."""
        if isinstance(node, tuple) and node and node[0] == "tensor":  # a hint that names a tensor
            return tuple(self.mapping.get(one, one) for one in node)
        if isinstance(node, tuple):
            new = tuple(self.of(one) for one in node)
            return new if any(a is not b for a, b in zip(new, node, strict=True)) else node
        if not _fields_of(type(node)):
            return node
        known = self._done.get(id(node))
        if known is None:  # the node is held, so that no other one gets its identity
            known = self._done[id(node)] = (node, self._record(node))
        return known[1]

    def _record(self, node: Any) -> Any:
        changes = {}
        for field in _fields_of(type(node)):
            old = getattr(node, field)
            if (new := self.of(old)) is not old:
                changes[field] = new
        if isinstance(node, Var | Buffer) and node.name in self.mapping:
            changes["name"] = self.mapping[node.name]
        return dataclasses.replace(node, **changes) if changes else node
