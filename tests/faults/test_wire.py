"""Tests of the fakes themselves, so that a failing test is not their fault."""

import time

import pytest
from fake import Upstream, answers, breaks_after, chunked
from wire import Closed, chunk, connect

GET = "GET /x HTTP/1.1\r\nHost: m\r\n\r\n"


def test_plain_serves_and_counts():
    with Upstream() as up, connect(up.address) as client:
        for _ in range(2):
            assert client.send(GET).response().body == b"ok"
        assert (up.seen("/x"), up.connections) == (2, 1)


def test_probes_take_no_script():
    with Upstream(answers(b"HTTP/1.1 204 No Content\r\n\r\n")) as up:
        connect(up.address).close()
        with connect(up.address) as client:
            assert client.send(GET).response().status == 204
        assert up.connections == 1


def test_over_a_unix_socket(tmp_path):
    with Upstream(path=str(tmp_path / "s")) as up, connect(up.address) as client:
        assert client.send(GET).response().status == 200


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_break_is_seen(how):
    with Upstream(breaks_after(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", how)) as up, connect(up.address) as client:
        with pytest.raises(Closed) as closed:
            client.send(GET).response()
        assert closed.value.got == b"abc"
        assert closed.value.was_reset == (how == "reset")


def test_a_stall_is_seen():
    with Upstream(breaks_after(b"", "stall")) as up, connect(up.address) as client:
        client.send(GET)
        assert client.closed_within(0.2) is None
        up.released.set()
        assert client.closed_within(1) is not None


def test_chunks_keep_their_time_and_trailers():
    with Upstream(chunked(b"a", b"bb", trailers=b"X-End: 1\r\n", every=0.05)) as up, connect(up.address) as client:
        began = time.monotonic()
        got = client.send(GET).response()
        assert [c for _, c in got.chunks] == [b"a", b"bb"]
        assert got.chunks[0][0] - began >= 0.05 and got.trailers == [("X-End", "1")]


def test_requests_with_bodies_are_read_whole():
    with Upstream() as up, connect(up.address) as client:
        client.send("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")
        client.send(b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"de") + b"0\r\nT: 1\r\n\r\n")
        assert client.response().status == client.response().status == 200
        assert [r.body for r in up.requests] == [b"abc", b"de"]
        assert up.requests[1].trailers == [("T", "1")]


def test_a_failing_script_fails_the_test():
    def wrong(peer):
        raise ValueError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        with Upstream(wrong) as up, connect(up.address) as client:
            client.send(GET).to_end()
