"""Commands in the documents that cannot run here as they are: each checks its arguments against the repository, does what of it can be
done, and ends. `WHY` says of each why it does not run.

usage: stand_ins.py COMMAND [ARGUMENT]...
"""

import argparse
import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHY = {
    "apt-get": "it changes the machine",
    "build": "deploy/debian/build builds for minutes; test_packages.py runs it",
    "cargo": "it builds for minutes; `cargo demo` runs",
    "docker": "it needs a daemon",
    "editor": "it waits for a person",
    "helm": "it needs a cluster; the chart is rendered by the same arguments",
    "kubectl": "it needs a cluster; manifests are validated, commands in a pod run beside this one's Lapwing",
    "man": "it shows a page to a person",
    "maturin": "it builds for minutes",
    "pip": "it builds for minutes",
    "python3": "benchmarks take minutes; their arguments are parsed",
    "run": "tests/run and .ci/run run this",
    "systemctl": "it needs systemd",
}
RANKER = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
spec:
  selector:
    matchLabels: {{app: {name}}}
  template:
    metadata:
      labels: {{app: {name}}}
    spec:
      containers:
      - name: server
        image: vllm/vllm-openai:v0.10.0
        args: [--model=BAAI/bge-reranker-v2-m3, --port=8000]
        ports:
        - containerPort: 8000
"""


def refuse(why):
    sys.exit(f"{' '.join(sys.argv[1:])}: {why}")


def check(holds, why):
    if not holds:
        refuse(why)


def read(path):
    return (ROOT / path).read_text()


def real(name):
    """The command of that name that this one hides: all stand-ins are in the first folder."""
    _, *others = os.environ["PATH"].split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(others)) or refuse("it is not installed")


def printed(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stderr)
    return done.stdout


# --- what changes the machine, or builds

def apt_get(words):
    check(words[0] == "install", "only install is known")
    for name in words[1:]:
        is_known = re.search(rf"\b{re.escape(name)}\b", read("tests/run") + read("benches/overhead.py")) or re.fullmatch(r"\./target/debian/lapwing_[\w.-]+\.deb", name)
        check(is_known, f"neither tests nor benchmarks use {name}")


def build(words):
    options = re.findall(r"--[\w-]+", read("deploy/debian/build"))
    check(all(word in options for word in words if word.startswith("-")), f"it knows {options}")


def cargo(words):
    if words[0] == "demo":
        os.execvp("lapwing", ["lapwing", *words])
    manifest = read("Cargo.toml")
    check(words[0] in ("build", "test", "bench", "check", "clippy", "fmt", "install"), "this command is not known")
    places = {"--bin": "src/main.rs", "--example": "examples/{}.rs|benches/{}.rs", "--test": "tests/{}.rs|tests/{}", "--bench": "benches/{}.rs"}
    for option, value in zip(words, words[1:]):
        if option == "--profile":
            check(f"\n[profile.{value}]\n" in manifest, f"no profile {value}")
        elif option in ("-p", "--package"):
            check((ROOT / "crates" / value / "Cargo.toml").exists(), f"no package {value}")
        elif option in places and not value.startswith("-"):
            paths = places[option].format(value, value).split("|")
            named = f'name = "{value}"' in manifest
            check(named or any((ROOT / path).exists() for path in paths), f"no {option[2:]} {value}")


def docker(words):
    if words[0] == "compose":
        check(words[1] in ("build", "up", "down"), "this command is not known")
        return check(pathlib.Path("docker-compose.yaml").exists(), "no docker-compose.yaml here")
    if words[0] == "push":
        return check(len(words) == 2 and "/" in words[1], "to which registry?")
    check(words[0] == "build" and words[-1] == "." and pathlib.Path("Dockerfile").exists(), "no Dockerfile here")


def editor(words):
    check(words and all(pathlib.Path(path).exists() for path in words), "no such file")


def man(words):
    check(words == ["-l", "-"] and sys.stdin.read().count(".TH ") == 1, "this is no manual page")


def maturin(words):
    check(words[:2] == ["build", "--target"], "this command is not known")


def pip(words):
    check(words[0] == "install" and len(words) == 2, "only install is known")
    check(words[1] == "./" or f'"{words[1]}"' in read("pyproject.toml"), f"pyproject.toml does not name {words[1]}")


def python3(words):
    if not words or not re.match(r"(benches/)?\w+\.py$", words[0]):
        os.execv(sys.executable, [sys.executable, *words])
    check("argparse" in pathlib.Path(words[0]).read_text(), "its arguments cannot be checked")
    parse = argparse.ArgumentParser.parse_args

    def only_parse(parser, *given):
        parse(parser, *given)
        raise SystemExit(0)

    argparse.ArgumentParser.parse_args = only_parse
    sys.argv = words
    sys.path.insert(0, str(pathlib.Path(words[0]).resolve().parent))
    runpy.run_path(words[0], run_name="__main__")
    refuse("it parses no arguments")


def run(words):
    check(set(words) <= {"--quick", "--long", "--help"}, "no such option")


def systemctl(words):
    check(words[0] in ("enable", "reload", "restart", "status", "edit", "stop", "start"), "this command is not known")
    check((ROOT / f"deploy/systemd/{words[-1]}.service").exists(), f"no unit {words[-1]}")


# --- a cluster

def validated(text):
    """Validates every object of Kubernetes' own kinds, as its API server does."""
    import kubernetes_validate
    import yaml

    found = [one for one in yaml.safe_load_all(text) if one]
    check(found, "nothing was applied")
    for one in found:
        if "." not in one["apiVersion"].split("/")[0] or one["apiVersion"].split("/")[0].endswith("k8s.io"):
            kubernetes_validate.validate(one, "1.34", strict=True)
        print(f"{one['kind'].lower()}/{one['metadata']['name']} applied")


