"""The stand-in for a package of attention functions agrees with torch's own attention."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
reference = pytest.importorskip("tools.compatibility.reference_attention")


def _expected(q, k, v, causal):
    """By torch: one sequence, heads of keys repeated; causal needs equal lengths there."""
    groups = q.shape[1] // k.shape[1]
    q, k, v = (one.transpose(0, 1)[None] for one in (q, k, v))
    k, v = (one.repeat_interleave(groups, dim=1) for one in (k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out[0].transpose(0, 1)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_of_several_lengths(causal):
    generator = torch.Generator().manual_seed(1)
    lengths = (5, 1, 8)
    bounds = torch.tensor([0, 5, 6, 14], dtype=torch.int32)
    q = torch.randn(14, 4, 16, generator=generator)
    k, v = (torch.randn(14, 2, 16, generator=generator) for _ in range(2))
    out = reference.flash_attn_varlen_func(q, k, v, bounds, bounds, 8, 8, causal=causal)
    parts = [one.split(lengths) for one in (q, k, v)]
    expected = torch.cat([_expected(*part, causal) for part in zip(*parts, strict=True)])
    torch.testing.assert_close(out, expected)


def test_causal_sequences_end_together():
    """Of 2 queries over 5 keys the first sees 4; of 3 over 2 the first sees none."""
    q, k = torch.randn(5, 1, 8), torch.randn(7, 1, 8)
    out = reference.flash_attn_varlen_func(
        q, k, k, torch.tensor([0, 2, 5]), torch.tensor([0, 5, 7]), 3, 5, causal=True
    )
    torch.testing.assert_close(out[0], _expected(q[:1], k[:4], k[:4], False)[0])
    assert not out[2].any() and out[3].any()


def test_pages_give_what_one_piece_gives():
    q = torch.randn(2, 1, 4, 16)
    k, v = torch.randn(2, 12, 2, 16), torch.randn(2, 12, 2, 16)
    used = torch.tensor([12, 5], dtype=torch.int32)
    whole = reference.flash_attn_with_kvcache(q, k, v, cache_seqlens=used)
    order = torch.tensor([[4, 0, 2], [1, 5, 3]], dtype=torch.int32)
    pages = [torch.empty(6, 4, 2, 16) for _ in range(2)]
    for made, one in zip(pages, (k, v), strict=True):
        made[order.flatten().long()] = one.reshape(6, 4, 2, 16)
    paged = reference.flash_attn_with_kvcache(q, *pages, cache_seqlens=used, block_table=order)
    torch.testing.assert_close(paged, whole)
    torch.testing.assert_close(whole[1], _expected(q[1], k[1, :5], v[1, :5], False))


@pytest.mark.parametrize("part", [False, True], ids=["absent", "a folder of another part"])
def test_it_is_offered_to_programs_that_name_the_package(tmp_path: Path, monkeypatch, part: bool):
    if importlib.util.find_spec(reference.PACKAGE) is not None:
        pytest.skip("the package itself is installed")
    if part:
        (tmp_path / "site" / reference.PACKAGE / "cute").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / "site")
        assert importlib.util.find_spec(reference.PACKAGE) is not None
    texts = {
        "named.py": "import flash_attn\n",
        "without.py": "import math\nfrom os.path import join\n",
        "imports.py": "import named\n",
        "takes_from.py": "from named import main\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert not reference.offer(tmp_path / "without.py")
    assert reference.PACKAGE not in sys.modules
    for name in ("named.py", "imports.py", "takes_from.py"):
        monkeypatch.setitem(sys.modules, reference.PACKAGE, None)  # taken out again afterwards
        monkeypatch.delitem(sys.modules, reference.PACKAGE)
        assert reference.offer(tmp_path / name)
        assert importlib.util.find_spec(reference.PACKAGE) is not None
