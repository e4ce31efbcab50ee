"""Indexing, scattering, masks, joining and padding."""
from golden import *


# ---- along one axis ----

case("index_select/axis0", "y[0] = aril_index_select(x[0], x[1], 0);",
     lambda x: torch.index_select(x[0], 0, x[1]), [randn(4, 3), tensor([0, 3, 3, 1])])
case("index_select/axis1", "y[0] = aril_index_select(x[0], x[1], 1);",
     lambda x: torch.index_select(x[0], 1, x[1]), [randn(2, 4, 3), tensor([2, 0])])
case("index_select/last", "y[0] = aril_index_select(x[0], x[1], -1);",
     lambda x: torch.index_select(x[0], -1, x[1]),
     [randn(2, 3, 4, dtype=torch.float64), tensor([3, 0, 1, 1, 2], dtype=torch.int32)])
case("index_select/int", "y[0] = aril_index_select(x[0], x[1], 0);",
     lambda x: torch.index_select(x[0], 0, x[1]), [randint(0, 9, 4, 3), tensor([1, 1])])
case("index_select/empty", "y[0] = aril_index_select(x[0], x[1], 0);",
     lambda x: torch.index_select(x[0], 0, x[1]), [randn(4, 3), torch.zeros(0, dtype=torch.int64)])
case("index_select/2d", "y[0] = aril_index_select(x[0], x[1], 1);",
     lambda x: x[0][:, x[1]], [randn(2, 4, 3), tensor([[2, 0], [1, -1]])])
case("index_select/transposed", "y[0] = aril_index_select(aril_t(x[0]), x[1], 0);",
     lambda x: torch.index_select(x[0].t(), 0, x[1]), [randn(3, 4), tensor([2, 0, 2])])

case("gather/axis0", "y[0] = aril_gather(x[0], x[1], 0);", lambda x: torch.gather(x[0], 0, x[1]),
     [randn(4, 3), randint(0, 4, 5, 3)])
case("gather/axis1", "y[0] = aril_gather(x[0], x[1], 1);", lambda x: torch.gather(x[0], 1, x[1]),
     [randn(4, 3), randint(0, 3, 2, 5)])
case("gather/3d", "y[0] = aril_gather(x[0], x[1], 1);", lambda x: torch.gather(x[0], 1, x[1]),
     [randn(2, 3, 4), randint(0, 3, 2, 5, 3)])
case("gather/i16", "y[0] = aril_gather(x[0], x[1], -1);", lambda x: torch.gather(x[0], -1, x[1]),
     [randint(-9, 9, 2, 3, 4, dtype=torch.int16), randint(0, 4, 2, 3, 2)])
case("gather/bf16", "y[0] = aril_gather(x[0], x[1], 1);", lambda x: torch.gather(x[0], 1, x[1]),
     [randn(2, 3, dtype=torch.bfloat16), randint(0, 3, 2, 2)])
case("gather/0d", "y[0] = aril_gather(x[0], x[1], 0);", lambda x: torch.gather(x[0], 0, x[1]),
     [randn(), tensor(0)])
case("gather/strided", "y[0] = aril_gather(aril_t(x[0]), aril_t(x[1]), 0);",
     lambda x: torch.gather(x[0].t(), 0, x[1].t()), [randn(3, 4), randint(0, 4, 3, 2)])

case("embedding/2d", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){0});",
     lambda x: F.embedding(x[1], x[0]), [randn(5, 3), randint(0, 5, 2, 4)])
case("embedding/padding", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){2});",
     lambda x: F.embedding(x[1], x[0], padding_idx=2), [randn(5, 3), tensor([0, 2, 2, 4, 0])])
case("embedding/padding0", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){ARIL_ZERO});",
     lambda x: F.embedding(x[1], x[0], padding_idx=0), [randn(5, 3), tensor([0, 2, 2, 4, 0])])
case("embedding/padding_last", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){-1});",
     lambda x: F.embedding(x[1], x[0], padding_idx=-1), [randn(5, 3), tensor([[0, 4], [4, 1]])])
case("embedding/scalar", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){0});",
     lambda x: F.embedding(x[1], x[0]), [randn(5, 3), tensor(3)])
case("embedding/bf16", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){0});",
     lambda x: F.embedding(x[1], x[0]),
     [randn(5, 3, dtype=torch.bfloat16), tensor([1, 4], dtype=torch.int32)])
