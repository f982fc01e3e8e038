"""The corpora of HTTP/1.1: reads their rows, sends one through a proxy, and says in words in what the proxy differs from the row.

A row of requests/*.toml:
    send      the client's bytes; the file is text, and each character is one byte. {case} becomes the row's own name at the
              upstream, {x*30000} so many of `x`. With `ends` the client then ends its side.
    status    of the answer, or of each answer of several requests; `error` is the last one's x-lapwing-error, if Lapwing itself gives it
    target    at the upstream, or all targets in order; without it the request must not reach the upstream, or with `broken` not whole
    fields    that arrive with these values (a list: all of that name), `absent` ones, `present` ones; `method`, `body`, `trailers`
    interim   the statuses of interim responses, if they matter
    closed    whether the connection must be closed after the last answer; by default after an error of Lapwing's own

A row of responses/*.toml:
    ask       the client's bytes, by default a plain GET
    answer    the upstream's bytes; then it closes, or as `then` says: `reset`, or `stays` to serve further requests
    status, error, fields, absent, body, trailers, interim: what the client must see
    cut       the client must see that the response broke off
    outcome   how Lapwing counts it

Both have, for each peer that differs from the row, what differs and why: `nginx = { differs = ["status 405"], why = "methods" }`, where
`why` is a key of reasons.toml.
"""

import pathlib
import re
import time
import tomllib
from dataclasses import dataclass, field

from fake import Upstream, await_true, plain
from wire import Closed, connect

HERE = pathlib.Path(__file__).parent
REASONS = tomllib.loads((HERE / "reasons.toml").read_text())
PATIENCE_S, SOON_S = 2.0, 1.0
CONNECTIONS = 4096


def load(kind):
    """The rows of requests/ or responses/, each with `id`, which is unique, and `family`, the name of its file."""
    rows = [dict(row, family=path.stem) for path in sorted((HERE / kind).glob("*.toml")) for row in tomllib.loads(path.read_text())["case"]]
    for number, row in enumerate(rows):
        row["id"] = f"{kind}-{number:03}"
    return rows


def expand(text, row):
    """The text with the row's name and with what is to be repeated."""
    text = text.replace("{case}", row["id"])
    return re.sub(r"\{([^{}]+)\*(\d+)\}", lambda found: found[1] * int(found[2]), text, flags=re.DOTALL)


@dataclass
class Seen:
    """What came of a row: answers at the client, requests at the upstream."""

    answers: list = field(default_factory=list)
    interim: list = field(default_factory=list)
    arrived: list = field(default_factory=list)
    end: str = ""
    """Why no further answer was read: `closed`, `cut` in the middle of one, `silent`."""
    is_closed: bool = False


# === the upstream


def upstream(responses=()):
    """An upstream that answers every request in full, but those that rows of responses ask for as these say."""
    by_name = {row["id"]: row for row in responses if "answer" in row}

    def script(peer):
        while True:
            request = peer.head()
            request.whole = False
            row = by_name.get(request.target.strip("/"))
            peer.body(request)
            request.whole = True
            if not row:
                peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" + (b"" if request.method == "HEAD" else b"ok"))
                continue
            peer.send(expand(row["answer"], row).encode("latin-1"))
            if row.get("then") == "reset":
                time.sleep(0.05)  # so that it is read before the connection ends
                return peer.reset()
            if row.get("then") != "stays":
                return None

    return Upstream(*[script] * CONNECTIONS, plain)


# === one row


def run(row, port, up):
    """Sends the row to the proxy at `port`, whose upstream is `up`."""
    seen, wanted = Seen(), row["status"] if isinstance(row["status"], list) else [row["status"]]
    sent = expand(row.get("send") or row.get("ask") or "GET /{case} HTTP/1.1\r\nHost: m\r\n\r\n", row).encode("latin-1")
    method = sent.lstrip().split(b" ", 1)[0][:16].decode("latin-1")
    with connect(("127.0.0.1", port)) as client:
        client.sock.settimeout(PATIENCE_S)
        try:
            client.send(sent)
            if row.get("ends"):
                client.half_close()
        except OSError:
            pass  # it was answered before its end
        try:
            for _ in wanted:
                answer = client.response(method)
                seen.interim += client.interim
                seen.answers.append(answer)
        except Closed as closed:
            seen.end = "cut" if closed.got or client.buf else "closed"
        except TimeoutError:
            seen.end = "silent"
        except (ValueError, IndexError, AssertionError):
            seen.end = "unreadable"
        if is_closing(row, seen):
            seen.is_closed = seen.end in ("closed", "cut") or client.closed_within(SOON_S) is not None
    if "answer" in row and row.get("then") != "stays":
        time.sleep(0.05)  # so that no proxy takes the connection that ends for the next row
    name = row["id"].encode()
    find = lambda: [request for request in list(up.requests) if name in request.raw]  # noqa: E731
    may_come = targets(row) and any(answer.status < 400 for answer in seen.answers)
    await_true(lambda: len(whole(find())) >= len(targets(row)), SOON_S if may_come else 0)
    seen.arrived = whole(find()) if row.get("broken") else find()
    return seen


