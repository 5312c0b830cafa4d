"""Work on tiles that random programs do between their contractions: one statement at a time."""

from __future__ import annotations

from random import Random

from program_text import clamped, indented

ROUNDS = 8  # of a table that a loop reads


class TileWork:
    """Draws statements over tiles acc, other, kept, row, col, a variable n and tensors X, C, D, E.

    Attributes:
        rng: the source of all choices.
        calm: whether unusual things happen rarely.
        limit: what every operand's dtype holds.
        accum: dtype of the fragments.
        fragments: names of the fragments of a whole tile.
        number: of names that were given.
        frame: how blocks come to their tiles.
        odd_columns: the tile has an odd number of them.
    """

    rng: Random
    calm: bool
    limit: int
    accum: str
    fragments: list[str]
    number: int
    frame: str
    odd_columns: bool

    def chance(self, share: float) -> bool:
        """Whether something unusual happens."""
        return self.rng.random() < share * (0.3 if self.calm else 1)

    def name(self, stem: str) -> str:
        """A name of its own."""
        self.number += 1
        return f"{stem}{self.number}"

    def value(self, i: str = "i", j: str = "j", depth: int = 2) -> str:
        """A small float32 or int32 value at coordinates of (BM, BN)."""
        rng = self.rng
        if depth == 0 or self.chance(0.4):
            tile = rng.choice(self.fragments)
            places = (  # whose dtype holds no sums
                f"kept[{i}, {j}]", f"kept[BM - 1 - {i}, {j}]", f"kept[{i}, ({j} + 3) % BN]",
            )  # fmt: skip
            return rng.choice([
                f"{tile}[{i}, {j}]", f"{tile}[{i}, {j}]", f"row[{i}]", f"col[{j}]", "n", "2",
                f"T.cast({i} - {j}, 'int32')", f"T.cast(X[by * BM + {i}, bx * BN + {j}], 'int32')",
                *(f"T.cast({place}, 'int32')" for place in places),
            ])  # fmt: skip
        x, y = self.value(i, j, depth - 1), self.value(i, j, depth - 1)
        return rng.choice([
            f"({x} + {y})", f"({x} - {y})", f"T.max({x}, {y})", f"T.min({x}, {y})",
            f"T.if_then_else({x} > {y}, {x}, {y})", f"T.if_then_else(({i} + {j}) % 3 == 0, {x}, 1)",
        ])  # fmt: skip

    def elementwise(self) -> list[str]:
        """A nest that writes one of the tiles."""
        rng = self.rng
        target = rng.choice([*self.fragments, *self.fragments, "kept", "row", "col"])
        if target == "row":
            return ["for i in T.Parallel(BM):", f"    row[i] = {clamped('row[i] * 2 + 1', 40)}"]
        if target == "col":
            return ["for j in T.Parallel(BN):", f"    col[j] = {clamped('col[j] - n', 40)}"]
        value = self.value()
        if target == "kept":
            value = value.replace("kept[BM - 1 - i, j]", "n").replace("kept[i, (j + 3) % BN]", "n")
            bound = clamped(f"T.cast({value}, 'float32')", self.limit)
            head = "for j, i in T.Parallel(BN, BM):" if self.chance(0.3) else ""
            return [head or "for i, j in T.Parallel(BM, BN):", f"    kept[i, j] = {bound}"]
        bound = clamped(f"{target}[i, j] + {value}" if self.chance(0.5) else value, 40)
        store = f"{target}[i, j] = T.cast({bound}, '{self.accum}')"
        if self.chance(0.2):
            test = rng.choice(["(i + j) % 2 == 0", "j < BM // 2", "kept[i, j] > 0", "i >= n"])
            return ["for i, j in T.Parallel(BM, BN):", f"    if {test}:", f"        {store}"]
        return ["for i, j in T.Parallel(BM, BN):", f"    {store}"]

    def reduction(self) -> list[str]:
        """A reduction of a tile to its rows or columns."""
        rng = self.rng
        source = rng.choice(self.fragments)
        op = rng.choice(["sum", "max", "min", "absmax"])
        if op == "sum":  # no sum of unbounded terms
            bound = ["for i, j in T.Parallel(BM, BN):",
                     f"    {source}[i, j] = {clamped(f'{source}[i, j]', 40)}"]  # fmt: skip
        else:
            bound = []
        target, dim, extent, at = rng.choice([("row", 1, "BM", "i"), ("col", 0, "BN", "j")])
        return [
            *bound,
            f"T.reduce_{op}({source}, {target}, dim={dim}, clear={self.chance(0.5)})",
            f"for {at} in T.Parallel({extent}):",
            f"    {target}[{at}] = {clamped(f'{target}[{at}]', 40)}",
        ]

    def move(self) -> list[str]:
        """Copies among tiles and global memory, scans, atomics."""
        rng = self.rng
        source = rng.choice(self.fragments)
        kind = rng.choice([0, 1, 2, 3, 4, 7] if self.frame == "split" else range(8))
        bound = ["for i, j in T.Parallel(BM, BN):",
                 f"    {source}[i, j] = {clamped(f'{source}[i, j]', self.limit)}"]  # fmt: skip
        if kind == 0:
            return [*bound, f"T.copy({source}, kept)"]
        if kind == 1:
            return [f"T.copy(kept, {source})"]
        if kind == 2:
            return [f"T.copy(X[by * BM, bx * BN], {source})"]
        if kind == 3:
            return ["T.copy(X[by * BM, bx * BN], kept)"]
        if kind == 4:
            return ["for i in T.Parallel(BM):", "    if by * BM + i < M:",
                    "        T.atomic_add(D[by * BM + i], T.cast(row[i], 'int32'))"]  # fmt: skip
        if kind == 5:
            if self.accum == "float32":
                return [*bound, f"T.atomic_add(E[by * BM, bx * BN], {source})"]
            return [*bound, f"T.copy({source}, C[by * BM, bx * BN])"]
        if kind == 6:
            return [f"T.copy({source}, C[by * BM, bx * BN])",
                    f"T.copy(C[by * BM, bx * BN], {rng.choice(self.fragments)})"]  # fmt: skip
        return [f"T.fill({rng.choice(['kept', source])}, {rng.randint(-2, 2)})"]

    def statement(self, depth: int = 1) -> list[str]:
        """Work that all lanes do on what is there."""
        kinds = [self.elementwise, self.elementwise, self.reduction, self.move]
        if depth and self.chance(0.25):
            return self.nested(depth)
        return self.rng.choice(kinds)()

    def nested(self, depth: int) -> list[str]:
        """A condition or a loop around work."""
        rng = self.rng
        index = self.name("q")
        head, before = rng.choice([
            ("if bx % 2 == 0:", []), ("if n > 2:", []), ("if table[by % 8] > 1:", []),
            (f"for {index} in T.serial(2):", []), (f"for {index} in T.serial(table[bx % 8]):", []),
            (f"for {index} in T.unroll(2):", []), ("while n < 6:", ["n += 2"]),
            ("if kept[0, 0] > 0:", []),
        ])  # fmt: skip
        return [head, *indented([*before, *self.statement(depth - 1)])]
