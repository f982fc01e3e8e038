"""gRPC calls that are answered by earlier answers (`cache`), by a real client, in front of a real server."""

import collections
import threading
import time
from concurrent import futures

import grpc
import pytest
from caching import ON
from fake import await_true
from sidecar import Sidecar
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Server(grpc.GenericRpcHandler):
    """A grpcio server that answers with what it was asked. `asked` are the contents that came."""

    def __init__(self):
        self.asked, self.code, self.gate = [], None, threading.Event()
        self.gate.set()
        self.server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[self], options=[("grpc.so_reuseport", 0)])
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self, details):
        coding = service_pb2.ModelInferRequest.FromString, service_pb2.ModelInferResponse.SerializeToString
        if details.method == METHOD:
            return grpc.unary_unary_rpc_method_handler(self.infer, *coding)
        return grpc.stream_stream_rpc_method_handler(self.stream, *coding)

    def infer(self, request, context):
        self.asked.append(request.raw_input_contents[0])
        self.gate.wait(30)
        context.set_trailing_metadata((("x-said", "by-the-server"),))
        if self.code:
            context.abort(self.code, "as asked")
        answer = service_pb2.ModelInferResponse(model_name="m", model_version="1", id=request.id)
        answer.raw_output_contents.append(request.raw_input_contents[0][::-1])
        return answer

    def stream(self, requests, context):
        for request in requests:
            yield self.infer(request, context)

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.gate.set()
        self.server.stop(0).wait()


def request_of(content, tag="", sequence=None):
    request = service_pb2.ModelInferRequest(model_name="m", id=tag)
    if sequence is not None:
        request.parameters["sequence_id"].int64_param = sequence
    tensor = request.inputs.add()
    tensor.name, tensor.datatype = "x", "UINT8"
    tensor.shape.extend([1, len(content)])
    request.raw_input_contents.append(content)
    return request


@pytest.fixture
def served():
    with Server() as server, Sidecar(server.url, sections={"cache": ON}) as proxy, grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        call = channel.unary_unary(METHOD, service_pb2.ModelInferRequest.SerializeToString, service_pb2.ModelInferResponse.FromString)

        def is_hit(content, **more):
            before = len(server.asked)
            answer, state = call.with_call(request_of(content, **more), timeout=20)
            assert answer.raw_output_contents[0] == content[::-1]
            assert dict(state.trailing_metadata())["x-said"] == "by-the-server"
            return len(server.asked) == before

        assert await_true(lambda: is_hit(b"proof"), 10)
        yield server, proxy, channel, call, is_hit


def test_a_call_is_answered_again_with_its_trailers(served):
    server, proxy, _, _, is_hit = served
    assert not is_hit(b"abc") and is_hit(b"abc") and not is_hit(b"abd")
    assert not is_hit(b"abc", tag="other"), "an id is part of its message"
    assert not any(is_hit(b"abc", sequence=3) for _ in range(3)), "one of a sequence"


def test_a_failure_is_not_kept_and_is_nobody_elses(served):
    server, _, _, call, _ = served
    server.code = grpc.StatusCode.INTERNAL
    server.gate.clear()
    before = len(server.asked)
    calls = [call.future(request_of(b"fails"), timeout=20) for _ in range(5)]
    assert await_true(lambda: len(server.asked) == before + 1)
    time.sleep(0.2)
    server.gate.set()
    assert collections.Counter(one.code() for one in calls) == {grpc.StatusCode.INTERNAL: 5}
    assert len(server.asked) == before + 5
    server.code = None
    assert call(request_of(b"fails"), timeout=20).raw_output_contents[0] == b"sliaf"


def test_the_same_call_several_times_at_once_is_made_once(served):
    server, _, _, call, _ = served
    server.gate.clear()
    before = len(server.asked)
    calls = [call.future(request_of(b"many"), timeout=20) for _ in range(30)]
    assert await_true(lambda: len(server.asked) == before + 1)
    time.sleep(0.2)
    calls[0].cancel()  # whoever leads may leave
    server.gate.set()
    assert all(one.result().raw_output_contents[0] == b"ynam" for one in calls[1:])
    assert len(server.asked) == before + 1


def test_streams_pass(served):
    server, _, channel, _, _ = served
    stream = channel.stream_stream(STREAM, service_pb2.ModelInferRequest.SerializeToString, service_pb2.ModelInferResponse.FromString)
    before = len(server.asked)
    answers = stream(iter([request_of(b"ab"), request_of(b"ab")]), timeout=20)
    assert [one.raw_output_contents[0] for one in answers] == [b"ba", b"ba"] and len(server.asked) == before + 2