case("embedding/f64", "y[0] = aril_embedding(x[1], x[0], (aril_embedding_opts){0});",
     lambda x: F.embedding(x[1], x[0]), [randn(5, 2, dtype=torch.float64), randint(0, 5, 9)])

# ---- scatter ----

case("scatter/axis0", "y[0] = aril_scatter(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter(0, x[1], x[2]),
     [randn(4, 3), tensor([[0, 3, 1], [2, 0, 3]]), randn(2, 3)])
case("scatter/axis1", "y[0] = aril_scatter(x[0], x[1], x[2], 1);",
     lambda x: x[0].scatter(1, x[1], x[2]), [randn(3, 4), tensor([[0, 3], [2, 1]]), randn(2, 2)])
case("scatter/larger_src", "y[0] = aril_scatter(x[0], x[1], x[2], 1);",
     lambda x: x[0].scatter(1, x[1], x[2][:2, :2]),
     [randn(3, 4), tensor([[0, 3], [2, 1]]), randn(3, 3)])
case("scatter/number", "y[0] = aril_scatter(x[0], x[1], aril_scalar(2.5), 1);",
     lambda x: x[0].scatter(1, x[1], 2.5), [randn(3, 4), tensor([[0, 3], [2, 1]])])
case("scatter/int", "y[0] = aril_scatter(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter(0, x[1], x[2]), [randint(0, 9, 5), tensor([4, 0]), randint(10, 20, 2)])
case("scatter/bool", "y[0] = aril_scatter(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter(0, x[1], x[2]), [randbool(5), tensor([4, 0]), randbool(2)])
case("scatter/f16", "y[0] = aril_scatter(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter(0, x[1], x[2]),
     [randn(5, dtype=torch.float16), tensor([4, 0]), randn(2, dtype=torch.float16)])
case("scatter/empty", "y[0] = aril_scatter(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter(0, x[1], x[2]), [randn(5), torch.zeros(0, dtype=torch.int64), randn(0)])

case("scatter_add/axis0", "y[0] = aril_scatter_add(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter_add(0, x[1], x[2]), [randn(4, 3), randint(0, 4, 6, 3), randn(6, 3)])
case("scatter_add/axis1", "y[0] = aril_scatter_add(x[0], x[1], x[2], 1);",
     lambda x: x[0].scatter_add(1, x[1], x[2]),
     [randn(3, 4, dtype=torch.float64), randint(0, 4, 2, 5), randn(2, 5, dtype=torch.float64)])
case("scatter_add/int", "y[0] = aril_scatter_add(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter_add(0, x[1], x[2]),
     [randint(0, 9, 4, dtype=torch.int32), randint(0, 4, 7), randint(0, 9, 7, dtype=torch.int32)])
case("scatter_add/f16", "y[0] = aril_scatter_add(x[0], x[1], x[2], 0);",
     lambda x: x[0].scatter_add(0, x[1], x[2]),
     [randn(4, dtype=torch.float16), tensor([1, 3, 0]), randn(3, dtype=torch.float16)])
case("scatter_add/3d", "y[0] = aril_scatter_add(x[0], x[1], x[2], 1);",
     lambda x: x[0].scatter_add(1, x[1], x[2]), [randn(2, 3, 4), randint(0, 3, 2, 4, 4), randn(2, 4, 4)])
case("scatter_add/transposed", "y[0] = aril_scatter_add(aril_t(x[0]), x[1], x[2], 0);",
     lambda x: x[0].t().scatter_add(0, x[1], x[2]), [randn(3, 4), randint(0, 4, 5, 3), randn(5, 3)])
case("scatter_add/in_place", "y[0] = aril_scatter_add_(aril_mul_scalar(x[0], 2), x[1], x[2], 0);",
     lambda x: (x[0] * 2).scatter_add_(0, x[1], x[2]), [randn(4, 3), randint(0, 4, 6, 3), randn(6, 3)])
case("scatter/in_place", "y[0] = aril_scatter_(aril_mul_scalar(x[0], 2), x[1], x[2], 0);",
     lambda x: (x[0] * 2).scatter_(0, x[1], x[2]),
     [randn(4, 3), tensor([[0, 3, 1], [2, 0, 3]]), randn(2, 3)])

for short, reduce in [("mul", "prod"), ("max", "amax"), ("min", "amin")]:
    for name, inputs in [
            ("axis0", [randn(4, 3), randint(0, 4, 6, 3), randn(6, 3)]),
            ("axis1", [randn(3, 4, dtype=torch.float64), randint(0, 4, 2, 5),
                       randn(2, 5, dtype=torch.float64)])]:
        for alone in (False, True):
            axis = int(name[-1])
            case("scatter_%s/%s%s" % (short, name, "_alone" if alone else ""),
                 "y[0] = aril_scatter_%s(x[0], x[1], x[2], %d, (aril_scatter_opts){%s});"
                 % (short, axis, "true" if alone else "0"),
                 lambda x, axis=axis, reduce=reduce, alone=alone:
                 x[0].scatter_reduce(axis, x[1], x[2], reduce, include_self=not alone), inputs)
case("scatter_mul/zeros", "y[0] = aril_scatter_mul(x[0], x[1], x[2], 0, (aril_scatter_opts){0});",
     lambda x: x[0].scatter_reduce(0, x[1], x[2], "prod"),
     [tensor([2.0, 0.0, 3.0, 0.0]), tensor([0, 0, 1, 2, 2, 3]),
      tensor([0.0, 3.0, 2.0, 0.0, 0.0, 5.0])])
case("scatter_max/ties", "y[0] = aril_scatter_max(x[0], x[1], x[2], 0, (aril_scatter_opts){0});",
     lambda x: x[0].scatter_reduce(0, x[1], x[2], "amax"),
     [tensor([2.0, 1.0, 3.0]), tensor([0, 0, 1, 1, 2]), tensor([2.0, 2.0, 5.0, 5.0, 1.0])])
case("scatter_max/int", "y[0] = aril_scatter_max(x[0], x[1], x[2], 0, (aril_scatter_opts){true});",
     lambda x: x[0].scatter_reduce(0, x[1], x[2], "amax", include_self=False),
     [randint(0, 9, 4), randint(0, 4, 3), randint(-9, 9, 3)])

# ---- nonzero, cat, stack ----

case("nonzero/2d", "y[0] = aril_nonzero(x[0]);", lambda x: torch.nonzero(x[0]), [randbool(3, 4)])
case("nonzero/1d", "y[0] = aril_nonzero(x[0]);", lambda x: torch.nonzero(x[0]),
     [tensor([0.0, 1.5, 0.0, -2.0])], grad=False)
case("nonzero/none", "y[0] = aril_nonzero(x[0]);", lambda x: torch.nonzero(x[0]),
     [torch.zeros(2, 3, dtype=torch.int64)])
case("nonzero/0d", "y[0] = aril_nonzero(x[0]);", lambda x: torch.nonzero(x[0]), [tensor(5)])
case("nonzero/3d", "y[0] = aril_nonzero(aril_transpose(x[0], 0, 2));",
     lambda x: torch.nonzero(x[0].transpose(0, 2)), [randbool(2, 3, 2)])

case("cat/axis0", "y[0] = aril_cat(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.cat(x, 0),
     [randn(2, 3), randn(4, 3)])
case("cat/axis1", "y[0] = aril_cat(ARIL_LIST(x[0], x[1], x[2]), 1);", lambda x: torch.cat(x, 1),
     [randn(2, 3, 2), randn(2, 1, 2), randn(2, 2, 2)])
case("cat/last", "y[0] = aril_cat(ARIL_LIST(x[0], x[1]), -1);", lambda x: torch.cat(x, -1),
     [randn(2, 3, dtype=torch.float64), randn(2, 1, dtype=torch.float64)])
case("cat/promote", "y[0] = aril_cat(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.cat(x, 0),
     [randn(2), randint(0, 9, 3)])
case("cat/f16_f32", "y[0] = aril_cat(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.cat(x, 0),
     [randn(2, dtype=torch.float16), randn(3)])
case("cat/one", "y[0] = aril_cat(ARIL_LIST(x[0]), 0);", lambda x: torch.cat(x, 0), [randn(2, 2)])
case("cat/twice", "y[0] = aril_cat(ARIL_LIST(x[0], x[0], x[1], x[0]), 0);",
     lambda x: torch.cat([x[0], x[0], x[1], x[0]], 0), [randn(2, 2), randn(1, 2)])
case("cat/transposed", "y[0] = aril_cat(ARIL_LIST(aril_t(x[0]), x[1]), 0);",
     lambda x: torch.cat([x[0].t(), x[1]], 0), [randn(2, 3), randn(1, 2)])
case("cat/empty", "y[0] = aril_cat(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.cat(x, 0),
     [randn(0, 3), randn(2, 3)])
case("stack/axis0", "y[0] = aril_stack(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.stack(x, 0),
     [randn(2, 3), randn(2, 3)])
case("stack/axis1", "y[0] = aril_stack(ARIL_LIST(x[0], x[1], x[2]), 1);",
     lambda x: torch.stack(x, 1), [randn(2, 3), randn(2, 3), randn(2, 3)])
case("stack/last", "y[0] = aril_stack(ARIL_LIST(x[0], x[1]), -1);", lambda x: torch.stack(x, -1),
     [randn(2, 3), randn(2, 3)])
case("stack/0d", "y[0] = aril_stack(ARIL_LIST(x[0], x[1]), 0);", lambda x: torch.stack(x, 0),
     [randn(), randn()])

# ---- x[...] ----

case("index/at", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_AT(1)));", lambda x: x[0][1],
     [randn(3, 4)])
case("index/at_negative", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_AT(-1), ARIL_AT(-4)));",
     lambda x: x[0][-1, -4], [randn(3, 4)])
