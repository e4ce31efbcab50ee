"""Views, in-place writes through them, and tensors made from nothing."""
from golden import *

i64 = torch.int64
f64 = torch.float64


def same(name, c, fn, *inputs, **more):
    """A case of one result."""
    case(name, f"y[0] = {c};", fn, list(inputs), **more)


# ---- shapes over the same elements ----
same("flatten/all", "aril_flatten(x[0], 0, -1)", lambda x: x[0].flatten(), randn(2, 3, 4))
same("flatten/tail", "aril_flatten(x[0], 1, -1)", lambda x: x[0].flatten(1), randn(2, 3, 4))
same("flatten/head", "aril_flatten(x[0], 0, 1)", lambda x: x[0].flatten(0, 1), randn(2, 3, 4))
same("flatten/one_axis", "aril_flatten(x[0], 1, 1)", lambda x: x[0].flatten(1, 1), randn(2, 3))
same("flatten/scalar", "aril_flatten(x[0], 0, 0)", lambda x: x[0].flatten(), randn())
same("flatten/empty", "aril_flatten(x[0], 0, -1)", lambda x: x[0].flatten(), randn(2, 0, 3))
same("flatten/transposed", "aril_flatten(aril_t(x[0]), 0, -1)", lambda x: x[0].t().flatten(),
     randn(2, 3))
same("flatten/sliced", "aril_flatten(aril_slice(x[0], 2, 0, 2, 1), 0, 1)",
     lambda x: x[0][:, :, :2].flatten(0, 1), randn(2, 3, 4))
same("reshape/infer", "aril_reshape(x[0], ARIL_SHAPE(3, -1))", lambda x: x[0].reshape(3, -1),
     randn(2, 6))
same("reshape/permuted", "aril_reshape(aril_permute(x[0], ARIL_AXES(2, 0, 1)), ARIL_SHAPE(4, 6))",
     lambda x: x[0].permute(2, 0, 1).reshape(4, 6), randn(2, 3, 4))
same("view/split_axis", "aril_view(x[0], ARIL_SHAPE(2, 3, 2))", lambda x: x[0].view(2, 3, 2),
     randn(2, 6))
same("squeeze/all", "aril_squeeze(x[0], ARIL_ALL)", lambda x: x[0].squeeze(), randn(1, 3, 1, 2))
same("squeeze/axis", "aril_squeeze(x[0], ARIL_AXES(2))", lambda x: x[0].squeeze(2),
     randn(1, 3, 1, 2))
same("squeeze/axes", "aril_squeeze(x[0], ARIL_AXES(0, -2))", lambda x: x[0].squeeze((0, -2)),
     randn(1, 3, 1, 2))
same("squeeze/not_one", "aril_squeeze(x[0], ARIL_AXES(1))", lambda x: x[0].squeeze(1), randn(1, 3))
same("squeeze/scalar", "aril_squeeze(x[0], ARIL_ALL)", lambda x: x[0].squeeze(), randn())
same("unsqueeze/front", "aril_unsqueeze(x[0], 0)", lambda x: x[0].unsqueeze(0), randn(2, 3))
same("unsqueeze/back", "aril_unsqueeze(x[0], -1)", lambda x: x[0].unsqueeze(-1), randn(2, 3))
same("transpose/negative", "aril_transpose(x[0], -1, 0)", lambda x: x[0].transpose(-1, 0),
     randn(2, 3, 4))
same("t/matrix", "aril_t(x[0])", lambda x: x[0].t(), randn(2, 3))
same("t/vector", "aril_t(x[0])", lambda x: x[0].t(), randn(3))
same("permute/cycle", "aril_permute(x[0], ARIL_AXES(1, 2, 0))", lambda x: x[0].permute(1, 2, 0),
     randn(2, 3, 4))
same("swapaxes", "aril_swapaxes(x[0], 0, 2)", lambda x: x[0].swapaxes(0, 2), randn(2, 3, 4))
same("movedim/one", "aril_movedim(x[0], ARIL_AXES(0), ARIL_AXES(-1))",
     lambda x: x[0].movedim(0, -1), randn(2, 3, 4))
