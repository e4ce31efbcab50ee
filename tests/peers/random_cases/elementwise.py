"""Elementwise functions: aril/math.h, and the making and casting of aril/create.h."""
import math

import torch
import torch.nn.functional as F
from by_ctypes import B, DEVICE, END, F64, P, ZERO, api, axes, declare, number, options, shape

from .engine import ANY, DTYPES, FLOATS, INTS, WHOLE, WIDE_FLOATS, Call, plain, row

T = torch

# ---- One operand: PyTorch's function, and the domain of inputs where it is not every number -----------

REAL = {
    "reciprocal": T.reciprocal, "square": T.square, "sqrt": (T.sqrt, "positive"), "rsqrt": (T.rsqrt, "positive"), "exp": T.exp,
    "expm1": T.expm1, "exp2": T.exp2, "log": (T.log, "positive"), "log1p": (T.log1p, "positive"), "log2": (T.log2, "positive"),
    "log10": (T.log10, "positive"), "sin": T.sin, "cos": T.cos, "tan": T.tan, "asin": (T.asin, "inner"), "acos": (T.acos, "inner"),
    "atan": T.atan, "sinh": T.sinh, "cosh": T.cosh, "tanh": T.tanh, "asinh": T.asinh, "acosh": (T.acosh, "above1"),
    "atanh": (T.atanh, "inner"), "erf": T.erf, "erfc": T.erfc, "sigmoid": T.sigmoid, "logit": (T.logit, "unit"),
    "erfinv": (T.erfinv, "inner"), "lgamma": (T.lgamma, "positive"), "digamma": (T.digamma, "positive"),
    "trigamma": (lambda x: T.special.zeta(T.tensor(2, dtype=x.dtype), x), "positive"),  # PyTorch's polygamma(1, x) holds 9 digits
}
KEPT = {"neg": T.neg, "abs": T.abs, "sign": T.sign, "floor": T.floor, "ceil": T.ceil, "round": T.round, "trunc": T.trunc}
TESTS = {"isnan": T.isnan, "isinf": T.isinf, "isfinite": T.isfinite, "logical_not": T.logical_not, "signbit": T.signbit}
ACTIVATIONS = {
    "frac": T.frac, "logsigmoid": F.logsigmoid, "relu": F.relu, "relu6": F.relu6, "selu": F.selu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "softsign": F.softsign,
    "hardsigmoid": lambda x: hardsigmoid(x), "hardswish": F.hardswish, "tanhshrink": F.tanhshrink,
}


def hardsigmoid(x):
    """By its formula, as PyTorch's gradient takes 1/6 in f32."""
    return T.where(x <= -3, 0, T.where(x >= 3, 1, x / 6 + 0.5)).to(x.dtype)


# Formulas that cancel: the last digits are those of larger numbers met on the way.
CANCEL = ("gelu", "gelu_tanh", "tanhshrink", "hardsigmoid", "hardswish", "mish", "silu", "logit", "frac", "digamma",
          "trigamma")


def unary(names, dtypes, in_place=True):
    def one(d, name):
        inside = name.endswith("_")
        function = names[name.rstrip("_")]
        function, domain = function if isinstance(function, tuple) else (function, "any")
        x = d.tensor(FLOATS if inside else dtypes, domain="any" if d.chance(0.2) else domain)
        base = name.rstrip("_")
        kinds = dict(exact=base not in CANCEL, grad=base != "digamma", zeros=names is REAL or names is KEPT, second=base not in ("selu", "lgamma") or base == "selu" and not (x.value == 0).any())
        if inside:
            return Call([x], lambda x: api[name](api.copy(x)), lambda x: x.clone().copy_(function(x)), **kinds)
        return Call([x], lambda x: api[name](x), function, **kinds)

    row(*names, *[n + "_" for n in names if in_place and n != "tanhshrink"])(one)


unary(REAL, ANY)
unary(KEPT, ANY)
unary(TESTS, ANY, in_place=False)
unary(ACTIVATIONS, FLOATS)


