"""ONNX Runtime as the reference, and what counts as the same answer.

The graph runs as the file has it: with its optimisations, ONNX Runtime is about four times further off what double precision gives,
which on some encoders is more than is allowed here. Where an answer is wrong, the same graph in double precision says who is off.
"""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

ABSOLUTE = RELATIVE = 1e-5


def session(model, threads=2, optimised=False):
    """A session on the CPU; as the file has it, or with every optimisation that ONNX Runtime knows."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"])


class Reference:
    """What a model (a path, or the file's bytes) answers, by name of output."""

    def __init__(self, model, optimised=False):
        self.model = model
        self.session = session(model, optimised=optimised)
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def __call__(self, feeds):
        return dict(zip(self.outputs, self.session.run(self.outputs, {name: feeds[name] for name in self.inputs})))

    def exact(self, feeds):
        """In double precision, by ONNX's own evaluator. Slow."""
        model = onnx.load_from_string(self.model) if isinstance(self.model, bytes) else onnx.load(self.model)
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
        for node in model.graph.node:
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                    attribute.i = TensorProto.DOUBLE
        wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in feeds.items()}
        return dict(zip(self.outputs, ReferenceEvaluator(model).run(self.outputs, wide)))

    def fault(self, feeds, got, wanted=None, kept=None):
        """Why `got` is not the answer, or None: |y - r| ≤ 1e-5 + 1e-5·|r| for each element, and all of them finite.

        `kept` has an output's rows that count, where not all do; the others need only be finite.
        """
        wanted = self(feeds) if wanted is None else wanted
        if got.keys() != wanted.keys():
            return f"outputs {sorted(got)} instead of {sorted(wanted)}"
        for name, r in wanted.items():
            y = got[name]
            if (y.shape, y.dtype) != (r.shape, r.dtype):
                return f"{name}: {y.dtype}{list(y.shape)} instead of {r.dtype}{list(r.shape)}"
            if not np.isfinite(y).all():
                return f"{name}: {np.count_nonzero(~np.isfinite(y))} of {y.size} elements are not finite"
            off = over(y, r)
            if kept and name in kept:
                off[~kept[name]] = 0
            if not (off <= 1).all():
                at = tuple(int(i) for i in np.unravel_index(off.argmax(), off.shape))
                row = {name: a[at[0] : at[0] + 1] for name, a in feeds.items()}
                exact = self.exact(row)[name][(0, *at[1:])]
                return (
                    f"{name}{list(at)}: {y[at]:.9g} instead of {r[at]:.9g} ({exact:.9g} in double precision): {off[at]:.2f} times what "
                    f"is allowed; {np.count_nonzero(off > 1)} of {y.size} elements are off"
                )
        return None

    def check(self, feeds, got, about="", wanted=None, kept=None):
        """Fails if `got` is not the answer."""
        fault = self.fault(feeds, got, wanted, kept)
        assert fault is None, f"{about} {[list(a.shape) for a in feeds.values()]}: {fault}"


def over(y, r):
    """Each element's |y - r| as a multiple of 1e-5 + 1e-5·|r|, which is allowed."""
    y, r = y.astype(np.float64), r.astype(np.float64)
    return np.abs(y - r) / (ABSOLUTE + RELATIVE * np.abs(r))


def cosines(got, wanted):
    """The cosine of each row, rows being all but the last axis."""
    y, r = (a.reshape(-1, a.shape[-1]).astype(np.float64) for a in (got, wanted))
    return (y * r).sum(1) / np.maximum(np.linalg.norm(y, axis=1) * np.linalg.norm(r, axis=1), 1e-300)