same("movedim/two", "aril_movedim(x[0], ARIL_AXES(0, 3), ARIL_AXES(2, 0))",
     lambda x: x[0].movedim((0, 3), (2, 0)), randn(2, 3, 4, 5))
same("expand/lead", "aril_expand(x[0], ARIL_SHAPE(2, -1, 4))", lambda x: x[0].expand(2, -1, 4),
     randn(3, 1))
same("broadcast_to/row", "aril_broadcast_to(x[0], ARIL_SHAPE(2, 3))",
     lambda x: x[0].broadcast_to(2, 3), randn(3))
same("broadcast_to/scalar", "aril_broadcast_to(x[0], ARIL_SHAPE(2, 2))",
     lambda x: x[0].broadcast_to(2, 2), randn())

# ---- parts ----
same("slice/middle", "aril_slice(x[0], 0, 1, 4, 1)", lambda x: x[0][1:4], randn(5, 2))
same("slice/step", "aril_slice(x[0], 1, 0, ARIL_END, 2)", lambda x: x[0][:, ::2], randn(2, 5))
same("slice/negative_ends", "aril_slice(x[0], 0, -4, -1, 1)", lambda x: x[0][-4:-1], randn(5))
same("slice/clipped", "aril_slice(x[0], 0, 2, 100, 1)", lambda x: x[0][2:100], randn(5))
same("slice/empty", "aril_slice(x[0], 0, 3, 1, 1)", lambda x: x[0][3:1], randn(5, 2))
same("slice/backwards", "aril_slice(x[0], 0, 4, 0, -2)", lambda x: x[0].flip(0)[0:4:2],
     randn(5, 2))
same("slice/of_slice", "aril_slice(aril_slice(x[0], 0, 1, 7, 2), 0, 1, 3, 1)",
     lambda x: x[0][1:7:2][1:3], randn(8))
same("select/first", "aril_select(x[0], 0, 1)", lambda x: x[0].select(0, 1), randn(3, 4))
same("select/negative", "aril_select(x[0], -1, -2)", lambda x: x[0].select(-1, -2), randn(2, 3, 4))
same("select/to_scalar", "aril_select(x[0], 0, 2)", lambda x: x[0].select(0, 2), randn(4))
same("select/int", "aril_select(x[0], 1, 0)", lambda x: x[0].select(1, 0), randint(-9, 9, 3, 2))
same("narrow/middle", "aril_narrow(x[0], 1, 1, 2)", lambda x: x[0].narrow(1, 1, 2), randn(2, 4))
same("narrow/from_end", "aril_narrow(x[0], 0, -3, 2)", lambda x: x[0].narrow(0, -3, 2),
     randn(5, 2))
same("narrow/none", "aril_narrow(x[0], 0, 2, 0)", lambda x: x[0].narrow(0, 2, 0), randn(5, 2))
same("diagonal/main", "aril_diagonal(x[0], 0, 0, 1)", lambda x: x[0].diagonal(), randn(3, 4))
same("diagonal/above", "aril_diagonal(x[0], 2, 0, 1)", lambda x: x[0].diagonal(2), randn(3, 4))
same("diagonal/below", "aril_diagonal(x[0], -1, 0, 1)", lambda x: x[0].diagonal(-1), randn(4, 3))
same("diagonal/batch", "aril_diagonal(x[0], 0, -2, -1)", lambda x: x[0].diagonal(0, -2, -1),
     randn(2, 3, 3))
same("diagonal/swapped", "aril_diagonal(x[0], 1, 2, 0)", lambda x: x[0].diagonal(1, 2, 0),
     randn(3, 2, 4))
