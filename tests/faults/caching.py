"""A server of the Open Inference Protocol whose answers follow from what it is asked, and callers who know what they must be answered."""

import contextlib
import http.client
import json
import threading
import time

from fake import Upstream, await_true
from sidecar import Sidecar
from wire import Closed

PATH = "/v2/models/m/infer"
ON = {"mode": "on", "proof": 2, "verify": "0%"}


class Answering(Upstream):
    """Answers with the sum of the data, `version` and who asked. `asked` are the bodies that came. What a request wants otherwise it says in
    `x-want`: `status`, `headers`, `cut`, `pad`. While `gate` is closed, answers wait."""

    def __init__(self, port=0, version="1"):
        super().__init__(*[self.serve] * 5_000, port=port)
        self.version, self.asked, self.gate, self.drift, self.always = version, [], threading.Event(), 0, {}
        self.gate.set()

    def serve(self, peer):
        while True:
            request = peer.head()
            if request.method == "PRI":
                peer.send(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                return
            peer.body(request)
            if not request.target.startswith("/v2/models/"):
                peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                continue
            with self.lock:
                self.asked.append(request.body)
            want = self.always | json.loads(request.one("x-want", "{}"))
            self.gate.wait(30)
            time.sleep(want.get("sleep", 0))
            self.answer(peer, request, want)

    def answer(self, peer, request, want):
        body = answer_to(request.body, self.version, request.one("authorization"), self.drift)
        body += b" " * want.get("pad", 0)
        fields = {"content-type": "application/json", "content-length": len(body), **want.get("headers", {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {want.get('status', 200)} X\r\n{lines}\r\n".encode()
        if want.get("cut"):
            peer.send(head + body[: len(body) // 2])
            raise Closed
        if pause := want.get("pause"):
            peer.send(head + body[: len(body) // 2])
            time.sleep(pause)
            peer.send(body[len(body) // 2 :])
            return
        peer.send(head + body)


def answer_to(body, version="1", who=None, drift=0):
    """What is answered to a request."""
    asked = json.loads(body)
    answer = {"model_name": "m", "model_version": version, "id": asked.get("id"), "who": who}
    answer["outputs"] = [{"name": "y", "shape": [1], "datatype": "FP32", "data": [sum(asked["inputs"][0]["data"]) + drift]}]
    return json.dumps({name: value for name, value in answer.items() if value is not None}).encode()


def body_of(*data, **more):
    tensor = {"name": "x", "shape": [len(data)], "datatype": "FP32", "data": list(data)}
    return json.dumps({**more, "inputs": [tensor]}).encode()


class Caching:
    """Lapwing with a cache, in front of a server that answers."""

    fields = {}
    """What each request says beside."""

    def __init__(self, server, cache, **settings):
        self.server = server
        self.proxy = Sidecar(server.url, sections={"cache": cache}, **settings)

    def ask(self, body, want=None, path=PATH, **headers):
        """(status, headers, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=30)
        fields = {**self.fields, "content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
        fields |= {"x-want": json.dumps(want)} if want else {}
        connection.request("POST", path, body, fields)
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def is_hit(self, body, **kw):
        """Asks, and whether the server was not."""
        before = len(self.server.asked)
        status, headers, _ = self.ask(body, **kw)
        assert status == 200
        asked = len(self.server.asked) - before
        assert (asked == 0) == ("age" in headers), (asked, dict(headers))
        return asked == 0

    def prove(self, **kw):
        """Asks until an answer comes from the cache."""
        assert await_true(lambda: self.is_hit(body_of(0.5, 0.25), **kw), 10), "no answer is ever given again"

    def served_by(self):
        """How many exchanges were served by whom, of the latest."""
        counts = {}
        for one in json.loads(self.proxy.get("/exchanges?limit=500"))["exchanges"]:
            counts[one["served_by"]] = counts.get(one["served_by"], 0) + 1
        return counts

    def at_once(self, bodies, want=None, **headers):
        """Asks all of them at the same time. Returns the answers, in their order, with the seconds that each took."""
        answers = [None] * len(bodies)

        def run(at, body):
            began = time.monotonic()
            try:
                answers[at] = (*self.ask(body, want, **headers), time.monotonic() - began)
            except (OSError, http.client.HTTPException) as error:
                answers[at] = (0, {}, repr(error).encode(), time.monotonic() - began)

        threads = [threading.Thread(target=run, args=(at, body)) for at, body in enumerate(bodies)]
        for thread in threads:
            thread.start()
        return threads, answers


@contextlib.contextmanager
def caching(cache=None, server=None, **settings):
    """Lapwing with a cache that has shown that it may answer."""
    with (server or Answering()) as up:
        caching = Caching(up, {**ON, **(cache or {})}, **settings)
        with caching.proxy:
            yield caching
