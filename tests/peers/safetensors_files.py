"""Safetensors files: what Aril writes the safetensors package reads, and the other way round."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402

from by_ctypes import I, Named, P, S, declare, error  # noqa: E402

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

class Shape(C.Structure):
    _fields_ = [("ndim", I), ("dim", C.c_int64 * 8)]


class Device(C.Structure):
    _fields_ = [("kind", C.c_int16), ("index", C.c_int16)]


class Metadata(C.Structure):
    _fields_ = [("n", I), ("key", C.POINTER(S)), ("value", C.POINTER(S))]


from_memory = declare("aril_from", P, P, Shape, I, Device)
read = declare("aril_read", I, P, P)
save = declare("aril_safetensors_save", I, S, C.POINTER(Named), C.POINTER(Metadata))
open_file = declare("aril_safetensors_open", P, S)
close = declare("aril_safetensors_close", None, P)
count = declare("aril_safetensors_count", I, P)
find = declare("aril_safetensors_find", I, P, S)
dtype_of = declare("aril_safetensors_dtype", I, P, I)
shape_of = declare("aril_safetensors_shape", Shape, P, I)
tensor = declare("aril_safetensors_tensor", P, P, I)
get = declare("aril_safetensors_get", S, P, S)

# In the order of aril_dtype.
DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
          "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


def bits(t):
    return t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


values = {f"layer.{i}.{name}": (torch.arange(24).reshape(2, 3, 4) % 2 if name == "bool" else torch.arange(24).reshape(2, 3, 4))
          .to(torch.float32).to(getattr(torch, name)) for i, name in enumerate(DTYPES)}
values["scalar é"] = torch.tensor(0.5)
values["empty"] = torch.zeros(0, 3)
numbers = {name: DTYPES.index(str(t.dtype).removeprefix("torch.")) for name, t in values.items()}
with tempfile.TemporaryDirectory() as folder:
    theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
    save_file(values, theirs, metadata={"format": "pt", "é": "\"\n"})
    f = open_file(theirs.encode())
    assert f, error()
    assert count(f) == len(values)
    assert get(f, "é".encode()) == b"\"\n"
    for name, t in values.items():
        i = find(f, name.encode())
        assert i >= 0, name
        assert dtype_of(f, i) == numbers[name], name
        s = shape_of(f, i)
        assert list(s.dim)[: s.ndim] == list(t.shape), name
        buffer = C.create_string_buffer(max(t.numel() * t.element_size(), 1))
        assert read(tensor(f, i), buffer) == 0, error()
        assert buffer.raw[: t.numel() * t.element_size()] == bits(t), name
    close(f)

    at, names = (P * len(values))(), (S * len(values))()
    for i, (name, t) in enumerate(values.items()):
        s = Shape(t.dim(), (C.c_int64 * 8)(*t.shape))
        at[i], names[i] = from_memory(bits(t) or b"\0", s, numbers[name], Device(0, 0)), name.encode()
    keys, texts = (S * 2)(b"format", "é".encode()), (S * 2)(b"pt", b"\"\n\\")
    assert save(ours.encode(), Named(len(values), at, names), Metadata(2, keys, texts)) == 0, error()
    back = load_file(ours)
    assert set(back) == set(values)
    for name, t in values.items():
        assert back[name].dtype == t.dtype and back[name].shape == t.shape and bits(back[name]) == bits(t), name
    with safe_open(ours, "pt") as opened:
        assert opened.metadata() == {"format": "pt", "é": "\"\n\\"}, opened.metadata()
print(f"{len(values)} tensors of {len(DTYPES)} dtypes went both ways")
