"""An API server of Kubernetes with etcd behind it: objects, admission, Helm releases. Nothing schedules or runs pods."""

import json
import subprocess

import pytest
import requests
import yaml

from charts import tool
from ports import free_port
from process import wait_for


def built(name):
    """The path of what tests/real/apiserver.sh builds."""
    try:
        return tool(name)
    except pytest.skip.Exception:
        pytest.skip(f"{name} is not built: tests/run --long builds it where Go is there")


class Cluster:
    """Everybody with the token is an administrator. `helm` and `get`, `post`, … work on it."""

    def __init__(self, processes, folder):
        self.folder, self.port, etcd, peer = folder, free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        (folder / "tokens.csv").write_text('secret,admin,admin,"system:masters"\n')
        subprocess.run(["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"], check=True, capture_output=True)
        of_etcd = {"data-dir": folder / "etcd", "listen-client-urls": f"http://127.0.0.1:{etcd}", "advertise-client-urls": f"http://127.0.0.1:{etcd}",
                   "listen-peer-urls": f"http://127.0.0.1:{peer}", "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
                   "initial-cluster": f"default=http://127.0.0.1:{peer}", "unsafe-no-fsync": "true"}
        processes("etcd", [built("etcd"), *(f"--{name}={value}" for name, value in of_etcd.items())])
        of_server = {
            "etcd-servers": f"http://127.0.0.1:{etcd}", "bind-address": "127.0.0.1", "secure-port": self.port, "cert-dir": folder / "certificates",
            "token-auth-file": folder / "tokens.csv", "authorization-mode": "RBAC", "service-cluster-ip-range": "10.96.0.0/16",
            "service-account-issuer": "https://kubernetes.default.svc", "service-account-key-file": folder / "accounts.key",
            "service-account-signing-key-file": folder / "accounts.key",
            # service accounts are made by a controller, which does not run
            "disable-admission-plugins": "ServiceAccount",
            # to a webhook by its EndpointSlice, as there is no kube-proxy
            "enable-aggregator-routing": "true",
        }
        processes("kube-apiserver", [built("kube-apiserver"), *(f"--{name}={value}" for name, value in of_server.items())])
        self.kubeconfig = folder / "kubeconfig"
        # it makes one that it signs itself
        certificate = str(folder / "certificates/apiserver.crt")
        cluster = {"server": self.url, "certificate-authority": certificate}
        self.kubeconfig.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": "test", "user": {"token": "secret"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }))
        self.session = requests.Session()
        self.session.trust_env, self.session.verify = False, certificate
        self.session.headers["authorization"] = "Bearer secret"
        wait_for(self.is_ready, 60, "the API server is ready")

    def is_ready(self):
        try:
            return self.session.get(f"{self.url}/readyz", timeout=5).ok
        # no port yet, or no certificate
        except OSError:
            return False

    def call(self, method, path, body=None):
        """(status, object); with the warnings that `kubectl` would show, under `warnings`."""
        answer = self.session.request(method, f"{self.url}{path}", json=body, timeout=30)
        return answer.status_code, {**answer.json(), "warnings": answer.headers.get("warning", "")}

    def get(self, path):
        status, found = self.call("GET", path)
        assert status == 200, found
        return found

    def create(self, path, body):
        status, made = self.call("POST", path, body)
        assert status == 201, json.dumps(made)
        return made

    def namespace(self, name, labels=None):
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}})

    def helm(self, *arguments):
        command = [tool("helm"), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout
