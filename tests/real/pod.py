"""A pod without a cluster: a network of its own in which containers of a manifest run with the very commands, variables and ports that
they have there. What is mounted lies in folders of this machine."""

import re
import shlex
import subprocess

import pytest
import yaml

from process import wait_for

# brings loopback up, which is all of the network that the containers of a pod share
HOLDER = """
import fcntl, socket, struct, time
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
print("up", flush=True)
time.sleep(3600)
"""
IN_NETWORK = ["unshare", "--user", "--map-root-user", "--net"]


def objects(text):
    return [one for one in yaml.safe_load_all(text) if one]


def spec_of(text):
    """The pod's part of the one object that has it."""
    kinds = ("Deployment", "StatefulSet", "InferenceService", "ClusterServingRuntime")
    found = next(one for one in objects(text) if one["kind"] in kinds)
    if found["kind"] == "ClusterServingRuntime":
        return found["spec"]
    return found["spec"]["predictor"] if found["kind"] == "InferenceService" else found["spec"]["template"]["spec"]


def container_of(spec, name):
    (found,) = [one for one in spec.get("initContainers", []) + spec.get("containers", []) if one["name"] == name]
    return found


OF_THE_POD = {"metadata.name": "pod-7c9f", "metadata.namespace": "models", "spec.nodeName": "node-3"}
"""What the downward API says of the pod."""


def variables_of(container):
    """The variables of a container whose values are known, as the kubelet gives them: `$(NAME)` of those before is expanded."""
    found = {}
    for one in container.get("env", []):
        value = one.get("value")
        if value is None and "fieldRef" in one.get("valueFrom", {}):
            value = OF_THE_POD[one["valueFrom"]["fieldRef"]["fieldPath"]]
        if value is not None:
            found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), value)
    return found


class Pod:
    """The pod of a manifest; `given` are folders that stand for volumes which are no ConfigMap, by name."""

    def __init__(self, processes, folder, text, given=None):
        if subprocess.run([*IN_NETWORK, "true"], capture_output=True, check=False).returncode:
            pytest.skip("this machine lets nobody have a network of their own (unshare --user --net)")
        self.processes, self.spec, self.volumes = processes, spec_of(text), dict(given or {})
        maps = {one["metadata"]["name"]: one["data"] for one in objects(text) if one["kind"] == "ConfigMap"}
        for volume in self.spec.get("volumes", []):
            if "configMap" in volume:
                where = folder / f"volume-{volume['name']}"
                where.mkdir()
                for name, content in maps[volume["configMap"]["name"]].items():
                    (where / name).write_text(content)
                self.volumes[volume["name"]] = where
        self.holder = processes("pod", [*IN_NETWORK, "python3", "-c", HOLDER])
        wait_for(lambda: "up" in self.holder.output(), 10, "the pod has a network")
        target = str(self.holder.pid)
        self.enter = ["nsenter", "--target", target, "--user", "--preserve-credentials", "--net"]

    def words(self, container, words):
        """With the folders of this machine instead of the paths in the container."""
        found = []
        for word in words:
            for mount in container.get("volumeMounts", []):
                if mount["name"] in self.volumes:
                    word = word.replace(mount["mountPath"], str(self.volumes[mount["name"]]))
            found.append(word)
        return found

    def start(self, name, program, env=None, words=None):
        """Starts a container with `program` instead of the first word of its command, or before its arguments if it has none; `words`
        instead of all of them."""
        container = container_of(self.spec, name)
        if words is None:
            words = container.get("command", [])[1:] + container.get("args", [])
        variables = variables_of(container)
        values = dict(zip(variables, self.words(container, variables.values())))
        command = [str(part) for part in [*self.enter, *program, *self.words(container, words)]]
        return self.processes(f"container-{name}", command, env={**(env or {}), **values})

    def run(self, *command):
        """What a command prints that runs in the pod."""
        words = [*self.enter, *map(str, command)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, (shlex.join(words), done.stdout, done.stderr)
        return done.stdout

    def answers(self, url):
        words = [*self.enter, "curl", "-fsS", "-m", "2", "-o", "/dev/null", url]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
