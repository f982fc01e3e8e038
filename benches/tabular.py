#!/usr/bin/env python3
"""The time of tree ensembles beside ONNX Runtime on one thread.

usage: python3 benches/tabular.py RUNS MODELS [PATTERN], or --make MODELS
RUNS is the built example `tabular_runs` (cargo build -p lapwing-tabular --release --example tabular_runs). MODELS is a folder of files
whose one input is FP32 of N columns, such as those that `--make` trains there first (LightGBM, XGBoost, scikit-learn; 100 and 1,000 trees).
Outputs are compared first. Both run in turns; the ratio is of medians, below 1 where Lapwing is faster. ONNX Runtime's time has that of
its Python binding, which a call of an empty graph takes too: it is measured and subtracted.
"""
import pathlib, statistics, subprocess, sys, tempfile, time

if {"-h", "--help"} & set(sys.argv):  # also where the packages are not installed
    print(__doc__)
    raise SystemExit

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

ROWS, TURNS = (1, 32, 1024), 15


def make(folder):
    import lightgbm as lgb
    import onnxmltools
    import xgboost as xgb
    from onnxmltools.convert.common.data_types import FloatTensorType as F
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.ensemble import RandomForestClassifier

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20000, 30)).astype(np.float32)
    y = (X[:, 0] * 2 + np.sin(X[:, 1] * 2) + X[:, 2] * X[:, 3] + rng.standard_normal(len(X)) > 0).astype(np.int64)
    for trees in (100, 1000):
        for name, model in (
            ("lightgbm", lgb.LGBMClassifier(n_estimators=trees, num_leaves=31, verbose=-1)),
            ("xgboost", xgb.XGBClassifier(n_estimators=trees, max_depth=6)),
            ("random_forest", RandomForestClassifier(trees, max_depth=12, n_jobs=-1, random_state=0)),
        ):
            path = folder / f"{name}_{trees}.onnx"
            if path.exists():
                continue
            model.fit(X, y)
            if name == "lightgbm":
                made = onnxmltools.convert_lightgbm(model, initial_types=[("x", F([None, 30]))], zipmap=False)
            elif name == "xgboost":
                made = onnxmltools.convert_xgboost(model, initial_types=[("x", F([None, 30]))])
            else:
                made = convert_sklearn(model, initial_types=[("x", FloatTensorType([None, 30]))], options={id(model): {"zipmap": False}})
            onnx.save(made, path)


class Session:
    def __init__(self, model, rows):
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.feeds = {self.session.get_inputs()[0].name: rows}

    def times(self, count):
        out = []
        for _ in range(count):
            start = time.perf_counter_ns()
            self.session.run(None, self.feeds)
            out.append(time.perf_counter_ns() - start)
        return out


def empty(width):
    info = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, width])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [info("x")], [info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


class Ours:
    def __init__(self, binary, path, inputs, rows):
        self.process = subprocess.Popen([binary, path, inputs, str(rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def times(self, count):
        return [int(t) for t in self.ask(str(count)).split()]

    def outputs(self):
        line, out = self.ask("outputs"), []
        while line.strip():
            kind, data = line.split(" ")
            out.append(np.frombuffer(bytes.fromhex(data), {"FP32": np.float32, "INT64": np.int64}[kind]))
            line = self.process.stdout.readline()
        return out

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    if "--make" in sys.argv:
        return make(pathlib.Path(sys.argv[-1]))
    binary, folder, pattern = sys.argv[1], pathlib.Path(sys.argv[2]), (sys.argv + ["*"])[3]
    print(f"{'model':24} {'rows':>5} {'lapwing µs':>11} {'onnxruntime µs':>15} {'ratio':>6} {'binding µs':>11}")
    for path in sorted(folder.glob(f"{pattern}.onnx")):
        width = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[1].dim_value
        for rows in ROWS:
            x = np.random.default_rng(1).standard_normal((rows, width)).astype(np.float32)
            with tempfile.NamedTemporaryFile() as file:
                file.write(x.tobytes())
                file.flush()
                ours = Ours(binary, str(path), file.name, rows)
                theirs, nothing = Session(str(path), x), Session(empty(width), x)
                for got, wanted in zip(ours.outputs(), theirs.session.run(None, theirs.feeds)):
                    assert np.allclose(got, np.asarray(wanted).ravel(), atol=2e-6), (path, rows, np.abs(got - np.asarray(wanted).ravel()).max())
                count = 200 if rows == 1 else 40 if rows == 32 else 5
                for each in (ours, theirs, nothing):
                    each.times(count)
                turns = [(ours.times(count), theirs.times(count), nothing.times(count)) for _ in range(TURNS)]
                mine, ort_time, bound = (statistics.median(statistics.median(turn[i]) for turn in turns) / 1000 for i in range(3))
                print(f"{path.stem:24} {rows:5} {mine:11.2f} {ort_time - bound:15.2f} {mine / (ort_time - bound):6.2f} {bound:11.2f}", flush=True)
                ours.close()


main()
