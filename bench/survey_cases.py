"""The cases of bench/survey: one line for each operation, with both sides.

`make(sizes, dtype)` of a case returns two functions without arguments that compute the same, or None where that size makes no sense. A third
function may call Aril with the same arguments but no elements, where they take longer to pass than tensors do.
"""
import ctypes as C

import torch
import torch.nn.functional as F
from by_ctypes import DEVICE, END, I, I64, Out, api, axes, declare, number, options, shape, tensors

T = torch
KINDS = {"bool": T.bool, "u8": T.uint8, "u16": T.uint16, "u32": T.uint32, "u64": T.uint64, "i8": T.int8, "i16": T.int16, "i32": T.int32,
         "i64": T.int64, "f16": T.float16, "bf16": T.bfloat16, "f32": T.float32, "f64": T.float64}
NUMBER = {name: i for i, name in enumerate(KINDS)}  # of an aril_dtype
WIDE, HALF, WHOLE = ("f32", "f64"), ("f16", "bf16"), ("u8", "i8", "i16", "i32", "i64")
FLOATS, NUMBERS = (*HALF, *WIDE), (*WHOLE, *HALF, *WIDE)
ALL = ("bool", *NUMBERS)
CASES = []


class Sizes:
    """Shapes of about n elements."""

    def __init__(self, n):
        self.n = n

    def rows(self, columns):
        """[R, columns]"""
        return (max(1, self.n // columns), columns)

    def square(self):
        side = max(4, round(self.n ** 0.5 / 4) * 4)
        return (side, side)

    def image(self, channels=32):
        """[N,C,H,W]"""
        side = max(4, round((self.n / channels / 4) ** 0.5 / 2) * 2)
        return (max(1, min(4, self.n // (channels * side * side))), channels, side, side)


def values(sizes, kind, low=None, high=None):
    """Random values of PyTorch: floats of a normal distribution, or of [low, high); small integers."""
    dtype = KINDS[kind]
    if kind == "bool":
        return T.rand(sizes) < 0.5
    if not dtype.is_floating_point:
        return T.randint(0 if low is None else int(low), 100 if high is None else int(high), sizes, dtype=T.int64).to(dtype)
    x = T.randn(sizes) if low is None else T.rand(sizes) * (high - low) + low
    return x.to(dtype)


def ours(x):
    """A tensor of Aril with the same values, in the same order in memory."""
    if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=T.channels_last):
        return api.channels_last(ours(x.contiguous()))
    if not x.is_contiguous():
        raise ValueError("neither contiguous nor channels-last")
    return api["from"](x.data_ptr() or 8, shape(x.shape), NUMBER[next(k for k, t in KINDS.items() if t == x.dtype)], DEVICE)


def case(name, kinds=("f32",)):
    def register(make):
        CASES.append((name, kinds, make))
        return make

    return register


def unary(names, kinds, low=None, high=None, flat=lambda s: (s.n,)):
    """Functions of one tensor: {name: PyTorch's}."""
    for name, theirs in names.items():
        @case(name, kinds)
        def make(s, kind, name=name, theirs=theirs):
            x = values(flat(s), kind, low, high)
            a = ours(x)
            return lambda: api[name](a), lambda: theirs(x)


# ---- Elementwise ----------------------------------------------------------------------------------

unary({n: getattr(T, n) for n in ("neg", "abs", "sign", "square")}, NUMBERS)
unary({n: getattr(T, n) for n in ("floor", "ceil", "round", "trunc", "exp", "expm1", "exp2", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh",
                                  "asinh", "erf", "erfc", "sigmoid", "isnan", "isinf", "isfinite", "logical_not", "reciprocal")}, FLOATS)
unary({n: getattr(T, n) for n in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma", "asin", "acos", "atanh", "erfinv", "logit")},
      WIDE, 0.01, 0.99)
unary({"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "selu": F.selu,
       "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "logsigmoid": F.logsigmoid, "relu6": F.relu6, "softsign": F.softsign}, FLOATS)
unary({"bitwise_not": T.bitwise_not, "logical_not": T.logical_not}, ("bool", *WHOLE))


def binary(names, kinds, low=None, high=None):
    for name, theirs in names.items():
        @case(name, kinds)
        def make(s, kind, name=name, theirs=theirs):
            x, y = values((s.n,), kind, low, high), values((s.n,), kind, 1 if low is None and not KINDS[kind].is_floating_point else low, high)
            a, b = ours(x), ours(y)
            return lambda: api[name](a, b), lambda: theirs(x, y)


binary({n: getattr(T, n) for n in ("add", "mul", "maximum", "minimum")}, NUMBERS)
binary({"sub": T.sub, "remainder": T.remainder, "floor_div": T.floor_divide}, NUMBERS)
binary({"div": T.div}, FLOATS)
binary({n: getattr(T, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}, ALL)
binary({n: getattr(T, n) for n in ("logical_and", "logical_or", "logical_xor")}, ("bool", "u8", "i32", "f32"))
binary({n: getattr(T, n) for n in ("bitwise_and", "bitwise_or", "bitwise_xor")}, ("bool", *WHOLE))
binary({"pow": T.pow, "atan2": T.atan2, "hypot": T.hypot}, WIDE, 0.1, 3)


def with_number(name, theirs, value, kinds, low=None, high=None):
    @case(f"{name} {value}", kinds)
    def make(s, kind):
        x = values((s.n,), kind, low, high)
        a, given = ours(x), number(value)
        return lambda: api[name](a, given), lambda: theirs(x, value)


for exponent in (2, 3, 0.5, -1, -0.5, 4, 2.5):
    with_number("pow_scalar", T.pow, exponent, WIDE, 0.1, 3)
for scalar in ("add", "mul", "gt", "eq"):
    with_number(scalar + "_scalar", getattr(T, scalar), 3, NUMBERS)


@case("where", ("bool", *NUMBERS))
def where(s, kind):
    c, x, y = values((s.n,), "bool"), values((s.n,), kind), values((s.n,), kind)
    p, a, b = ours(c), ours(x), ours(y)
    return lambda: api.where(p, a, b), lambda: T.where(c, x, y)


@case("clamp", NUMBERS)
def clamp(s, kind):
    x = values((s.n,), kind)
    a, low, high = ours(x), number(1), number(5)
    return lambda: api.clamp(a, low, high), lambda: T.clamp(x, 1, 5)


def broadcast(name, left, right, kinds=("f32", "i32", "bf16")):
    @case(f"add {name}", kinds)
    def make(s, kind):
        x, y = values(left(s), kind), values(right(s), kind)
        a, b = ours(x), ours(y)
        return lambda: api.add(a, b), lambda: T.add(x, y)


broadcast("row", lambda s: s.rows(256), lambda s: (256,))
broadcast("column", lambda s: s.rows(256), lambda s: (s.rows(256)[0], 1))
broadcast("[64,1,64]", lambda s: (64, max(1, s.n // 4096), 64), lambda s: (64, 1, 64))
broadcast("[C,1,1]", lambda s: s.image(), lambda s: (32, 1, 1))
broadcast("outer", lambda s: (s.square()[0], 1), lambda s: (1, s.square()[1]))


@case("add transposed", ("f32", "i32", "u8", "bf16"))
def add_transposed(s, kind):
    x, y = values(s.square(), kind), values(s.square(), kind)
    a, b = ours(x), ours(y)
    return lambda: api.add(a, api.t(b)), lambda: T.add(x, y.t())


# ---- Casts, creation and copies -----------------------------------------------------------------

for source in ALL:
    for target in ALL:
        if source != target:
            @case(f"cast to {target}", (source,))
            def cast(s, kind, target=target):
                x = values((s.n,), kind)
                a, to, wanted = ours(x), I(NUMBER[target]), KINDS[target]
                return lambda: api.cast(a, to), lambda: x.to(wanted)


@case("zeros", ALL)
def zeros(s, kind):
    sizes, none, to, wanted = shape((s.n,)), shape((0,)), I(NUMBER[kind]), KINDS[kind]
    return lambda: api.zeros(sizes, to, DEVICE), lambda: T.zeros(s.n, dtype=wanted), lambda: api.zeros(none, to, DEVICE)


@case("full", ALL)
def full(s, kind):
    sizes, none, to, wanted, one = shape((s.n,)), shape((0,)), I(NUMBER[kind]), KINDS[kind], number(1)
    return lambda: api.full(sizes, one, to, DEVICE), lambda: T.full((s.n,), 1, dtype=wanted), lambda: api.full(none, one, to, DEVICE)


@case("transposed copy", ("u8", "i16", "f32", "f64"))
def transposed(s, kind):
    x = values(s.square(), kind)
    a = ours(x)
    return lambda: api.contiguous(api.t(a)), lambda: x.t().contiguous()


@case("flip", ("u8", "f32", "i64"))
def flip(s, kind):
    x = values(s.rows(256), kind)
    a, one = ours(x), axes(1)
    return lambda: api.flip(a, one), lambda: T.flip(x, (1,))


@case("randperm", ("i64",))
def randperm(s, kind):
    to = I(NUMBER[kind])
    return lambda: api.randperm(s.n, to, DEVICE), lambda: T.randperm(s.n)


for name, theirs in (("rand", T.rand), ("randn", T.randn)):
    @case(name, WIDE)
    def draw(s, kind, name=name, theirs=theirs):
        sizes, to, wanted = shape((s.n,)), I(NUMBER[kind]), KINDS[kind]
        return lambda: api[name](sizes, to, DEVICE), lambda: theirs(s.n, dtype=wanted)


# ---- Reductions, scans, sorting -----------------------------------------------------------------

OVER = {"all": ((), lambda s: (s.n,)), "rows": ((1,), lambda s: s.rows(256)), "columns": ((0,), lambda s: s.rows(256))}
REDUCTIONS = {"sum": (T.sum, ALL), "mean": (T.mean, FLOATS), "amax": (T.amax, ALL), "amin": (T.amin, ("f32", "i32", "u8")), "prod": (T.prod, ("f32", "i64")),
              "any": (T.any, ("bool", "f32")), "all": (T.all, ("bool", "u8")), "logsumexp": (T.logsumexp, WIDE), "count_nonzero": (T.count_nonzero, ("bool", "f32", "i64"))}
for name, (theirs, kinds) in REDUCTIONS.items():
    for over, (which, sizes) in OVER.items():
        @case(f"{name} {over}", kinds)
        def reduce(s, kind, name=name, theirs=theirs, which=which, sizes=sizes):
            x = values(sizes(s), kind)
            a, where = ours(x), axes(*which)
            if name == "prod":
                return lambda: api.prod(a, where), lambda: theirs(x, *which)
            if name == "logsumexp":
                return lambda: api.logsumexp(a, where), lambda: theirs(x, which or (0,))
            return lambda: api[name](a, where), lambda: theirs(x, which) if which else theirs(x)

for name in ("var", "std"):
    for over, (which, sizes) in OVER.items():
        @case(f"{name} {over}", WIDE)
        def spread(s, kind, name=name, which=which, sizes=sizes):
            x = values(sizes(s), kind)
            a, where, theirs = ours(x), axes(*which), getattr(T, name)
            return lambda: api[name](a, where, 1.0), lambda: theirs(x, which or None)


@case("sum of a strided tensor", ("f32", "f64"))
def strided_sum(s, kind):
    x = values(s.square(), kind)
    a, where = ours(x), axes(1)
    return lambda: api.sum(api.t(a), where), lambda: T.sum(x.t(), 1)


for name in ("cumsum", "cumprod"):
    for axis in (0, 1):
        @case(f"{name} axis {axis}", ("f32", "i64"))
        def scan(s, kind, name=name, axis=axis):
            x = values(s.rows(256), kind)
            a, theirs, at = ours(x), getattr(T, name), I(axis)
            return lambda: api[name](a, at), lambda: theirs(x, axis)

for name in ("argmax", "argmin"):
    @case(f"{name} rows", ("f32", "i64", "u8"))
    def arg(s, kind, name=name):
        x = values(s.rows(256), kind)
        a, over, theirs = ours(x), axes(1), getattr(T, name)
        return lambda: api[name](a, over), lambda: theirs(x, 1)


SortOptions = options("SortOptions", (C.c_bool, "descending"))
TopkOptions = options("TopkOptions", (C.c_bool, "smallest unsorted"))


@case("argsort", ("f32", "i64", "i32"))
def argsort(s, kind):
    x = T.randperm(s.n).to(KINDS[kind])
    a, plain = ours(x), SortOptions()
    return lambda: api.argsort(a, I(0), plain), lambda: T.argsort(x)


@case("topk 10 rows", ("f32",))
def topk(s, kind):
    x = values(s.rows(1000), kind)
    a, plain, which = ours(x), TopkOptions(), Out()
    return lambda: api.topk(a, 10, I(1), plain, which), lambda: T.topk(x, 10, 1)


@case("unique", ("f32", "i64", "i32"))
def unique(s, kind):
    x = values((s.n,), kind)
    a = ours(x)
    return lambda: api.unique(a, None, None), lambda: T.unique(x)


# ---- Embeddings -------------------------------------------------------------------------------------

EmbeddingOptions = options("EmbeddingOptions", (I64, "padding_idx"))
BagOptions = options("BagOptions", (I, "mode"), (C.c_void_p, "per_sample_weights"), (I64, "padding_idx"), (C.c_bool, "include_last_offset"))


@case("embedding_bag", WIDE)
def embedding_bag(s, kind):
    weight, index = values((max(10, s.n // 64), 64), kind), T.randint(0, max(10, s.n // 64), (max(1, s.n // 640), 10))
    a, b, mean = ours(index), ours(weight), BagOptions()
    return lambda: api.embedding_bag(a, b, None, mean), lambda: F.embedding_bag(index, weight)


@case("embedding", WIDE)
def embedding(s, kind):
    weight, index = values((max(10, s.n // 64), 64), kind), T.randint(0, max(10, s.n // 64), (max(1, s.n // 64),))
    a, b, plain = ours(index), ours(weight), EmbeddingOptions()
    return lambda: api.embedding(a, b, plain), lambda: F.embedding(index, weight)


# ---- Norms, softmax, losses ------------------------------------------------------------------------

for name, theirs in (("softmax", T.softmax), ("log_softmax", T.log_softmax)):
    for axis in (0, 1):
        @case(f"{name} axis {axis}", ("f32", "f64", "bf16"))
        def soft(s, kind, name=name, theirs=theirs, axis=axis):
            x = values(s.rows(256), kind)
            a, at = ours(x), I(axis)
            return lambda: api[name](a, at), lambda: theirs(x, axis)

# ---- Products --------------------------------------------------------------------------------------


@case("matmul square", ("f32", "f64", "u8", "i16", "i32", "i64", "bf16"))
def matmul(s, kind):
    if s.n > 1_100_000:
        return None
    x, y = values(s.square(), kind), values(s.square(), kind)
    a, b = ours(x), ours(y)
    return lambda: api.matmul(a, b), lambda: T.matmul(x, y)


@case("matmul of a row", ("f32", "i32", "i64"))
def row_product(s, kind):
    if s.n > 1_100_000:
        return None
    x, y = values((1, s.square()[0]), kind), values(s.square(), kind)
    a, b = ours(x), ours(y)
    return lambda: api.matmul(a, b), lambda: T.matmul(x, y)


@case("matmul batches of 16 x 16, transposed", ("f32",))
def batched(s, kind):
    x, y = values((max(1, s.n // 256), 16, 16), kind), values((max(1, s.n // 256), 16, 16), kind)
    a, b = ours(x), ours(y)
    return lambda: api.matmul(a, api.transpose(b, I(1), I(2))), lambda: T.matmul(x, y.transpose(1, 2))


@case("outer", ("f32", "i32"))
def outer(s, kind):
    x, y = values((s.square()[0],), kind), values((s.square()[1],), kind)
    a, b = ours(x), ours(y)
    return lambda: api.outer(a, b), lambda: T.outer(x, y)


@case("kron", ("f32",))
def kron(s, kind):
    x, y = values((8, 8), kind), values((max(1, s.square()[0] // 8), max(1, s.square()[1] // 8)), kind)
    a, b = ours(x), ours(y)
    return lambda: api.kron(a, b), lambda: T.kron(x, y)
