"""grpcio through Lapwing: every kind of call, statuses with details, deadlines. The transcript must be that of a direct call."""

import re
import socket
import threading
import time
from concurrent import futures

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from lapwing import NO_SPANS, Counted
from process import wait_for

pytestmark = pytest.mark.beside
MIB = 1 << 20
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def rich_status():
    """A status with details, as grpc-status-details-bin carries it."""
    status = status_pb2.Status(code=9, message="the model is loading: caf\u00e9 100%")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="LOADING", domain="model.test", metadata={"eta": "3s"}))
    return status


class Service(grpc.GenericRpcHandler):
    """Bytes in, bytes out; `aborted` is set when the client of a slow call disconnects."""

    def __init__(self):
        self.aborted = threading.Event()

    def service(self, details):
        name = details.method.rsplit("/", 1)[-1]
        kinds = {
            "Unary": (grpc.unary_unary_rpc_method_handler, self.unary),
            "Down": (grpc.unary_stream_rpc_method_handler, self.down),
            "Up": (grpc.stream_unary_rpc_method_handler, self.up),
            "Both": (grpc.stream_stream_rpc_method_handler, self.both),
            "Fail": (grpc.unary_unary_rpc_method_handler, self.fail),
            "FailLate": (grpc.unary_stream_rpc_method_handler, self.fail_late),
            "Slow": (grpc.unary_unary_rpc_method_handler, self.slow),
            "Busy": (grpc.unary_unary_rpc_method_handler, self.busy),
        }
        make, handler = kinds.get(name, (None, None))
        return make and make(handler)

    def unary(self, request, context):
        said = [(k, v) for k, v in context.invocation_metadata() if k.startswith("x-")]
        context.send_initial_metadata((("x-first", "1"), ("x-raw-bin", b"\x00\xff\x80")))
        context.set_trailing_metadata((("x-last", "2"), ("x-last", "3"), *said))
        return request[::-1]

    def down(self, request, context):
        for i in range(int(request)):
            yield b"%d" % i

    def up(self, requests, context):
        return b"+".join(requests)

    def both(self, requests, context):
        for request in requests:
            yield request * 2

    def fail(self, request, context):
        status = rich_status()
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()), ("x-hint", "later")))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message)

    def fail_late(self, request, context):
        yield b"first"
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no more")

    def busy(self, request, context):
        context.set_trailing_metadata((("grpc-retry-pushback-ms", "250"),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "later")

    def slow(self, request, context):
        context.add_callback(self.aborted.set)
        end = time.monotonic() + 5
        while context.is_active() and time.monotonic() < end:
            time.sleep(0.01)
        return b"late"


class GrpcServed:
    pass


@pytest.fixture(scope="module")
def served(start_lapwing):
    out = GrpcServed()
    out.service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(16), handlers=[out.service], options=UNLIMITED)
    out.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    out.lapwing = start_lapwing(f"http://127.0.0.1:{out.port}", env=NO_SPANS)
    wait_for(out.lapwing.is_ready, 20, "lapwing is ready")
    with grpc.insecure_channel(f"127.0.0.1:{out.port}", UNLIMITED) as out.direct:
        with grpc.insecure_channel(f"127.0.0.1:{out.lapwing.port}", UNLIMITED) as out.proxied:
            yield out
    server.stop(0)


def same(served, call, n=1):
    """Runs `call` directly and through Lapwing; both must return the same, and Lapwing must count `n` requests."""
    direct = call(served.direct)
    with Counted(served.lapwing, n) as counted:
        proxied = call(served.proxied)
    assert proxied == direct
    return proxied, counted.outcomes


def pairs(metadata):
    return [(k, v) for k, v in metadata or () if k != "date"]


def end_of(call):
    return call.code().name, call.details(), pairs(call.initial_metadata()), pairs(call.trailing_metadata())


def test_unary(served):
    def call(channel):
        unary = channel.unary_unary("/test.Echo/Unary")
        answer, call = unary.with_call(b"abc", timeout=10, metadata=(("x-a", "1"), ("x-b-bin", b"\x01\xfe")))
        return answer, end_of(call)

    (answer, end), outcomes = same(served, call)
    assert answer == b"cba"
    assert end[0] == "OK"
    assert ("x-raw-bin", b"\x00\xff\x80") in end[2]
    assert [v for k, v in end[3] if k == "x-last"] == ["2", "3"]
    assert outcomes == {"ok": 1}


@pytest.mark.parametrize("n", [0, 1, 200])
def test_server_stream(served, n):
    def call(channel):
        stream = channel.unary_stream("/test.Echo/Down")(b"%d" % n, timeout=10)
        return list(stream), end_of(stream)

    (messages, _), outcomes = same(served, call)
    assert messages == [b"%d" % i for i in range(n)]
    assert outcomes == {"ok": 1}


@pytest.mark.parametrize("n", [0, 1, 200])
def test_client_stream(served, n):
    def call(channel):
        answer, call = channel.stream_unary("/test.Echo/Up").with_call((b"%d" % i for i in range(n)), timeout=10)
        return answer, end_of(call)

    (answer, _), outcomes = same(served, call)
    assert answer == b"+".join(b"%d" % i for i in range(n))
    assert outcomes == {"ok": 1}