def kubectl(words):
    parser = argparse.ArgumentParser("kubectl", allow_abbrev=False)
    parser.add_argument("-n", "--namespace")
    verbs = parser.add_subparsers(dest="verb", required=True)
    options = {name: verbs.add_parser(name, allow_abbrev=False) for name in ("get", "apply", "exec", "label", "patch", "rollout")}
    for one in options.values():
        one.add_argument("-n", "--namespace")
    for flag in ("-l", "-o", "--raw"):
        options["get"].add_argument(flag)
    for flag in ("-f", "-k"):
        options["apply"].add_argument(flag)
    options["patch"].add_argument("--type", choices=("json", "merge", "strategic"))
    options["patch"].add_argument("-p", type=json.loads)
    options["exec"].add_argument("-c", required=True)
    for verb in ("get", "exec", "label", "patch", "rollout"):
        options[verb].add_argument("what", nargs="*")
    inside = words[words.index("--") + 1 :] if "--" in words else []
    given = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if given.verb == "exec":
        check(given.c == "lapwing" and inside and len(given.what) == 1 and "/" in given.what[0], "which container, and what to run in it?")
        # the image has no other command
        check(inside[0] == "lapwing", f"the image has no {inside[0]}")
        os.execvp(inside[0], inside)
    elif given.verb == "apply":
        check((given.f is None) != (given.k is None), "-f or -k")
        text = printed(real("kustomize"), "build", given.k) if given.k else sys.stdin.read() if given.f == "-" else pathlib.Path(given.f).read_text()
        validated(text)
    elif given.verb == "label":
        check(given.what[0] == "namespace" and all("=" in one or one.endswith("-") for one in given.what[2:]), "which label?")
    elif given.verb == "patch":
        check(len(given.what) == 2 and all({"op", "path"} <= one.keys() for one in given.p), "what, and which operations?")
    elif given.verb == "rollout":
        check(given.what[0] in ("restart", "status", "undo") and "/" in given.what[1], "of what?")
    elif given.verb == "get" and given.raw:
        path = re.fullmatch(r"/api/v1/namespaces/[\w-]+/pods/[\w.-]+:(\d+)/proxy(/.*)", given.raw)
        check(path, "no such resource")
        sys.stdout.write(urllib.request.urlopen(f"http://127.0.0.1:{path[1]}{path[2]}").read().decode())
    elif given.verb == "get" and given.o == "name":
        print("pod/ranker-1\npod/ranker-2")
    elif given.verb == "get":
        check(given.o == "yaml" and given.what[0] == "deploy", "only a Deployment is here")
        print(RANKER.format(name=given.what[1]), end="")
    else:
        refuse("this command is not known")


def helm(words):
    check(words[0] in ("install", "upgrade"), "this command is not known")
    validated(printed(real("helm"), "template", *[word for word in words[1:] if word not in ("--create-namespace", "--install")]))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__)
        sys.exit(len(sys.argv) < 2)
    globals()[sys.argv[1].replace("-", "_")](sys.argv[2:])