case("index/range", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_RANGE(1, 3), ARIL_RANGE(-3, -1)));",
     lambda x: x[0][1:3, -3:-1], [randn(3, 4)])
case("index/step", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_EVERY, ARIL_STEP(1, ARIL_END, 2)));",
     lambda x: x[0][:, 1::2], [randn(3, 6)])
case("index/reverse",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_STEP(ARIL_END, ARIL_END, -1)));",
     lambda x: x[0].flip(0), [randn(4, 2)])
case("index/dots", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_AT(0), ARIL_DOTS, ARIL_AT(1)));",
     lambda x: x[0][0, ..., 1], [randn(2, 3, 2, 2)])
case("index/dots_empty", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_AT(0), ARIL_DOTS, ARIL_AT(1)));",
     lambda x: x[0][0, ..., 1], [randn(2, 3)])
case("index/new",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_NEW, ARIL_EVERY, ARIL_NEW, ARIL_AT(1)));",
     lambda x: x[0][None, :, None, 1], [randn(2, 3)])
case("index/by", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randn(4, 3), tensor([0, -1, 2, 0])])
case("index/by_2d", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randn(4, 3), tensor([[0, -1], [2, 0]], dtype=torch.int32)])
case("index/by_0d", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randn(4, 3), tensor(2)])
case("index/by_empty", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randn(4, 3), torch.zeros(0, 2, dtype=torch.int64)])
case("index/by_by", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_BY(x[2])));",
     lambda x: x[0][x[1], x[2]], [randn(4, 3), tensor([0, 3, 3]), tensor([1, 2, -1])])
