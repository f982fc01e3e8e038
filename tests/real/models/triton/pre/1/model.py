"""The ensemble's first step: 3 ms and 20 µs for each row; takes the mean off."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(r, "RAW").as_numpy() for r in requests]
        time.sleep(3e-3 + 20e-6 * sum(len(x) for x in rows))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("FEAT", x - x.mean(axis=1, keepdims=True))]) for x in rows]
