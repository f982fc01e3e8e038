"""Trains a small classifier with scikit-learn, and writes it with its data for the engine's tests.

    python3 -m venv .venv && .venv/bin/pip install -r examples/requirements.txt
    .venv/bin/python examples/train_digits.py

Data: scikit-learn's `digits` (8x8 grey images of handwritten digits, pixels 0..16), split once with a fixed seed.
Writes, relative to the repository root:

    tests/fixtures/digits/digits.onnx     x [N,64] float32, normalised -> logits [N,10]; Gemm and Relu only
    tests/fixtures/digits/digits.csv      the held-out rows: entity_id, label, prediction, 64 raw pixels
    tests/fixtures/digits/digits.json     mean and scale of each pixel (of the training rows), and how the model was made
    crates/lapwing-model/src/golden/digits.json      a few normalised rows and their logits as numpy computes them in float64
"""

import argparse
import json
import platform
from pathlib import Path

if __name__ == "__main__":
    # before the imports below, so that --help needs only the standard library
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()

# ruff: noqa: E402
import numpy as np
import onnx
import sklearn
from onnx import TensorProto, checker, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

SEED = 7
HIDDEN = (256, 128)
GOLDEN_ROWS = 8
ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "tests" / "fixtures" / "digits"
GOLDEN = ROOT / "crates" / "lapwing-model" / "src" / "golden"


def logits_of(model: MLPClassifier, x: np.ndarray) -> np.ndarray:
    """The network's output before softmax, in float64."""
    for depth, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_)):
        x = x @ weight + bias
        if depth < len(model.coefs_) - 1:
            x = np.maximum(x, 0)
    return x


def to_onnx(model: MLPClassifier) -> onnx.ModelProto:
    nodes, initializers, last = [], [], "x"
    for depth, (weight, bias) in enumerate(zip(model.coefs_, model.intercepts_)):
        is_output = depth == len(model.coefs_) - 1
        initializers.append(numpy_helper.from_array(weight.astype(np.float32), f"weight_{depth}"))
        initializers.append(numpy_helper.from_array(bias.astype(np.float32), f"bias_{depth}"))
        out = "logits" if is_output else f"hidden_{depth}"
        nodes.append(helper.make_node("Gemm", [last, f"weight_{depth}", f"bias_{depth}"], [out], name=f"gemm_{depth}"))
        last = out
        if not is_output:
            last = f"relu_{depth}"
            nodes.append(helper.make_node("Relu", [out], [last], name=last))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", model.coefs_[0].shape[0]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", model.coefs_[-1].shape[1]])],
        initializers,
    )
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
        producer_name="lapwing examples/train_digits.py",
    )
    checker.check_model(made, full_check=True)
    return made


def main() -> None:
    digits = load_digits()
    entity_ids = np.arange(len(digits.target))
    train, test = train_test_split(entity_ids, test_size=0.2, random_state=SEED, stratify=digits.target)
    scaler = StandardScaler().fit(digits.data[train])
    model = MLPClassifier(HIDDEN, alpha=1e-3, max_iter=200, early_stopping=True, random_state=SEED)
    model.fit(scaler.transform(digits.data[train]), digits.target[train])

    test = np.sort(test)
    x = scaler.transform(digits.data[test])
    logits = logits_of(model, x)
    softmax = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax /= softmax.sum(axis=1, keepdims=True)
    assert np.allclose(softmax, model.predict_proba(x), atol=1e-12), "our logits are not scikit-learn's"
    predictions = model.predict(x)
    accuracy = float(np.mean(predictions == digits.target[test]))

    for folder in (GOLDEN, FIXTURE):
        folder.mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(model), FIXTURE / "digits.onnx")
    rows = ["entity_id,label,prediction," + ",".join(f"p{i}" for i in range(64))]
    for entity, predicted in zip(test, predictions):
        pixels = digits.data[entity].astype(int)
        rows.append(",".join(map(str, [entity, digits.target[entity], predicted, *pixels])))
    (FIXTURE / "digits.csv").write_text("\n".join(rows) + "\n")
    about = {
        "mean": [round(float(v), 7) for v in scaler.mean_],
        "scale": [round(float(v), 7) for v in scaler.scale_],
        "classes": [int(c) for c in model.classes_],
        "layers": [64, *HIDDEN, 10],
        "train_rows": len(train),
        "test_rows": len(test),
        "test_accuracy": round(accuracy, 6),
        "seed": SEED,
        "made_with": f"scikit-learn {sklearn.__version__}, numpy {np.__version__}, onnx {onnx.__version__}, "
        f"Python {platform.python_version()}",
    }
    (FIXTURE / "digits.json").write_text(json.dumps(about, indent=1) + "\n")
    golden = {
        "input": [[round(float(v), 7) for v in row] for row in x[:GOLDEN_ROWS]],
        "logits": [],
    }
    golden["logits"] = [[round(float(v), 7) for v in row] for row in logits_of(model, np.array(golden["input"]))]
    (GOLDEN / "digits.json").write_text(json.dumps(golden) + "\n")

    print(f"accuracy on {len(test)} held-out rows: {accuracy:.4f} (trained on {len(train)}, {model.n_iter_} passes)")
    for path in (FIXTURE / "digits.onnx", FIXTURE / "digits.csv", FIXTURE / "digits.json", GOLDEN / "digits.json"):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