same("diagonal/outside", "aril_diagonal(x[0], 9, 0, 1)", lambda x: x[0].diagonal(4), randn(3, 4))
same("flip/one", "aril_flip(x[0], ARIL_AXES(0))", lambda x: x[0].flip(0), randn(3, 2))
same("flip/two", "aril_flip(x[0], ARIL_AXES(0, -1))", lambda x: x[0].flip(0, -1), randn(2, 3, 4))
same("flip/of_slice", "aril_flip(aril_slice(x[0], 1, 1, 5, 2), ARIL_AXES(1))",
     lambda x: x[0][:, 1:5:2].flip(1), randn(2, 6))
same("flip/int", "aril_flip(x[0], ARIL_AXES(0))", lambda x: x[0].flip(0), randint(0, 9, 5))
case("split/even", "aril_split(x[0], 2, 0, y);", lambda x: x[0].split(2), [randn(4, 3)])
case("split/rest", "aril_split(x[0], 2, 1, y);", lambda x: x[0].split(2, 1), [randn(2, 5)])
case("split/larger", "aril_split(x[0], 9, 0, y);", lambda x: x[0].split(9), [randn(4)])
case("split/sizes", "aril_split_sizes(x[0], (int64_t[]){1, 0, 3}, 3, -1, y);",
     lambda x: x[0].split([1, 0, 3], -1), [randn(2, 4)])
case("chunk/even", "aril_chunk(x[0], 2, 0, y);", lambda x: x[0].chunk(2), [randn(4, 2)])
case("chunk/fewer", "aril_chunk(x[0], 4, 0, y);", lambda x: x[0].chunk(4), [randn(5)])
case("chunk/rest", "aril_chunk(x[0], 3, 1, y);", lambda x: x[0].chunk(3, 1), [randn(2, 7)])
case("chunk/empty", "aril_chunk(x[0], 3, 0, y);", lambda x: x[0].chunk(3), [randn(0, 2)])
case("unbind/rows", "aril_unbind(x[0], 0, y);", lambda x: x[0].unbind(), [randn(3, 2)])
case("unbind/columns", "aril_unbind(x[0], -1, y);", lambda x: x[0].unbind(-1), [randn(2, 3)])

# ---- from nothing ----
case("arange/whole", "y[0] = aril_arange(2, 11, 3, ARIL_I64, test_device());",
     lambda x: torch.arange(2, 11, 3), [])
case("arange/down", "y[0] = aril_arange(5, 0, -2, ARIL_I32, test_device());",
     lambda x: torch.arange(5, 0, -2, dtype=torch.int32), [])
case("arange/real", "y[0] = aril_arange(0.5, 2, 0.3, ARIL_F32, test_device());",
     lambda x: torch.arange(0.5, 2, 0.3), [])
case("arange/none", "y[0] = aril_arange(3, 3, 1, ARIL_F64, test_device());",
     lambda x: torch.arange(3, 3, 1, dtype=f64), [])
case("arange/large", "y[0] = aril_arange((INT64_C(1) << 60) + 1, (INT64_C(1) << 60) + 4, 1, "
     "ARIL_I64, test_device());", lambda x: torch.arange(2**60 + 1, 2**60 + 4), [])
case("arange/f16", "y[0] = aril_arange(0, 1, 0.25, ARIL_F16, test_device());",
     lambda x: torch.arange(0, 1, 0.25, dtype=torch.float16), [])
case("linspace/five", "y[0] = aril_linspace(-1, 1, 5, ARIL_F32, test_device());",
     lambda x: torch.linspace(-1, 1, 5), [])
case("linspace/thirds", "y[0] = aril_linspace(0, 1, 4, ARIL_F64, test_device());",
     lambda x: torch.linspace(0, 1, 4, dtype=f64), [])
case("linspace/one", "y[0] = aril_linspace(3, 9, 1, ARIL_F32, test_device());",
     lambda x: torch.linspace(3, 9, 1), [])
case("linspace/int", "y[0] = aril_linspace(0, 10, 4, ARIL_I64, test_device());",
     lambda x: torch.linspace(0, 10, 4, dtype=i64), [])
same("full_like/int", "aril_full_like(x[0], 7)", lambda x: torch.full_like(x[0], 7),
     randint(0, 3, 2, 2))
