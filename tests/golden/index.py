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
