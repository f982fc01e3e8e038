#!/usr/bin/env python3
"""The two models of the GPU benchmark, with weights from a seed: an MLP 512-1024-1024-1, and an encoder of MiniLM's size (6 layers,
hidden size 384, 12 heads, intermediate size 1536, 30522 words, 512 positions) whose output is one embedding for each sentence. Lapwing
and PyTorch run the same weights: Lapwing from the ONNX file, PyTorch (torch_baseline.py) from the arrays.

As a program, it writes mlp.onnx and minilm.onnx. Needs numpy and onnx.
"""

import argparse
import pathlib
import sys


def command_line():
    """Parses the options, before the imports below, so that --help needs only the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="where the models are written")
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAD, WORDS, PLACES, LAYERS, HIDDEN, WIDTHS = 32, 30522, 512, 6, 384, (512, 1024, 1024, 1)


def fixtures():
    """The module tests/real/engine/fixtures.py, which writes these graphs for all tests."""
    sys.path.insert(0, str(ROOT / "tests/real"))
    from engine import fixtures as found

    return found


def mlp_weights():
    """w0, b0, w1 … as in the ONNX file: w is [k][n]."""
    rng, out = np.random.default_rng(0), {}
    for at, (k, n) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        out[f"w{at}"] = (rng.standard_normal((k, n)) / np.sqrt(k)).astype(np.float32)
        out[f"b{at}"] = (rng.standard_normal(n) * 0.1).astype(np.float32)
    return out


def minilm_weights():
    """The weights by their names in BERT's checkpoints."""
    return fixtures().random_weights(HIDDEN, LAYERS, WORDS, PLACES)


def write(folder):
    """Writes both files and returns their paths. The sentences' embeddings are the encoder's only output, as in the budget."""
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
    """The input of one request: rows of floats, or ids, mask and types. With `ragged`, sentences have random lengths up to `length`."""
    if model == "mlp":
        return rng.standard_normal((batch, WIDTHS[0])).astype(np.float32)
    lengths = rng.integers(1, length + 1, batch) if ragged else np.full(batch, length)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return np.stack([rng.integers(0, WORDS, (batch, length)), mask, np.zeros((batch, length), np.int64)])


if __name__ == "__main__":
    print(*write(OPTIONS.folder).values(), sep="\n")
