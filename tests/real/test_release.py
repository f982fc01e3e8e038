"""A release: what deploy/release makes of a build, and the workflows that call it, by actionlint and ShellCheck."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tomllib

import pytest
import yaml

from charts import tool

pytestmark = pytest.mark.beside
ROOT = pathlib.Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github/workflows"
RELEASE = ROOT / "deploy/release"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def run(*command, **kw):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False, **kw)


def actionlint(folder):
    """What it says of a folder's workflows, with ShellCheck on each of their scripts."""
    shellcheck = shutil.which("shellcheck") or pytest.skip("shellcheck is not installed: tests/run installs it")
    return run(tool("actionlint"), "-no-color", f"-shellcheck={shellcheck}", *sorted(folder.glob("*.yaml")), cwd=ROOT)


def test_the_workflows_are_sound():
    assert len(list(WORKFLOWS.glob("*.yaml"))) == 2
    said = actionlint(WORKFLOWS)
    assert (said.returncode, said.stdout) == (0, ""), said.stdout + said.stderr


@pytest.mark.parametrize(
    ("sound", "broken", "found"),
    [
        ("needs: [crates, build]", "needs: [crates, built]", 'job "draft" needs job "built" which does not exist'),
        ("${{ matrix.runner }}", "${{ matrix.machine }}", 'property "machine" is not defined'),
        ('docker push "$name"', "docker push $name", "SC2086"),
    ],
)
def test_a_fault_in_a_workflow_is_found(sound, broken, found, tmp_path):
    text = (WORKFLOWS / "release.yaml").read_text()
    assert sound in text
    (tmp_path / "release.yaml").write_text(text.replace(sound, broken))
    said = actionlint(tmp_path)
    assert said.returncode == 1 and found in said.stdout, said.stdout


def test_the_workflow_makes_every_part_of_a_release():
    parts = re.search(r"^PARTS=\((.*?)\)", RELEASE.read_text(), re.MULTILINE)[1].split()
    steps = [step.get("run", "") for job in yaml.safe_load((WORKFLOWS / "release.yaml").read_text())["jobs"].values() for step in job["steps"]]
    called = re.findall(r"deploy/release(?: --\w+ \S+)*((?: [a-z]+)+)", "\n".join(steps))
    assert sorted(part for parts in called for part in parts.split()) == sorted(parts)


def test_it_makes_a_command_a_chart_and_checksums(binary, tmp_path):
    # Helm is where tests/run installs it
    env = {**os.environ, "PATH": f"{pathlib.Path(tool('helm')).parent}:{os.environ['PATH']}"}
    # as that of the profile dist, without symbols
    stripped = tmp_path / "lapwing"
    assert run("strip", "-o", stripped, binary).returncode == 0
    made = []
    for folder in (tmp_path / "one", tmp_path / "again"):
        said = run(RELEASE, "--binary", stripped, "--out", folder, "checksums", "command", "chart", env=env)
        assert said.returncode == 0, said.stderr
        (archive,) = folder.glob(f"lapwing-{VERSION}-linux-*.tar.gz")
        assert {path.name for path in folder.iterdir()} == {archive.name, f"lapwing-{VERSION}.tgz", "SHA256SUMS"}
        checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
        assert checked.returncode == 0 and checked.stdout.count(": OK") == 2, checked.stdout
        made.append(archive)
    assert made[0].read_bytes() == made[1].read_bytes(), "the same binary gives the same archive"

    with tarfile.open(made[0]) as archive:
        assert archive.getnames() == ["LICENSE", "lapwing"] and {one.uid for one in archive} == {0}
        archive.extractall(tmp_path / "unpacked", filter="fully_trusted")
    assert run(tmp_path / "unpacked/lapwing", "--version").stdout == f"lapwing {VERSION}\n"
    chart = yaml.safe_load(run("helm", "show", "chart", tmp_path / f"one/lapwing-{VERSION}.tgz", env=env).stdout)
    assert (chart["name"], chart["version"], chart["appVersion"]) == ("lapwing", VERSION, VERSION)


@pytest.fixture
def repository(tmp_path):
    """One of its own, with what the script reads."""
    root = tmp_path / "repository"
    git = lambda *arguments: subprocess.run(["git", "-C", root, "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True, capture_output=True)
    for name in ("deploy/release", "Cargo.toml", "src/lib.rs", "CHANGELOG.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(RELEASE, root / "deploy/release")
    (root / "Cargo.toml").write_text('[package]\nname = "some"\nversion = "1.2.0"\nedition = "2024"\n[workspace]\n')
    (root / "Cargo.lock").write_text('version = 4\n\n[[package]]\nname = "some"\nversion = "1.2.0"\n')
    (root / "src/lib.rs").write_text("")
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-30\n\n- new\n\n## [1.1.0]\n\n- old\n")
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "some")
    return root, git


def test_a_tag_must_be_the_version(repository, tmp_path):
    root, git = repository
    git("tag", "v1.2.0")
    said = run(root / "deploy/release", "--out", tmp_path / "out", "notes")
    assert said.returncode == 0 and (tmp_path / "out/NOTES.md").read_text().strip() == "- new", said.stderr
    git("tag", "v1.3.0")
    said = run(root / "deploy/release", "--out", tmp_path / "out", "notes")
    assert said.returncode == 1 and "the tag v1.3.0, and Cargo.toml the version 1.2.0" in said.stderr, said.stderr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("## [Unreleased]\n\n- newer\n\n## [1.2.0]\n\n- new\n", "what is under [Unreleased] must be under [1.2.0]"),
        ("## [Unreleased]\n\n## [1.1.0]\n\n- old\n", "says nothing of 1.2.0"),
    ],
)
def test_notes_are_those_of_the_version_or_refused(repository, tmp_path, changes, why):
    root, _ = repository
    (root / "CHANGELOG.md").write_text(changes)
    said = run(root / "deploy/release", "--out", tmp_path / "out", "notes")
    assert said.returncode == 1 and why in said.stderr, said.stderr


def test_another_version_is_no_binary_of_the_release(tmp_path):
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho lapwing 0.0.1\n")
    other.chmod(0o755)
    said = run(RELEASE, "--binary", other, "--out", tmp_path / "out", "command")
    assert said.returncode == 1 and f"is lapwing 0.0.1, not lapwing {VERSION}" in said.stderr
    assert not list((tmp_path / "out").iterdir())
