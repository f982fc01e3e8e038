"""Runs the ONNX file beside it by ONNX Runtime on one thread."""

import pathlib

import onnxruntime
import triton_python_backend_utils as pb_utils

DATATYPES = {"tensor(float)": "TYPE_FP32", "tensor(int32)": "TYPE_INT32", "tensor(int64)": "TYPE_INT64"}


def session():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    file = pathlib.Path(__file__).with_name("model.onnx")
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def described(tensor):
    dims = [dim if isinstance(dim, int) else -1 for dim in tensor.shape]
    return {"name": tensor.name, "data_type": DATATYPES[tensor.type], "dims": dims}


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        own = session()
        for tensor in own.get_inputs():
            config.add_input(described(tensor))
        for tensor in own.get_outputs():
            config.add_output(described(tensor))
        return config

    def initialize(self, _):
        self.session = session()
        self.inputs = [tensor.name for tensor in self.session.get_inputs()]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        feeds = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
        wanted = request.requested_output_names()
        outputs = zip(wanted, self.session.run(wanted, feeds))
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs])
