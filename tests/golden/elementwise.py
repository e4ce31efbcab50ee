"""Elementwise functions: values, gradients, broadcasting, promotion, special numbers."""
from golden import *

NAN, INF = float("nan"), float("inf")
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, -0.5, 1.5]

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, i16, i32, i64, u8 = torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8
b1 = torch.bool


def anywhere():
    return randn(2, 5)


def positive():
    return uniform(0.2, 3, 2, 5)


def unit():
    return uniform(-0.9, 0.9, 2, 5)


def between():
    """Away from 0, from integers and from halves."""
    return (randint(-3, 3, 2, 5).float() + uniform(0.1, 0.4, 2, 5))


def softplus(beta, threshold):
    return lambda a: F.softplus(a, beta, threshold)


# ---- one operand: a function of PyTorch, where its inputs come from, more arguments ----

UNARY = [
    ("neg", torch.neg, anywhere), ("abs", torch.abs, anywhere), ("sign", torch.sign, anywhere),
    ("square", torch.square, anywhere), ("reciprocal", torch.reciprocal, between),
    ("sqrt", torch.sqrt, positive), ("rsqrt", torch.rsqrt, positive), ("exp", torch.exp, anywhere),
    ("expm1", torch.expm1, anywhere), ("exp2", torch.exp2, anywhere), ("log", torch.log, positive),
    ("log1p", torch.log1p, positive), ("log2", torch.log2, positive),
    ("log10", torch.log10, positive), ("sin", torch.sin, anywhere), ("cos", torch.cos, anywhere),
    ("tan", torch.tan, unit), ("asin", torch.asin, unit), ("acos", torch.acos, unit),
    ("atan", torch.atan, anywhere), ("sinh", torch.sinh, anywhere), ("cosh", torch.cosh, anywhere),
    ("tanh", torch.tanh, anywhere), ("asinh", torch.asinh, anywhere),
    ("acosh", torch.acosh, lambda: uniform(1.1, 4, 2, 5)), ("atanh", torch.atanh, unit),
    ("erf", torch.erf, anywhere), ("erfc", torch.erfc, anywhere), ("floor", torch.floor, between),
    ("ceil", torch.ceil, between), ("round", torch.round, between), ("trunc", torch.trunc, between),
    ("frac", torch.frac, between), ("sigmoid", torch.sigmoid, anywhere),
    ("logit", torch.logit, lambda: uniform(0.1, 0.9, 2, 5)), ("logsigmoid", F.logsigmoid, anywhere),
    ("relu", F.relu, between), ("relu6", F.relu6, lambda: 3 * between()), ("selu", F.selu, between),
    ("gelu", F.gelu, anywhere), ("gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), anywhere),
    ("silu", F.silu, anywhere), ("mish", F.mish, anywhere), ("softsign", F.softsign, between),
    ("hardsigmoid", F.hardsigmoid, lambda: 2 * between()),
    ("hardswish", F.hardswish, lambda: 2 * between()),
]
# PyTorch gives NaN for gelu(inf) (in its vector code) and for hardswish(-inf).
ODD = {"gelu": INF, "hardswish": -INF}

for name, fn, inputs in UNARY:
    case(f"{name}/values", f"y[0] = aril_{name}(x[0]);", lambda x: fn(x[0]), [inputs()])
    case(f"{name}/special", f"y[0] = aril_{name}(x[0]);", lambda x: fn(x[0]),
         [tensor([v for v in SPECIAL if v != ODD.get(name)])], grad=False)
    case(f"{name}_/in_place", f"y[0] = aril_{name}_(aril_mul_scalar(x[0], 1));",
         lambda x: fn(x[0] * 1), [inputs()])

for name, args, fn, inputs in [
        ("leaky_relu", "0.1", lambda a: F.leaky_relu(a, 0.1), between),
        ("elu", "1.5", lambda a: F.elu(a, 1.5), between),
        ("celu", "0.7", lambda a: F.celu(a, 0.7), between),
        ("softplus", "1, 20", F.softplus, anywhere),
        ("softplus", "2, 3", lambda a: F.softplus(a, 2, 3), anywhere),
        ("hardtanh", "-1, 1", F.hardtanh, between),
        ("hardtanh", "-0.5, 2", lambda a: F.hardtanh(a, -0.5, 2), between),
        ("softshrink", "0.5", F.softshrink, between),
        ("hardshrink", "0.5", F.hardshrink, between),
        ("threshold", "0.6, -7", lambda a: F.threshold(a, 0.6, -7), between),
        ("nan_to_num", "1, 2, 3", lambda a: torch.nan_to_num(a, 1, 2, 3), anywhere),
        ("logit_eps", "0.2", lambda a: torch.logit(a, 0.2), lambda: uniform(0.02, 0.98, 2, 5)),
        ("tanhshrink", "", F.tanhshrink, anywhere)]:
    c = f"y[0] = aril_{name}(x[0]{', ' if args else ''}{args});"
    tag = args.replace(" ", "").replace(",", "_") or "values"
    case(f"{name}/{tag}", c, lambda x: fn(x[0]), [inputs()])
    if name != "logit_eps":
        case(f"{name}/{tag}/special", c, lambda x: fn(x[0]), [tensor(SPECIAL)], grad=False)

for name in "isnan", "isinf", "isfinite", "logical_not":
    case(f"{name}/special", f"y[0] = aril_{name}(x[0]);", lambda x: getattr(torch, name)(x[0]),
         [tensor(SPECIAL)])
    case(f"{name}/i32", f"y[0] = aril_{name}(x[0]);", lambda x: getattr(torch, name)(x[0]),
         [randint(-2, 3, 6, dtype=i32)])

# ---- in other dtypes ----

for dtype, tag in (f64, "f64"), (f16, "f16"), (bf16, "bf16"):
    for name, fn, inputs in [u for u in UNARY if u[0] in (
            "exp", "log", "tanh", "sigmoid", "gelu", "relu", "sqrt", "erf", "neg", "round")]:
        case(f"{name}/{tag}", f"y[0] = aril_{name}(x[0]);", lambda x: fn(x[0]), [inputs()],
             dtype=dtype)
for dtype, tag in (i32, "i32"), (u8, "u8"), (i64, "i64"), (b1, "bool"):
    for name in "exp", "sqrt", "sin", "sigmoid", "reciprocal", "erf":  # integers become f32
        case(f"{name}/{tag}", f"y[0] = aril_{name}(x[0]);", lambda x: getattr(torch, name)(x[0]),
             [randint(0, 2 if dtype == b1 else 6, 5, dtype=dtype)])
for dtype, tag in (i32, "i32"), (i8, "i8"), (i64, "i64"):
    for name in "neg", "abs", "sign", "square", "floor", "ceil", "round", "trunc", "relu":
        fn = F.relu if name == "relu" else getattr(torch, name)
        case(f"{name}/{tag}", f"y[0] = aril_{name}(x[0]);", lambda x: fn(x[0]),
             [tensor([-128, -3, -1, 0, 1, 2, 127], dtype)])

# ---- two operands ----

BINARY = [
    ("add", torch.add, anywhere, anywhere), ("sub", torch.sub, anywhere, anywhere),
    ("mul", torch.mul, anywhere, anywhere), ("div", torch.div, anywhere, between),
    ("floor_div", torch.floor_divide, anywhere, between),
    ("remainder", torch.remainder, anywhere, between), ("fmod", torch.fmod, anywhere, between),
    ("pow", torch.pow, positive, anywhere), ("maximum", torch.maximum, anywhere, anywhere),
    ("minimum", torch.minimum, anywhere, anywhere), ("atan2", torch.atan2, between, between),
    ("hypot", torch.hypot, between, between), ("logaddexp", torch.logaddexp, anywhere, anywhere),
    ("xlogy", torch.xlogy, anywhere, positive),
    ("prelu", lambda a, b: torch.where(a > 0, a, a * b), between, between),
]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]
BITS = [("bitwise_and", torch.bitwise_and), ("bitwise_or", torch.bitwise_or),
        ("bitwise_xor", torch.bitwise_xor), ("shift_left", torch.bitwise_left_shift),
        ("shift_right", torch.bitwise_right_shift)]

