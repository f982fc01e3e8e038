"""llama.cpp's server on loopback: OpenAI's API, server-sent events, `timings`, /metrics.

usage: llama_server.py MODEL.gguf PORT      in .venv-llama; it has no call that stops it, so it ends with its process
"""

import sys
import threading

import xllamacpp


def main(model, port):
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = port
    params.n_ctx = 4096
    params.n_parallel = 2
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.warmup = True
    params.offline = True
    server = xllamacpp.Server(params)
    print(f"listens on {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