case("index/broadcast", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_BY(x[2])));",
     lambda x: x[0][x[1], x[2]], [randn(4, 3), tensor([[0], [3]]), tensor([1, 2, 0])])
case("index/middle", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_EVERY, ARIL_BY(x[1]), ARIL_BY(x[2])));",
     lambda x: x[0][:, x[1], x[2]], [randn(2, 4, 3, 2), tensor([0, 3]), tensor([1, 2])])
case("index/apart", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_EVERY, ARIL_BY(x[2])));",
     lambda x: x[0][x[1], :, x[2]], [randn(2, 4, 3), tensor([0, 1, 1]), tensor([[1], [2]])])
case("index/apart_inside",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_EVERY, ARIL_BY(x[1]), ARIL_EVERY, ARIL_BY(x[2])));",
     lambda x: x[0][:, x[1], :, x[2]], [randn(2, 4, 3, 2), tensor([0, 3, 3]), tensor([1, 0, 1])])
case("index/new_between",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_NEW, ARIL_BY(x[2])));",
     lambda x: x[0][x[1], None, x[2]], [randn(4, 3, 2), tensor([0, 3]), tensor([1, 2])])
case("index/at_by",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_AT(1), ARIL_EVERY, ARIL_BY(x[1])));",
     lambda x: x[0][1, :, x[1]], [randn(2, 3, 4), tensor([3, 0, 0])])
case("index/range_by",
     "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_STEP(0, ARIL_END, 2), ARIL_BY(x[1])));",
     lambda x: x[0][::2, x[1]], [randn(5, 3), tensor([2, 0])])
case("index/dots_by", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_DOTS, ARIL_BY(x[1])));",
     lambda x: x[0][..., x[1]], [randn(2, 3, 4), tensor([3, 0])])
case("index/mask", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randn(3, 4), randbool(3, 4)])
case("index/mask_rows", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));",
     lambda x: x[0][x[1]], [randn(4, 2), tensor([True, False, True, True])])
