"""gRPC calls that wait in Lapwing (`dispatch`), by a real client, in front of a real server that works on one at a time."""

import collections
import contextlib
import itertools
import json
import threading
import time
from concurrent import futures

import grpc
import pytest
from fake import await_true
from http2 import Client
from one_by_one import BATCH, ON, UNIT_S, WORKS
from sidecar import Sidecar
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Server(grpc.GenericRpcHandler):
    """A grpcio server with one thread. `received` are the ids of what it worked on."""

    def __init__(self):
        self.received, self.opened = [], threading.Event()
        self.opened.set()
        self.server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[self], options=[("grpc.so_reuseport", 0)])
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def service(self, details):
        if details.method == METHOD:
            return grpc.unary_unary_rpc_method_handler(
                self.infer, service_pb2.ModelInferRequest.FromString, service_pb2.ModelInferResponse.SerializeToString
            )
        return None

    def infer(self, request, context):
        self.received.append(request.id)
        self.opened.wait(60)
        takes = dict(context.invocation_metadata()).get("x-takes", "1")
        time.sleep(UNIT_S * int(takes))
        return service_pb2.ModelInferResponse(model_name="m", id=request.id)

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.opened.set()
        self.server.stop(0).wait()


def request_of(tag, work, sequence=None):
    request = service_pb2.ModelInferRequest(model_name="m", id=tag)
    if sequence is not None:
        request.parameters["sequence_id"].string_param = sequence
    tensor = request.inputs.add()
    tensor.name, tensor.datatype = "x", "FP32"
    tensor.shape.extend([work, 1])
    request.raw_input_contents.append(b"\0\0\0\0")
    return request


class Callers:
    def __init__(self, proxy, channel):
        self.proxy, self.numbers = proxy, itertools.count()
        encode, decode = service_pb2.ModelInferRequest.SerializeToString, service_pb2.ModelInferResponse.FromString
        self.infer = channel.unary_unary(METHOD, encode, decode)
        self.calls = []

    def call(self, work, takes=1, timeout=None, tag=None, sequence=None):
        """A call under way, with its id."""
        tag = tag or f"g{next(self.numbers)}"
        future = self.infer.future(request_of(tag, work, sequence), timeout=timeout, metadata=[("x-takes", str(takes))])
        self.calls.append((tag, future))
        return tag, future

    def view(self):
        return json.loads(self.proxy.get("/dispatch?format=json"))

    def waiting(self):
        return self.view()["waiting"]

    def wait(self, work, **options):
        before = self.waiting()
        call = self.call(work, **options)
        assert await_true(lambda: self.waiting() == before + 1), self.view()
        return call

    def teach(self):
        works = itertools.cycle(WORKS)
        for _ in range(20):
            with futures.ThreadPoolExecutor(3) as pool:
                asked = [(f"g{next(self.numbers)}", work) for work in itertools.islice(works, 2 * BATCH)]
                answers = pool.map(lambda one: self.infer(request_of(*one), metadata=[("x-takes", str(one[1]))]).id, asked)
                assert list(answers) == [tag for tag, _ in asked]
            is_known = lambda: self.view()["upstreams"][0]["slots"] == 1 and any(s["samples"] >= 64 for s in self.view()["series"])  # noqa: E731
            if await_true(is_known, 2):
                return
        raise AssertionError(self.view())

    def occupy(self, server, work=1):
        """What the server works on, and one that is next."""
        server.opened.clear()
        first = self.call(work)
        assert await_true(lambda: server.received[-1:] == [first[0]])
        second = self.call(1)
        assert await_true(lambda: self.view()["upstreams"][0]["running"] == 2, 6), self.view()
        return [first, second]


@contextlib.contextmanager
def calling(server, **dispatch):
    with Sidecar(server.url, sections={"dispatch": {**ON, **dispatch}}) as proxy, grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        callers = Callers(proxy, channel)
        callers.teach()
        yield proxy, callers


def all_answered(server, calls):
    for tag, future in calls:
        assert future.result(25).id == tag
    twice = [tag for tag, n in collections.Counter(server.received).items() if n > 1]
    assert not twice and {tag for tag, _ in calls} <= set(server.received)