@row("bitwise_not")
def bitwise_not(d, name):
    return Call([d.tensor(WHOLE)], api.bitwise_not, T.bitwise_not, exact=True)


def parametric(name, theirs, *draws):
    """An activation with numbers, each drawn from some."""
    def one(d, name):
        x = d.tensor(FLOATS)
        numbers = [d.float(*among) for among in draws]
        kink = {"softplus": lambda: numbers[1] / numbers[0]}.get(name, lambda: 0)()  # where the second derivative jumps
        smooth = not (x.value == kink).any()
        if name.endswith("_"):
            return Call([x], lambda x: api[name](api.copy(x), *numbers), lambda x: x.clone().copy_(theirs(x, *numbers)), exact=True,
                        second=smooth, numbers=numbers)
        return Call([x], lambda x: api[name](x, *numbers), lambda x: theirs(x, *numbers), exact=True, second=smooth, numbers=numbers)

    row(name, *([name + "_"] if name in ("leaky_relu", "elu", "celu", "hardtanh") else []))(one)


parametric("leaky_relu", F.leaky_relu, (0.01, 0.2, 0, 1.5))
parametric("elu", F.elu, (1, 0.5, 2))
parametric("celu", F.celu, (1, 0.5, 2))
parametric("softplus", F.softplus, (1, 0.5, 2, 10), (20, 5, 1))
parametric("hardtanh", F.hardtanh, (-1, -2, -0.5), (1, 0.5, 2))
parametric("softshrink", F.softshrink, (0.5, 0, 1))
parametric("hardshrink", F.hardshrink, (0.5, 0, 1))
parametric("threshold", F.threshold, (0, 1, -0.5), (0, 2, -20))
parametric("nan_to_num", T.nan_to_num, (0, 1.5), (10, 3), (-10, 0))


@row("logit_eps")
def logit_eps(d, name):
    x, eps = d.tensor(FLOATS, domain="unit"), d.float(1e-2, 1e-3, 0.2)
    return Call([x], lambda x: api.logit_eps(x, eps), lambda x: T.logit(x, eps), exact=True, eps=eps)


# ---- Two operands, in four forms: tensor, number, and both in place -----------------------------------

ARITHMETIC = {"add": T.add, "sub": T.sub, "mul": T.mul, "div": T.div, "maximum": T.maximum, "minimum": T.minimum}
DIVISION = {"floor_div": T.floor_divide, "remainder": T.remainder, "fmod": T.fmod}
REAL2 = {"atan2": T.atan2, "hypot": T.hypot, "logaddexp": T.logaddexp, "xlogy": T.xlogy, "pow": T.pow}
COMPARE = {"eq": T.eq, "ne": T.ne, "lt": T.lt, "le": T.le, "gt": T.gt, "ge": T.ge, "logical_and": T.logical_and,
           "logical_or": T.logical_or, "logical_xor": T.logical_xor}
BITS = {"bitwise_and": T.bitwise_and, "bitwise_or": T.bitwise_or, "bitwise_xor": T.bitwise_xor}
SHIFTS = {"shift_left": T.bitwise_left_shift, "shift_right": T.bitwise_right_shift}