case("index/mask_columns", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_EVERY, ARIL_BY(x[1])));",
     lambda x: x[0][:, x[1]], [randn(2, 4), tensor([True, False, True, True])])
case("index/mask_none", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));",
     lambda x: x[0][x[1]], [randn(3, 2), torch.zeros(3, dtype=torch.bool)])
case("index/mask_0d", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));",
     lambda x: x[0][x[1]], [randn(3, 2), tensor(True)])
case("index/mask_by", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_BY(x[2])));",
     lambda x: x[0][x[1], x[2]], [randn(4, 3), tensor([True, False, False, True]), tensor([1, 2])])
case("index/int", "y[0] = aril_index(x[0], ARIL_INDEX(ARIL_BY(x[1])));", lambda x: x[0][x[1]],
     [randint(-9, 9, 4, 3, dtype=torch.int16), tensor([3, 0])])

case("index_put/by", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], false);",
     lambda x: x[0].index_put((x[1],), x[2]), [randn(4, 3), tensor([0, -1]), randn(2, 3)])
case("index_put/broadcast", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], false);",
     lambda x: x[0].index_put((x[1],), x[2]), [randn(4, 3), tensor([0, -1]), randn(3)])
case("index_put/by_by",
     "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_BY(x[2])), x[3], false);",
     lambda x: x[0].index_put((x[1], x[2]), x[3]),
     [randn(4, 3), tensor([[0], [3]]), tensor([1, 2]), randn(2, 2)])
case("index_put/accumulate",
     "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], true);",
     lambda x: x[0].index_put((x[1],), x[2], accumulate=True),
     [randn(4, 3), tensor([0, 3, 0, 0, -1]), randn(5, 3)])
case("index_put/accumulate_by_by",
     "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_BY(x[2])), x[3], true);",
     lambda x: x[0].index_put((x[1], x[2]), x[3], accumulate=True),
     [randn(4, 3, 2), tensor([0, 3, 0]), tensor([1, 2, 1]), randn(3, 2)])
case("index_put/int", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], true);",
     lambda x: x[0].index_put((x[1],), x[2], accumulate=True),
     [randint(0, 9, 4), tensor([0, 3, 0]), randint(0, 9, 3)])


def put(x, items, value):
    y = x.clone()
    y[items] = value
    return y


case("index_put/apart",
     "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1]), ARIL_EVERY, ARIL_BY(x[2])), x[3], false);",
     lambda x: put(x[0], (x[1], slice(None), x[2]), x[3]),
     [randn(2, 4, 3), tensor([0, 1]), tensor([1, 2]), randn(2, 4)])
case("index_put/view", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_AT(1), ARIL_RANGE(1, 3)), x[1], false);",
     lambda x: put(x[0], (1, slice(1, 3)), x[1]), [randn(3, 4), randn(2)])
case("index_put/view_by",
     "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_RANGE(1, 3), ARIL_BY(x[1])), x[2], false);",
     lambda x: put(x[0], (slice(1, 3), x[1]), x[2]), [randn(4, 3), tensor([2, 0]), randn(2, 2)])
case("index_put/mask", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], false);",
     lambda x: put(x[0], x[1], x[2]), [randn(3, 4), randbool(3, 4), randn()])
case("index_put/number", "y[0] = aril_index_put(x[0], ARIL_INDEX(ARIL_BY(x[1])), aril_scalar(7), false);",
     lambda x: put(x[0], x[1], 7.0), [randn(4, 2), tensor([1, 3])])
case("index_put/in_place",
     "y[0] = aril_mul_scalar(x[0], 2); aril_index_put_(y[0], ARIL_INDEX(ARIL_BY(x[1])), x[2], true);",
     lambda x: (x[0] * 2).index_put_((x[1],), x[2], accumulate=True),
     [randn(4, 3), tensor([0, 3, 0]), randn(3, 3)])
case("index_put/in_place_view",
     "y[0] = aril_mul_scalar(x[0], 2);"
     "aril_index_put_(y[0], ARIL_INDEX(ARIL_EVERY, ARIL_AT(1)), x[1], false);",
     lambda x: put(x[0] * 2, (slice(None), 1), x[1]), [randn(4, 3), randn(4)])
case("index_put/in_place_view_by",
     "y[0] = aril_mul_scalar(x[0], 2);"
     "aril_index_put_(y[0], ARIL_INDEX(ARIL_AT(1), ARIL_BY(x[1])), x[2], false);",
     lambda x: put(x[0] * 2, (1, x[1]), x[2]), [randn(2, 4, 3), tensor([3, 0]), randn(2, 3)])

