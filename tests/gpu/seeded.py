#!/usr/bin/env python3
"""The two models of the GPU benchmark, from a seed: an MLP 512-1024-1024-1, and an encoder of MiniLM's size (6 layers, 384 wide, 12
heads, 1536 within, 30522 words, 512 places) that gives one embedding for each sentence. Both sides run the same weights: Lapwing
from the ONNX file, PyTorch (torch_baseline.py) from the arrays.

As a program it writes mlp.onnx and minilm.onnx; needs numpy and onnx.
"""

import argparse
import pathlib
import sys


def command_line():
    """The options. Read before the imports below, so that --help needs nothing but the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="where the models are written")
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD, WORDS, PLACES, LAYERS, HIDDEN, WIDTHS = 32, 30522, 512, 6, 384, (512, 1024, 1024, 1)


def fixtures():
    """tests/real/engine/fixtures.py, which writes these graphs for all tests."""
    sys.path.insert(0, str(ROOT / "tests/real"))
    from engine import fixtures as found

    return found


def mlp_weights():
    """w0, b0, w1 … as the file has them: w is [k][n]."""
    rng, out = np.random.default_rng(0), {}
    for at, (k, n) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        out[f"w{at}"] = (rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
        out[f"b{at}"] = (rng.standard_normal(n) * 0.1).astype(np.float32)
    return out


def minilm_weights():
    """By the names that BERT's checkpoints have."""
    return fixtures().random_weights(HIDDEN, LAYERS, WORDS, PLACES)


def write(folder):
    """Both files, and where they are. What the encoder gives is the sentences' embeddings alone, as the budget counts."""
    import onnx

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"mlp": fixtures().mlp(folder / "mlp.onnx", WIDTHS)}
    paths["minilm"] = fixtures().encoder(folder / "minilm.onnx", minilm_weights(), HEAD)
    model = onnx.load(paths["minilm"])
    for side in (model.graph.output, model.graph.node):
        for item in [i for i in side if i.name in ("last_hidden_state", "output")]:
            side.remove(item)
    onnx.checker.check_model(model)
    onnx.save(model, paths["minilm"])
    return paths


def feed(model, batch, length, rng, ragged=False):
    """One request: float rows, or ids, mask and types; `ragged` sentences end before the batch does."""
    if model == "mlp":
        return rng.standard_normal((batch, WIDTHS[0])).astype(np.float32)
    lengths = rng.integers(1, length + 1, batch) if ragged else np.full(batch, length)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return np.stack([rng.integers(0, WORDS, (batch, length)), mask, np.zeros((batch, length), np.int64)])


if __name__ == "__main__":
    print(*write(OPTIONS.folder).values(), sep="\n")
