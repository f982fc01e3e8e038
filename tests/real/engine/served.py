"""The engine as a process, and clients of it: the Open Inference Protocol by hand (REST), and tritonclient for all three forms."""

import contextlib
import http.client
import json
import os
import urllib.error
import urllib.request

import numpy as np
import tritonclient.grpc as by_grpc
import tritonclient.http as by_http

from ports import free_port
from process import Process, wait_for

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
DATATYPES = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "int32": "INT32", "int64": "INT64", "bool": "BOOL", "uint8": "UINT8"}
FORMS = ("binary", "json", "grpc")


class Engine:
    """`lapwing engine serve` with models of one's own, as (`NAME` or `NAME@VERSION`, file) or a file alone."""

    def __init__(self, binary, logs, models, *args, env=None):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [binary, "engine", "serve", "--listen", f"127.0.0.1:{self.port}"]
        for model in models:
            command += ["--model", "=".join(map(str, model)) if isinstance(model, tuple) else str(model)]
        # a library of ONNX Runtime that happens to be found would run what is tested with rten; test_onnxruntime.py names one
        env = {**os.environ, "LAPWING_ENGINE__ORT_LIB": "off", **(env or {})}
        self.process = Process("engine", [*command, *map(str, args)], logs, env=env)

    def get(self, path, method="GET"):
        """(status, body); 0 where nobody answers."""
        try:
            with OPENER.open(urllib.request.Request(self.url + path, method=method), timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read()
        except OSError:
            return 0, b""

    def json(self, path):
        status, body = self.get(path)
        assert status == 200, (path, status, body[:500])
        return json.loads(body)

    def is_ready(self):
        assert self.process.is_running(), f"the engine ended early:\n{self.process.output()[-6000:]}"
        return self.get("/v2/health/ready")[0] == 200

    def wait_ready(self, seconds=300):
        wait_for(self.is_ready, seconds, "the engine is ready", 0.02)
        return self

    def metric(self, name, /, **labels):
        """The sum of a family's samples that have these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(value)
        return total


# --- by hand


class Reply:
    """A response of REST, decoded."""

    def __init__(self, response, body):
        self.status, self.headers = response.status, response.headers
        length = int(response.headers.get("inference-header-content-length") or len(body))
        self.said = json.loads(body[:length]) if length else {}
        self.error, self.parameters = self.said.get("error"), self.said.get("parameters", {})
        self.outputs, at = {}, length
        kinds = {v: k for k, v in DATATYPES.items()}
        for tensor in self.said.get("outputs", []):
            kind, size = np.dtype(kinds[tensor["datatype"]]), tensor.get("parameters", {}).get("binary_data_size")
            if size is None:
                flat = np.array(tensor["data"], kind)
            else:
                flat, at = np.frombuffer(body[at : at + size], kind), at + size
            self.outputs[tensor["name"]] = flat.reshape(tensor["shape"])
        assert at in (length, len(body)), "bytes that no output claims"

    def stages(self):
        """Milliseconds by stage, from Server-Timing."""
        out = {}
        for entry in (self.headers.get("server-timing") or "").split(","):
            name, *parameters = (part.strip() for part in entry.split(";"))
            out.update({name: float(p[4:]) for p in parameters if p.startswith("dur=")})
        return out


def encode(feeds, binary=True, outputs=None, parameters=None, **more):
    """(headers, body) of a request; `outputs` by name, `parameters` of the request."""
    inputs, tail = [], b""
    for name, array in feeds.items():
        array = np.ascontiguousarray(array)
        tensor = {"name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype.name]}
        if binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            tail += array.tobytes()
        else:
            tensor["data"] = array.ravel().tolist()
        inputs.append(tensor)
    request = {"inputs": inputs, "parameters": {"binary_data_output": binary, **(parameters or {})}, **more}
    if outputs is not None:
        request["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(request).encode()
    return {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))} if binary else {
        "content-type": "application/json"
    }, head + tail


class Rest:
    """One connection of REST."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def infer(self, model, feeds, **kw):
        """The reply to tensors, by name of input; `model` may go on with `/versions/V`."""
        headers, body = encode(feeds, **kw)
        return self.post(f"/v2/models/{model}/infer", body, headers)

    def post(self, path, body, headers=None):
        self.connection.request("POST", path, body, {"content-type": "application/json", **(headers or {})})
        response = self.connection.getresponse()
        return Reply(response, response.read())


# --- tritonclient


class Triton:
    """tritonclient, as its users have it, in one of three forms; `at_once` requests may be under way."""

    def __init__(self, form, port, at_once=8):
        self.form, self.api = form, by_grpc if form == "grpc" else by_http
        more = {} if form == "grpc" else {"concurrency": at_once, "network_timeout": 100.0, "connection_timeout": 100.0}
        self.channel = self.api.InferenceServerClient(f"127.0.0.1:{port}", **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.channel.close()

    def tensors(self, feeds):
        out = []
        for name, array in feeds.items():
            tensor = self.api.InferInput(name, list(array.shape), DATATYPES[array.dtype.name])
            tensor.set_data_from_numpy(np.ascontiguousarray(array), **({} if self.form == "grpc" else {"binary_data": self.form == "binary"}))
            out.append(tensor)
        return out

    def wanted(self, names):
        more = {} if self.form == "grpc" else {"binary_data": self.form == "binary"}
        return [self.api.InferRequestedOutput(name, **more) for name in names]

    def infer(self, model, feeds, outputs, **kw):
        """(outputs by name, the response's parameters)."""
        return self.read(self.channel.infer(model, self.tensors(feeds), outputs=self.wanted(outputs), **kw), outputs)

    def begin(self, model, feeds, outputs, **kw):
        """Sends a request, and gives what waits for its answer. Not with gRPC."""
        under_way = self.channel.async_infer(model, self.tensors(feeds), outputs=self.wanted(outputs), **kw)
        return lambda: self.read(under_way.get_result(), outputs)

    def read(self, result, outputs):
        response = result.get_response()
        if self.form == "grpc":
            parameters = {k: getattr(v, v.WhichOneof("parameter_choice")) for k, v in response.parameters.items()}
        else:
            parameters = response.get("parameters", {})
        return {name: result.as_numpy(name) for name in outputs}, parameters