same("full_like/large", "aril_full_like(x[0], (INT64_C(1) << 60) + 1)",
     lambda x: torch.full_like(x[0], 2**60 + 1), randint(0, 3, 2))

# ---- windows, rolling, triangles ----
same("unfold/overlap", "aril_unfold_view(x[0], 0, 3, 1)", lambda x: x[0].unfold(0, 3, 1), randn(6))
same("unfold/gaps", "aril_unfold_view(x[0], 1, 2, 3)", lambda x: x[0].unfold(1, 2, 3), randn(2, 8))
same("unfold/middle", "aril_unfold_view(x[0], 1, 3, 2)", lambda x: x[0].unfold(1, 3, 2),
     randn(2, 7, 3))
same("unfold/twice", "aril_unfold_view(aril_unfold_view(x[0], 0, 2, 1), 1, 2, 1)",
     lambda x: x[0].unfold(0, 2, 1).unfold(1, 2, 1), randn(4, 3))
same("unfold/scalar", "aril_unfold_view(x[0], 0, 1, 1)", lambda x: x[0].unfold(0, 1, 1), randn())
same("unfold/squared", "aril_square(aril_unfold_view(x[0], 0, 3, 2))",
     lambda x: x[0].unfold(0, 3, 2)**2, randn(7, dtype=f64))
same("roll/one", "aril_roll(x[0], ARIL_SHAPE(1), ARIL_AXES(0))", lambda x: x[0].roll(1, 0),
     randn(4, 2))
same("roll/back", "aril_roll(x[0], ARIL_SHAPE(-2), ARIL_AXES(1))", lambda x: x[0].roll(-2, 1),
     randn(2, 5))
same("roll/far", "aril_roll(x[0], ARIL_SHAPE(12), ARIL_AXES(0))", lambda x: x[0].roll(12, 0),
     randn(5))
same("roll/two", "aril_roll(x[0], ARIL_SHAPE(1, -1), ARIL_AXES(0, 2))",
     lambda x: x[0].roll((1, -1), (0, 2)), randn(2, 3, 4))
same("roll/flat", "aril_roll(x[0], ARIL_SHAPE(2), ARIL_ALL)", lambda x: x[0].roll(2), randn(2, 3))
same("roll/int8", "aril_roll(x[0], ARIL_SHAPE(2), ARIL_AXES(-1))", lambda x: x[0].roll(2, -1),
     randint(-9, 9, 2, 3, dtype=torch.int8))
same("roll/transposed", "aril_roll(aril_t(x[0]), ARIL_SHAPE(1), ARIL_AXES(0))",
     lambda x: x[0].t().roll(1, 0), randn(2, 3))
same("tril/square", "aril_tril(x[0], 0)", lambda x: x[0].tril(), randn(3, 3))
same("tril/above", "aril_tril(x[0], 1)", lambda x: x[0].tril(1), randn(3, 4))
same("tril/below", "aril_tril(x[0], -2)", lambda x: x[0].tril(-2), randn(4, 3))
same("tril/batch", "aril_tril(x[0], 0)", lambda x: x[0].tril(), randn(2, 2, 3, 3))
same("tril/nan", "aril_tril(x[0], 0)", lambda x: x[0].tril(),
     tensor([[1.0, float("nan")], [2.0, 3.0]]), grad=False)
same("triu/square", "aril_triu(x[0], 0)", lambda x: x[0].triu(), randn(3, 3))
same("triu/above", "aril_triu(x[0], 2)", lambda x: x[0].triu(2), randn(3, 4))
same("triu/below", "aril_triu(x[0], -1)", lambda x: x[0].triu(-1), randn(2, 4, 3))
same("triu/far", "aril_triu(x[0], 100)", lambda x: x[0].triu(100), randn(3, 3))
same("triu/bool", "aril_triu(x[0], 1)", lambda x: x[0].triu(1), randbool(3, 3))
same("triu/transposed", "aril_triu(aril_t(x[0]), 0)", lambda x: x[0].t().triu(), randn(3, 4))
case("eye/square", "y[0] = aril_eye(3, -1, ARIL_F32, test_device());", lambda x: torch.eye(3), [])
case("eye/wide", "y[0] = aril_eye(2, 4, ARIL_I32, test_device());",
     lambda x: torch.eye(2, 4, dtype=torch.int32), [])
