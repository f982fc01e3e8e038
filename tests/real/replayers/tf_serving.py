"""TensorFlow Serving at 9d981c5: nothing per request, and a page of metrics.

Followed: tensorflow_serving/util/prometheus_exporter.cc (SerializeHistogram: every character that is not a letter, a digit or `_`
becomes `:`, no `# HELP`, the path), tensorflow_serving/servables/tensorflow/util.cc (request_latency, runtime_latency, in
microseconds, buckets 10 · 1.8^k), tensorflow_serving/batching/batching_session.cc (queuing_latency).
"""

import re
import time

from replayers.replayer import Replayer

PAGE = "/monitoring/prometheus/metrics"


class Histogram:
    """monitoring::Sampler, as SerializeHistogram prints it."""

    def __init__(self, name, labels, first, growth, buckets):
        self.name, self.labels = re.sub("[^a-zA-Z0-9_]", ":", name), labels
        self.limits = [first * growth**k for k in range(buckets)]
        self.counts, self.sum = [0] * (buckets + 1), 0

    def add(self, us):
        self.counts[next((i for i, limit in enumerate(self.limits) if us < limit), len(self.limits))] += 1
        self.sum += us

    def lines(self):
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        yield f"# TYPE {self.name} histogram"
        so_far = 0
        for count, limit in zip(self.counts, [*(f"{limit:g}" for limit in self.limits), "+Inf"]):
            so_far += count
            yield f'{self.name}_bucket{{{labels}{"," if labels else ""}le="{limit}"}} {so_far}'
        yield f"{self.name}_sum{{{labels}}} {self.sum}"
        yield f"{self.name}_count{{{labels}}} {so_far}"


class TfServing(Replayer):
    """With --monitoring_config_file and batching."""

    banner = ""

    def __init__(self, ports):
        super().__init__(ports)
        model = {"model_name": "half_plus_two", "API": "Predict"}
        path = "/tensorflow/serving/"
        self.queue = Histogram(f"{path}batching_session/queuing_latency", {"thread_pool_name": "pool"}, 100, 1.2, 52)
        self.request = Histogram(f"{path}request_latency", {**model, "entrypoint": "REST"}, 10, 1.8, 33)
        self.runtime = Histogram(f"{path}runtime_latency", {**model, "runtime": "TF1"}, 10, 1.8, 33)

    def metrics_page(self, path):
        if path != PAGE:
            return None
        return "\n".join(line for one in (self.queue, self.request, self.runtime) for line in one.lines()) + "\n"

    def answer(self, exchange):
        us = lambda: time.perf_counter_ns() // 1000
        start = us()
        self.sleep_ms(2, 4)
        began = us()
        self.sleep_ms(8, 12)
        done = us()
        self.queue.add(began - start)
        # the runtime's wall time has the wait in the batching session in it
        self.runtime.add(done - start)
        self.request.add(us() - start)
        self.truths[exchange.trace_id] = {"queue": (began - start) * 1000, "forward": (done - began) * 1000}
        exchange.send({"predictions": [2.5 for _ in exchange.body["instances"]]})
