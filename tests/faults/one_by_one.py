"""Servers of the Open Inference Protocol that work on one request at a time, in the order in which they came, and callers whose requests carry
a tag each: so none is lost, altered or sent twice unseen.

A request's work is the first dimension of its tensor; it takes `UNIT_S` a unit. While a server's gate is closed, it works on nothing.
"""

import collections
import contextlib
import http.client
import itertools
import json
import socket
import threading
import time

from fake import Upstream, await_true
from sidecar import Sidecar
from wire import Closed, connect

PATH = "/v2/models/m/infer"
UNIT_S = 0.001
WORKS = (1, 2, 4, 8, 12)
"""What requests ask for from which Lapwing learns."""
ON = {"mode": "on", "slots": 1, "recheck": "off", "max_wait": "60s"}
BATCH = 40


class OneByOne(Upstream):
    """`received` are (tag, work, when) of all requests in the order in which they came whole. `instead` are scripts by tag, and `always`
    is one for all, which answer in place of the usual answer. Its `name` is in each answer."""

    def __init__(self, name="m", port=0):
        super().__init__(*[self.serve] * 2_000, port=port)
        self.name, self.received, self.instead, self.always = name, [], {}, None
        self.turns, self.waiting, self.most, self.is_open, self.is_dead = threading.Condition(), collections.deque(), 0, True, False
        self.bodies = {}

    def serve(self, peer):
        while True:
            request = peer.head()
            if request.method == "PRI":  # whether it speaks HTTP/2
                peer.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                return
            if request.one("expect"):
                peer.send("HTTP/1.1 100 Continue\r\n\r\n")
            peer.body(request)
            if request.target != PATH:
                peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                continue
            tag = request.one("x-tag")
            with self.take_turn(tag, request) as is_alive:
                if not is_alive:
                    return
                script = self.instead.get(tag, self.always)
                time.sleep(UNIT_S * self.work_of(request))
            if script:
                script(peer)
                continue
            answer = json.dumps({"model_name": self.name, "id": tag, "outputs": []}).encode()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))

    @staticmethod
    def work_of(request):
        """What it takes in units, whatever it asks for."""
        return int(request.one("x-takes") or 0)

    @contextlib.contextmanager
    def take_turn(self, tag, request):
        turn = object()
        with self.turns:
            self.received.append((tag, self.work_of(request), time.monotonic()))
            self.bodies[tag] = request.body
            self.waiting.append(turn)
            self.most = max(self.most, len(self.waiting))
            self.turns.wait_for(lambda: self.is_dead or self.is_open and self.waiting[0] is turn, 60)
        try:
            yield not self.is_dead
        finally:
            with self.turns:
                self.waiting.remove(turn)
                self.turns.notify_all()

    @property
    def tags(self):
        return [tag for tag, _, _ in self.received]

    def gate(self, is_open):
        with self.turns:
            self.is_open = is_open
            self.turns.notify_all()

    def die(self):
        """Nobody is answered any more, and nobody connects."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in list(self.live):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self.turns:
            self.is_dead = True
            self.turns.notify_all()

    def __exit__(self, kind, *rest):
        self.die()
        super().__exit__(kind, *rest)


class Call:
    """A request under way on a connection of its own. `status` is `None` until it is answered, and 0 if the connection ended first."""

    def __init__(self, proxy, tag, raw, rcvbuf=None, reads=True):
        self.tag, self.status, self.answer, self.began, self.ended = tag, None, None, time.monotonic(), None
        self.peer = connect(("127.0.0.1", proxy.port), rcvbuf=rcvbuf)
        self.peer.sock.settimeout(60)
        self.peer.send(raw)
        self.thread = threading.Thread(target=self._read, daemon=True)
        if reads:
            self.thread.start()

    def _read(self):
        try:
            self.answer = self.peer.response("POST")
            self.status = self.answer.status
        except (Closed, OSError, ValueError):
            self.status = 0
        self.ended = time.monotonic()

    def result(self, within=25):
        if not self.thread.ident:
            self.thread.start()
        self.thread.join(within)
        assert self.status is not None, f"{self.tag} was not answered"
        return self.status

    def leave(self, by_reset=False):
        """Closes the connection; the reader sees that too."""
        with contextlib.suppress(OSError):
            if by_reset:
                self.peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.peer.sock.shutdown(socket.SHUT_RDWR)
        self.peer.sock.close()


def ended_as(calls, *statuses):
    assert {call.result() for call in calls} <= set(statuses), {call.tag: (call.status, call.answer) for call in calls}


def body_of(tag, work, **more):
    tensor = {"name": "x", "shape": [work, 1], "datatype": "FP32", "data": [0.5]}
    return json.dumps({"id": tag, "inputs": [tensor], **more}).encode()


class Callers:
    """Who asks through `proxy`, and what each sent."""

    def __init__(self, proxy):
        self.proxy, self.sent, self.calls, self.numbers = proxy, {}, [], itertools.count()

    def new(self, work, tag=None, body=None):
        tag = tag or f"t{next(self.numbers)}"
        assert tag not in self.sent
        self.sent[tag] = body or body_of(tag, work)
        return tag, self.sent[tag]

    def call(self, work, tag=None, takes=None, fields="", body=None, **options):
        """Sends a request that asks for so much work; the server takes `takes` units for it, or as many."""
        tag, body = self.new(work, tag, body)
        head = f"POST {PATH} HTTP/1.1\r\nHost: m\r\nx-tag: {tag}\r\nx-takes: {work if takes is None else takes}\r\n{fields}"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.calls.append(Call(self.proxy, tag, head.encode() + body, **options))
        return self.calls[-1]

    def wait(self, work, tag=None, **options):
        """The same, until it waits in Lapwing."""
        before = self.waiting()
        call = self.call(work, tag, **{"takes": 1, **options})
        assert await_true(lambda: self.waiting() == before + 1), f"{call.tag} does not wait: {self.view()}, {call.status}"
        return call

    # === what Lapwing knows ===

    def view(self):
        return json.loads(self.proxy.get("/dispatch?format=json"))

    def waiting(self):
        return self.view()["waiting"]

    def results(self):
        """What it counted, by result."""
        metric = lambda result: self.proxy.metric(f'lapwing_dispatch_requests_total{{result="{result}"}}')  # noqa: E731
        return {result: int(n) for result in ("sent", "queued", "refused", "unknown", "full", "stateful", "unheld") if (n := metric(result))}

    def overdue(self, reason):
        return int(self.proxy.metric(f'lapwing_dispatch_overdue_total{{reason="{reason}"}}'))

    # === load ===

    def load(self, works, connections=3, fields=None):
        """Sends requests on some connections that stay open. Returns their statuses by tag."""
        todo, statuses = iter([self.new(work) + (work,) for work in works]), {}
        lock = threading.Lock()

        def run():
            connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=25)
            while True:
                with lock:
                    tag, body, work = next(todo, (None, None, None))
                if tag is None:
                    break
                connection.request("POST", PATH, body, {"x-tag": tag, "x-takes": str(work), "content-type": "application/json", **(fields or {})})
                response = connection.getresponse()
                response.read()
                statuses[tag] = response.status
            connection.close()

        threads = [threading.Thread(target=run, daemon=True) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statuses

    def is_taught(self, upstreams):
        view = self.view()
        if not view:  # it has not been told yet that it is on
            return False
        has_line = any(one["samples"] >= 64 for one in view["series"])
        return has_line and [one["slots"] for one in view["upstreams"]] == [1] * upstreams

    def teach(self, upstreams=1):
        """Has requests answered until Lapwing knows what they take."""
        works = itertools.cycle(WORKS)
        for _ in range(20):
            statuses = self.load(list(itertools.islice(works, 2 * BATCH * upstreams)), 3 * upstreams)
            assert set(statuses.values()) == {200}
            if await_true(lambda: self.is_taught(upstreams), 2):
                return self
        raise AssertionError(f"not taught: {self.view()}")

    def occupy(self, *servers, work=1, takes=1, **options):
        """Closes the gates, and sends each server what it works on, for so much work, and one that is next, so that all others wait. Returns their
        calls."""
        for server in servers:
            server.gate(False)
        calls = [self.call(work, takes=takes, **options) for _ in servers]
        assert await_true(lambda: all(len(server.waiting) == 1 for server in servers), 6), self.view()
        calls += [self.call(1, takes=takes, **options) for _ in servers]
        full = lambda: all(len(server.waiting) == 2 for server in servers)  # noqa: E731
        assert await_true(full, 6), (self.view(), [server.tags[-3:] for server in servers])
        return calls

    def all_end(self, but=()):
        """Waits for all answers. Returns the statuses by tag."""
        return {call.tag: call.result() for call in self.calls if call not in but}

    def check(self, *servers):
        """Nothing came altered or twice, all that was answered with 200 came, and each answer is that to its own request."""
        came = [tag for server in servers for tag in server.tags]
        twice = [tag for tag, n in collections.Counter(came).items() if n > 1]
        assert not twice, f"sent twice: {twice}"
        for server in servers:
            for tag, body in server.bodies.items():
                assert body == self.sent[tag], f"{tag} was altered: {body!r}"
        for call in self.calls:
            if call.status == 200:
                assert call.tag in came, f"{call.tag} was answered by nobody"
            if call.status == 200 and call.answer.all("content-type") == ["application/json"]:
                assert json.loads(call.answer.body)["id"] == call.tag
        return came


@contextlib.contextmanager
def taught(server, is_taught=True, dispatch=None, **settings):
    """Lapwing with its queue on, in front of one server or several by name, which knows what requests take."""
    several = isinstance(server, dict)
    urls = {name: one.url for name, one in server.items()} if several else server.url
    sections = {"dispatch": {**ON, **(dispatch or {})}, **settings.pop("sections", {})}
    with Sidecar(urls, sections=sections, **settings) as proxy:
        callers = Callers(proxy)
        if is_taught:
            callers.teach(len(server) if several else 1)
        yield proxy, callers
