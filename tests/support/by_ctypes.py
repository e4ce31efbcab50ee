"""libaril.so for Python programs of tests/peers, through ctypes; run by the environment of peers where there is one.

`declare` names a function with its C types. `api.add(a, b)` calls aril_add with arguments whose C types follow from their Python
types: Tensor, None (NULL), bool, int (int or int64_t), float (double), bytes (char *), Out (aril_tensor **), or a structure.
"""
import ctypes as C
import os
import sys

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
build = os.environ.get("ARIL_BUILD_DIR", os.path.join(root, "build"))
python = os.path.join(os.environ.get("ARIL_PEERS_VENV", os.path.join(build, "peers")), "bin", "python")
if os.path.exists(python) and sys.executable != python:
    os.execv(python, [python, *sys.argv])

named_device = os.environ.get("ARIL_TEST_DEVICE", "")  # "strict": that of tests/plugin/strict.c, which is in a library of the tests
lib = C.CDLL(os.path.join(build, *(("tests", "libaril_strict.so") if named_device else ("lib", "libaril.so"))))
P, S, I, I64, F64, B = C.c_void_p, C.c_char_p, C.c_int, C.c_int64, C.c_double, C.c_bool
ZERO = -(2 ** 31)  # ARIL_ZERO
END = 2 ** 63 - 1  # ARIL_END


def declare(name, result, *arguments):
    function = getattr(lib, name)
    function.restype, function.argtypes = result, arguments
    return function


error = declare("aril_error", S)


class Named(C.Structure):
    _fields_ = [("n", I), ("at", C.POINTER(P)), ("name", C.POINTER(S))]


# ---- Tensors and structures ----------------------------------------------------------------------


class Tensor:
    """A pointer to an aril_tensor, owned by a scope of the library."""

    def __init__(self, address):
        self.address = address


class Out:
    """Room for a result that a function gives through a pointer."""

    def __init__(self, n=1):
        self.at = (P * n)()

    def __getitem__(self, i):
        return Tensor(self.at[i])

    @property
    def tensor(self):
        return self[0]


class Options(C.Structure):
    """A structure whose fields are given by name: arrays as tuples, tensors as they are; what is not named is 0."""

    def __init__(self, **fields):
        super().__init__()
        kinds = dict(self._fields_)
        for name, value in fields.items():
            if isinstance(value, Tensor):
                value = value.address
            elif isinstance(value, (tuple, list)):
                value = kinds[name](*value)
            setattr(self, name, value)


def options(name, *fields):
    """A kind of Options. Fields are (type, "name name ...")."""
    return type(name, (Options,), {"_fields_": [(n, kind) for kind, names in fields for n in names.split()]})


Device = options("Device", (C.c_int16, "kind index"))
Guard = options("Guard", (C.c_uint32, "depth"))
ShapeOf, AxesOf = options("Shape", (I, "ndim"), (I64 * 8, "dim")), options("Axes", (I, "n"), (B, "keepdim"), (I * 8, "axis"))
ListOf, PadsOf = options("List", (I, "n"), (C.POINTER(P), "at")), options("Pads", (I, "n"), (I64 * 16, "at"))
NumberOf = options("Number", (F64, "f"), (I64, "i"), (B, "is_float"))
Item = options("Item", (I, "kind"), (I64, "start stop step"), (P, "by"))
ItemsOf = options("Items", (I, "n"), (C.POINTER(Item), "at"))
DEVICE = Device()  # the CPU, or what use_device chose


def use_device():
    """Makes the device of ARIL_TEST_DEVICE the one of all tensors. Devices have threads: call it behind a fork, not before."""
    if named_device:
        chosen = declare("test_device", Device)()
        DEVICE.kind, DEVICE.index = chosen.kind, chosen.index


def shape(sizes):
    return ShapeOf(ndim=len(sizes), dim=tuple(sizes)[:8])


def axes(*which, keepdim=False):
    return AxesOf(n=len(which), keepdim=keepdim, axis=which[:8])


def tensors(which):
    """aril_list of tensors; None stands for NULL."""
    at = (P * max(1, len(which)))(*[t.address if t else None for t in which])
    return ListOf(n=len(which), at=C.cast(at, C.POINTER(P)))


def number(value):
    """aril_number of a Python number."""
    if isinstance(value, float):
        return NumberOf(f=value, is_float=True)
    return NumberOf(f=float(value), i=int(value))


def pads(at):
    return PadsOf(n=len(at), at=tuple(at))


def items(which):
    at = (Item * max(1, len(which)))(*which)
    return ItemsOf(n=len(which), at=C.cast(at, C.POINTER(Item)))


def _argument(value):
    if value is None:
        return P(None)
    if isinstance(value, Tensor):
        return P(value.address)
    if isinstance(value, Out):
        return value.at
    for python_type, c_type in ((bool, B), (int, I64), (float, F64), (bytes, S)):
        if isinstance(value, python_type):
            return c_type(value)
    return value


class Api:
    """Functions of the library by their names without aril_. Results are tensors, but for those of `status`."""

    called = set()

    def __getattr__(self, name):
        function = lib["aril_" + name]
        function.restype = P

        def call(*arguments):
            self.called.add(name)
            return Tensor(function(*map(_argument, arguments)))

        setattr(self, name, call)
        return call

    def __getitem__(self, name):
        """For names that are in a variable, or a word of Python."""
        return getattr(self, name)

    def status(self, name, *arguments):
        """Calls a function that returns aril_status."""
        self.called.add(name)
        function = lib["aril_" + name]
        function.restype = I
        return function(*map(_argument, arguments))


api = Api()
