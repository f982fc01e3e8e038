"""A container of an image without a daemon: its root file system, what its configuration says, and crun, as the kubelet starts a pod of the
level `restricted`: the image's user, no capability, a root file system that is read only, the seccomp profile of container engines. It is in
the network namespace of who starts it, as the containers of a pod share one."""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import time

PROFILE = pathlib.Path("/usr/share/containers/seccomp.json")
"""The profile that Podman, Buildah and CRI-O have by default, from Debian's golang-github-containers-common."""
MACHINE = {"x86_64": ("SCMP_ARCH_X86_64", "amd64"), "aarch64": ("SCMP_ARCH_AARCH64", "arm64")}[os.uname().machine]
HIDDEN = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi")
CONSTANT = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
NAMES = (f"lapwing-image-{os.getpid()}-{n}" for n in itertools.count())


def seccomp():
    """The profile for a process without capabilities, in the form of the OCI."""
    profile = json.loads(PROFILE.read_text())
    rules = []
    for rule in profile["syscalls"]:
        includes = rule.get("includes") or {}
        if "caps" in includes or MACHINE[1] not in includes.get("arches", [MACHINE[1]]):
            continue
        rules.append({key: rule[key] for key in ("names", "action", "errnoRet", "args") if rule.get(key) not in (None, [])})
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [MACHINE[0]],
        "syscalls": rules,
    }


class Image:
    """A root file system, and what `buildah inspect --type image` says of it."""

    def __init__(self, root, inspected):
        self.root = pathlib.Path(root)
        self.config = inspected["OCIv1"]["config"]

    def runtime_config(self, arguments, binds):
        """config.json of a bundle. `binds`: files or folders of this machine by where they are seen, read only."""
        uid, gid = map(int, self.config["User"].split(":"))
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=64k"]},
        ]
        mounts += [
            {"destination": to, "type": "bind", "source": str(of), "options": ["rbind", "ro", "nosuid", "nodev", "noexec"]}
            for to, of in binds.items()
        ]
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.root), "readonly": True},
            "process": {
                "user": {"uid": uid, "gid": gid},
                "args": self.config["Entrypoint"] + list(arguments),
                "env": self.config["Env"],
                "cwd": self.config.get("WorkingDir") or "/",
                "capabilities": {of: [] for of in ("bounding", "effective", "inheritable", "permitted", "ambient")},
                "noNewPrivileges": True,
            },
            "hostname": "lapwing",
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": of} for of in ("pid", "ipc", "uts", "mount")],
                "maskedPaths": list(HIDDEN),
                "readonlyPaths": list(CONSTANT),
                "seccomp": seccomp(),
            },
        }

    def forget(self):
        """Drops its files from the page cache."""
        os.sync()
        for file in self.root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                with file.open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Container:
    """One that runs until it ends or the block does."""

    def __init__(self, image, folder, *arguments, binds=None):
        self.name = next(NAMES)
        self.folder = pathlib.Path(folder) / self.name
        self.folder.mkdir()
        self.log = self.folder / "log"
        (self.folder / "config.json").write_text(json.dumps(image.runtime_config(arguments, binds or {})))
        self.crun = ["crun", "--root", str(self.folder / "state"), "--cgroup-manager=disabled"]
        self.pid_file = self.folder / "pid"
        command = [*self.crun, "run", "--bundle", self.folder, "--pid-file", self.pid_file, self.name]
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(10)

    def signal(self, number):
        """As the kubelet sends it: to the first process of the container."""
        subprocess.run([*self.crun, "kill", self.name, str(int(number))], check=True)

    def wait(self, seconds):
        return self.process.wait(seconds)

    def output(self):
        return self.log.read_text(errors="replace")

    def proc(self, file):
        """A file of /proc about its first process."""
        return pathlib.Path("/proc", self.pid_file.read_text(), file).read_text()

    def status(self, field):
        return next(line for line in self.proc("status").splitlines() if line.startswith(f"{field}:")).split(":")[1].split()

    def mib(self, field):
        return int(self.status(field)[0]) / 1024


def run(image, folder, *arguments, binds=None):
    """One that ends by itself: its exit code and what it wrote."""
    with Container(image, folder, *arguments, binds=binds) as container:
        return container.wait(60), container.output()