case("index_add/axis0", "y[0] = aril_index_add(x[0], x[1], x[2], 0);",
     lambda x: x[0].index_add(0, x[1], x[2]), [randn(4, 3), tensor([0, 3, 0]), randn(3, 3)])
case("index_add/axis1", "y[0] = aril_index_add(x[0], x[1], x[2], 1);",
     lambda x: x[0].index_add(1, x[1], x[2]), [randn(2, 4, 3), tensor([0, 3, 0]), randn(2, 3, 3)])
case("index_add/last", "y[0] = aril_index_add(x[0], x[1], x[2], -1);",
     lambda x: x[0].index_add(-1, x[1], x[2]), [randn(2, 4), tensor([0, 3, 0]), randn(2, 3)])
case("index_add/in_place",
     "y[0] = aril_index_add_(aril_mul_scalar(x[0], 3), x[1], x[2], 0);",
     lambda x: (x[0] * 3).index_add_(0, x[1], x[2]), [randn(4, 3), tensor([0, 3, 0]), randn(3, 3)])
case("take/2d", "y[0] = aril_take(x[0], x[1]);", lambda x: torch.take(x[0], x[1]),
     [randn(3, 4), tensor([[0, 11], [5, -1]])])
case("take/transposed", "y[0] = aril_take(aril_t(x[0]), x[1]);",
     lambda x: torch.take(x[0].t(), x[1]), [randn(3, 4), tensor([1, 1, 7])])
case("take_along_axis/argmax",
     "y[0] = aril_take_along_axis(x[0], x[1], 1);", lambda x: torch.take_along_dim(x[0], x[1], 1),
     [randn(3, 4), tensor([[0], [3], [1]])])
case("take_along_axis/broadcast",
     "y[0] = aril_take_along_axis(x[0], x[1], 1);", lambda x: torch.take_along_dim(x[0], x[1], 1),
     [randn(3, 4), tensor([[3, 0]])])
case("take_along_axis/broadcast_x",
     "y[0] = aril_take_along_axis(x[0], x[1], 0);", lambda x: torch.take_along_dim(x[0], x[1], 0),
     [randn(3, 1), randint(0, 3, 2, 4)])
case("put_along_axis/broadcast",
     "y[0] = aril_put_along_axis(x[0], x[1], x[2], 1);",
     lambda x: x[0].scatter(1, x[1].expand(3, 2), x[2].expand(3, 2)),
     [randn(3, 4), tensor([[3, 0]]), randn(3, 1)])

# ---- masks ----

case("masked_fill/number", "y[0] = aril_masked_fill_scalar(x[0], x[1], 2.5);",
     lambda x: x[0].masked_fill(x[1], 2.5), [randn(3, 4), randbool(3, 4)])
case("masked_fill/broadcast", "y[0] = aril_masked_fill_scalar(x[0], x[1], -INFINITY);",
     lambda x: x[0].masked_fill(x[1], float("-inf")),
     [randn(2, 3, dtype=torch.float64), randbool(3)], grad=False)
case("masked_fill/tensor", "y[0] = aril_masked_fill(x[0], x[1], x[2]);",
     lambda x: x[0].masked_fill(x[1], x[2]), [randn(3, 4), randbool(3, 1), randn()])
case("masked_fill/int", "y[0] = aril_masked_fill_scalar(x[0], x[1], 7);",
     lambda x: x[0].masked_fill(x[1], 7), [randint(0, 5, 3, dtype=torch.int8), randbool(3)])
case("masked_fill/bool", "y[0] = aril_masked_fill_scalar(x[0], x[1], 1);",
     lambda x: x[0].masked_fill(x[1], True), [randbool(5), randbool(5)])
case("masked_fill/f16", "y[0] = aril_masked_fill_scalar(x[0], x[1], 1);",
     lambda x: x[0].masked_fill(x[1], 1), [randn(5, dtype=torch.float16), randbool(5)])
case("masked_fill/in_place", "y[0] = aril_masked_fill_scalar_(aril_mul_scalar(x[0], 2), x[1], 3);",
     lambda x: (x[0] * 2).masked_fill_(x[1], 3), [randn(3, 4), randbool(4)])
case("masked_fill/in_place_tensor",
     "y[0] = aril_masked_fill_(aril_mul_scalar(x[0], 2), x[1], x[2]);",
     lambda x: (x[0] * 2).masked_fill_(x[1], x[2]), [randn(3, 4), randbool(4), randn()])
