"""The words of the text, one each 10 ms: a decoupled model, many responses to one request."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
            for word in text.split():
                time.sleep(10e-3)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([word.encode()], dtype=object))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