def whole(requests):
    return [request for request in requests if getattr(request, "whole", False)]


def is_closing(row, seen):
    """Whether the connection must end now: not if what must be refused was served."""
    is_served = "error" in row and seen.answers and seen.answers[-1].status < 400
    return row.get("closed", "error" in row and "send" in row) and not is_served


def targets(row):
    target = row.get("target", [])
    return [expand(one, row) for one in ([target] if isinstance(target, str) else target)]


# === in what it differs


def differences(row, seen, own=False):
    """What is not as the row says, in words; `own`: the proxy is Lapwing."""
    found = statuses(row, seen, own)
    if "send" in row:
        found += arrival(row, seen)
        subject = seen.arrived[0] if seen.arrived and "target" in row else None
    else:
        subject = seen.answers[0] if seen.answers else None
    if subject is not None and not found:
        found += contents(row, subject)
    if "interim" in row and not found:
        found += hints(row, seen)
    if own and (error := seen.answers[-1].one("x-lapwing-error") if seen.answers else None) != row.get("error"):
        found.append(f"error {error}")
    if is_closing(row, seen) and not seen.is_closed and "arrives" not in found:
        found.append("stays open")
    return found


def statuses(row, seen, own):
    # Envoy says 503 where others say 502
    got = [502 if answer.status == 503 and row["status"] == 502 and not own else answer.status for answer in seen.answers]
    if row.get("cut"):
        return [] if seen.end == "cut" or (seen.end == "closed" and not got) else [f"status {got[0]}, not cut" if got else seen.end]
    wanted = row["status"] if isinstance(row["status"], list) else [row["status"]]
    if got == wanted:
        return []
    if got == wanted[: len(got)]:
        return [seen.end]
    return ["status " + ", ".join(map(str, got))]


def arrival(row, seen):
    wanted, got = targets(row), [request.target for request in seen.arrived]
    if got == wanted:
        return []
    if not wanted:
        return ["arrives"]
    if len(got) < len(wanted):
        return ["does not arrive" if not got else f"{len(got)} of {len(wanted)} arrive"]
    return ["target " + ", ".join(shown(target, row) for target in got)]


def contents(row, message):
    """What of the fields and the body of a message is not as the row says."""
    found = fields(row, row, message)
    if "method" in row and message.method != row["method"]:
        found.append(f"method {message.method}")
    if "body" in row and message.body != (wanted := expand(row["body"], row).encode("latin-1")):
        found.append("body cut" if wanted.startswith(message.body) else "body " + message.body[:40].decode("latin-1"))
    for name, value in row.get("trailers", {}).items():
        if [v for n, v in message.trailers if n.lower() == name] != [value]:
            found.append(f"no trailer {name}")
    if extra := [name for name, _ in message.trailers if name.lower() not in row.get("trailers", {})]:
        found.append("trailer " + ", ".join(extra).lower())
    return found


def fields(of, row, message):
    found = []
    for name, value in of.get("fields", {}).items():
        wanted, got = [expand(v, row) for v in ([value] if isinstance(value, str) else value)], message.all(name)
        if got != wanted:
            found.append(f"{name}: {shown(', '.join(got), row)}" if got else f"no {name}")
    found += [f"no {name}" for name in of.get("present", []) if not message.all(name)]
    return found + [f"{name}: {shown(', '.join(message.all(name)), row)}" for name in of.get("absent", []) if message.all(name)]


def hints(row, seen):
    wanted = [{"status": one} if isinstance(one, int) else one for one in row["interim"]]
    got = [one.status for one in seen.interim]
    if got != [one["status"] for one in wanted]:
        return ["interim " + ", ".join(map(str, got)) if got else "no interim"]
    return [word for one, message in zip(wanted, seen.interim) for word in fields(one, row, message)]


def shown(text, row):
    text = text.replace(row["id"], "{case}")
    return text if len(text) <= 60 else text[:60] + "…"
