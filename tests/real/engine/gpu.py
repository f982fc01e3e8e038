"""Drivers that are none, for tests of models on a GPU: the emulated device, and drivers that do not start (tests/gpu)."""

import ctypes
import fcntl
import pathlib
import subprocess

import numpy as np

from engine.reference import cosines

ROOT = pathlib.Path(__file__).parents[3]
LIMITS = {"fp32": (1e-5, None), "tf32": (2e-3, None), "fp16": (5e-3, 0.9995), "int8": (None, 0.98)}
"""By precision: |y - r| is at most the limit and the limit of |r|, and no row's cosine is less."""


def share(y, r, precision, by_greatest=False):
    """By how much the worst element or row is off, as a share of what is allowed.

    `by_greatest`: in tf32 and fp16, |r| is that of the output's greatest element: of products that are rounded, a sum in which they cancel
    each other out is as far off as they are.
    """
    if (y.shape, y.dtype) != (r.shape, r.dtype) or not np.isfinite(y).all():
        return np.inf
    limit, least = LIMITS[precision]
    y, r, worst = y.astype(np.float64), r.astype(np.float64), 0.0
    if limit:
        size = np.abs(r).max(initial=0) if by_greatest and precision in ("tf32", "fp16") else np.abs(r)
        worst = (np.abs(y - r) / (limit + limit * size)).max(initial=0)
    if least and y.size > 1:
        # of single numbers: over the rows
        across = cosines(y, r) if y.shape[-1] > 1 else cosines(y.T, r.T)
        worst = max(worst, ((1 - across) / (1 - least)).max())
    return float(worst)


def has_driver():
    """Whether this machine has a driver of its own."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def built(binary, otherwise):
    """The folder with libcuda.so.1, libcublasLt.so.12, stub-*/libcuda.so.1 and check: where cargo's tests have it too, or `otherwise`."""
    target = pathlib.Path(binary).resolve().parents[1]
    folder = target / "tmp/gpu" if (target / "tmp").is_dir() else otherwise
    folder.mkdir(exist_ok=True)
    # of tests that run beside others, one makes it
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for where, targets in (("tests/gpu", ["fake", "check", "stubs"]), ("tests/gpu/fake-cublaslt", [])):
            made = subprocess.run(["make", "-s", "-j2", "-C", str(ROOT / where), f"BUILD={folder}", *targets], capture_output=True, text=True)
            assert made.returncode == 0, made.stderr
    return folder