def binary(names, dtypes, domains=("any", "any"), in_place=True, second=True):
    def one(d, name):
        base, tail = (name[:-1], True) if name.endswith("_") else (name, False)
        base, scalar = (base.removesuffix("_scalar"), base.endswith("_scalar"))
        function = names[base]
        a = d.tensor(dtypes, domain=domains[0])
        smooth = second and (base != "pow" or bool((a.value.abs() > 1e-3).all()))  # powers of 0 have second derivatives in one formula alone
        domain = (0, 7) if base in SHIFTS else domains[1]
        if scalar:
            value = d.pick(0, 1, 2, 3, 5) if base in SHIFTS or base in BITS else d.pick(1, 2, 3, -1, 0, 0.5, 2.5, -1.5)
            if names in (ARITHMETIC, REAL2) and d.chance(0.3):
                value = d.pick(0.3, 1.7, -0.7, 1e-3)  # which f32 does not hold
            if d.chance(0.2) and (a.value.dtype.is_floating_point or base in ("add", "sub", "mul")) and base not in BITS:
                value = d.pick(300, -129, 2 ** 31, -(2 ** 40) - 1, 2 ** 62 + 1, -(2 ** 63), 2 ** 63 - 1, float(2 ** 63), math.nan, math.inf,
                               -math.inf, -0.0, 1e-40, 65520.0, 3.4e38)
            elif a.value.dtype == T.uint8:
                value = abs(value)  # PyTorch wraps a negative number before it compares
            inputs, ours = [a], lambda a: (number(value),)
            # A number has no dtype of its own: the f64 reference has to see what the call's dtype makes of it.
            theirs = lambda a: function(a, scalar_like(a, value, function))
            attributes = {"number": value}
        else:
            b = d.tensor(dtypes, sizes=d.broadcast(a.value.shape), domain=domain, free=not tail and d.chance(0.15))
            if not tail and d.chance(0.5):
                a, b = b, a
            inputs, ours, theirs, attributes = [a, b], lambda a, b: (b,), function, {}
        if tail:
            return Call(inputs, lambda a, *b: api[name](api.copy(a), *ours(a, *b)), lambda a, *b: write(a, theirs(a, *b)), exact=True,
                        second=smooth, **attributes)
        return Call(inputs, lambda a, *b: api[name](a, *ours(a, *b)), theirs, exact=True, zeros=base in ("add", "sub", "mul", "div"),
                    second=smooth, **attributes)

    row(*[n + s for n in names for s in ("", "_scalar", *(("_", "_scalar_") if in_place else ()))])(one)


def scalar_like(a, value, function):
    """What PyTorch takes for a number where it has no form with one."""
    if function in (T.maximum, T.minimum, T.fmax, T.fmin, T.atan2, T.hypot, T.logaddexp, T.logical_and, T.logical_or, T.logical_xor):
        return T.tensor(value, dtype=T.result_type(a, value))
    return value


def write(a, result):
    """In place: the result has to fit a's shape and, as PyTorch's rule has it, its kind of dtype."""
    if result.shape != a.shape:
        raise RuntimeError("output with shape doesn't match the broadcast shape")
    if not T.can_cast(result.dtype, a.dtype):
        raise RuntimeError("result type can't be cast to the desired output type")
    return a.clone().copy_(result)


binary(ARITHMETIC, ANY)
binary(DIVISION, ANY)
binary({"fmax": T.fmax, "fmin": T.fmin, "copysign": T.copysign}, ANY)
binary(REAL2, FLOATS, ("positive", "positive"))
binary(COMPARE, ANY, in_place=False)
binary(BITS, WHOLE)
binary(SHIFTS, INTS)


@row("prelu", "prelu_", "prelu_scalar", "prelu_scalar_")
def prelu(d, name):
    a = d.tensor(FLOATS)
    theirs = lambda a, b: T.where(a > 0, a, b * T.where(a > 0, 0, a))
    if "scalar" in name:
        value = d.float(0.25, 0, 1.5)
        theirs_scalar = lambda a: T.where(a > 0, a, a * value)
        copy = api.copy if name.endswith("_") else lambda a: a
        return Call([a], lambda a: api[name](copy(a), number(value)), theirs_scalar, exact=True, number=value)
    b = d.tensor(FLOATS, sizes=d.broadcast(a.value.shape))
    if name.endswith("_"):
        return Call([a, b], lambda a, b: api.prelu_(api.copy(a), b), lambda a, b: write(a, theirs(a, b)), exact=True)
    return Call([a, b], api.prelu, theirs, exact=True)


@row("rsub_scalar", "rdiv_scalar")
def reversed_scalar(d, name):
    a, value = d.tensor(ANY), d.pick(1, 2, -3, 0.5, 0)
    theirs = (lambda a: T.rsub(a, value)) if name == "rsub_scalar" else lambda a: value / a
    return Call([a], lambda a: api[name](a, number(value)), theirs, exact=True, number=value)