case("masked_select/same", "y[0] = aril_masked_select(x[0], x[1]);",
     lambda x: torch.masked_select(x[0], x[1]), [randn(3, 4), randbool(3, 4)])
case("masked_select/broadcast", "y[0] = aril_masked_select(x[0], x[1]);",
     lambda x: torch.masked_select(x[0], x[1]), [randn(3, 4), tensor([True, False, False, True])])
case("masked_select/broadcast_x", "y[0] = aril_masked_select(x[0], x[1]);",
     lambda x: torch.masked_select(x[0], x[1]), [randn(3, 1), tensor([[True, False, True]] * 3)])
case("masked_select/both", "y[0] = aril_masked_select(x[0], x[1]);",
     lambda x: torch.masked_select(x[0], x[1]), [randn(3, 1), tensor([True, False, True])])
case("masked_select/none", "y[0] = aril_masked_select(x[0], x[1]);",
     lambda x: torch.masked_select(x[0], x[1]), [randn(3), torch.zeros(3, dtype=torch.bool)])
case("masked_select/transposed", "y[0] = aril_masked_select(aril_t(x[0]), x[1]);",
     lambda x: torch.masked_select(x[0].t(), x[1]), [randn(3, 4), randbool(4, 3)])
case("masked_scatter/same", "y[0] = aril_masked_scatter(x[0], x[1], x[2]);",
     lambda x: x[0].masked_scatter(x[1], x[2]), [randn(3, 4), randbool(3, 4), randn(12)])
case("masked_scatter/broadcast", "y[0] = aril_masked_scatter(x[0], x[1], x[2]);",
     lambda x: x[0].masked_scatter(x[1], x[2]), [randn(3, 4), tensor([True, False, False, True]), randn(2, 5)])
case("one_hot/classes", "y[0] = aril_one_hot(x[0], 5);", lambda x: F.one_hot(x[0], 5),
     [randint(0, 5, 2, 3)])
case("one_hot/infer", "y[0] = aril_one_hot(x[0], -1);", lambda x: F.one_hot(x[0]),
     [tensor([0, 3, 1])])

case("searchsorted/left", "y[0] = aril_searchsorted(x[0], x[1], (aril_search_opts){0});",
     lambda x: torch.searchsorted(x[0], x[1]),
     [tensor([1.0, 2.0, 2.0, 5.0]), tensor([[0.5, 2.0], [5.0, 7.0]])], grad=False)
case("searchsorted/right", "y[0] = aril_searchsorted(x[0], x[1], (aril_search_opts){true});",
     lambda x: torch.searchsorted(x[0], x[1], right=True),
     [tensor([1.0, 2.0, 2.0, 5.0]), tensor([[0.5, 2.0], [5.0, 7.0]])], grad=False)
case("searchsorted/rows", "y[0] = aril_searchsorted(x[0], x[1], (aril_search_opts){0});",
     lambda x: torch.searchsorted(x[0], x[1]),
     [tensor([[1, 3, 5], [2, 4, 6]]), tensor([[3, 6, 0, 5], [3, 6, 0, 5]])])
case("searchsorted/nan", "y[0] = aril_searchsorted(x[0], x[1], (aril_search_opts){0});",
     lambda x: torch.searchsorted(x[0], x[1]),
     [tensor([1.0, 2.0]), tensor([float("nan"), float("inf"), float("-inf")])], grad=False)
case("bucketize/int", "y[0] = aril_bucketize(x[0], x[1], (aril_search_opts){true});",
     lambda x: torch.bucketize(x[0], x[1], right=True),
     [randint(0, 9, 3, 2, dtype=torch.int32), tensor([1, 3, 7], dtype=torch.int32)])

# ---- repeating and padding ----

case("hstack/2d", "y[0] = aril_hstack(ARIL_LIST(x[0], x[1]));", lambda x: torch.hstack(tuple(x)),
     [randn(2, 3), randn(2, 1)])
case("hstack/1d", "y[0] = aril_hstack(ARIL_LIST(x[0], x[1], x[2]));",
     lambda x: torch.hstack(tuple(x)), [randn(2), randn(), randn(3)])
case("vstack/1d", "y[0] = aril_vstack(ARIL_LIST(x[0], x[1]));", lambda x: torch.vstack(tuple(x)),
     [randn(3), randn(2, 3)])
