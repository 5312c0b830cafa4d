"""Instructions of one function, a line of LLVM IR each: typed values in, fresh names out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .llvm_types import (
    FLOAT_TYPES,
    Loop,
    Value,
    element_bits,
    element_type,
    float_literal,
    is_float,
    like,
    mangle,
    vector_type,
)

if TYPE_CHECKING:
    from .builder import ModuleWriter


class FunctionWriter:
    """Writes one function; instructions go to the current basic block."""

    def __init__(
        self,
        module: ModuleWriter,
        name: str,
        result: str,
        parameters: Sequence[tuple[str, str]],
        linkage: str,
    ) -> None:
        self.module = module
        self.name = name
        self._head = f"define {linkage} {result} @{name}(" + ", ".join(
            f"{kind} %{parameter}" for kind, parameter in parameters
        )
        self.parameters = [Value(kind.split(" ")[0], f"%{name}") for kind, name in parameters]
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.block = "entry"
        self.is_terminated = False
        self.attributes = ""

    def __str__(self) -> str:
        body = "\n".join(["entry:", *self._allocas, *self._lines])
        return f"{self._head}) {self.attributes} #0 {{\n{body}\n}}"

    # -- plumbing -------------------------------------------------------------------------------

    def fresh(self, hint: str = "v") -> str:
        """A new name, without the sigil."""
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        """Append one instruction; what follows a terminator is unreachable and dropped."""
        if not self.is_terminated:
            self._lines.append("  " + text)

    def emit(self, kind: str, text: str) -> Value:
        """Append an instruction which defines a value of type `kind`."""
        name = f"%{self.fresh()}"
        self.line(f"{name} = {text}")
        return Value(kind, name)

    def begin_block(self, label: str) -> None:
        """Start block `label`; falls through from the current block when that is still open."""
        if not self.is_terminated:
            self.line(f"br label %{label}")
        self._lines.append(f"{label}:")
        self.block, self.is_terminated = label, False

    def terminate(self, text: str) -> None:
        """End the current block with `text`."""
        self.line(text)
        self.is_terminated = True

    def mark(self) -> int:
        """A place in the text, at which `insert_phi` can put what is only known later."""
        return len(self._lines)

    def insert_phi(self, mark: int, value: Value, sources: Sequence[tuple[Value, str]]) -> None:
        """Define `value` at `mark` as what comes from the predecessor (value, block) taken."""
        text = ", ".join(f"[{source.ref}, %{block}]" for source, block in sources)
        self._lines.insert(mark, f"  {value.ref} = phi {value.type} {text}")

    def call(self, name: str, result: str, arguments: Sequence[Value]) -> Value:
        """Call a function, declaring it on first use."""
        self.module.declare(name, result, [value.type for value in arguments])
        text = f"call {result} @{name}({', '.join(map(str, arguments))})"
        if result == "void":
            self.line(text)
            return Value("void", "")
        return self.emit(result, text)

    def intrinsic(self, name: str, arguments: Sequence[Value], result: str | None = None) -> Value:
        """`llvm.<name>.<type of the first argument>`, result type as that argument by default."""
        kind = arguments[0].type
        return self.call(f"llvm.{name}.{mangle(kind)}", result or kind, arguments)

    # -- constants ------------------------------------------------------------------------------

    def const(self, value: float | int | bool, kind: str) -> Value:
        """A constant of any scalar or vector type (all lanes equal)."""
        element = element_type(kind)
        if element in FLOAT_TYPES:
            text = float_literal(float(value), element)
        elif element == "i1":
            text = "true" if value else "false"
        else:
            text = str(int(value))
        return Value(kind, f"splat ({element} {text})" if kind[0] == "<" else text)

    def const_vector(self, values: Sequence[int], element: str) -> Value:
        """A vector of integer constants."""
        body = ", ".join(f"{element} {value}" for value in values)
        return Value(vector_type(element, len(values)), f"<{body}>")

    def i64(self, value: int) -> Value:
        """A 64-bit integer constant."""
        return Value("i64", str(value))

    # -- arithmetic -----------------------------------------------------------------------------

    def binary(self, opcode: str, left: Value, right: Value) -> Value:
        """`left opcode right`; both have one type."""
        return self.emit(left.type, f"{opcode} {left}, {right.ref}")

    def add(self, left: Value, right: Value) -> Value:
        """Sum; integers wrap, floats may be contracted with a product."""
        if not is_float(left.type):
            if right.ref == "0":
                return left
            if left.ref == "0":
                return right
        return self.binary("fadd contract" if is_float(left.type) else "add", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """Difference; integers wrap, floats may be contracted with a product."""
        return self.binary("fsub contract" if is_float(left.type) else "sub", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """Product; integers wrap."""
        if not is_float(left.type):
            if right.ref == "1":
                return left
            if left.ref == "1":
                return right
        return self.binary("fmul contract" if is_float(left.type) else "mul", left, right)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, rounded once."""
        return self.intrinsic("fma", [a, b, c])

    def neg(self, value: Value) -> Value:
        """Negation."""
        if is_float(value.type):
            return self.emit(value.type, f"fneg {value}")
        return self.sub(self.const(0, value.type), value)

    def icmp(self, predicate: str, left: Value, right: Value) -> Value:
        """Integer comparison."""
        return self.emit(like(left.type, "i1"), f"icmp {predicate} {left}, {right.ref}")

    def fcmp(self, predicate: str, left: Value, right: Value) -> Value:
        """Floating-point comparison."""
        return self.emit(like(left.type, "i1"), f"fcmp {predicate} {left}, {right.ref}")

    def select(self, condition: Value, left: Value, right: Value) -> Value:
        """Lane by lane choice."""
        return self.emit(left.type, f"select {condition}, {left}, {right}")

    def cast(self, opcode: str, value: Value, kind: str) -> Value:
        """A conversion instruction; the same type costs nothing."""
        return value if value.type == kind else self.emit(kind, f"{opcode} {value} to {kind}")

    def bitcast(self, value: Value, kind: str) -> Value:
        """Reinterpret bits."""
        return self.cast("bitcast", value, kind)

    # -- vectors --------------------------------------------------------------------------------

    def splat(self, value: Value, lanes: int) -> Value:
        """All lanes equal to a scalar."""
        if lanes == 1 or value.type[0] == "<":
            return value
        kind = vector_type(value.type, lanes)
        if value.ref[0] != "%" and value.ref[0] != "@":
            return Value(kind, f"splat ({value})")
        one = self.emit(kind, f"insertelement {kind} poison, {value}, i64 0")
        return self.emit(
            kind, f"shufflevector {one}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

    def shuffle(self, left: Value, right: Value | None, lanes: Sequence[int]) -> Value:
        """Lanes picked from `left` then `right`; -1 leaves a lane undefined."""
        if len(lanes) == 1 and right is None:
            return self.extract(left, lanes[0])
        mask = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes)
        kind = vector_type(element_type(left.type), len(lanes))
        other = str(right) if right is not None else f"{left.type} poison"
        return self.emit(kind, f"shufflevector {left}, {other}, <{len(lanes)} x i32> <{mask}>")

    def extract(self, value: Value, lane: int | Value) -> Value:
        """One lane as a scalar."""
        if value.type[0] != "<":
            return value
        index = lane if isinstance(lane, Value) else self.i64(lane)
        return self.emit(element_type(value.type), f"extractelement {value}, {index}")

    def insert(self, vector: Value, scalar: Value, lane: int | Value) -> Value:
        """The vector with one lane replaced."""
        if vector.type[0] != "<":
            return scalar
        index = lane if isinstance(lane, Value) else self.i64(lane)
        return self.emit(vector.type, f"insertelement {vector}, {scalar}, {index}")

    # -- memory ---------------------------------------------------------------------------------

    def offset_bytes(self, pointer: Value, offset: Value | int) -> Value:
        """Address `offset` bytes past `pointer`."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = self.i64(offset)
        return self.emit("ptr", f"getelementptr i8, {pointer}, {offset}")

    def offset(self, pointer: Value, element: str, index: Value | int) -> Value:
        """Address of element `index` of an array of `element`."""
        if isinstance(index, int):
            if index == 0:
                return pointer
            index = self.i64(index)
        return self.emit("ptr", f"getelementptr {element}, {pointer}, {index}")

    def load(self, pointer: Value, kind: str, align: int | None = None) -> Value:
        """Load; alignment of one element unless told otherwise."""
        align = align or max(1, element_bits(kind) // 8)
        return self.emit(kind, f"load {kind}, {pointer}, align {align}")

    def store(self, value: Value, pointer: Value, align: int | None = None, hint: str = "") -> None:
        """Store; alignment of one element unless told otherwise."""
        align = align or max(1, element_bits(value.type) // 8)
        self.line(f"store {value}, {pointer}, align {align}{hint}")

    def masked_load(self, pointer: Value, kind: str, mask: Value, other: Value) -> Value:
        """Load the lanes of `mask`, `other` elsewhere; lanes off the mask are not touched."""
        name = f"llvm.masked.load.{mangle(kind)}.p0"
        align = max(1, element_bits(kind) // 8)
        self.module.declare(name, kind, ["ptr", mask.type, kind])
        text = f"call {kind} @{name}(ptr align {align} {pointer.ref}, {mask}, {other})"
        return self.emit(kind, text)

    def masked_store(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of `mask`."""
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        align = max(1, element_bits(value.type) // 8)
        self.module.declare(name, "void", [value.type, "ptr", mask.type])
        self.line(f"call void @{name}({value}, ptr align {align} {pointer.ref}, {mask})")

    def prefetch(self, pointer: Value, wish: str = "near") -> None:
        """Ask for a cache line; never faults.

        `wish` is ``near`` (to be read soon: first-level cache), ``far`` (second level only) or
        ``write`` (to be written soon).
        """
        self.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        kind = {"near": "i32 0, i32 3", "far": "i32 0, i32 2", "write": "i32 1, i32 3"}[wish]
        self.line(f"call void @llvm.prefetch.p0({pointer}, {kind}, i32 1)")

    def alloca(self, kind: str, count: int = 1, align: int = 64) -> Value:
        """Stack space, placed at the function's entry so that loops do not grow the stack."""
        name = f"%{self.fresh('a')}"
        self._allocas.append(f"  {name} = alloca {kind}, i64 {count}, align {align}")
        return Value("ptr", name)

    # -- control flow ---------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, start: Value, stop: Value, step: int = 1, carried: Sequence[Value] = ()
    ) -> Generator[Loop, None, None]:
        """Count from `start` while below `stop`. Carried values: see `Loop.carry`, `results`."""
        label = self.fresh("loop")
        head, body, latch, done = (f"{label}.{part}" for part in ("head", "body", "latch", "done"))
        before = self.block
        self.begin_block(head)
        index = Value(start.type, f"%{label}.i")
        values = [Value(value.type, f"%{label}.c{n}") for n, value in enumerate(carried)]
        phi_at = len(self._lines)
        is_below = self.icmp("slt", index, stop)
        self.terminate(f"br {is_below}, label %{body}, label %{done}")
        self.begin_block(body)
        state = Loop(index, values, latch=latch, done=done)
        yield state
        self.begin_block(latch)
        following = self.add(index, self.const(step, index.type))
        self.terminate(f"br label %{head}")
        finals = state.next_values if state.next_values is not None else list(values)
        phis = [
            f"  {index.ref} = phi {start.type} "
            f"[{start.ref}, %{before}], [{following.ref}, %{latch}]"
        ]
        for value, first, last in zip(values, carried, finals, strict=True):
            phis.append(
                f"  {value.ref} = phi {value.type} [{first.ref}, %{before}], [{last.ref}, %{latch}]"
            )
        self._lines[phi_at:phi_at] = phis
        self.begin_block(done)
        state.results = values

    @contextmanager
    def when(self, condition: Value) -> Generator[None, None, None]:
        """Run the body only if the scalar condition holds."""
        label = self.fresh("if")
        self.terminate(f"br {condition}, label %{label}.then, label %{label}.end")
        self.begin_block(f"{label}.then")
        yield
        self.begin_block(f"{label}.end")

    def ret(self, value: Value | None = None) -> None:
        """Return from the function."""
        self.terminate(f"ret {value}" if value is not None else "ret void")
