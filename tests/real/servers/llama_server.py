"""llama.cpp's server on loopback: OpenAI's API, server-sent events, `timings`, /metrics.

Runs in .venv-llama. The server has no call that stops it, so it ends with its process.
"""

import argparse
import threading


def main(model, port, context, parallel, cache_mib):
    import xllamacpp  # after the arguments: --help needs the standard library only

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = port
    params.n_ctx = context
    params.n_parallel = parallel
    # all sequences share the context: who writes most may take all of it
    params.kv_unified = True
    if cache_mib is not None:
        params.cache_ram_mib = cache_mib
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("port", type=int, metavar="PORT")
    parser.add_argument("--context", type=int, default=4096, help="tokens that all sequences may hold together")
    parser.add_argument("--parallel", type=int, default=2, help="sequences at once")
    parser.add_argument("--cache-mib", type=int, help="memory for prompts that no sequence holds any more (default: llama.cpp's)")
    options = parser.parse_args()
    main(options.model, options.port, options.context, options.parallel, options.cache_mib)
