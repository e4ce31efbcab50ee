"""Normalisation, attention and recurrent layers."""
from golden import *

torch.backends.mkldnn.enabled = False


def second(fn, at=0):
    """The gradient of sum(fn(x)^3) with respect to x[at]: its own gradients are second ones."""
    def grad(x):
        y = fn(x)
        return torch.autograd.grad((y * y * y).sum(), x[at], create_graph=True)[0]
    return grad


def c_second(call, at=0):
    """The same in C."""
    return (f"aril_tensor *o = {call}; aril_gradients(aril_sum(aril_mul(aril_mul(o, o), o), ARIL_ALL),"
            f" ARIL_LIST(x[{at}]), y, (aril_grad_opts){{.create_graph = true}});")


# ---- batch_norm ----

BN = "y[0] = aril_batch_norm(x[0], x[1], x[2], NULL, NULL, (aril_batch_norm_opts){0});"


def bn(x, **k):
    return F.batch_norm(x[0], None, None, x[1], x[2], training=True, **k)


for name, shape in (("nc", (5, 3)), ("ncl", (3, 2, 4)), ("nchw", (2, 3, 2, 3)),
                    ("ncdhw", (2, 2, 2, 1, 3))):
    case(f"batch_norm/{name}", BN, bn, [randn(*shape), randn(shape[1]), randn(shape[1])])
case("batch_norm/f64", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.float64)
case("batch_norm/wide", BN, bn, [randn(3, 70), randn(70), randn(70)])
case("batch_norm/long", BN, bn, [randn(2, 2, 37), randn(2), randn(2)])
case("batch_norm/plain", BN, bn, [randn(4, 3, 2), None, None])
case("batch_norm/weight_only", BN, bn, [randn(4, 3), randn(3), None])
case("batch_norm/bias_only", BN, bn, [randn(4, 3), None, randn(3)])
case("batch_norm/empty", BN, bn, [randn(0, 3, 2), randn(3), randn(3)])
case("batch_norm/f16", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.float16)
case("batch_norm/bf16", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.bfloat16)
case("batch_norm/f16_f32", BN, bn, [randn(4, 3, 2, dtype=torch.float16), randn(3), randn(3)])
case("batch_norm/bf16_f32", BN, bn, [randn(4, 3, 2, dtype=torch.bfloat16), randn(3), randn(3)])
case("batch_norm/large_mean", BN, bn,
     [randn(8, 2, dtype=torch.float64) + 1e6, randn(2, dtype=torch.float64),
      randn(2, dtype=torch.float64)], rtol=1e-7, atol=1e-8)
case("batch_norm/eps", "y[0] = aril_batch_norm(x[0], x[1], x[2], NULL, NULL,"
     "(aril_batch_norm_opts){.eps = 0.5});", lambda x: bn(x, eps=0.5),
     [randn(4, 3), randn(3), randn(3)])
for at in range(3):
    case(f"batch_norm/second{at}", c_second("aril_batch_norm(x[0], x[1], x[2], NULL, NULL,"
         "(aril_batch_norm_opts){0})", at), second(bn, at), [randn(4, 2, 2), randn(2), randn(2)],
         dtype=torch.float64)
case("batch_norm/second_plain", c_second("aril_batch_norm(x[0], NULL, NULL, NULL, NULL,"
     "(aril_batch_norm_opts){0})"), second(lambda x: F.batch_norm(x[0], None, None, training=True)),
     [randn(4, 2, 2)], dtype=torch.float64)


def bn_running(x, training=True, **k):
    m, v = x[3].detach().clone(), x[4].detach().clone()
    return F.batch_norm(x[0], m, v, x[1], x[2], training=training, **k), m, v


def c_running(opts, fn="batch_norm"):
    return (f"aril_tensor *m = aril_copy(x[3]), *v = aril_copy(x[4]);"
            f"y[0] = aril_{fn}(x[0], x[1], x[2], m, v, (aril_batch_norm_opts){{{opts}}});"
            f"y[1] = m; y[2] = v;")


stats = lambda n: [randn(n), uniform(0.5, 2, n)]
case("batch_norm/running", c_running("0"), bn_running, [randn(4, 3, 2), randn(3), randn(3), *stats(3)],
     grad=[0, 1, 2])
case("batch_norm/running_f64", c_running("0"), bn_running,
     [randn(4, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2], dtype=torch.float64)
case("batch_norm/running_f16", c_running("0"), bn_running,
     [randn(4, 3, 2, dtype=torch.float16), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/momentum", c_running(".momentum = 0.7"), lambda x: bn_running(x, momentum=0.7),
     [randn(4, 3), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/momentum_one", c_running(".momentum = 1"), lambda x: bn_running(x, momentum=1.0),
     [randn(2, 3, 2), None, None, *stats(3)], grad=[0])
case("batch_norm/momentum_zero", c_running(".momentum = ARIL_ZERO"),
     lambda x: bn_running(x, momentum=0.0), [randn(4, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(4, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/eval_plain", c_running(".eval = true, .eps = 0.1"),
     lambda x: bn_running(x, False, eps=0.1), [randn(1, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval_eps_zero", c_running(".eval = true, .eps = ARIL_ZERO"),
     lambda x: bn_running(x, False, eps=0.0), [randn(2, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval_bf16", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(4, 3, 2, dtype=torch.bfloat16), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/eval_empty", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(0, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])


def bn_cumulative(x):
    m = torch.nn.BatchNorm1d(3, momentum=None, affine=False)
    m(x[1].detach())
    m(x[2].detach())
    return m(x[0]), m.running_mean.clone(), m.running_var.clone(), m.num_batches_tracked.clone()


case("batch_norm/cumulative",
     "aril_tensor *m = aril_zeros(ARIL_SHAPE(3), ARIL_F32, aril_cpu()), *v = aril_ones(ARIL_SHAPE(3),"
     " ARIL_F32, aril_cpu()), *n = aril_zeros(ARIL_SHAPE(), ARIL_I64, aril_cpu());"
     "aril_batch_norm_opts o = {.cumulative = true, .batches = n};"
     "aril_batch_norm(x[1], NULL, NULL, m, v, o); aril_batch_norm(x[2], NULL, NULL, m, v, o);"
     "y[0] = aril_batch_norm(x[0], NULL, NULL, m, v, o); y[1] = m; y[2] = v; y[3] = n;",
     bn_cumulative, [randn(4, 3), randn(5, 3), randn(4, 3)], grad=[0])