def test_bidirectional_stream_takes_turns(served):
    """Each answer arrives before the next message is sent, so nothing is held back."""

    def call(channel):
        turn = threading.Semaphore(1)

        def questions():
            for i in range(50):
                assert turn.acquire(timeout=10)
                yield b"%d;" % i

        stream = channel.stream_stream("/test.Echo/Both")(questions(), timeout=20)
        answers = []
        for answer in stream:
            answers.append(answer)
            turn.release()
        return answers, end_of(stream)

    (answers, _), outcomes = same(served, call)
    assert answers == [b"%d;%d;" % (i, i) for i in range(50)]
    assert outcomes == {"ok": 1}


def test_an_error_keeps_its_status_and_details(served):
    def call(channel):
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/test.Echo/Fail")(b"", timeout=10)
        return end_of(e.value)

    (code, details, _, trailing), outcomes = same(served, call)
    assert (code, details) == ("FAILED_PRECONDITION", rich_status().message)
    status = status_pb2.Status.FromString(dict(trailing)["grpc-status-details-bin"])
    assert status == rich_status()
    assert dict(trailing)["x-hint"] == "later"
    assert sum(outcomes.values()) == 1 and set(outcomes) <= {"client_error", "server_error"}


def test_an_error_after_messages_is_an_error(served):
    def call(channel):
        stream = channel.unary_stream("/test.Echo/FailLate")(b"", timeout=10)
        seen = []
        with pytest.raises(grpc.RpcError):
            for message in stream:
                seen.append(message)
        return seen, end_of(stream)

    (seen, end), outcomes = same(served, call)
    assert seen == [b"first"] and end[:2] == ("RESOURCE_EXHAUSTED", "no more")
    assert "ok" not in outcomes


def test_an_unknown_method_is_unimplemented(served):
    def call(channel):
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/test.Echo/Nothing")(b"", timeout=10)
        return end_of(e.value)

    (code, *_), outcomes = same(served, call)
    assert code == "UNIMPLEMENTED"
    assert "ok" not in outcomes


def test_large_messages(served):
    message = bytes(range(256)) * (20 * MIB // 256)

    def call(channel):
        return channel.unary_unary("/test.Echo/Unary")(message, timeout=60)

    answer, outcomes = same(served, call)
    assert answer == message[::-1]
    assert outcomes == {"ok": 1}


def test_a_deadline_ends_the_call_on_both_sides(served):
    def call(channel):
        served.service.aborted.clear()
        start = time.monotonic()
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/test.Echo/Slow")(b"", timeout=0.3)
        assert time.monotonic() - start < 2
        assert served.service.aborted.wait(3), "the upstream learns of it"
        return e.value.code().name

    code, outcomes = same(served, call)
    assert code == "DEADLINE_EXCEEDED"
    # both ends watch the deadline: the client cancels, or the server's status comes first
    assert outcomes in ({"cancelled": 1}, {"server_error": 1})


def test_a_cancelled_call_is_cancelled_upstream(served):
    def call(channel):
        served.service.aborted.clear()
        pending = channel.unary_unary("/test.Echo/Slow").future(b"", timeout=10)
        time.sleep(0.2)
        pending.cancel()
        assert served.service.aborted.wait(3), "the upstream learns of it"
        return pending.code().name

    code, outcomes = same(served, call)
    assert code == "CANCELLED"
    assert outcomes == {"cancelled": 1}


def test_many_calls_at_once(served):
    unary = served.proxied.unary_unary("/test.Echo/Unary")
    with Counted(served.lapwing, 300) as counted:
        calls = [unary.future(b"%d" % i, timeout=20) for i in range(300)]
        assert [c.result() for c in calls] == [(b"%d" % i)[::-1] for i in range(300)]
    assert counted.outcomes == {"ok": 300}


def pushbacks(lapwing):
    """How many answers asked clients to wait, by field."""
    return {field: int(n) for field, n in re.findall(r'^lapwing_upstream_pushback_total\{field="([^"]*)"\} (\d+)$', lapwing.metrics(), re.M)}


def test_answers_that_ask_to_wait_pass_and_are_counted(served, start_lapwing, raw_server):
    def call(channel):
        with pytest.raises(grpc.RpcError) as failed:
            channel.unary_unary("/s/Busy")(b"x", timeout=10)
        return failed.value.code(), failed.value.details(), pairs(failed.value.trailing_metadata())

    before = pushbacks(served.lapwing)
    (code, _, trailers), _ = same(served, call)
    assert code == grpc.StatusCode.UNAVAILABLE and ("grpc-retry-pushback-ms", "250") in trailers
    assert pushbacks(served.lapwing) == {**before, "grpc-retry-pushback-ms": before["grpc-retry-pushback-ms"] + 1}

    raw_server.canned["busy"] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    raw_server.canned["moved"] = b"HTTP/1.1 200 OK\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
    lapwing = start_lapwing(raw_server.url, env=NO_SPANS)
    for name in ("busy", "moved"):
        answer = raw_exchange(lapwing.port, b"GET /canned/" + name.encode() + b" HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n")
        assert b"\r\nretry-after: 7\r\n" in answer.lower(), answer
    assert pushbacks(lapwing) == {"retry-after": 1, "grpc-retry-pushback-ms": 0}, "an answer that did not fail asks for nothing"


def raw_exchange(port, request):
    """All that comes back until the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))