@row("polygamma")
def polygamma(d, name):
    x, n = d.tensor(FLOATS, domain=d.pick("positive", "positive", "any")), d.random.randint(-1 if d.wrong else 0, 4)
    return Call([x], lambda x: api.polygamma(n, x), lambda x: REAL["trigamma"][0](x) if n == 1 else T.polygamma(n, x), grad=n > 0, n=n)


@row("zeta", "zeta_", "zeta_scalar", "zeta_scalar_")
def zeta(d, name):
    """PyTorch has no gradient by the exponent, and Aril none that it would compare."""
    s = d.tensor(FLOATS, domain="above1", grad=False)
    copy = api.copy if name.endswith("_") else lambda t: t
    if "scalar" in name:
        value = d.float(1, 2.5, 0.25)
        return Call([s], lambda s: api[name](copy(s), number(value)), lambda s: T.special.zeta(s, value), exact=True, number=value)
    q = d.tensor(FLOATS, sizes=d.broadcast(s.value.shape), domain="positive", grad=s.value.dtype in WIDE_FLOATS)
    inside = name.endswith("_")
    return Call([s, q], lambda s, q: api[name](copy(s), q), lambda s, q: write(s, T.special.zeta(s, q)) if inside else T.special.zeta(s, q),
                exact=True)


CloseOptions = options("CloseOptions", (F64, "rtol atol"), (B, "equal_nan"))
allclose, equal = declare("aril_allclose", B, P, P, CloseOptions), declare("aril_equal", B, P, P)


@row("isclose", "allclose", "equal")
def closeness(d, name):
    a = d.tensor(ANY, grad=False)
    b = d.tensor((a.value.dtype,), sizes=a.value.shape if name == "equal" or d.chance(0.5) else d.broadcast(a.value.shape), grad=False)
    if b.value.shape == a.value.shape and d.chance(0.7):
        b.value = a.value * (1 + d.pick(0, 1e-6, 1e-4)) if a.value.is_floating_point() else a.value.clone()
        b.value, b.layout = b.value.to(a.value.dtype), ("contiguous",)
    rtol, atol, same = d.pick(0, 1e-5, 1e-3), d.pick(0, 1e-8, 0.01), d.chance(0.3)
    how = CloseOptions(rtol=rtol or ZERO, atol=atol or ZERO, equal_nan=same)
    said = lambda yes: plain(T.tensor(bool(yes)))
    ours, theirs = {
        "isclose": (lambda a, b: api.isclose(a, b, how), lambda a, b: T.isclose(a, b, rtol, atol, same)),
        "allclose": (lambda a, b: said(allclose(a.address, b.address, how)), lambda a, b: T.tensor(T.allclose(a, b, rtol, atol, same))),
        "equal": (lambda a, b: said(equal(a.address, b.address)), lambda a, b: T.tensor(T.equal(a, b))),
    }[name]
    if a.value.dtype in (T.float16, T.bfloat16):
        return None  # PyTorch in f64 has other neighbors
    return Call([a, b], ours, theirs, rtol=rtol, atol=atol, equal_nan=same)


# ---- Three operands -----------------------------------------------------------------------------------


@row("where")
def where(d, name):
    a = d.tensor(ANY)
    b = d.tensor(ANY, sizes=d.broadcast(a.value.shape), free=d.chance(0.2))
    c = d.tensor((T.bool,), sizes=d.broadcast(a.value.shape), free=True)
    return Call([c, a, b], api.where, T.where, exact=True)


@row("lerp", "lerp_")
def lerp(d, name):
    a = d.tensor(FLOATS)
    b, w = (d.tensor(FLOATS, sizes=d.broadcast(a.value.shape)) for _ in range(2))
    if name == "lerp_":
        return Call([a, b, w], lambda a, b, w: api.lerp_(api.copy(a), b, w), lambda a, b, w: write(a, T.lerp(a, b, w)))
    return Call([a, b, w], api.lerp, T.lerp)


