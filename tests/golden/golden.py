"""Golden values: cases run by PyTorch, written to files that the C tests read.

A script of this folder describes one family of functions:

    from golden import *

    case("add/broadcast", "y[0] = aril_add(x[0], x[1]);", lambda x: x[0] + x[1],
         [randn(2, 3), randn(3)])

and `python tests/golden/FAMILY.py` writes FAMILY.inc (the C statements) and FAMILY.bin (inputs,
results, gradients); both are committed. The C statements read x[0], x[1], ... and set y[0], y[1],
...; the Python function takes the list of inputs and returns a tensor or a tuple of tensors. Each
result must have the same dtype, shape and values in both. Where a result depends on a floating
point input, the gradient of sum(y * w) is compared too, w being weights that both sides know.

Random inputs of a case depend only on their order since the case before and on its name, so that
writing the files again changes nothing.
"""
import atexit
import os
import re
import struct
import sys
import zlib

import torch
import torch.nn.functional as F  # for the scripts

__all__ = ["case", "prelude", "randn", "rand", "uniform", "randint", "randbool", "arange", "tensor",
           "apart", "torch", "F"]

DTYPES = {torch.bool: 0, torch.uint8: 1, torch.uint16: 2, torch.uint32: 3, torch.uint64: 4,
          torch.int8: 5, torch.int16: 6, torch.int32: 7, torch.int64: 8, torch.float16: 9,
          torch.bfloat16: 10, torch.float32: 11, torch.float64: 12}
TOLERANCE = {torch.float64: (1e-10, 1e-12), torch.float32: (1e-5, 1e-6),
             torch.float16: (2e-3, 1e-4), torch.bfloat16: (1.6e-2, 1e-3)}
ABSENT = 255
HAS_GRAD = 1

_generator = torch.Generator()
_cases = []
_preludes = []
_names = set()
_failed = False
_script = os.path.abspath(sys.argv[0])


def _reseed(name):
    _generator.manual_seed(zlib.crc32(name.encode()))


_reseed("")


def randn(*shape, dtype=torch.float32):
    """Normal values."""
    return torch.randn(shape, generator=_generator, dtype=torch.float64).to(dtype)


def rand(*shape, dtype=torch.float32):
    """Values from 0 to 1."""
    return torch.rand(shape, generator=_generator, dtype=torch.float64).to(dtype)


def uniform(low, high, *shape, dtype=torch.float32):
    """Values from low to high."""
    return (low + (high - low) * torch.rand(shape, generator=_generator,
                                            dtype=torch.float64)).to(dtype)


def randint(low, high, *shape, dtype=torch.int64):
    """Integers from low to high - 1."""
    return torch.randint(low, high, shape, generator=_generator).to(dtype)


def randbool(*shape):
    return torch.randint(0, 2, shape, generator=_generator).to(torch.bool)


def arange(*args, dtype=torch.float32):
    return torch.arange(*args, dtype=dtype)


def tensor(values, dtype=None):
    return torch.tensor(values, dtype=dtype)


def apart(*shape, dtype=torch.float32):
    """Different values in random order, at least 0.1 apart: for max, sort and the like."""
    n = 1
    for s in shape:
        n *= s
    order = torch.randperm(n, generator=_generator).to(torch.float64)
    return ((order - n / 2) * 0.13 + 0.05).reshape(shape).to(dtype)


def _weights(y, k):
    """The weights of result k; the C side computes the same."""
    i = torch.arange(y.numel(), dtype=torch.float64)
    return (((i * 37 + k * 11) % 19 - 9) / 8 + 0.0625).reshape(y.shape).to(y.dtype)


def case(name, c, fn, inputs, *, grad=True, dtype=None, rtol=None, atol=None):
    """Runs one case. `inputs` holds tensors, or None for an absent one. grad: True for the gradient
    of every floating point input, False for none, or a list of inputs. dtype: makes floating point
    inputs that. rtol, atol: tolerances, by default those of the narrowest dtype in sight."""
    if name in _names:
        raise ValueError(f"two cases are named {name}")
    _names.add(name)
    x = []
    for i, t in enumerate(inputs):
        if t is not None:
            t = t.detach().clone()
            if dtype is not None and t.is_floating_point():
                t = t.to(dtype)
            wanted = grad is True or (grad is not False and i in grad)
            if wanted and t.is_floating_point():
                t.requires_grad_()
        x.append(t)
    stored = [None if t is None else t.detach().clone() for t in x]
    y = fn(x)
    y = [y] if isinstance(y, torch.Tensor) else list(y)
    leaves = [t for t in x if t is not None and t.requires_grad]
    roots = [(t, _weights(t, k)) for k, t in enumerate(y) if t.requires_grad]
    grads = None
    if roots:
        got = torch.autograd.grad([t for t, _ in roots], leaves, [w for _, w in roots],
                                  allow_unused=True)
        got = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, got)]
        by_leaf = {id(t): g for t, g in zip(leaves, got)}
        grads = [None if t is None else by_leaf.get(id(t)) for t in x]
    floats = [t.dtype for t in stored + y if t is not None and t.is_floating_point()]
    narrow = max(floats or [torch.float32], key=lambda d: TOLERANCE[d][0])
    _cases.append({"name": name, "c": " ".join(c.split()), "x": stored,
                   "y": [t.detach() for t in y], "grads": grads,
                   "rtol": TOLERANCE[narrow][0] if rtol is None else rtol,
                   "atol": TOLERANCE[narrow][1] if atol is None else atol})
    _reseed(name)


def prelude(c):
    """C text before the cases: functions that their statements call."""
    _preludes.append(c.strip() + "\n")


def _packed(t):
    if t is None:
        return struct.pack("<BB2x", ABSENT, 0)
    t = t.contiguous()
    head = struct.pack("<BB2x", DTYPES[t.dtype], t.dim()) + struct.pack(f"<{t.dim()}i", *t.shape)
    raw = bytes(t.flatten().view(torch.uint8).tolist()) if t.numel() else b""
    return head + raw + b"\0" * (-len(raw) % 4)


def _write():
    if _failed or not _cases:
        return
    base = os.path.splitext(_script)[0]
    family = os.path.basename(base)
    if not re.fullmatch(r"\w+", family):
        raise ValueError(f"{family}: a family's name is a word")
    lines = [f"/* Written by {family}.py: do not edit. */\n"] + _preludes
    data = [b"ARILGOLD"]
    for c in _cases:
        flags = HAS_GRAD if c["grads"] is not None else 0
        lines.append(f'CASE("{c["name"]}", {len(c["x"])}, {len(c["y"])}, {c["rtol"]!r}, '
                     f'{c["atol"]!r}, {flags}, {{ {c["c"]} }})\n')
        body = b"".join(map(_packed, c["x"] + c["y"] + (c["grads"] or [])))
        name = c["name"].encode()
        name += b"\0" * (4 - len(name) % 4)
        data.append(struct.pack("<II", len(name), len(body)) + name + body)
    with open(base + ".inc", "w") as f:
        f.writelines(lines)
    with open(base + ".bin", "wb") as f:
        f.write(b"".join(data))
    size = sum(map(len, data)) + sum(map(len, lines))
    print(f"{family}: {len(_cases)} cases, {sum(c['grads'] is not None for c in _cases)} with "
          f"gradients, {size} bytes")


def _hook(*args):
    global _failed
    _failed = True
    sys.__excepthook__(*args)


sys.excepthook = _hook
atexit.register(_write)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
