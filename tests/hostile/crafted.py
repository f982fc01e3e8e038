"""ONNX models by hand, for the few nodes that ask for much."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def model(path, nodes, constants=(), shape=(1, 4)):
    """A model `x` → `y` of these nodes, written to `path`."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    return path


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs, [output], **attributes)
