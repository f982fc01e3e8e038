"""The ensemble's second step, the model: 8 ms a batch and 100 µs for each row of it; doubles."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(r, "FEAT").as_numpy() for r in requests]
        time.sleep(8e-3 + 100e-6 * sum(len(x) for x in rows))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("LOGIT", x * 2)]) for x in rows]