@row("clamp", "clamp_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_")
def clamp(d, name):
    a, base = d.tensor(FLOATS if name.endswith("_") else FLOATS + INTS), name.rstrip("_")
    whole = not a.value.is_floating_point()
    low, high = (d.pick(-2 if a.value.dtype != T.uint8 else 2, 0, 1, 3) if whole else d.pick(-1.5, 0, 0.5, -1, 1) for _ in range(2))
    numbers = [low, high] if base == "clamp" else [low]
    theirs = {"clamp": lambda a: T.clamp(a, low, high), "clamp_min": lambda a: T.clamp_min(a, low),
              "clamp_max": lambda a: T.clamp_max(a, low)}[base]
    copy = api.copy if name.endswith("_") else lambda a: a
    return Call([a], lambda a: api[name](copy(a), *map(number, numbers)), theirs, exact=True, numbers=numbers)


@row("clamp_tensor")
def clamp_tensor(d, name):
    a = d.tensor(FLOATS + INTS)
    low, high = (d.tensor(FLOATS + INTS, sizes=d.broadcast(a.value.shape)) for _ in range(2))
    one = len({x.value.shape for x in (a, low, high)}) == 1 and bool(((a.value == low.value) & (low.value == high.value)).any())
    return Call([a, low, high], api.clamp_tensor, T.clamp, exact=True, grad=not one)  # of three that are equal, PyTorch's a takes all


@row("addcmul", "addcmul_", "addcdiv", "addcdiv_")
def addc(d, name):
    a, value = d.tensor(FLOATS), d.float(1, 2, -0.5, 0)
    b, c = (d.tensor(FLOATS, sizes=d.broadcast(a.value.shape), domain=k) for k in ("any", "positive"))
    theirs = T.addcmul if "mul" in name else T.addcdiv
    if name.endswith("_"):
        return Call([a, b, c], lambda a, b, c: api[name](api.copy(a), b, c, value),
                    lambda a, b, c: write(a, theirs(a, b, c, value=value)), value=value)
    return Call([a, b, c], lambda a, b, c: api[name](a, b, c, value), lambda a, b, c: theirs(a, b, c, value=value), value=value)


# ---- Making, copying, casting ---------------------------------------------------------------------------


@row("zeros_like", "ones_like", "full_like", "fill_", "zero_", "copy", "contiguous", "scalar", "detach", "to", "channels_last")
def same_shape(d, name):
    x, value = d.tensor(DTYPES if name in ("copy", "contiguous", "detach") else ANY), d.pick(2, 1, 0)
    ours, theirs = {
        "zeros_like": (api.zeros_like, T.zeros_like), "ones_like": (api.ones_like, T.ones_like),
        "full_like": (lambda x: api.full_like(x, number(value)), lambda x: T.full_like(x, value)),
        "fill_": (lambda x: api.fill_(api.copy(x), number(value)), lambda x: T.full_like(x, value)),
        "zero_": (lambda x: api.zero_(api.copy(x)), T.zeros_like), "copy": (api.copy, T.clone),
        "contiguous": (api.contiguous, T.clone),
        "detach": (api.detach, T.detach), "to": (lambda x: api.to(x, DEVICE), T.clone),
        "channels_last": (api.channels_last, lambda x: need(2 < x.dim(), x)),
        "scalar": (lambda x: api.mul(x, api.scalar(number(value))), lambda x: x * value),
    }[name]
    return Call([x], ours, theirs, exact=True, value=value)


def need(condition, x):
    if not condition:
        raise ValueError("not for these dimensions")
    return x.clone()


@row("copy_")
def copy_into(d, name):
    x = d.tensor(ANY)
    y = d.tensor(ANY, sizes=d.broadcast(x.value.shape), free=True)
    if y.value.is_floating_point() != x.value.is_floating_point():
        y.value = y.value.nan_to_num(0, 0, 0).clamp(-100, 100) if y.value.is_floating_point() else y.value.clamp(0, 1)
    y.grad = y.grad and y.value.dtype == x.value.dtype
    return Call([x, y], lambda x, y: api.copy_(api.copy(x), y), lambda x, y: x.clone().copy_(y), exact=True)


