"""A KServe model whose steps take time by rows: a fixed part and a part per row, and tell it in the answer. usage: steps.py PORT"""

import argparse
import time

# before the packages, so that --help needs none
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("port", type=int, help="where to serve")
options = parser.parse_args()

import kserve  # noqa: E402

STEPS_MS = {"preprocess": (2.0, 0.02), "predict": (5.0, 0.5), "postprocess": (0.5, 0.01)}
"""Milliseconds in all, and per row."""


def take(step, rows):
    """Sleeps, and returns the nanoseconds that it took."""
    fixed, each = STEPS_MS[step]
    began = time.perf_counter_ns()
    time.sleep((fixed + each * rows) / 1e3)
    return time.perf_counter_ns() - began


class Steps(kserve.Model):
    def __init__(self):
        super().__init__("steps")
        self.ready = True

    def preprocess(self, payload, headers=None):
        payload["truth_ns"] = {"preprocess": take("preprocess", len(payload["instances"]))}
        return payload

    def predict(self, payload, headers=None):
        payload["truth_ns"]["predict"] = take("predict", len(payload["instances"]))
        return {"predictions": [sum(row) for row in payload["instances"]], "truth_ns": payload["truth_ns"]}

    def postprocess(self, result, headers=None, response_headers=None):
        result["truth_ns"]["postprocess"] = take("postprocess", len(result["predictions"]))
        return result


if __name__ == "__main__":
    kserve.ModelServer(http_port=options.port, enable_grpc=False, workers=1).start([Steps()])
