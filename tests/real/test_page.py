"""The live page in a real browser: its figures are those of `/stats`, names are text, and nothing is loaded from elsewhere."""

import http.client
import http.server
import json
import random
import shutil
import threading
import time

import pytest

from lapwing import NO_SPANS
from process import wait_for
from shadowing import post
from test_admin_reads import Asked

# a browser on two busy cores may stand still for half a minute
pytestmark = [pytest.mark.beside, pytest.mark.long]

TOKEN = "correct-horse-battery-staple"
HOSTILE = "<img src=x onerror=alert(1)>"
CHROMIUM = shutil.which("chromium")
BODY = json.dumps({"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        pytest.skip("chromium is not installed (Debian: chromium)")
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--no-proxy-server"])
        yield browser
        browser.close()


class Page:
    """A page whose console and requests are watched."""

    def __init__(self, browser, lapwing, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.faults, self.asked = [], []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.base = f"http://127.0.0.1:{lapwing.admin}"
        self.page.goto(self.base + "/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def until(self, condition):
        """Waits for a condition in JavaScript. Playwright's own way needs `eval`, which the page's policy forbids."""
        wait_for(lambda: self.page.evaluate(f"() => Boolean({condition})"), 30, condition)

    def rows(self):
        """What the list shows: (route and model, [figures])."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll('.route')].map(row =>
                 [row.querySelector('.name').textContent, ...[...row.querySelectorAll('.figure')].map(one => one.dataset.text)])"""
        )


def infer(lapwing, model, body=BODY):
    connection = http.client.HTTPConnection("127.0.0.1", lapwing.port, timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", body, {"content-type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


def as_shown(ns):
    """A time as the page writes it."""
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")):
        if ns >= size:
            number = ns / size
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}" if number >= 10 else f"{number:.2f} {unit}"
    return "0"


@pytest.fixture(scope="module")
def lapwing(processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    for n in range(60):
        infer(lapwing, f"m{n % 3}")
    infer(lapwing, "%3Cimg%20src=x%20onerror=alert(1)%3E")
    wait_for(lambda: sum(one["count"] for one in lapwing.json("/stats?window=all")["series"]) == 61, 10, "all are counted")
    return lapwing


def test_the_figures_are_those_of_stats(browser, lapwing):
    with Page(browser, lapwing) as shown:
        shown.page.select_option("#window", "all")
        series = lapwing.json("/stats?window=all")["series"]
        shown.until(f"document.querySelectorAll('.route').length === {len(series)}")
        shown.until("document.querySelector('#state').textContent.includes('61 requests')")
        expected = {one["route"] + (one["model"] or "no model"): (as_shown(one["total"]["p50_ns"]), as_shown(one["total"]["p99_ns"])) for one in series}
        assert {name: (p50, p99) for name, _, _, p50, p99 in shown.rows()} == expected
        shown.page.click(".route:has-text('m1')")
        (chosen,) = [one for one in series if one["model"] == "m1"]
        shown.until("document.querySelector('#detail-title').textContent.includes('m1')")
        stages = shown.page.evaluate("() => [...document.querySelectorAll('#stages tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
        assert [row[0] for row in stages] == [name for name in row_order() if name in chosen["stages"]]
        for name, _, _, p50, p99, source in stages:
            stage = chosen["stages"][name]
            assert (p50, p99, source) == (as_shown(stage["p50_ns"]), as_shown(stage["p99_ns"]), max(stage["sources"], key=stage["sources"].get))
        (row,) = shown.page.evaluate("() => [...document.querySelectorAll('#classes tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
        assert row[0] == "2–3 row" and row[2] == "20"
        shown.page.wait_for_selector(".waterfall")
        slowest = lapwing.json("/exchanges?order=slowest&model=m1&limit=5")["exchanges"]
        assert shown.page.locator(".waterfall").count() == len(slowest) == 5
        assert shown.page.locator(".waterfall strong").first.text_content() == as_shown(slowest[0]["total_ns"])
        shown.until("document.querySelector('#over-time canvas')")
        assert shown.faults == []
        assert all(url.startswith(shown.base) for url in shown.asked)


def row_order():
    return ["ingress", "validation", "cache", "hydration", "preprocessing", "queue", "forward", "postprocessing", "downstream", "egress", "upstream", "unattributed"]


def test_a_hostile_name_is_text(browser, lapwing):
    with Page(browser, lapwing) as shown:
        shown.page.select_option("#window", "all")
        shown.page.fill("#filter", "onerror")
        shown.until("document.querySelectorAll('.route').length === 1")
        ((name, *_),) = shown.rows()
        assert name.endswith(HOSTILE) or "%3Cimg" in name or "other" in name, name
        shown.page.click(".route")
        shown.page.wait_for_selector(".waterfall")
        assert shown.page.locator("main img").count() == 0 and shown.faults == []


def test_keys_move_in_the_list(browser, lapwing):
    with Page(browser, lapwing) as shown:
        shown.page.select_option("#window", "all")
        shown.page.wait_for_selector(".route:nth-child(3)")
        shown.page.focus(".route:nth-child(1)")
        shown.page.keyboard.press("ArrowDown")
        shown.page.keyboard.press("ArrowDown")
        shown.page.keyboard.press("Enter")
        third = shown.page.locator(".route:nth-child(3)")
        assert third.get_attribute("aria-selected") == "true"
        assert shown.page.evaluate("document.activeElement === document.querySelector('.route:nth-child(3)')")


def test_with_a_token_the_page_asks_for_it(browser, processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, admin_token=TOKEN)
    infer(lapwing, "secret-model")
    with Page(browser, lapwing) as shown:
        shown.page.wait_for_selector("#token:not([hidden])")
        assert "secret-model" not in shown.page.content()
        shown.page.fill("#token-text", "wrong-token-of-some-length")
        shown.page.keyboard.press("Enter")
        shown.until("document.querySelector('#token-fault').textContent !== ''")
        shown.page.fill("#token-text", TOKEN)
        shown.page.keyboard.press("Enter")
        shown.page.wait_for_selector(".route:has-text('secret-model')")
        assert shown.page.locator("#token").is_hidden()
        assert all(TOKEN not in url for url in shown.asked)
        # a refused request is the browser's own line in the console; nothing else is
        assert all("401" in fault for fault in shown.faults), shown.faults


def test_a_lapwing_that_ends_and_comes_back_is_followed(browser, processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url)
    with Page(browser, lapwing) as shown:
        shown.until("document.querySelector('#state').textContent.startsWith('live')")
        lapwing.process.stop()
        shown.until("document.querySelector('#state').classList.contains('lost')")
        command = [binary, "--upstream", raw_server.url, "--listen", f"127.0.0.1:{lapwing.port}", "--admin", f"127.0.0.1:{lapwing.admin}"]
        processes("lapwing", [*command, "--otlp-grpc", "off", "--otlp-http", "off"])
        shown.until("document.querySelector('#state').textContent.startsWith('live')")


def test_two_hundred_series_do_not_stutter(browser, processes, binary, raw_server):
    lapwing = Asked(processes, binary, raw_server.url, metrics__max_models=300, metrics__max_series=300)

    def load(first):
        for n in range(first, 200, 8):
            infer(lapwing, f"model-{n}")

    threads = [threading.Thread(target=load, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Page(browser, lapwing) as shown:
        shown.until("document.querySelectorAll('.route').length === 200")
        # the time that one snapshot takes on the page's thread, of five: what a look at the next frame would wait for
        spent = shown.page.evaluate(
            """() => { const times = []; for (let n = 0; n < 5; n++) { const began = performance.now(); show(page.latest); times.push(performance.now() - began); }
                 return times.sort((a, b) => a - b)[2]; }"""
        )
        assert spent < 250, f"{spent} ms"


class OneByOne(http.server.BaseHTTPRequestHandler):
    """A server that takes 2 ms, and 1 ms for each row, one request after the other: `HTTPServer` has one thread."""

    def do_POST(self):
        rows = json.loads(self.rfile.read(int(self.headers["content-length"])))["inputs"][0]["shape"][0]
        time.sleep((2 + rows) / 1000)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def test_the_queue_in_front_of_the_upstream_is_shown(browser, processes, binary):
    def load(seed):
        chance = random.Random(seed)
        for _ in range(150):
            rows = min(64, int(chance.lognormvariate(1.5, 1)) + 1)
            infer(lapwing, "m", json.dumps({"inputs": [{"name": "x", "shape": [rows, 1], "datatype": "FP32", "data": [1] * rows}]}).encode())
            time.sleep(chance.expovariate(40))

    with http.server.HTTPServer(("127.0.0.1", 0), OneByOne) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        lapwing = Asked(processes, binary, f"http://127.0.0.1:{server.server_port}", dispatch__mode="observe")
        with Page(browser, lapwing) as shown:
            shown.until("document.querySelector('#dispatch-upstreams').textContent.includes('nothing waits: it has answered 0 requests')")
            assert shown.page.text_content("#dispatch-state") == "It observes: requests pass as they come."
            threads = [threading.Thread(target=load, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            known = wait_for(lambda: (queue := lapwing.json("/dispatch?format=json"))["replayed"] and queue, 60, "what the queue would bring is known")
            assert known["upstreams"][0]["slots"] == 1, known
            shown.until("!document.querySelector('#replay-panel').hidden")
            rows = shown.page.evaluate("() => [...document.querySelectorAll('#replay tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
            assert [row[0] for row in rows] == ["mean", "p99", "p99 of the small half", "p99 of the largest twentieth"]
            known = lapwing.json("/dispatch?format=json")["replayed"]
            assert rows[2][1:3] == [as_shown(known[side]["small_p99_ns"]) for side in ("without", "with")]
            (upstream,) = shown.page.evaluate("() => [...document.querySelectorAll('#dispatch-upstreams tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
            assert upstream[1] == "1", upstream
            (row,) = shown.page.evaluate("() => [...document.querySelectorAll('#dispatch-classes tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
            assert row[:2] == ["other", "0"], row
            assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth") and shown.faults == []
        server.shutdown()


def test_without_a_queue_there_is_no_panel_for_it(browser, lapwing):
    with Page(browser, lapwing) as shown:
        shown.page.wait_for_selector(".waterfall")
        assert shown.page.locator("#dispatch-panel").is_hidden() and shown.page.locator("#cache-panel").is_hidden()


def test_answers_that_are_given_again_are_shown(browser, processes, binary):
    def load(lapwing):
        for n in range(300):
            body = json.dumps({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [n % 5]}]}).encode()
            # read to its end: an answer that its client leaves is not kept
            assert post(lapwing.port, "/v2/models/m/infer", body, {"content-type": "application/json"}) == (200, b"{}")

    cells = lambda shown, name: shown.page.evaluate(f"() => [...document.querySelectorAll('#{name} tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
    with http.server.HTTPServer(("127.0.0.1", 0), OneByOne) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        observing = Asked(processes, binary, url, cache__mode="observe")
        with Page(browser, observing) as shown:
            shown.until("document.querySelector('#cache-state').textContent === 'It observes: the upstream is asked in all cases.'")
            assert shown.page.locator("#ghost-panel").is_hidden()
            load(observing)
            shown.until("!document.querySelector('#ghost-panel').hidden && document.querySelector('#ghost-enough').textContent.includes('295 of 295 tries')")
            ghost = cells(shown, "ghost")
            assert [row[0] for row in ghost][:2] == ["1 MiB", "4 MiB"] and ghost[0][4] == "98 %", ghost
            ((route, state, same, _),) = cells(shown, "cache-trust")
            assert (state, same) == ("proven", "295 of 295") and route.endswith(" · m"), cells(shown, "cache-trust")
            assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth") and shown.faults == []
        answering = Asked(processes, binary, url, cache__mode="on", cache__proof="4", cache__verify="0%")
        load(answering)
        with Page(browser, answering) as shown:
            shown.until("document.querySelector('#cache-state').textContent.startsWith('It is on: ')")
            known = answering.json("/cache?format=json")
            assert known["results"]["l1"] > 280 and ["l1", str(known["results"]["l1"])] in cells(shown, "cache-answers"), known
            shown.page.click(".route")
            shown.until("[...document.querySelectorAll('#stages tbody tr')].some(row => row.textContent.startsWith('answered again'))")
            shown.page.wait_for_selector(".waterfall")
            assert shown.faults == []
        server.shutdown()


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_its_width(browser, lapwing, width, height, scheme):
    with Page(browser, lapwing, viewport={"width": width, "height": height}, color_scheme=scheme) as shown:
        shown.page.select_option("#window", "all")
        shown.page.wait_for_selector(".waterfall")
        assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut at the side"
        back = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 200) == (scheme == "dark")


DIAGNOSIS = {
    "window_seconds": 300.0,
    "missing": [{"cause": "spans_unmatched", "sentence": f"650 of 650 spans {HOSTILE}", "count": 650, "of": 650, "change": "continue traceparent"}],
    "levers": [{"lever": "dispatch", "sentence": f"dispatch would take 31 % off {HOSTILE}", "change": "set dispatch.mode to on", "gain": 0.31, "requests": 2048, "covered_seconds": 40.0}],
    "routes": [
        {
            "route": "POST /dead", "model": "", "upstream": "http://u", "requests": 0, "p50_ns": 0, "p99_ns": 0, "budget": None,
            "outcomes": {"ended": 40, "well": 0, "failures": [{
                "kind": "upstream_unreachable", "is_trouble": True, "count": 40, "of": 40, "share": 1.0, "share_interval": [0.91, 1.0], "mean_seconds": 0.001,
                "latest_seconds_ago": 2.0, "sentence": "the upstream is unreachable: 40 of 40", "fixes": ["start it"], "exchanges": [],
            }]},
            "status": "failing", "summary": "", "verdicts": [], "missing": [], "tail": [], "exchanges": [],
        },
        {
            "route": "POST /v2/models/{model}/infer", "model": HOSTILE, "upstream": "http://u", "requests": 3000, "p50_ns": 40_000_000, "p99_ns": 212_000_000,
            "budget": {"quantile": "p99", "limit_ns": 200_000_000, "measured_ns": 212_000_000, "excess_ns": 1_500_000_000},
            "status": "over_budget", "summary": "p99 is 212 ms against a budget of 200 ms.",
            "verdicts": [{
                "bound": "queue", "cause": "bursts", "share": 0.61, "share_interval": [0.55, 0.66], "confidence": 0.98, "sentence": f"61 % is queue {HOSTILE}",
                "evidence": [{"what": "requests in a burst", "value": 40.0, "unit": "requests", "threshold": 8.0}, {"what": "between bursts", "value": 10.0, "unit": "seconds", "threshold": None}],
                "fixes": ["raise instances", HOSTILE], "rule": "queue-bursts",
            }],
            "missing": [{"what": HOSTILE, "how": "poll"}],
            "tail": [{"stage": "queue", "body_ns": 1e6, "tail_ns": 4e7, "share_of_p50": 0.1, "share_of_p99": 0.5, "share_of_excess": 0.6, "excess_interval": [0.5, 0.7]}],
            "exchanges": ["4bf92f3577b34da6a3ce929d0e0e4736"],
        },
        {
            "route": "GET /x", "model": "", "upstream": "http://u", "requests": 7, "p50_ns": 1_000_000, "p99_ns": 2_000_000, "budget": None,
            "status": "not_enough_evidence", "summary": "", "verdicts": [], "missing": [], "tail": [], "exchanges": [],
        },
    ],
}  # fmt: skip


def test_the_diagnosis_opens_with_a_click_and_stays_open(browser, lapwing):
    with Page(browser, lapwing) as shown:
        asked = []
        shown.page.route("**/diagnosis*", lambda route: (asked.append(route.request.url), route.fulfill(json=DIAGNOSIS)))
        shown.page.wait_for_selector("#diagnosis summary:has-text('queue-bound')", timeout=30_000)
        lines = shown.page.evaluate("() => [...document.querySelectorAll('#diagnosis summary')].map(one => one.textContent)")
        assert lines == [
            "failing POST /dead the upstream is unreachable: 40 of 40",
            f"over budget POST /v2/models/{{model}}/infer · {HOSTILE} queue-bound: 61 % is queue {HOSTILE}",
            "not enough evidence GET /x 7 requests, p99 2.00 ms",
        ]
        first = shown.page.locator("#diagnosis > *").first.text_content()
        assert first == f"missing 650 of 650 spans {HOSTILE}. continue traceparent.", "what is missing comes first"
        assert shown.page.locator("#diagnosis .lever").text_content() == f"dispatch would take 31 % off {HOSTILE}: set dispatch.mode to on."
        evidence = shown.page.locator("#diagnosis details:nth-of-type(2) table").first
        assert not evidence.is_visible()
        shown.page.click("#diagnosis details:nth-of-type(2) summary")
        assert evidence.is_visible() and "requests in a burst40 requests8 requests" in evidence.text_content()
        assert [one.strip() for one in shown.page.locator("#diagnosis details:nth-of-type(2) ol li").all_text_contents()] == ["raise instances", HOSTILE]
        before = len(asked)
        # playwright answers requests while it is asked something
        wait_for(lambda: shown.page.evaluate("1") and len(asked) > before, 30, "it is asked again")
        shown.page.wait_for_timeout(200)
        assert evidence.is_visible(), "what is open stays open"
        assert shown.page.locator("main img").count() == 0 and shown.faults == []


def test_a_split_and_a_trial_are_shown_where_there_are_some(browser, lapwing, start_lapwing, raw_server, tmp_path):
    panels = "() => ['split', 'trials', 'shadow'].filter(name => !document.getElementById(`${name}-panel`).hidden)"
    with Page(browser, lapwing) as shown:
        shown.until("document.querySelector('#shadow').textContent")
        assert shown.page.evaluate(panels) == []
    file = tmp_path / "lapwing.yaml"
    file.write_text(f"""
upstreams: {{a: {{url: "{raw_server.url}"}}, b: {{url: "{raw_server.url.replace('127.0.0.1', 'localhost')}"}}}}
split: {{candidate: b, share: 5%}}
trial: {{lever: least_requests}}
""")
    acting = start_lapwing(None, config=file, env=NO_SPANS)
    wait_for(acting.is_ready, 20, "lapwing is ready")
    with Page(browser, acting) as shown:
        shown.until("document.querySelector('#trials').textContent.startsWith('lever `least_requests`')")
        shown.until("document.querySelector('#split').textContent.includes('5')")
        assert shown.page.evaluate(panels) == ["split", "trials"]
        assert shown.faults == []
