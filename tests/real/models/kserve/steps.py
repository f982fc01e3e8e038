"""A KServe model whose steps take time by rows: a fixed part and a part per row. usage: steps.py PORT"""

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
    fixed, each = STEPS_MS[step]
    time.sleep((fixed + each * rows) / 1e3)


class Steps(kserve.Model):
    def __init__(self):
        super().__init__("steps")
        self.ready = True

    def preprocess(self, payload, headers=None):
        take("preprocess", len(payload["instances"]))
        return payload

    def predict(self, payload, headers=None):
        take("predict", len(payload["instances"]))
        return {"predictions": [sum(row) for row in payload["instances"]]}

    def postprocess(self, result, headers=None, response_headers=None):
        take("postprocess", len(result["predictions"]))
        return result


if __name__ == "__main__":
    kserve.ModelServer(http_port=options.port, enable_grpc=False, workers=1).start([Steps()])
