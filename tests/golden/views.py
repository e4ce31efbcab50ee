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
case("arange/whole", "y[0] = aril_arange(2, 11, 3, ARIL_I64, aril_cpu());",
     lambda x: torch.arange(2, 11, 3), [])
case("arange/down", "y[0] = aril_arange(5, 0, -2, ARIL_I32, aril_cpu());",
     lambda x: torch.arange(5, 0, -2, dtype=torch.int32), [])
case("arange/real", "y[0] = aril_arange(0.5, 2, 0.3, ARIL_F32, aril_cpu());",
     lambda x: torch.arange(0.5, 2, 0.3), [])
case("arange/none", "y[0] = aril_arange(3, 3, 1, ARIL_F64, aril_cpu());",
     lambda x: torch.arange(3, 3, 1, dtype=f64), [])
case("arange/large", "y[0] = aril_arange((INT64_C(1) << 60) + 1, (INT64_C(1) << 60) + 4, 1, "
     "ARIL_I64, aril_cpu());", lambda x: torch.arange(2**60 + 1, 2**60 + 4), [])
case("arange/f16", "y[0] = aril_arange(0, 1, 0.25, ARIL_F16, aril_cpu());",
     lambda x: torch.arange(0, 1, 0.25, dtype=torch.float16), [])
case("linspace/five", "y[0] = aril_linspace(-1, 1, 5, ARIL_F32, aril_cpu());",
     lambda x: torch.linspace(-1, 1, 5), [])
case("linspace/thirds", "y[0] = aril_linspace(0, 1, 4, ARIL_F64, aril_cpu());",
     lambda x: torch.linspace(0, 1, 4, dtype=f64), [])
case("linspace/one", "y[0] = aril_linspace(3, 9, 1, ARIL_F32, aril_cpu());",
     lambda x: torch.linspace(3, 9, 1), [])
case("linspace/int", "y[0] = aril_linspace(0, 10, 4, ARIL_I64, aril_cpu());",
     lambda x: torch.linspace(0, 10, 4, dtype=i64), [])
same("full_like/int", "aril_full_like(x[0], 7)", lambda x: torch.full_like(x[0], 7),
     randint(0, 3, 2, 2))
same("full_like/large", "aril_full_like(x[0], (INT64_C(1) << 60) + 1)",
     lambda x: torch.full_like(x[0], 2**60 + 1), randint(0, 3, 2))
