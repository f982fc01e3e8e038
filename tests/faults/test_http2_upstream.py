"""An upstream over HTTP/2 that answers early, resets, or says goodbye, and streams that share its connection: every byte arrives, no stream
holds up or harms another, and each request is counted once."""

import random
import time

import pytest
from fake import await_true
from h2.errors import ErrorCodes
from h2.events import StreamEnded
from h2.settings import SettingCodes
from http2 import Client, Server
from sidecar import Sidecar

OK = [(":status", "200"), ("content-type", "application/octet-stream")]


class Echo(Server):
    """Answers with the request's own body, once it is complete."""

    def __init__(self):
        super().__init__(lambda *_: None)

    def _on(self, event, connection, streams, send):
        super()._on(event, connection, streams, send)
        if isinstance(event, StreamEnded):
            body = streams[event.stream_id].body
            connection.send_headers(event.stream_id, OK)
            for at in range(0, len(body), 16384):
                connection.send_data(event.stream_id, body[at : at + 16384])
            connection.send_headers(event.stream_id, [("x-end", str(len(body)))], end_stream=True)


def answers(connection, stream, send):
    """Answers at once, whatever is still to come of the request."""
    connection.send_headers(stream, OK)
    connection.send_data(stream, b"early", end_stream=True)
    send()


def test_streams_that_share_a_connection_arrive_byte_for_byte():
    drawn = random.Random(3)
    sizes = [0, 1, 255, 256, 257, 1024, 4096, 16383, 16384]
    with Echo() as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        assert client.get("/echo", "POST", b"").status == 200  # the windows are open now
        for _ in range(5):
            bodies = {}
            for _ in range(40):
                body = drawn.randbytes(drawn.choice(sizes))
                bodies[client.ask("/echo", "POST", body)] = body
            for number, body in bodies.items():
                got = client.await_(number)
                assert (got.status, got.body, got.trailers) == (200, body, {"x-end": str(len(body))})
        proxy.settled(ok=201, plain=False)


def test_an_answer_before_the_end_of_the_request_and_the_rest_of_that_request():
    with Server(answers) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", b"first ", end=False)
        got = client.await_(number)
        assert (got.status, got.body) == (200, b"early")
        client.h2.send_data(number, b"second", end_stream=True)
        client.flush()
        assert await_true(lambda: up.requests[0].ended), "the rest was not sent on"
        assert up.requests[0].body == b"first second"
        assert client.get("/y", "POST", b"another").body == b"early"
        proxy.settled(ok=2, plain=False)


def test_an_answer_that_waited_for_its_client_is_not_taken_for_one_that_stalls():
    def script(connection, stream, send):
        connection.send_headers(stream, OK)
        connection.send_data(stream, b"first ")
        send()
        time.sleep(0.9)
        connection.send_data(stream, b"second", end_stream=True)
        send()

    with Server(script) as up, Sidecar(up.url, idle_timeout="500ms") as proxy, Client(proxy) as client:
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        number = client.ask("/x")
        time.sleep(0.7)  # longer than the upstream may be silent, which has said something meanwhile
        client.h2.increment_flow_control_window(1000, number)
        client.flush()
        got = client.await_(number)
        assert (got.reset, got.body) == (None, b"first second")
        proxy.settled(ok=1, plain=False)


def test_a_client_that_gives_up_in_the_middle_of_its_body():
    with Server(lambda *_: None) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", b"abc", end=False)
        assert await_true(lambda: up.requests and up.requests[0].body == b"abc")
        client.reset(number, ErrorCodes.CANCEL)
        assert await_true(lambda: up.requests[0].reset is not None), "the upstream's stream is still open"
        up.script = answers
        assert client.get("/y").body == b"early", "the connection goes on"
        proxy.settled(ok=1, cancelled=1, plain=False)


@pytest.mark.parametrize("code", [ErrorCodes.INTERNAL_ERROR, ErrorCodes.REFUSED_STREAM, ErrorCodes.CANCEL])
def test_a_stream_that_the_upstream_resets(code):
    def script(connection, stream, send):
        connection.reset_stream(stream, code)
        send()

    with Server(script) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        got = client.get("/x", "POST", b"abc")
        assert (got.status, got.fields["x-lapwing-error"]) == (502, "upstream_reset")
        up.script = answers
        assert client.get("/y").body == b"early"
        proxy.settled(ok=1, broken=1, plain=False)


def test_an_upstream_that_says_goodbye_between_requests():
    def script(connection, stream, send):
        answers(connection, stream, send)
        connection.close_connection()
        send()

    with Server(script) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        for n in range(5):
            assert client.get(f"/{n}", "POST", b"abc").body == b"early"
            time.sleep(0.05)
        assert [request.fields[":path"] for request in up.requests] == [f"/{n}" for n in range(5)]
        up.faults.clear()  # of a library that takes nothing more once it has said goodbye
        proxy.settled(ok=5, plain=False)


def test_a_body_that_waits_for_the_upstreams_window_holds_up_no_other():
    with Echo() as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        held = client.ask("/held", "POST", b"x" * 1000, end=False)
        for n in range(20):
            body = bytes([n]) * 900
            assert client.get("/echo", "POST", body).body == body
        client.h2.send_data(held, b"y", end_stream=True)
        client.flush()
        assert client.await_(held).body == b"x" * 1000 + b"y"
        proxy.settled(ok=21, plain=False)
