"""Clients that share connections to an upstream over HTTP/2: none holds another up, and what the upstream has not processed is sent again,
once, on another stream or connection."""

import contextlib
import time

import pytest
from fake import await_true
from h2.errors import ErrorCodes
from h2.events import DataReceived
from h2.settings import SettingCodes
from http2 import Client, Server
from sidecar import Sidecar
from test_http2_upstream import OK, Echo, answers

@contextlib.contextmanager
def clients(proxy, count):
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(Client(proxy)) for _ in range(count)]


def paths(up):
    return sorted(request.fields[":path"] for request in up.requests)


def refusing(refuse):
    """Refuses the first request by `refuse(connection, stream, send)`, and answers the others."""
    refused = []

    def script(connection, stream, send):
        if refused:
            return answers(connection, stream, send)
        refused.append(stream)
        refuse(connection, stream, send)
        return None

    return script


def says_goodbye(connection, stream, send):
    """Before this request, which is not processed."""
    connection.close_connection(last_stream_id=max(stream - 2, 0))
    send()


def refuses(connection, stream, send):
    connection.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
    send()


def test_clients_share_a_connection():
    with Echo() as up, Sidecar(up.url) as proxy, clients(proxy, 8) as several:
        asked = [(client, client.ask(f"/{n}", "POST", b"%d" % n)) for n, client in enumerate(several)]
        assert [client.await_(number).body for client, number in asked] == [b"%d" % n for n in range(8)]
        assert up.connections == 1
        several[0].sock.close()
        assert several[1].get("/more", "POST", b"x").body == b"x"
        assert up.connections == 1, "a client that leaves takes the connection with it"
        proxy.settled(ok=9, plain=False)


def test_a_connection_that_is_full_gets_a_second():
    settings = {SettingCodes.MAX_CONCURRENT_STREAMS: 2}
    with Server(lambda *_: None, settings) as up, Sidecar(up.url) as proxy, clients(proxy, 4) as several:
        up.script = answers
        assert several[0].get("/first").body == b"early"  # the upstream's settings are known now
        up.script = lambda *_: None
        for n, client in enumerate(several):
            client.ask(f"/{n}")
        assert await_true(lambda: len(up.requests) == 5), paths(up)
        assert sorted(request.connection for request in up.requests) == [1, 1, 1, 2, 2]


def test_a_client_that_does_not_read_holds_up_no_other():
    with Server(lambda *_: None) as up, Sidecar(up.url) as proxy, clients(proxy, 2) as (stalled, other):
        large = bytes(16 * 1024)

        def much(connection, stream, send):
            """As much as the stream's window takes."""
            connection.send_headers(stream, OK)
            while connection.local_flow_control_window(stream) >= len(large):
                connection.send_data(stream, large)
            send()

        up.script = much
        stalled.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        for n in range(64):
            stalled.ask(f"/stalled/{n}")
        assert await_true(lambda: len(up.requests) == 64), paths(up)
        up.script = answers
        time.sleep(0.3)
        begun = time.monotonic()
        assert [other.get(f"/{n}").body for n in range(20)] == [b"early"] * 20
        assert time.monotonic() - begun < 2
        assert {request.connection for request in up.requests} == {1}, "it is the same connection"
        # beyond so many streams, it has a connection for itself
        stalled.ask("/beyond")
        assert await_true(lambda: len(up.requests) == 85), paths(up)
        assert up.requests[-1].connection == 2


class Unread(Echo):
    """Takes no more than the first 65,535 bytes of what is sent to /held."""

    def _on(self, event, connection, streams, send):
        acknowledge = connection.acknowledge_received_data
        stream = streams.get(getattr(event, "stream_id", None))
        if stream and stream.fields[":path"] == "/held":
            connection.acknowledge_received_data = lambda *_: None
        super()._on(event, connection, streams, send)
        connection.acknowledge_received_data = acknowledge


