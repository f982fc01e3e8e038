"""Servers that keep what reached them to the last byte, in front of which requests that take long are sent to a second one (`dispatch.hedge`).

A server whose gate is closed works on nothing, so a request that it has takes long at once, and which of two answers first is the test's.
"""

import collections
import contextlib
import json
import threading

from fake import await_true
from one_by_one import ON, OneByOne, taught

HEDGE = {"mode": "on", "budget": "50%", "burst": 1_000, "max_utilisation": "100%"}
"""Nothing is withheld but for want of an idle upstream, or because it may not be repeated."""
RESULTS = ("won", "lost", "failed", "observed", "busy", "budget", "utilisation", "unrepeatable")
Copy = collections.namedtuple("Copy", "head body chunks trailers connection at")


class Twin(OneByOne):
    """`copies` are what came under each tag, in full, and over which connection (its thread). What is asked
    takes it `pace` times as long."""

    def __init__(self, name, port=0, pace=1):
        super().__init__(name, port)
        self.copies, self.pace = collections.defaultdict(list), pace

    def work_of(self, request):
        return self.pace * super().work_of(request)

    def take_turn(self, tag, request):
        chunks = [data for _, data in request.chunks]
        self.copies[tag].append(Copy(request.raw, request.body, chunks, request.trailers, threading.current_thread(), request.at))
        return super().take_turn(tag, request)

    def has(self, tag):
        return tag in self.copies

    def over(self, connection):
        """The tags that came over a connection, in order."""
        return [tag for tag, copies in list(self.copies.items()) for copy in copies if copy.connection is connection]


class Hedging:
    """`taught` with second requests, and what is seen of them. `proxy` and `callers` are those of it."""

    def __init__(self, proxy, callers, servers):
        self.proxy, self.callers, self.servers = proxy, callers, servers
        self.before = self._counts()

    def _counts(self):
        lines = self.proxy.get("/metrics").decode().splitlines()
        return {r: int(float(line.split()[1])) for line in lines for r in RESULTS if line.startswith(f'lapwing_hedges_total{{result="{r}"}} ')}

    def counts(self):
        """What became of requests that took long, without zeros."""
        return {result: n - self.before[result] for result, n in self._counts().items() if n > self.before[result]}

    def counted(self, **expected):
        assert await_true(lambda: self.counts() == expected), (self.counts(), expected)

    def running(self):
        """Requests at each upstream, by name."""
        return {one["upstream"]: one["running"] for one in self.callers.view()["upstreams"]}

    def in_flight(self):
        return {name: self.proxy.metric(f'lapwing_upstream_requests_in_flight{{upstream="{name}"}}') for name in self.servers}

    def is_empty(self):
        return not any(self.running().values()) and not any(self.in_flight().values()) and self.callers.waiting() == 0

    def gate(self, is_open):
        for server in self.servers.values():
            server.gate(is_open)

    def sent_twice(self, work=8, send=None, among=None, **options):
        """A request that two servers have and do not work on yet: its call, who had it first, and second."""
        servers = [self.servers[name] for name in among or self.servers]
        for server in servers:
            server.gate(False)
        call = send() if send else self.callers.call(work, **{"takes": 1, **options})
        tag = call if isinstance(call, str) else call.tag
        came = lambda: [server for server in servers if server.has(tag)]  # noqa: E731
        assert await_true(lambda: len(came()) == 2, 10), (tag, [server.name for server in came()], self.callers.view(), self.counts())
        first, second = sorted(came(), key=lambda server: server.copies[tag][0].at)
        return call, first, second

    def follows(self, count=20):
        """What follows is served."""
        statuses = self.callers.load([1, 2, 4, 8] * (count // 4), connections=2)
        assert set(statuses.values()) == {200}, statuses

    def check(self, *more, twice=None):
        """No server had a request twice, those that two had were the same to the last byte, and each client has one whole answer, to its own
        request. `twice` are the tags that two must have had; `None`: any."""
        copies = collections.defaultdict(list)
        for server in [*self.servers.values(), *more]:
            for tag, of_tag in server.copies.items():
                assert len(of_tag) == 1, f"{server.name} had {tag} {len(of_tag)} times"
                copies[tag] += of_tag
        for tag, of_tag in copies.items():
            assert len(of_tag) <= 2, f"{tag} reached {len(of_tag)} servers"
            assert of_tag[0].body == self.callers.sent[tag], f"{tag} was altered: {of_tag[0].body!r}"
            assert len({(one.head, one.body, *one.chunks, *one.trailers) for one in of_tag}) == 1, f"{tag} is not the same at both: {of_tag}"
        for call in self.callers.calls:
            if call.status == 200 and call.answer.all("content-type") == ["application/json"]:
                assert call.tag in copies and json.loads(call.answer.body)["id"] == call.tag
            if call.status:
                assert not says_more(call.peer), f"{call.tag} was answered twice"
        both = {tag for tag, of_tag in copies.items() if len(of_tag) == 2}
        assert twice is None or both == set(twice), (both, twice)
        return both


def says_more(peer):
    """Whether bytes follow an answer."""
    with contextlib.suppress(OSError):
        peer.sock.setblocking(False)
        return bool(peer.buf or peer.sock.recv(1))
    return bool(peer.buf)


def answered_by(call, server):
    """It was answered, by this server."""
    assert call.result() == 200, (call.status, call.answer)
    assert json.loads(call.answer.body)["model_name"] == server.name, call.answer


@contextlib.contextmanager
def hedging(names="ab", teach=None, hedge=None, dispatch=None, paces=None, **settings):
    """Lapwing in front of servers with these names, which knows what requests take; then second requests are turned on."""
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Twin(name, pace=(paces or {}).get(name, 1))) for name in names}
        settings = {"workers": 1, **settings}
        proxy, callers = stack.enter_context(taught(servers, not teach, dispatch, **settings))
        if teach:
            teach(callers)
        proxy.reload(dispatch={**ON, **(dispatch or {}), "hedge": {**HEDGE, **(hedge or {})}})
        hedges = Hedging(proxy, callers, servers)
        yield hedges
        hedges.gate(True)