@row("cast")
def cast(d, name):
    x, to = d.tensor(DTYPES), d.pick(*DTYPES)
    if not to.is_floating_point and x.value.is_floating_point():  # what does not fit is undefined in C
        x.value = x.value.nan_to_num(0, 0, 0).clamp(0, 100)
    return Call([x], lambda x: api.cast(x, DTYPES.index(to)), lambda x: x.to(to), exact=True, to=to)


@row("tril_indices", "triu_indices", "logspace", "diag", "diag_embed")
def made_by_place(d, name):
    rows_, columns, offset, dtype = d.random.randint(0, 9), d.random.randint(0, 9), d.random.randint(-10, 10), d.pick(T.int64, T.int32)
    if name == "logspace":
        start, stop, base = d.float(0, -1, 0.5), d.float(2, 1.5, -3), d.float(10, 2, 2.5)
        dtype = d.pick(T.float32, T.float64, T.float16)
        return Call([], lambda: api.logspace(start, stop, rows_, base, DTYPES.index(dtype), DEVICE),
                    lambda: T.logspace(start, stop, rows_, base, dtype=dtype), start=start, stop=stop, steps=rows_, base=base)
    if name.startswith("tri"):
        return Call([], lambda: api[name](rows_, columns, offset, DTYPES.index(dtype), DEVICE),
                    lambda: getattr(T, name)(rows_, columns, offset, dtype=dtype), rows=rows_, columns=columns, offset=offset)
    x = d.tensor(ANY, ndim=(1, 2 if name == "diag" else 4))
    if name == "diag":
        return Call([x], lambda x: api.diag(x, offset), lambda x: T.diag(x, offset), exact=True, offset=offset)
    a, b = d.axis(x.value.dim() + 1), d.axis(x.value.dim() + 1)
    return Call([x], lambda x: api.diag_embed(x, offset, a, b), lambda x: T.diag_embed(x, offset, a, b), exact=True, offset=offset, a=a, b=b)


@row("zeros", "ones", "full", "eye", "arange", "linspace")
def made(d, name):
    dtype, sizes, value = d.pick(*ANY), d.shape(), d.pick(0, 1, 3)
    at = DTYPES.index(dtype)
    rows_, columns = d.int(0, 9), d.int(0, 9)
    start, stop, step = d.pick(0, 1, -3), d.pick(5, 10, 0), d.pick(1, 2, 3, -1)
    if dtype in (T.uint8, T.bool):
        start, step = abs(start), abs(step)
    ours, theirs = {
        "zeros": (lambda: api.zeros(shape(sizes), at, DEVICE), lambda: T.zeros(sizes, dtype=dtype)),
        "ones": (lambda: api.ones(shape(sizes), at, DEVICE), lambda: T.ones(sizes, dtype=dtype)),
        "full": (lambda: api.full(shape(sizes), number(value), at, DEVICE), lambda: T.full(sizes, value, dtype=dtype)),
        "eye": (lambda: api.eye(rows_, columns, at, DEVICE), lambda: T.eye(rows_, columns, dtype=dtype)),
        "arange": (lambda: api.arange(number(start), number(stop), number(step), at, DEVICE),
                   lambda: T.arange(start, stop, step, dtype=dtype)),
        "linspace": (lambda: api.linspace(float(start), float(stop), rows_, at, DEVICE),
                     lambda: T.linspace(start, stop, rows_, dtype=dtype)),
    }[name]
    return Call([], ours, theirs, dtype=dtype, sizes=sizes, rows=rows_, columns=columns, range=(start, stop, step), value=value)


@row("tril", "triu", "tril_", "triu_")
def triangle(d, name):
    x, diagonal = d.tensor(ANY, ndim=(2, 4)), d.int(-4, 4)
    theirs = T.tril if "tril" in name else T.triu
    copy = api.copy if name.endswith("_") else lambda x: x
    return Call([x], lambda x: api[name](copy(x), diagonal), lambda x: theirs(x, diagonal), exact=True, diagonal=diagonal)
