"""A real Prometheus: Debian's 2.42, or another one by its path."""

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

from lapwing import OPENER
from ports import free_port
from process import wait_for, wait_listening


@dataclass
class Scraped:
    """A port of this machine that is scraped, and the labels that service discovery would add."""

    port: int
    labels: dict = field(default_factory=dict)


class Prometheus:
    """Scrapes a list of `Scraped` each second; a scrape that takes longer fails, and its series are gone until the next one.

    `native` is `flag`, as in 2.42, `setting`, as from 3.8 on, or None: classic buckets.
    """

    def __init__(self, processes, folder, targets, binary="prometheus", native="flag", every="1s", rules=()):
        self.port = free_port()
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {
                    "job_name": "lapwing",
                    "static_configs": [{"targets": [f"127.0.0.1:{one.port}"], "labels": one.labels} for one in targets],
                }
            ],
        }
        if native == "setting":
            config["global"]["scrape_native_histograms"] = True
        (folder / "prometheus.yaml").write_text(json.dumps(config))
        features = ["exemplar-storage"] + (["native-histograms"] if native == "flag" else [])
        command = [binary, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", f"--enable-feature={','.join(features)}"]
        self.process = processes("prometheus", command)
        wait_listening(self.port)
        wait_for(self.is_ready, 30, "Prometheus is ready", 0.1)

    def is_ready(self):
        """It listens before it has opened its storage, and answers 503 until then."""
        try:
            with OPENER.open(f"http://127.0.0.1:{self.port}/-/ready", timeout=10) as response:
                return response.status == 200
        except urllib.error.HTTPError:
            return False

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with OPENER.open(urllib.request.Request(url), timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path} {query}: {e.code} {e.read().decode()[:1000]}") from None

    def ask(self, query):
        """The values of an instant vector."""
        return [float(one["value"][1]) for one in self.get("query", query=query)["result"] if "value" in one]

    def one(self, query):
        (value,) = self.ask(query)
        return value