case("repeat/same", "y[0] = aril_repeat(x[0], ARIL_SHAPE(2, 3));", lambda x: x[0].repeat(2, 3),
     [randn(2, 3)])
case("repeat/more", "y[0] = aril_repeat(x[0], ARIL_SHAPE(2, 1, 2));",
     lambda x: x[0].repeat(2, 1, 2), [randn(2, 3, dtype=torch.float64)])
case("repeat/zero", "y[0] = aril_repeat(x[0], ARIL_SHAPE(2, 0));", lambda x: x[0].repeat(2, 0),
     [randn(2, 3)])
case("repeat/0d", "y[0] = aril_repeat(x[0], ARIL_SHAPE(3));", lambda x: x[0].repeat(3), [randn()])
case("tile/fewer", "y[0] = aril_tile(x[0], ARIL_SHAPE(2));", lambda x: torch.tile(x[0], (2,)),
     [randn(2, 3)])
case("tile/int", "y[0] = aril_tile(x[0], ARIL_SHAPE(2, 2, 1));",
     lambda x: torch.tile(x[0], (2, 2, 1)), [randint(0, 9, 2, 3)])
case("repeat_interleave/axis0", "y[0] = aril_repeat_interleave(x[0], 2, 0);",
     lambda x: torch.repeat_interleave(x[0], 2, 0), [randn(2, 3)])
case("repeat_interleave/last", "y[0] = aril_repeat_interleave(x[0], 3, -1);",
     lambda x: torch.repeat_interleave(x[0], 3, -1), [randn(2, 3)])
case("pad/last", "y[0] = aril_pad(x[0], ARIL_PADS(1, 2), (aril_pad_opts){0});",
     lambda x: F.pad(x[0], (1, 2)), [randn(2, 3)])
case("pad/value", "y[0] = aril_pad(x[0], ARIL_PADS(1, 0, 0, 2), (aril_pad_opts){.value = 1.5});",
     lambda x: F.pad(x[0], (1, 0, 0, 2), value=1.5), [randn(2, 3)])
case("pad/crop", "y[0] = aril_pad(x[0], ARIL_PADS(-1, 1, 2, -1), (aril_pad_opts){0});",
     lambda x: F.pad(x[0], (-1, 1, 2, -1)), [randn(2, 3, 4)])
case("pad/int", "y[0] = aril_pad(x[0], ARIL_PADS(1, 1), (aril_pad_opts){.value = -3});",
     lambda x: F.pad(x[0], (1, 1), value=-3), [randint(0, 9, 2, 3)])
case("pad/transposed", "y[0] = aril_pad(aril_t(x[0]), ARIL_PADS(1, 2, 1, 0), (aril_pad_opts){0});",
     lambda x: F.pad(x[0].t(), (1, 2, 1, 0)), [randn(2, 3)])
for mode in ("reflect", "replicate", "circular"):
    flag = "(aril_pad_opts){.mode = ARIL_PAD_%s}" % mode.upper()
    case("pad/%s_1d" % mode, "y[0] = aril_pad(x[0], ARIL_PADS(2, 1), %s);" % flag,
         lambda x, mode=mode: F.pad(x[0], (2, 1), mode=mode), [randn(2, 3, 4)])
    case("pad/%s_2d" % mode, "y[0] = aril_pad(x[0], ARIL_PADS(2, 1, 1, 2), %s);" % flag,
         lambda x, mode=mode: F.pad(x[0], (2, 1, 1, 2), mode=mode), [randn(1, 2, 3, 4)])
    case("pad/%s_3d" % mode, "y[0] = aril_pad(x[0], ARIL_PADS(1, 1, 0, 2, 1, 0), %s);" % flag,
         lambda x, mode=mode: F.pad(x[0], (1, 1, 0, 2, 1, 0), mode=mode),
         [randn(1, 1, 2, 3, 2, dtype=torch.float64)])
case("meshgrid/ij", "aril_meshgrid(ARIL_LIST(x[0], x[1], x[2]), false, y);",
     lambda x: torch.meshgrid(*x, indexing="ij"), [randn(2), randn(3), randn(2)])
case("meshgrid/xy", "aril_meshgrid(ARIL_LIST(x[0], x[1], x[2]), true, y);",
     lambda x: torch.meshgrid(*x, indexing="xy"), [randn(2), randn(3), randn(2)])
case("meshgrid/xy_two", "aril_meshgrid(ARIL_LIST(x[0], x[1]), true, y);",
     lambda x: torch.meshgrid(*x, indexing="xy"), [randn(2), randn(3)])