for name, fn, left, right in BINARY:
    c = f"y[0] = aril_{name}(x[0], x[1]);"
    grad = name != "floor_div"  # PyTorch does not differentiate it
    case(f"{name}/same", c, lambda x: fn(x[0], x[1]), [left(), right()], grad=grad)
    case(f"{name}/broadcast", c, lambda x: fn(x[0], x[1]),
         [left()[:, None, :3].clone(), right()[:, :1].clone()], grad=grad)
    case(f"{name}/rows", c, lambda x: fn(x[0], x[1]), [left(), right()[0]], grad=grad)
    case(f"{name}/0d", c, lambda x: fn(x[0], x[1]), [left(), right()[0, 0]], grad=grad)
    case(f"{name}/empty", c, lambda x: fn(x[0], x[1]), [left()[:0], right()[0]], grad=grad)
    n = len(SPECIAL)
    wide = tensor(SPECIAL)
    case(f"{name}/special", c, lambda x: fn(x[0], x[1]),
         [wide[:, None].expand(n, n).clone(), wide[None, :].expand(n, n).clone()], grad=False)
    case(f"{name}_/in_place", f"y[0] = aril_{name}_(aril_mul_scalar(x[0], 1), x[1]);",
         lambda x: fn(x[0] * 1, x[1]), [left(), right()[0]], grad=grad)
    case(f"{name}/scalar", f"y[0] = aril_{name}_scalar(x[0], 1.75);",
         lambda x: fn(x[0], torch.tensor(1.75)), [left()], grad=grad)
    case(f"{name}_/scalar", f"y[0] = aril_{name}_scalar_(aril_mul_scalar(x[0], 1), 2);",
         lambda x: fn(x[0] * 1, torch.tensor(2.0)), [left()], grad=grad)

