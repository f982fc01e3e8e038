"""Ray Serve on one machine with the application of models/ray; runs in .venv-ray until it is ended.

Prints `ready` once the application answers.
"""

import argparse
import shutil
import signal


def main(port, metrics_port, folder):
    import ray  # after the arguments: --help needs the standard library only
    from ray import serve

    ray.init(num_cpus=2, include_dashboard=False, _metrics_export_port=metrics_port, _temp_dir=folder, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    from app import app  # models/ray is on PYTHONPATH, for the replicas too

    serve.run(app, route_prefix="/")
    print("ready", flush=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    ray.shutdown()  # ends every process, without a word to the application
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, metavar="PORT")
    parser.add_argument("metrics_port", type=int, metavar="METRICS_PORT")
    parser.add_argument("folder", metavar="FOLDER", help="short: Ray puts Unix sockets below it")
    options = parser.parse_args()
    main(options.port, options.metrics_port, options.folder)
