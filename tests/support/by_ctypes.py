"""libaril.so for Python programs of tests/peers, through ctypes; run by the environment of peers where there is one."""
import ctypes as C
import os
import sys

build = os.environ["ARIL_BUILD_DIR"]
python = os.path.join(os.environ.get("ARIL_PEERS_VENV", os.path.join(build, "peers")), "bin", "python")
if os.path.exists(python) and sys.executable != python:
    os.execv(python, [python, *sys.argv])

lib = C.CDLL(os.path.join(build, "lib", "libaril.so"))
P, S, I = C.c_void_p, C.c_char_p, C.c_int


class Named(C.Structure):
    _fields_ = [("n", I), ("at", C.POINTER(P)), ("name", C.POINTER(S))]


def declare(name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


error = declare("aril_error", S)