def test_an_upload_that_waits_holds_up_no_other():
    with Unread() as up, Sidecar(up.url) as proxy, clients(proxy, 3) as (stalled, other, third):
        assert stalled.get("/first", "POST", b"").status == 200  # the windows are open now
        held = stalled.ask("/held", "POST", bytes(16_000), end=False)
        for _ in range(5):
            stalled.h2.send_data(held, bytes(16_000))
        stalled.flush()
        assert await_true(lambda: len(up.requests) > 1 and len(up.requests[1].body) == 65_535)
        for n, client in enumerate([other, third] * 10):
            body = b"%d" % n * 1000
            assert client.get(f"/{n}", "POST", body).body == body
        assert [request.connection for request in up.requests] == [1] * 2 + [2] * 20
        # another of its own client's goes on a connection of that client
        assert stalled.get("/own", "POST", b"mine").body == b"mine"
        assert up.requests[-1].connection == 3


@pytest.mark.parametrize("refuse", [says_goodbye, refuses])
@pytest.mark.parametrize("body", [None, b"", b"all in one piece"], ids=["no body", "an empty body", "a body"])
def test_what_was_not_processed_is_sent_again(refuse, body):
    with Server(refusing(refuse)) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        got = client.get("/x", "POST", body, extra=[("x-kept", "as it was")])
        assert (got.status, got.body) == (200, b"early")
        assert paths(up) == ["/x"] * 2
        first, second = up.requests
        assert first.fields == second.fields and second.fields["x-kept"] == "as it was"
        assert await_true(lambda: second.ended and second.body == (body or b"")), second.body
        assert first.connection == 1 and second.connection == (1 if refuse is refuses else 2)
        up.faults.clear()  # of a library that takes nothing more once it has said goodbye
        proxy.settled(ok=1, plain=False)


class RefusesLater(Server):
    """Refuses a request of which it has had a part."""

    def __init__(self, refuse):
        super().__init__(lambda *_: None)
        self.refuse = refuse

    def _on(self, event, connection, streams, send):
        super()._on(event, connection, streams, send)
        if isinstance(event, DataReceived) and b"!" in event.data:
            self.refuse(connection, event.stream_id, send)


@pytest.mark.parametrize("refuse", [says_goodbye, refuses])
def test_a_body_of_which_a_part_is_gone_is_not_sent_again(refuse):
    with RefusesLater(refuse) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        number = client.ask("/x", "POST", b"a part", end=False)
        assert await_true(lambda: up.requests and up.requests[0].body == b"a part")
        client.h2.send_data(number, b"!")
        client.flush()
        got = client.await_(number)
        assert (got.status, got.fields["x-lapwing-error"]) == (502, "upstream_reset")
        assert len(up.requests) == 1
        up.faults.clear()
        proxy.settled(broken=1, plain=False)


def test_a_request_that_is_refused_twice_is_an_error():
    with Server(refuses) as up, Sidecar(up.url) as proxy, Client(proxy) as client:
        got = client.get("/x", "POST", b"abc")
        assert (got.status, got.fields["x-lapwing-error"]) == (502, "upstream_reset")
        assert paths(up) == ["/x"] * 2
        proxy.settled(broken=1, plain=False)


def test_a_goodbye_leaves_those_before_it_and_sends_those_after_it_again():
    """Of ten requests of several clients, the upstream takes as many as it likes, says goodbye, and answers those later."""
    with Server(lambda *_: None) as up, Sidecar(up.url) as proxy, clients(proxy, 5) as several:
        seen = []

        def script(connection, stream, send):
            if connection.number > 1:
                return answers(connection, stream, send)
            seen.append(stream)
            if len(seen) == 10:
                # by hand: the library would send nothing more
                for kept in seen[:4]:
                    connection.send_headers(kept, OK)
                    connection.send_data(kept, b"before", end_stream=True)
                last = sorted(seen)[3]
                assert seen[:4] == sorted(seen)[:4]
                connection.close_connection(last_stream_id=last)
                send()
            return None

        up.script = script
        asked = [(client, client.ask(f"/{n}", "POST", b"body")) for n in range(2) for client in several]
        got = [client.await_(number) for client, number in asked]
        assert sorted((one.status, one.body) for one in got) == [(200, b"before")] * 4 + [(200, b"early")] * 6
        assert [request.connection for request in up.requests] == [1] * 10 + [2] * 6
        up.faults.clear()
        proxy.settled(ok=10, plain=False)
