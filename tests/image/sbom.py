#!/usr/bin/env python3
"""Writes the software bill of materials of the command as CycloneDX, and checks it: it is valid by CycloneDX's JSON schema, and has each
crate from which cargo builds the command with its default features, in its version and with a licence, and none besides.

usage: sbom.py FILE.json [TARGET]
TARGET is the platform, by default this one. Needs cargo-cyclonedx, and of Python tests/requirements-image.txt. Exit code 1: it is not so.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "1.5"
"""The latest of CycloneDX that cargo-cyclonedx writes."""
TREE = ("cargo", "tree", "--locked", "--package", "lapwing", "--edges", "normal,build", "--prefix", "none", "--format", "{p}")


def output(*command, cwd=ROOT):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def built(target):
    """The crates from which cargo builds the command, and their versions."""
    return set(re.findall(r"^(\S+) v(\S+)", output(*TREE, "--target", target), re.MULTILINE))


def listed(target):
    """The bill of materials as cargo-cyclonedx writes it, with the date of SOURCE_DATE_EPOCH if that is set."""
    with tempfile.TemporaryDirectory() as folder:
        # a copy of the sources, as it writes a file beside each manifest
        for name in output("git", "ls-files", "-z", "Cargo.toml", "Cargo.lock", "build.rs", "src", "crates", "benches").split("\0")[:-1]:
            (to := pathlib.Path(folder, name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to)
        options = ("--format", "json", "--spec-version", VERSION, "--target", target, "--override-filename", "sbom")
        env = os.environ | {"RUSTUP_TOOLCHAIN": output("rustup", "show", "active-toolchain").split()[0]}
        subprocess.run(("cargo", "cyclonedx", "--quiet", *options), check=True, cwd=folder, env=env)
        # our crates' references have their path: as in the image's build, wherever this is
        return json.loads(pathlib.Path(folder, "sbom.json").read_text().replace(f"file://{folder}", "file:///src"))


def pruned(sbom, crates):
    """Drops what cargo does not build: optional dependencies whose features only tests or other members of the workspace ask for, which are
    in the metadata that cargo-cyclonedx reads."""
    sbom["components"] = [one for one in sbom["components"] if (one["name"], one["version"]) in crates]
    kept = {one["bom-ref"] for one in (sbom["metadata"]["component"], *sbom["components"])}
    sbom["dependencies"] = [
        one | ({"dependsOn": [ref for ref in one["dependsOn"] if ref in kept]} if "dependsOn" in one else {})
        for one in sbom["dependencies"]
        if one["ref"] in kept
    ]


def faults(sbom, crates):
    """Why it is not what it should be; `None` if it is."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    if invalid := JsonStrictValidator(SchemaVersion.from_version(VERSION)).validate_str(json.dumps(sbom)):
        return f"not CycloneDX {VERSION}: {invalid}"
    named = [sbom["metadata"]["component"], *sbom["components"]]
    if missing := sorted(crates - {(one["name"], one["version"]) for one in named}):
        return f"missing: {missing}"
    if unlicensed := sorted(one["name"] for one in named if not one.get("licenses")):
        return f"without a licence: {unlicensed}"
    return None


def main():
    arguments = sys.argv[1:]
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__.strip())
        raise SystemExit(0 if {"--help", "-h"} & set(arguments) else 2)
    target = arguments[1] if len(arguments) == 2 else re.search(r"host: (\S+)", output("rustc", "-vV"))[1]
    crates, sbom = built(target), listed(target)
    besides = len(sbom["components"])
    pruned(sbom, crates)
    besides -= len(sbom["components"])
    if why := faults(sbom, crates):
        raise SystemExit(why)
    pathlib.Path(arguments[0]).write_text(json.dumps(sbom, indent=1) + "\n")
    print(f"CycloneDX {VERSION}, valid: {len(crates)} crates, each with version and licence ({besides} dropped that cargo does not build)")


if __name__ == "__main__":
    main()
