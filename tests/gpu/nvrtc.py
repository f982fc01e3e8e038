"""NVRTC by ctypes: finds libnvrtc in a venv, compiles one source to PTX or a cubin, and returns the log.

A process can load only one version, because both are named libnvrtc.so.12. compile.py has separate processes for each version.
"""

import argparse
import ctypes
import pathlib

SOURCE_OPTIONS = [
    "--std=c++17",
    "-default-device",  # helpers need no __device__, so that the host shim compiles the same text
    "--fmad=true",  # FFMA: a product and a sum with one rounding
    "--ftz=false",  # this and the following are the defaults, without fast math; stated explicitly
    "--prec-div=true",
    "--prec-sqrt=true",
]
# No --restrict: it has no effect on pointers in structs, and kernels may work in place (x and y the same memory).


class CompileError(Exception):
    """NVRTC's error message and log."""


def library(where):
    """The libnvrtc.so.12 in a venv or a folder, or `where` itself if it is a file; None if there is none."""
    path = pathlib.Path(where)
    if path.is_file():
        return path
    found = sorted([*path.glob("libnvrtc.so.12"), *path.glob("lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")])
    return found[0].resolve() if found else None


class Nvrtc:
    """One loaded version."""

    def __init__(self, where):
        self.lib = ctypes.CDLL(str(library(where)))
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise CompileError(f"{name}: {self.lib.nvrtcGetErrorString(code).decode()}")

    def text(self, program, what):
        """The result of `nvrtcGet{what}` for a program, as bytes."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, made)
        return made.raw

    def compile(self, name, source, arch, options=()):
        """(PTX as bytes, cubin as bytes, log); `arch` is like `compute_80` (then the cubin is empty) or `sm_90`."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            given = [o.encode() for o in (f"--gpu-architecture={arch}", *SOURCE_OPTIONS, *options)]
            code = self.lib.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
            log = self.text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if code:
                why = self.lib.nvrtcGetErrorString(code).decode()
                raise CompileError(f"{name} for {arch} by NVRTC {self.version}: {why}\n{log.strip()}")
            ptx = self.text(program, "PTX").rstrip(b"\0")
            return ptx, self.text(program, "CUBIN") if arch.startswith("sm_") else b"", log
        finally:
            self.lib.nvrtcDestroyProgram(ctypes.byref(program))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", metavar="WHERE", help="a venv, a folder that contains the library, or the library: prints its version")
    print(Nvrtc(parser.parse_args().where).version)
