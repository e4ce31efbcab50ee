"""Writes cases.inc: tensors as PyTorch prints them, with Aril's names for dtypes and ops.

    python tests/print/cases.py

Each case is a C expression and a Python expression for the same tensor.
"""
import os
import re

import torch

NAMES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int16": "i16",
         "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
         "int64": "i64", "bool": "bool"}
cases = []


def c_type(dtype):
    return "ARIL_" + NAMES[str(dtype).split(".")[1]].upper()


def c_number(v):
    if v != v:
        return "NAN"
    if v in (float("inf"), float("-inf")):
        return "INFINITY" if v > 0 else "-INFINITY"
    return "INT64_MIN" if v == -2**63 else repr(v)


def short(v):
    return NAMES[str(v).split(".")[1]] if isinstance(v, torch.dtype) else str(v)


torch._tensor_str.str = short  # where lines are broken depends on the names


def show(t):
    text = str(t)
    return re.sub(r"grad_fn=<(\w+?)Backward\d+>", lambda m: f"grad_fn=<{m[1].lower()}>", text)


def case(c, t):
    cases.append((c, show(t)))


def values(data, dtype=torch.float32):
    """A tensor of given numbers, cast from f64 (or i64)."""
    t = torch.tensor(data, dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    flat = t.flatten().tolist()
    shape = "ARIL_SHAPE(" + ", ".join(map(str, t.shape)) + ")"
    kind = "double" if dtype.is_floating_point else "int64_t"
    wide = "ARIL_F64" if dtype.is_floating_point else "ARIL_I64"
    numbers = ", ".join(map(c_number, flat)) or "0"
    case(f"aril_cast(aril_from((const {kind}[]){{{numbers}}}, {shape}, {wide}, aril_cpu()), "
         f"{c_type(dtype)})", t.to(dtype))


def steps(n, shape, scale=1.0, offset=0.0, dtype=torch.float32):
    """offset + i * scale in a shape."""
    t = (torch.arange(n, dtype=torch.float64) * scale + offset).to(dtype).reshape(shape)
    c_shape = "ARIL_SHAPE(" + ", ".join(map(str, shape)) + ")"
    case(f"aril_reshape(aril_cast(aril_add_scalar(aril_mul_scalar(aril_arange(0, {n}, 1, ARIL_F64, "
         f"aril_cpu()), {scale!r}), {offset!r}), {c_type(dtype)}), {c_shape})", t)


inf, nan = float("inf"), float("nan")
values(3.5)
values(-2.0)
values(7, torch.int64)
values(1, torch.bool)
values([1.0, 2.0, 3.0])
values([0.5, -1.25, 3.0])
values([0.0, 0.0])
values([-0.0, 0.0])
values([1.0, nan, inf, -inf])
values([1.5, nan, inf, -inf])
values([nan, nan])
values([inf, -inf, 0.0])
values([1e-5, 1.0])
values([1e-4, 1e-4])
values([1.0, 1000.0, 1001.0])
values([0.001, 1.0, 1.001])
values([100000000.0, 99999999.0], torch.float64)
values([100000001.0, 100000002.0], torch.float64)
values([1e10, -2.5e-7, 3.0, 0.0, inf])
values([123456.789, 234567.891], torch.float64)
values([1.0, 2.0], torch.float16)
values([0.1, 0.2], torch.bfloat16)
values([0.1, 0.2, 65504.0], torch.float16)
values([1, -22, 333], torch.int32)
values([0, 255], torch.uint8)
values([-128, 127], torch.int8)
values([9223372036854775807, -9223372036854775808], torch.int64)
values([1, 0, 1], torch.bool)
values([[1, 1], [1, 1]], torch.bool)
values([[1.0, 2.0], [3.0, 4.0]])
values([[0.25, -100.5], [3.125, 44.0]], torch.float64)
values([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], torch.int64)
values([[[[1.5]]], [[[2.5]]]])
values([[1.0], [20.0], [300.0]])
values([1e-45, 1.0])
values([5e-324, 1.7e308], torch.float64)
steps(30, (30,))
steps(30, (30,), 0.1)
steps(30, (3, 10), 0.37, -3)
steps(40, (2, 20), 1234.5, 0.0, torch.float64)
steps(24, (2, 3, 4), 0.5)
steps(16, (2, 2, 2, 2))
case("aril_zeros(ARIL_SHAPE(1000), ARIL_I64, aril_cpu())", torch.zeros(1000, dtype=torch.int64))
steps(1001, (1001,))
steps(1001, (1001,), 0.5, -10)
steps(1200, (30, 40))
steps(1200, (400, 3), 0.25)
steps(1200, (3, 400), -0.25)
steps(2000, (2, 10, 100))
steps(2400, (10, 4, 60), 1.0, 0.0, torch.int64)
steps(4000, (20, 20, 10), 1.0, 0.0, torch.int32)
steps(1500, (1500,), 1e-3, 1e-3, torch.float64)
steps(30, (2, 15), 1.0, 0.0, torch.float16)
case("aril_zeros(ARIL_SHAPE(0), ARIL_F32, aril_cpu())", torch.zeros(0))
case("aril_zeros(ARIL_SHAPE(0, 3), ARIL_F32, aril_cpu())", torch.zeros(0, 3))
case("aril_zeros(ARIL_SHAPE(0), ARIL_I64, aril_cpu())", torch.zeros(0, dtype=torch.int64))
case("aril_zeros(ARIL_SHAPE(2, 0, 3), ARIL_F64, aril_cpu())",
     torch.zeros(2, 0, 3, dtype=torch.float64))
case("aril_zeros(ARIL_SHAPE(3, 0), ARIL_BOOL, aril_cpu())", torch.zeros(3, 0, dtype=torch.bool))
case("aril_t(aril_reshape(aril_arange(0, 6, 1, ARIL_F32, aril_cpu()), ARIL_SHAPE(2, 3)))",
     torch.arange(6.0).reshape(2, 3).t())
case("aril_flip(aril_arange(0, 5, 1, ARIL_I64, aril_cpu()), ARIL_ALL)", torch.arange(5).flip(0))
case("aril_expand(aril_arange(0, 3, 1, ARIL_F32, aril_cpu()), ARIL_SHAPE(2, 3))",
     torch.arange(3.0).expand(2, 3))
leaf = torch.ones(2, requires_grad=True)
case("wanted(ARIL_SHAPE(2), ARIL_F32)", leaf)
case("aril_tanh(wanted(ARIL_SHAPE(2), ARIL_F32))", leaf.tanh())
case("aril_exp(wanted(ARIL_SHAPE(2), ARIL_F64))",
     torch.ones(2, dtype=torch.float64, requires_grad=True).exp())
case("wanted(ARIL_SHAPE(10), ARIL_F64)", torch.ones(10, dtype=torch.float64, requires_grad=True))
case("wanted(ARIL_SHAPE(14), ARIL_F64)", torch.ones(14, dtype=torch.float64, requires_grad=True))
case("wanted(ARIL_SHAPE(18), ARIL_F64)", torch.ones(18, dtype=torch.float64, requires_grad=True))
case("wanted(ARIL_SHAPE(19), ARIL_F16)", torch.ones(19, dtype=torch.float16, requires_grad=True))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.inc"), "w") as f:
    f.write("/* Written by cases.py: do not edit. */\n")
    for c, text in cases:
        lines = text.replace("\\", "\\\\").replace('"', '\\"').split("\n")
        f.write("CASE(" + "\n     ".join(f'"{line}\\n"' for line in lines[:-1]))
        f.write(("\n     " if len(lines) > 1 else "") + f'"{lines[-1]}",\n     {c})\n')
print(f"{len(cases)} cases")