def test_calls_of_one_connection_wait_and_small_ones_overtake():
    with Server() as server, calling(server) as (_, callers):
        there = callers.occupy(server)
        large = callers.wait(9_000)
        small = [callers.wait(1) for _ in range(3)]
        server.opened.set()
        all_answered(server, [*there, large, *small])
        assert server.received[-4:] == [tag for tag, _ in [*small, large]]


def test_calls_of_a_sequence_keep_their_order_and_never_wait():
    with Server() as server, calling(server) as (proxy, callers):
        there = callers.occupy(server)
        waits = callers.wait(1)
        # each is sent once the one before is at the server, as a client that goes on with a sequence does
        running = lambda: callers.view()["upstreams"][0]["running"]  # noqa: E731
        of_sequence = []
        for n, work in enumerate((9_000, 1, 500, 2)):
            of_sequence.append(callers.call(work, sequence="s"))
            assert await_true(lambda n=n: running() == 3 + n), callers.view()
        assert callers.waiting() == 1
        server.opened.set()
        all_answered(server, [*there, *of_sequence, waits])
        assert server.received[-5:] == [tag for tag, _ in [*of_sequence, waits]]
        assert proxy.metric('lapwing_dispatch_requests_total{result="stateful"}') == 4


def test_who_would_be_late_is_told_so_and_when_to_ask_again():
    with Server() as server, calling(server) as (proxy, callers):
        there = callers.occupy(server, work=20_000)  # for which 20 s are predicted
        tag, late = callers.call(1, timeout=5)
        with pytest.raises(grpc.RpcError) as told:
            late.result(4)
        assert told.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, told.value
        assert "dispatch.reject" in told.value.details()
        metadata = dict([*late.initial_metadata(), *late.trailing_metadata()])
        assert metadata["x-lapwing-error"] == "late", metadata
        assert 1_000 <= int(metadata["grpc-retry-pushback-ms"]) <= 120_000, metadata
        server.opened.set()
        all_answered(server, there)
        assert tag not in server.received
        assert proxy.metric('lapwing_dispatch_requests_total{result="refused"}') == 1


def test_what_expires_while_it_waits_never_reaches_the_server():
    with Server() as server, calling(server) as (_, callers):
        there = callers.occupy(server)
        stays = callers.wait(1)
        tag, expires = callers.wait(1, timeout=2.5)
        with pytest.raises(grpc.RpcError) as told:
            expires.result(20)
        assert told.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED, told.value
        assert await_true(lambda: callers.waiting() == 1), callers.view()
        server.opened.set()
        all_answered(server, [*there, stays])
        assert tag not in server.received


def test_a_client_that_does_not_look_at_its_deadline_is_told_of_it():
    with Server() as server, calling(server) as (proxy, callers), Client(proxy) as client:
        there = callers.occupy(server)
        message = request_of("raw", 1).SerializeToString()
        extra = [("content-type", "application/grpc"), ("grpc-timeout", "2500m")]
        stream = client.ask(METHOD, "POST", b"\0" + len(message).to_bytes(4) + message, extra=extra)
        assert await_true(lambda: callers.waiting() == 1), callers.view()
        client.sock.settimeout(15)
        got = client.await_(stream)
        told = {**got.fields, **got.trailers}
        assert (told["grpc-status"], told["x-lapwing-error"]) == ("4", "overdue"), told
        server.opened.set()
        all_answered(server, there)
        assert "raw" not in server.received
        assert proxy.metric('lapwing_dispatch_overdue_total{reason="deadline"}') == 1


def test_calls_that_are_cancelled_while_they_wait_are_never_sent():
    with Server() as server, calling(server) as (_, callers):
        there = callers.occupy(server)
        queued = [callers.wait(2) for _ in range(4)]
        for _, call in queued[::2]:
            call.cancel()
        assert await_true(lambda: callers.waiting() == 2), callers.view()
        server.opened.set()
        all_answered(server, [*there, *queued[1::2]])
        assert not {tag for tag, _ in queued[::2]} & set(server.received)