case("rsub/scalar", "y[0] = aril_rsub_scalar(x[0], 1.5);", lambda x: 1.5 - x[0], [anywhere()])
case("rdiv/scalar", "y[0] = aril_rdiv_scalar(x[0], 1.5);", lambda x: 1.5 / x[0], [between()])
case("rsub/i64", "y[0] = aril_rsub_scalar(x[0], 7);", lambda x: 7 - x[0], [randint(-9, 9, 5)])
case("rdiv/i64", "y[0] = aril_rdiv_scalar(x[0], 7);", lambda x: 7 / x[0], [randint(1, 9, 5)])

for name in COMPARE:
    fn = getattr(torch, name)
    n = len(SPECIAL)
    wide = tensor(SPECIAL)
    case(f"{name}/special", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [wide[:, None].clone(), wide[None, :].clone()])
    case(f"{name}/i64", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [randint(-2, 3, 3, 4), randint(-2, 3, 4)])
    case(f"{name}/mixed", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [randint(-2, 3, 3, 4, dtype=i32), randint(-2, 3, 4).to(f64)])
    case(f"{name}/scalar", f"y[0] = aril_{name}_scalar(x[0], 1);",
         lambda x: fn(x[0], torch.tensor(1)), [randint(-2, 3, 3, 4)])
