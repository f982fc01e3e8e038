#!/usr/bin/env python3
"""Builds Lapwing with profile-guided optimisation: the compiler is told what runs often, and what never.

Three steps: a build that counts what it runs; training, in which it stands before the servers of other benchmarks, with traffic of each kind
(small requests, gRPC, large bodies, streams, rude clients, scrapes), whose figures mean nothing then; and the build for use, with the profile
`dist` and these counts. In it, blocks that training never ran are apart from their functions, and functions that it called lie together, the
most called first (on x86_64 Linux only, where the linker is known): they fill less of the caches and of memory. Crates that compute (the engine, rten, tokenizers, rayon) are built as always:
training would have to use each of their kernels, because what it does not use is built to be small, not fast.

usage: python3 benches/profile_guided.py [--out FILE] [--folder DIR] [--without-engine]
Needs wrk, nginx, nghttpd, h2load and taskset; and llvm-profdata of the LLVM that rustc has: `rustup component add llvm-tools`, or Debian's
package llvm-NN, or one that LLVM_PROFDATA names. Takes as long as two builds, and some minutes between.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from parts import ROOT

TRAINING = (
    ("overhead.py", "--rounds", "1", "--seconds", "4", "lapwing"),
    ("grpc_overhead.py", "--rounds", "1", "--calls", "20000", "lapwing"),
    ("bodies.py", "--requests", "200"),
    ("stream.py", "--rounds", "2", "--mib", "16"),
    ("soak.py", "--seconds", "60"),
)
NEEDED = "wrk", "nginx", "nghttpd", "h2load", "taskset"
# of LLVM: moves blocks that never ran out of their functions. With its default it moves those that ran seldom too, and so most of a start.
SPLIT = "-Cllvm-args=-enable-split-machine-functions", "-Cllvm-args=-mfs-psi-cutoff=0"
# where rustc links with its own lld, which knows the option (Rust 1.90)
LLD = ("x86_64-unknown-linux-gnu",)
WRAPPER = """#!/bin/sh
# calls rustc with more flags, but not for a crate that computes, or for what runs only while building, which has no --target
name= target=
for argument; do
  case $argument in
  --crate-name) name=next ;;
  --target) target=yes ;;
  *) [ "$name" != next ] || name=$argument ;;
  esac
done
case $target,$name in
,*) exec "$@" ;;
yes,{computing}) exec "$@" ;;
*) exec "$@" {flags} ;;
esac
"""


def computing():
    """The names of the crates that compute, as patterns of the shell. A manifest of ours says so of itself, and of what it brings:

    [package.metadata.lapwing]
    computes = ["lapwing_engine", "rten*"]
    """
    packages = json.loads(output("cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"))["packages"]
    metadata = [(package["metadata"] or {}).get("lapwing", {}) for package in packages]
    names = sorted({name for of in metadata for name in of.get("computes", [])})
    if not names:
        raise SystemExit("no Cargo.toml names crates that compute ([package.metadata.lapwing])")
    return " | yes,".join(names)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def profdata():
    """The tool that merges counts. Its LLVM must be the compiler's, or it does not know the file's version."""
    about = output("rustc", "-vV")
    host, major = re.search(r"host: (\S+)", about)[1], re.search(r"LLVM version: (\d+)", about)[1]
    own = pathlib.Path(output("rustc", "--print", "sysroot").strip(), "lib/rustlib", host, "bin/llvm-profdata")
    for tool in (os.environ.get("LLVM_PROFDATA"), own, f"llvm-profdata-{major}", "llvm-profdata"):
        if tool and (found := shutil.which(tool)):
            return found, host
    raise SystemExit(f"llvm-profdata is not installed: rustup component add llvm-tools, or the package llvm-{major}")


def build(folder, host, *flags, features=()):
    """Builds the profile `dist` with the flags, in a folder of its own, because cargo does not look into the wrapper."""
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "rustc"
    wrapper.write_text(WRAPPER.format(flags=shlex.join(flags), computing=computing()))
    wrapper.chmod(0o755)
    env = os.environ | {"CARGO_TARGET_DIR": str(folder), "RUSTC_WRAPPER": str(wrapper)}
    # with --target, because a name of a function has a hash of it: both builds need the same
    command = ["cargo", "build", "--profile", "dist", "--locked", "--target", host, "--bin", "lapwing", *features]
    if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode:
        raise SystemExit(f"the build in {folder} failed")
    return folder / host / "dist/lapwing"


def written(counts):
    """When each file of counts was last written: what a process has counted is added to it when it ends."""
    return {file: file.stat().st_mtime_ns for file in counts.glob("*.profraw")}


def train(binary, counts):
    """Runs the training. A benchmark fails when it misses its bounds, as it must here; but each comes to its verdicts and leaves counts."""
    for script, *arguments in TRAINING:
        before = written(counts)
        command = [sys.executable, ROOT / "benches" / script, "--lapwing", binary, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if written(counts) == before or not re.search(r"^(ok|MISS) ", done.stdout, re.MULTILINE):
            raise SystemExit(f"{script} left no counts, or came to no verdict:\n{done.stdout[-4000:]}")
        print(f"trained with {script}", flush=True)


def called(tool, merged):
    """The functions that training called, the one with the most counts first, by the names that the linker knows."""
    text = output(tool, "show", "--all-functions", "--counts", "--value-cutoff=1", merged)
    # a function that only one file knows has that file's name before it
    found = re.findall(r"^  (?:\S*;)?(\S+):\n(?:    (?:Hash|Counters): .*\n)*    Block counts: \[(.*)\]$", text, re.MULTILINE)
    if not found:
        raise SystemExit(f"{tool} show told of no function:\n{text[:1000]}")
    return [name for name, counts in sorted(found, key=lambda one: -max(map(int, one[1].split(", "))))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/profile-guided", help="where it builds (default: target/profile-guided)")
    parser.add_argument("--out", type=pathlib.Path, help="where the binary is put (default: lapwing in the folder)")
    parser.add_argument("--without-engine", action="store_true", help="the proxy alone, in half the time: for figures of the proxy")
    options = parser.parse_args()
    features = ("--no-default-features", "--features", "jemalloc") if options.without_engine else ()
    for needed in NEEDED:
        if not shutil.which(needed):
            raise SystemExit(f"{needed} is not installed")
    tool, host = profdata()
    folder = options.folder.resolve()
    counts, merged = folder / "counts", folder / "counts.profdata"
    counting = build(folder / "counting", host, f"-Cprofile-generate={counts}", features=features)
    shutil.rmtree(counts, ignore_errors=True)
    train(counting, counts)
    subprocess.run([tool, "merge", "-o", merged, counts], check=True)
    flags = [f"-Cprofile-use={merged}", *SPLIT]
    if host in LLD:
        order = folder / "order.txt"
        order.write_text("\n".join(called(tool, merged)))
        # many are no longer there: they are part of those that called them
        flags += [f"-Clink-arg=-Wl,--symbol-ordering-file={order},--no-warn-symbol-ordering"]
    else:
        print(f"functions stay in the compiler's order: the linker for {host} may not know how to change it", flush=True)
    shutil.rmtree(folder / "guided", ignore_errors=True)  # cargo does not see that the counts are others
    guided = build(folder / "guided", host, *flags, features=features)
    out = options.out or folder / "lapwing"
    shutil.copy2(guided, out)
    print(out)


if __name__ == "__main__":
    main()
