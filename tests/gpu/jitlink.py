"""nvJitLink by ctypes: assembles the shipped PTX as a driver does when it loads it, with the ptxas of its own CUDA version."""

import ctypes
import pathlib

SUFFIX, NAME = "12_9", "libnvJitLink.so.12"  # the names of its functions end with the version
PTX_INPUT = 2  # NVJITLINK_INPUT_PTX


def library(where):
    """The library in a venv or a folder, or None."""
    path = pathlib.Path(where)
    found = sorted([*path.glob(NAME), *path.glob(f"lib/python3*/site-packages/nvidia/nvjitlink/lib/{NAME}")])
    return found[0].resolve() if found else None


class Linker:
    """One loaded library."""

    def __init__(self, where):
        self.lib = ctypes.CDLL(str(where))

    def call(self, name, *args):
        return getattr(self.lib, f"__nvJitLink{name}_{SUFFIX}")(*args)

    def assemble(self, name, ptx, arch):
        """(whether it was assembled, the log with the report of ptxas on each kernel)."""
        handle, log = ctypes.c_void_p(), ""
        options = (ctypes.c_char_p * 2)(f"-arch={arch}".encode(), b"-verbose")
        if code := self.call("Create", ctypes.byref(handle), 2, options):
            return False, f"nvJitLinkCreate: {code}"
        data = ptx.encode() + b"\0"
        failed = self.call("AddData", handle, PTX_INPUT, data, ctypes.c_size_t(len(data)), name.encode()) or self.call("Complete", handle)
        for kind in ("Error", "Info"):
            size = ctypes.c_size_t()
            self.call(f"Get{kind}LogSize", handle, ctypes.byref(size))
            text = ctypes.create_string_buffer(size.value + 1)
            self.call(f"Get{kind}Log", handle, text)
            log += text.value.decode(errors="replace")
        self.call("Destroy", ctypes.byref(handle))
        return not failed, log