for name, fn in BITS:
    shift = name.startswith("shift")
    for dtype, tag in (i64, "i64"), (u8, "u8"), (i8, "i8"), (i32, "i32"):
        low = -100 if dtype != u8 else 0
        case(f"{name}/{tag}", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
             [randint(low, 100, 3, 4, dtype=dtype),
              randint(0, 7, 4, dtype=dtype) if shift else randint(low, 100, 4, dtype=dtype)])
    case(f"{name}/scalar", f"y[0] = aril_{name}_scalar(x[0], 3);", lambda x: fn(x[0], torch.tensor(3)),
         [randint(-100, 100, 6)])
    case(f"{name}_/in_place", f"y[0] = aril_{name}_(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [randint(-100, 100, 3, 4), randint(0, 7, 4)])
    case(f"{name}_/scalar", f"y[0] = aril_{name}_scalar_(x[0], 3);",
         lambda x: fn(x[0], torch.tensor(3)), [randint(-100, 100, 6)])
for name in "bitwise_and", "bitwise_or", "bitwise_xor":
    case(f"{name}/bool", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: getattr(torch, name)(x[0], x[1]),
         [tensor([True, True, False, False]), tensor([True, False, True, False])])
case("bitwise_not/i32", "y[0] = aril_bitwise_not(x[0]);", lambda x: torch.bitwise_not(x[0]),
     [randint(-100, 100, 5, dtype=i32)])
case("bitwise_not/u8", "y[0] = aril_bitwise_not(x[0]);", lambda x: torch.bitwise_not(x[0]),
     [randint(0, 200, 5, dtype=u8)])

# ---- whole numbers: signs, wrapping ----

SIGNS = (tensor([7, 7, -7, -7, 6, -6, 0, 1]), tensor([3, -3, 3, -3, 3, 3, 5, -4]))
for name, fn in [("floor_div", torch.floor_divide), ("remainder", torch.remainder),
                 ("fmod", torch.fmod), ("div", torch.div)]:
    for dtype, tag in (i64, "i64"), (i32, "i32"), (i16, "i16"), (i8, "i8"):
        case(f"{name}/signs/{tag}", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
             [SIGNS[0].to(dtype), SIGNS[1].to(dtype)])
    case(f"{name}/signs/f32", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [SIGNS[0].float(), SIGNS[1].float()], grad=False)
    case(f"{name}/u8", f"y[0] = aril_{name}(x[0], x[1]);", lambda x: fn(x[0], x[1]),
         [randint(0, 256, 8, dtype=u8), randint(1, 20, 8, dtype=u8)])
    case(f"{name}/scalar/i64", f"y[0] = aril_{name}_scalar(x[0], -3);",
         lambda x: fn(x[0], torch.tensor(-3)), [SIGNS[0]])
for name in "add", "sub", "mul":
    for dtype, tag in (i8, "i8"), (u8, "u8"), (i32, "i32"):
        info = torch.iinfo(dtype)
        case(f"{name}/wraps/{tag}", f"y[0] = aril_{name}(x[0], x[1]);",
             lambda x: getattr(torch, name)(x[0], x[1]),
             [tensor([info.max, info.max, info.min, 5, 3], dtype),
              tensor([1, info.max, 1, 7, 100], dtype)])
case("pow/i64", "y[0] = aril_pow(x[0], x[1]);", lambda x: torch.pow(x[0], x[1]),
     [tensor([0, 1, -2, 3, -3, 2, 0, 10]), tensor([0, 5, 3, 4, 2, 40, 3, 18])])
case("pow/u8", "y[0] = aril_pow(x[0], x[1]);", lambda x: torch.pow(x[0], x[1]),
     [tensor([0, 1, 2, 3], u8), tensor([0, 5, 9, 6], u8)])
for e in "2", "3", "0.5", "-1", "-0.5", "0", "1", "2.5":
    case(f"pow/exponent{e}", f"y[0] = aril_pow_scalar(x[0], {e});",
         lambda x: torch.pow(x[0], float(e)), [positive()])
case("pow/zero_base", "y[0] = aril_pow(x[0], x[1]);", lambda x: torch.pow(x[0], x[1]),
     [tensor([0.0, 0.0, 0.0, 2.0, -2.0, -2.0]), tensor([0.0, 2.0, 1.0, 0.0, 2.0, 3.0])], grad=[0])
for name in "maximum", "minimum":
    case(f"{name}/ties", f"y[0] = aril_{name}(x[0], x[1]);",
         lambda x: getattr(torch, name)(x[0], x[1]),
         [tensor([1.0, 2.0, 3.0]), tensor([1.0, 3.0, 2.0])])
    case(f"{name}/i32", f"y[0] = aril_{name}(x[0], x[1]);",
         lambda x: getattr(torch, name)(x[0], x[1]),
         [randint(-9, 9, 6, dtype=i32), randint(-9, 9, 6, dtype=i32)])

# ---- promotion: dtypes, 0-d tensors, numbers ----

NAMES = [(b1, "bool"), (u8, "u8"), (i8, "i8"), (i32, "i32"), (i64, "i64"), (f16, "f16"),
         (bf16, "bf16"), (f32, "f32"), (f64, "f64")]
for a, at in NAMES:
    for b, bt in NAMES:
        if at < bt:
            case(f"promote/{at}_{bt}", "y[0] = aril_mul(x[0], x[1]);", lambda x: x[0] * x[1],
                 [randint(0, 2, 3).to(a), randint(0, 2, 3).to(b)], grad=False)
for a, at in NAMES:
    for b, bt in (i64, "i64"), (f64, "f64"), (f16, "f16"), (b1, "bool"):
        case(f"promote/{at}_0d_{bt}", "y[0] = aril_add(x[0], x[1]);", lambda x: x[0] + x[1],
             [randint(0, 2, 3).to(a), tensor(1).to(b)], grad=False)
for a, at in NAMES:
    case(f"promote/{at}_whole_number", "y[0] = aril_mul_scalar(x[0], 2);", lambda x: x[0] * 2,
         [randint(0, 2, 3).to(a)], grad=False)
    case(f"promote/{at}_real_number", "y[0] = aril_mul_scalar(x[0], 0.5);", lambda x: x[0] * 0.5,
         [randint(0, 2, 3).to(a)], grad=False)
    case(f"promote/0d_{at}_real_number", "y[0] = aril_mul_scalar(x[0], 0.5);", lambda x: x[0] * 0.5,
         [tensor(1).to(a)], grad=False)
    if a != b1:
        case(f"promote/into_{at}", "y[0] = aril_add_(aril_copy(x[0]), x[1]);",
             lambda x: x[0].clone().add_(x[1]), [randint(0, 9, 3).to(a), randint(0, 9, 3).to(u8)],
             grad=False)
case("promote/grad_f16_f32", "y[0] = aril_mul(x[0], x[1]);", lambda x: x[0] * x[1],
     [randn(2, 3, dtype=f16), randn(3)])
case("promote/grad_f32_f64", "y[0] = aril_add(x[0], x[1]);", lambda x: x[0] + x[1],
     [randn(2, 3), randn(2, 1, dtype=f64)])
case("promote/grad_i64", "y[0] = aril_mul(x[0], x[1]);", lambda x: x[0] * x[1],
     [randint(-3, 3, 2, 3), randn(3)])

# ---- three operands ----

case("where/same", "y[0] = aril_where(x[0], x[1], x[2]);", lambda x: torch.where(x[0], x[1], x[2]),
     [randbool(2, 3), randn(2, 3), randn(2, 3)])
case("where/broadcast", "y[0] = aril_where(x[0], x[1], x[2]);",
     lambda x: torch.where(x[0], x[1], x[2]), [randbool(2, 1), randn(3), randn(4, 1, 1)])
case("where/nan", "y[0] = aril_where(x[0], x[1], x[2]);", lambda x: torch.where(x[0], x[1], x[2]),
     [tensor([True, False, True]), tensor([1.0, NAN, NAN]), tensor([NAN, 2.0, INF])], grad=False)
case("where/i32", "y[0] = aril_where(x[0], x[1], x[2]);", lambda x: torch.where(x[0], x[1], x[2]),
     [randbool(4), randint(0, 9, 4, dtype=i32), randint(0, 9, 4, dtype=i32)])
case("where/mixed", "y[0] = aril_where(x[0], x[1], x[2]);", lambda x: torch.where(x[0], x[1], x[2]),
     [randbool(4), randint(0, 9, 4, dtype=i32), randn(4)])
case("where/scalar", "y[0] = aril_where(x[0], x[1], aril_scalar(0));",
     lambda x: torch.where(x[0], x[1], 0), [randbool(2, 3), randn(2, 3)])
case("lerp/same", "y[0] = aril_lerp(x[0], x[1], x[2]);", lambda x: torch.lerp(x[0], x[1], x[2]),
     [randn(2, 3), randn(2, 3), rand(2, 3)])
case("lerp/broadcast", "y[0] = aril_lerp(x[0], x[1], x[2]);",
     lambda x: torch.lerp(x[0], x[1], x[2]), [randn(2, 3), randn(3), rand(2, 1)])
case("lerp/scalar", "y[0] = aril_lerp(x[0], x[1], aril_scalar(0.25));",
     lambda x: torch.lerp(x[0], x[1], 0.25), [randn(2, 3), randn(2, 3)])
case("lerp_/in_place", "y[0] = aril_lerp_(aril_mul_scalar(x[0], 1), x[1], x[2]);",
     lambda x: (x[0] * 1).lerp_(x[1], x[2]), [randn(2, 3), randn(2, 3), rand(2, 3)])
for name in "addcmul", "addcdiv":
    fn = getattr(torch, name)
    last = randn if name == "addcmul" else (lambda *s: uniform(0.5, 2, *s))
    case(f"{name}/value", f"y[0] = aril_{name}(x[0], x[1], x[2], 0.5);",
         lambda x: fn(x[0], x[1], x[2], value=0.5), [randn(2, 3), randn(2, 3), last(2, 3)])
    case(f"{name}/broadcast", f"y[0] = aril_{name}(x[0], x[1], x[2], -2);",
         lambda x: fn(x[0], x[1], x[2], value=-2), [randn(3), randn(2, 1), last(2, 3)])
    case(f"{name}_/in_place", f"y[0] = aril_{name}_(aril_mul_scalar(x[0], 1), x[1], x[2], 0.5);",
         lambda x: fn(x[0] * 1, x[1], x[2], value=0.5), [randn(2, 3), randn(2, 3), last(3)])
case("addcmul/i64", "y[0] = aril_addcmul(x[0], x[1], x[2], 3);",
     lambda x: torch.addcmul(x[0], x[1], x[2], value=3),
     [randint(-9, 9, 4), randint(-9, 9, 4), randint(-9, 9, 4)])
case("clamp/both", "y[0] = aril_clamp(x[0], -0.5, 0.75);", lambda x: x[0].clamp(-0.5, 0.75),
     [randn(2, 5)])
case("clamp/min", "y[0] = aril_clamp_min(x[0], -0.5);", lambda x: x[0].clamp(min=-0.5),
     [randn(2, 5)])
case("clamp/max", "y[0] = aril_clamp_max(x[0], 0.5);", lambda x: x[0].clamp(max=0.5), [randn(2, 5)])
case("clamp/crossed", "y[0] = aril_clamp(x[0], 1, -1);", lambda x: x[0].clamp(1, -1), [randn(2, 5)],
     grad=False)
case("clamp_tensor/edges", "y[0] = aril_clamp_tensor(x[0], x[1], x[2]);",
     lambda x: torch.clamp(x[0], x[1], x[2]),
     [tensor([-1.0, 1.0, 0.0, 2.0, -2.0]), torch.full((5,), -1.0), torch.full((5,), 1.0)])
case("clamp_tensor/edge_min", "y[0] = aril_clamp_tensor(x[0], x[1], NULL);",
     lambda x: torch.clamp(x[0], min=x[1]), [tensor([-1.0, 1.0, -2.0]), torch.full((3,), -1.0)])
case("clamp_tensor/edge_max", "y[0] = aril_clamp_tensor(x[0], NULL, x[1]);",
     lambda x: torch.clamp(x[0], max=x[1]), [tensor([-1.0, 1.0, 2.0]), torch.full((3,), 1.0)])
case("clamp/special", "y[0] = aril_clamp(x[0], -1, 1);", lambda x: x[0].clamp(-1, 1),
     [tensor(SPECIAL)], grad=False)
case("clamp/i32", "y[0] = aril_clamp(x[0], -3, 4);", lambda x: x[0].clamp(-3, 4),
     [randint(-9, 9, 8, dtype=i32)])
case("clamp/i32_real", "y[0] = aril_clamp(x[0], -2.5, 3.5);", lambda x: x[0].clamp(-2.5, 3.5),
     [randint(-9, 9, 8, dtype=i32)])
case("clamp_/in_place", "y[0] = aril_clamp_(aril_mul_scalar(x[0], 1), -0.5, 0.75);",
     lambda x: (x[0] * 1).clamp_(-0.5, 0.75), [randn(2, 5)])
case("clamp_/min", "y[0] = aril_clamp_min_(aril_mul_scalar(x[0], 1), 0.25);",
     lambda x: (x[0] * 1).clamp_(min=0.25), [randn(2, 5)])
case("clamp_/max", "y[0] = aril_clamp_max_(aril_mul_scalar(x[0], 1), 0.25);",
     lambda x: (x[0] * 1).clamp_(max=0.25), [randn(2, 5)])
case("clamp_tensor/both", "y[0] = aril_clamp_tensor(x[0], x[1], x[2]);",
     lambda x: torch.clamp(x[0], x[1], x[2]),
     [randn(2, 5), uniform(-1, 0, 5), uniform(0, 1, 2, 1)])
case("clamp_tensor/min", "y[0] = aril_clamp_tensor(x[0], x[1], NULL);",
     lambda x: torch.clamp(x[0], min=x[1]), [randn(2, 5), uniform(-1, 0, 5)])
case("clamp_tensor/max", "y[0] = aril_clamp_tensor(x[0], NULL, x[1]);",
     lambda x: torch.clamp(x[0], max=x[1]), [randn(2, 5), uniform(-1, 0, 5)])
case("clamp_tensor/crossed", "y[0] = aril_clamp_tensor(x[0], x[1], x[2]);",
     lambda x: torch.clamp(x[0], x[1], x[2]),
     [randn(2, 5), uniform(0.5, 1, 5), uniform(-1, -0.5, 5)])
for name, args, fn in [("leaky_relu", ", 0.1", lambda a: F.leaky_relu(a, 0.1)),
                       ("elu", ", 1.5", lambda a: F.elu(a, 1.5)),
                       ("celu", ", 0.7", lambda a: F.celu(a, 0.7)),
                       ("hardtanh", ", -0.5, 2", lambda a: F.hardtanh(a, -0.5, 2))]:
    case(f"{name}_/in_place", f"y[0] = aril_{name}_(aril_mul_scalar(x[0], 1){args});",
         lambda x: fn(x[0] * 1), [between()])

# ---- together ----

case("chain/views", "y[0] = aril_add(aril_transpose(x[0], 0, 1), aril_slice(x[1], 0, -1, ARIL_END, -1));",
     lambda x: x[0].t() + x[1].flip(0), [randn(2, 3), randn(3, 2)])
case("chain/shared", "y[0] = aril_mul(aril_tanh(x[0]), aril_add(x[0], aril_sigmoid(x[0])));",
     lambda x: torch.tanh(x[0]) * (x[0] + torch.sigmoid(x[0])), [randn(2, 3)])
case("chain/expanded", "y[0] = aril_mul(aril_expand(x[0], ARIL_SHAPE(4, 3)), x[1]);",
     lambda x: x[0].expand(4, 3) * x[1], [randn(1, 3), randn(4, 3)])
case("chain/in_place_on_view",
     "aril_tensor *t = aril_mul_scalar(x[0], 2); aril_mul_(aril_slice(t, 1, 0, 2, 1), x[1]); "
     "y[0] = aril_square(t);",
     lambda x: torch.square(torch.cat([x[0][:, :2] * 2 * x[1], x[0][:, 2:] * 2], 1)),
     [randn(2, 3), randn(2, 2)])
# At a bound given as a number no gradient flows.
for name, c, fn in [("both", "aril_clamp(x[0], 0, 1)", lambda x: x[0].clamp(0, 1)),
                    ("min", "aril_clamp_min(x[0], 0)", lambda x: x[0].clamp(min=0)),
                    ("max", "aril_clamp_max(x[0], 1)", lambda x: x[0].clamp(max=1))]:
    case(f"clamp/at_bound_{name}", f"y[0] = {c};", fn, [tensor([0.0, 1.0, 0.5, -1.0, 2.0])])
