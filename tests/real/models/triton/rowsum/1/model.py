"""The sum of each row."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.sum(axis=1, keepdims=True))]) for x in rows]