case("eye/tall", "y[0] = aril_eye(4, 2, ARIL_BF16, test_device());",
     lambda x: torch.eye(4, 2, dtype=torch.bfloat16), [])


# ---- in place, through every kind of view ----
def write(name, view_c, view, *inputs, deep=False):
    """x[0] doubled, a view of it multiplied and replaced in part, then the whole used."""
    def run(x):
        b = x[0] * 2
        v = view(b)
        v.mul_(x[1])
        v.add_(v.clone().sin() if deep else x[1])
        return b * b, v * 3
    case("write/" + name, f"""
        aril_tensor *b = aril_mul_scalar(x[0], 2), *v = {view_c};
        aril_mul_(v, x[1]);
        aril_add_(v, {"aril_sin(aril_copy(v))" if deep else "x[1]"});
        y[0] = aril_mul(b, b);
        y[1] = aril_mul_scalar(v, 3);""", run, list(inputs), dtype=f64)


write("slice", "aril_slice(b, 0, 1, 3, 1)", lambda b: b[1:3], randn(4, 3), randn(3))
write("slice_step", "aril_slice(b, 1, 0, ARIL_END, 2)", lambda b: b[:, ::2], randn(2, 5),
      randn(2, 3), deep=True)
write("select", "aril_select(b, 1, -1)", lambda b: b.select(1, -1), randn(3, 2), randn(3))
write("narrow", "aril_narrow(b, 0, 1, 2)", lambda b: b.narrow(0, 1, 2), randn(4, 2), randn(2, 2),
      deep=True)
write("diagonal", "aril_diagonal(b, 0, 0, 1)", lambda b: b.diagonal(), randn(3, 3), randn(3))
write("diagonal_above", "aril_diagonal(b, 1, 1, 2)", lambda b: b.diagonal(1, 1, 2),
      randn(2, 3, 4), randn(2, 3), deep=True)
write("transpose", "aril_t(b)", lambda b: b.t(), randn(2, 3), randn(3, 2))
write("permute", "aril_permute(b, ARIL_AXES(2, 0, 1))", lambda b: b.permute(2, 0, 1),
      randn(2, 3, 2), randn(2, 2, 3), deep=True)
write("reshape", "aril_reshape(b, ARIL_SHAPE(3, 4))", lambda b: b.view(3, 4), randn(2, 6),
      randn(3, 4))
write("flatten", "aril_flatten(b, 0, -1)", lambda b: b.flatten(), randn(2, 3), randn(6), deep=True)
write("unsqueeze", "aril_unsqueeze(b, 1)", lambda b: b.unsqueeze(1), randn(2, 3), randn(2, 1, 3))
write("squeeze", "aril_squeeze(b, ARIL_ALL)", lambda b: b.squeeze(), randn(2, 1, 3), randn(2, 3))
write("movedim", "aril_movedim(b, ARIL_AXES(0), ARIL_AXES(-1))", lambda b: b.movedim(0, -1),
      randn(2, 3), randn(3, 2))
write("windows", "aril_unfold_view(b, 0, 2, 2)", lambda b: b.unfold(0, 2, 2), randn(6),
      randn(3, 2), deep=True)
write("slice_of_transpose", "aril_slice(aril_t(b), 0, 1, 3, 1)", lambda b: b.t()[1:3],
      randn(2, 4), randn(2, 2), deep=True)
write("select_of_reshape", "aril_select(aril_reshape(b, ARIL_SHAPE(2, 2, 3)), 1, 0)",
      lambda b: b.view(2, 2, 3).select(1, 0), randn(4, 3), randn(2, 3), deep=True)
