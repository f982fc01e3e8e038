"""Pods without a cluster: a network namespace each, joined to one for the node and its clients; containers are processes that are started, probed
and ended in the order in which the kubelet does so (pkg/kubelet/kuberuntime)."""

import concurrent.futures
import contextlib
import ctypes
import http.client
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from process import Process, wait_for

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
VIRTUAL_IP = "10.96.0.1"
"""A Service's address, which nobody has: nftables lead it to pods, as kube-proxy does."""


def ip(*command):
    subprocess.run(["ip", *map(str, command)], check=True, capture_output=True, text=True)


def need_namespaces():
    missing = [tool for tool in ("ip", "nft", "setpriv") if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("this machine gives no network namespaces")


class Namespace:
    """A network namespace with a name of its own."""

    count = 0

    def __init__(self, kind):
        Namespace.count += 1
        self.name = f"lw{os.getpid()}{kind}{Namespace.count}"
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")

    def command(self, *command):
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def run(self, *command, **kw):
        return subprocess.run(self.command(*command), capture_output=True, text=True, **kw)

    @contextlib.contextmanager
    def entered(self):
        """What this thread opens meanwhile is of this namespace."""
        with open("/proc/thread-self/ns/net") as home, open(f"/var/run/netns/{self.name}") as there:
            assert LIBC.setns(there.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert LIBC.setns(home.fileno(), CLONE_NEWNET) == 0

    def delete(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)


class Node(Namespace):
    """Where clients and kubelet are."""

    def __init__(self):
        super().__init__("n")
        self.pods = 0
        # what is sent to a Service's address has a way, and an address to answer to, before it is led elsewhere
        for command in (
            "link add services type veth peer name nowhere",
            "address add 10.8.0.1/32 dev services",
            "link set nowhere up",
            "link set services up",
            "route add 10.96.0.0/16 dev services src 10.8.0.1",
        ):
            ip("-n", self.name, *command.split())

    def lead(self, port, targets):
        """The Service's port leads to these (address, port) of IPv4, for connections that begin now."""
        lead = ""
        if targets:
            to = ", ".join(f"{number} : {address} . {target}" for number, (address, target) in enumerate(targets))
            lead = f"ip daddr {VIRTUAL_IP} tcp dport {port} dnat ip to numgen random mod {len(targets)} map {{ {to} }}"
        chain = f"chain output {{\ntype nat hook output priority -100\n{lead}\n}}"
        rules = f"add table ip service\ndelete table ip service\ntable ip service {{\n{chain}\n}}\n"
        done = self.run("nft", "-f", "-", input=rules)
        assert done.returncode == 0, done.stderr

    def ask(self, host, port, path="/", method="GET", body=None, timeout=5, headers=None):
        """(status, headers, body), over a connection of its own."""
        with self.entered():
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
            connection.connect()
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def probes(self, pod, probe):
        """Whether an httpGet or tcpSocket probe passes."""
        try:
            if "tcpSocket" in probe:
                with self.entered():
                    __import__("socket").create_connection((pod.address, probe["tcpSocket"]["port"]), 1).close()
                return True
            get = probe["httpGet"]
            return 200 <= self.ask(pod.address, get["port"], get.get("path", "/"), timeout=1)[0] < 400
        except OSError:
            return False


class Pod(Namespace):
    """A pod of a manifest. `commands`: what its containers' images would run, by the container's name."""

    def __init__(self, node, spec, commands, logs):
        super().__init__("p")
        node.pods += 1
        self.node, self.spec, self.commands, self.logs = node, spec, commands, logs
        self.address, self.address6 = f"10.9.{node.pods}.2", f"fd09:{node.pods}::2"
        inside, outside = f"e{os.getpid()}-{node.pods}", f"v{os.getpid()}-{node.pods}"
        ip("link", "add", outside, "netns", node.name, "type", "veth", "peer", "name", inside, "netns", self.name)
        for namespace, link, end in ((node, outside, 1), (self, inside, 2)):
            ip("-n", namespace.name, "link", "set", link, "up")
            ip("-n", namespace.name, "address", "add", f"10.9.{node.pods}.{end}/24", "dev", link)
            ip("-n", namespace.name, "address", "add", f"fd09:{node.pods}::{end}/64", "dev", link, "nodad")
        ip("-n", self.name, "route", "add", "default", "via", f"10.9.{node.pods}.1")
        self.running = {}

    def start_container(self, container, wait=True):
        """With the capabilities that its manifest gives it, and no others."""
        name = container["name"]
        added = container.get("securityContext", {}).get("capabilities", {}).get("add", [])
        kept = "".join(f",+{one.lower()}" for one in added)
        command = ["setpriv", "--no-new-privs", f"--bounding-set=-all{kept}", f"--inh-caps=-all{kept}"]
        command += [*self.commands[name], *container.get("args", [])]
        process = Process(f"{self.name}-{name}", self.command(*command), self.logs)
        self.running[name] = process
        if probe := container.get("startupProbe"):
            wait_for(lambda: self.node.probes(self, probe), 20, f"{name} has started")
        return process

    def start(self, but=()):
        """Init containers one after the other, those that go on beside the next; then all others, but those named."""
        for container in self.spec.get("initContainers", []):
            process = self.start_container(container)
            if container.get("restartPolicy") != "Always":
                assert process.wait(20) == 0, process.output()
        for container in self.spec["containers"]:
            if container["name"] not in but:
                self.start_container(container)
        return self

    def is_ready(self):
        everyone = self.spec["containers"] + [one for one in self.spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
        return all(self.node.probes(self, one["readinessProbe"]) for one in everyone if "readinessProbe" in one)

    def terminate(self, grace=30):
        """Every container's preStop hook at once, then SIGTERM: to a sidecar that is an init container once all others have ended. Returns the
        exit codes by container."""
        sidecars = [one["name"] for one in self.spec.get("initContainers", []) if one.get("restartPolicy") == "Always"]
        main = [one["name"] for one in self.spec["containers"]]
        ended = threading.Event()
        left = [len(main)]
        containers = {one["name"]: one for one in self.spec["containers"] + self.spec.get("initContainers", [])}

        def end(name):
            hook = containers[name].get("lifecycle", {}).get("preStop", {})
            if "sleep" in hook:
                time.sleep(hook["sleep"]["seconds"])
            elif hook:
                command = hook["exec"]["command"]
                command = [*self.commands[name][:1], *command[1:]] if command[0] == "lapwing" else command
                done = self.run(*command, timeout=grace)
                assert done.returncode == 0, done.stderr
            if name in sidecars:
                assert ended.wait(grace)
            self.running[name].send(signal.SIGTERM)
            try:
                code = self.running[name].wait(grace)
            except subprocess.TimeoutExpired:
                self.running[name].stop(signal.SIGKILL)
                code = "killed"
            if name in main:
                left[0] -= 1
                if not left[0]:
                    ended.set()
            return name, code

        names = [name for name in main + sidecars if name in self.running]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            return dict(pool.map(end, names))

    def delete(self):
        for process in self.running.values():
            process.stop(signal.SIGKILL)
        super().delete()