write("diagonal_of_slice", "aril_diagonal(aril_slice(b, 1, 1, 4, 1), 0, 0, 1)",
      lambda b: b[:, 1:4].diagonal(), randn(3, 5), randn(3), deep=True)
def _two_views(x):
    b = x[0] * 1
    u, v = b.select(0, 0), b.select(1, 0)
    u.mul_(x[1])
    v.mul_(x[1])
    return b * b, u.exp()


def _fill(x):
    b = x[0] * 2
    b.select(0, 1).fill_(5)
    return b * x[0]


def _zero(x):
    b = x[0] * 2
    b.view(6)[1:4].zero_()
    return b.t() * x[0].t()


def _copy(x):
    b = x[0] * 2
    b[:, :2].copy_(x[1])
    return b * b


def _split(x):
    b = x[0] * 2
    b[2:].add_(b[:2])
    return b * x[0]


def _triangles(x):
    b = x[0] * 2
    b.select(0, 1).tril_()
    b.select(0, 0).triu_(1)
    return b * x[0]


def _permuted(x):
    b = x[0] * 2
    b.view(3, 2).mul_(x[1])
    return b.permute(1, 0)


case("write/flip", """
    aril_tensor *b = aril_mul_scalar(x[0], 2), *v = aril_flip(b, ARIL_AXES(0));
    aril_mul_(v, x[1]);
    y[0] = aril_mul(b, b);""",
     lambda x: (x[0] * 2 * x[1].flip(0))**2, [randn(4, 2), randn(4, 2)], dtype=f64)
case("write/two_views", """
    aril_tensor *b = aril_mul_scalar(x[0], 1), *u = aril_select(b, 0, 0), *v = aril_select(b, 1, 0);
    aril_mul_(u, x[1]);
    aril_mul_(v, x[1]);
    y[0] = aril_mul(b, b);
    y[1] = aril_exp(u);""",
     lambda x: _two_views(x), [randn(3, 3), randn(3)], dtype=f64)
case("write/fill", """
    aril_tensor *b = aril_mul_scalar(x[0], 2);
    aril_fill_(aril_select(b, 0, 1), 5);
    y[0] = aril_mul(b, x[0]);""", lambda x: _fill(x), [randn(3, 2)], dtype=f64)
case("write/zero_of_reshape", """
    aril_tensor *b = aril_mul_scalar(x[0], 2);
    aril_zero_(aril_slice(aril_reshape(b, ARIL_SHAPE(6)), 0, 1, 4, 1));
    y[0] = aril_mul(aril_t(b), aril_t(x[0]));""", lambda x: _zero(x), [randn(2, 3)], dtype=f64)
case("write/copy", """
    aril_tensor *b = aril_mul_scalar(x[0], 2);
    aril_copy_(aril_slice(b, 1, 0, 2, 1), x[1]);
    y[0] = aril_mul(b, b);""", lambda x: _copy(x), [randn(3, 4), randn(2)], dtype=f64)
case("write/split", """
    aril_tensor *b = aril_mul_scalar(x[0], 2), *p[2];
    aril_split(b, 2, 0, p);
    aril_add_(p[1], p[0]);
    y[0] = aril_mul(b, x[0]);""", lambda x: _split(x), [randn(4, 2)], dtype=f64)
case("write/tril", """
    aril_tensor *b = aril_mul_scalar(x[0], 2);
    aril_tril_(aril_select(b, 0, 1), 0);
    aril_triu_(aril_select(b, 0, 0), 1);
    y[0] = aril_mul(b, x[0]);""", lambda x: _triangles(x), [randn(2, 3, 3)], dtype=f64)
case("write/permuted_gradient", """
    aril_tensor *b = aril_mul_scalar(x[0], 2), *v = aril_reshape(b, ARIL_SHAPE(3, 2));
    aril_mul_(v, x[1]);
    y[0] = aril_permute(b, ARIL_AXES(1, 0));""", lambda x: _permuted(x),
     [randn(2, 3), randn(3, 2)], dtype=f64)

