"""Losses and distances: every option, reduction and shape."""
from golden import *

NAMES = {"mean": "ARIL_MEAN", "sum": "ARIL_SUM", "none": "ARIL_NONE", "batchmean": "ARIL_BATCHMEAN"}


def reductions(name, call, opts, fn, inputs, fields="", kinds=("mean", "sum", "none"), **kw):
    """One case for each reduction: CALL_with(..., (OPTS){.reduction = ..., FIELDS})."""
    for kind in kinds:
        c = f"y[0] = {call} ({opts}){{.reduction = {NAMES[kind]}{fields and ', ' + fields}}});"
        case(f"{name}/{kind}", c, lambda x, kind=kind: fn(x, kind), inputs, **kw)


# ---- regression ----

case("mse_loss/short", "y[0] = aril_mse_loss(x[0], x[1]);", lambda x: F.mse_loss(x[0], x[1]),
     [randn(3, 4), randn(3, 4)])
case("mse_loss/f64", "y[0] = aril_mse_loss(x[0], x[1]);", lambda x: F.mse_loss(x[0], x[1]),
     [randn(3, 4), randn(3, 4)], dtype=torch.float64)
case("mse_loss/f16", "y[0] = aril_mse_loss(x[0], x[1]);", lambda x: F.mse_loss(x[0], x[1]),
     [randn(3, 4), randn(3, 4)], dtype=torch.float16)
case("mse_loss/scalar", "y[0] = aril_mse_loss(x[0], x[1]);", lambda x: F.mse_loss(x[0], x[1]),
     [randn(), randn()])
case("mse_loss/empty", "y[0] = aril_mse_loss(x[0], x[1]);", lambda x: F.mse_loss(x[0], x[1]),
     [randn(0, 3), randn(0, 3)])
case("l1_loss/short", "y[0] = aril_l1_loss(x[0], x[1]);", lambda x: F.l1_loss(x[0], x[1]),
     [randn(3, 4), randn(3, 4)])
case("smooth_l1_loss/short", "y[0] = aril_smooth_l1_loss(x[0], x[1]);",
     lambda x: F.smooth_l1_loss(x[0], x[1]), [randn(3, 4), randn(3, 4)])
case("huber_loss/short", "y[0] = aril_huber_loss(x[0], x[1]);",
     lambda x: F.huber_loss(x[0], x[1]), [randn(3, 4), randn(3, 4)])
reductions("mse_loss", "aril_mse_loss_with(x[0], x[1],", "aril_loss_opts",
           lambda x, r: F.mse_loss(x[0], x[1], reduction=r), [randn(2, 3), randn(2, 3)])
reductions("mse_loss/broadcast", "aril_mse_loss_with(x[0], x[1],", "aril_loss_opts",
           lambda x, r: F.mse_loss(*torch.broadcast_tensors(x[0], x[1]), reduction=r),
           [randn(2, 3), randn(3)], kinds=("mean", "none"))
reductions("l1_loss", "aril_l1_loss_with(x[0], x[1],", "aril_loss_opts",
           lambda x, r: F.l1_loss(x[0], x[1], reduction=r), [randn(2, 3), randn(2, 3)])
for beta, text in ((0.5, "0.5"), (2.0, "2"), (0.0, "ARIL_ZERO")):
    reductions(f"smooth_l1_loss/beta{beta}", "aril_smooth_l1_loss_with(x[0], x[1],",
               "aril_smooth_l1_opts",
               lambda x, r, beta=beta: F.smooth_l1_loss(x[0], x[1], reduction=r, beta=beta),
               [randn(2, 5), randn(2, 5)], f".beta = {text}")
for delta in (0.5, 1.7):
    reductions(f"huber_loss/delta{delta}", "aril_huber_loss_with(x[0], x[1],", "aril_huber_opts",
               lambda x, r, delta=delta: F.huber_loss(x[0], x[1], reduction=r, delta=delta),
               [randn(2, 5), randn(2, 5)], f".delta = {delta}")
case("mse_loss/weight",
     "y[0] = aril_mse_loss_with(x[0], x[1], (aril_loss_opts){.reduction = ARIL_NONE, "
     ".weight = x[2]});",
     lambda x: F.mse_loss(x[0], x[1], reduction="none") * x[2],
     [randn(2, 3), randn(2, 3), rand(2, 3)])

case("poisson_nll_loss/short", "y[0] = aril_poisson_nll_loss(x[0], x[1]);",
     lambda x: F.poisson_nll_loss(x[0], x[1]), [randn(3, 4), rand(3, 4)])
for log_input in (True, False):
    for full in (False, True):
        fields = ", ".join(f for f in ("" if log_input else ".rate = true",
                                       ".full = true" if full else "") if f)
        reductions(f"poisson_nll_loss/{'log' if log_input else 'rate'}{'_full' if full else ''}",
                   "aril_poisson_nll_loss_with(x[0], x[1],", "aril_poisson_nll_opts",
                   lambda x, r, li=log_input, fu=full: F.poisson_nll_loss(
                       x[0], x[1], log_input=li, full=fu, reduction=r),
                   [uniform(0.2, 3, 2, 4), uniform(0, 5, 2, 4)], fields, grad=[0])
case("poisson_nll_loss/eps",
     "y[0] = aril_poisson_nll_loss_with(x[0], x[1], (aril_poisson_nll_opts){.rate = true, "
     ".eps = 0.1});",
     lambda x: F.poisson_nll_loss(x[0], x[1], log_input=False, eps=0.1),
     [uniform(0.2, 3, 6), uniform(0, 5, 6)])
case("gaussian_nll_loss/short", "y[0] = aril_gaussian_nll_loss(x[0], x[1], x[2]);",
     lambda x: F.gaussian_nll_loss(x[0], x[1], x[2]),
     [randn(3, 4), randn(3, 4), uniform(0.2, 3, 3, 4)])
for shape in ((3, 4), (3, 1), (3,)):
    reductions(f"gaussian_nll_loss/var{len(shape)}_{shape[-1]}",
               "aril_gaussian_nll_loss_with(x[0], x[1], x[2],", "aril_gaussian_nll_opts",
               lambda x, r: F.gaussian_nll_loss(x[0], x[1], x[2], full=True, eps=0.5, reduction=r),
               [randn(3, 4), randn(3, 4), uniform(0.2, 3, *shape)], ".full = true, .eps = 0.5")

# ---- yes or no ----

case("bce_loss/short", "y[0] = aril_bce_loss(x[0], x[1]);",
     lambda x: F.binary_cross_entropy(x[0], x[1]), [uniform(0.05, 0.95, 3, 4), rand(3, 4)])
reductions("bce_loss", "aril_bce_loss_with(x[0], x[1],", "aril_loss_opts",
           lambda x, r: F.binary_cross_entropy(x[0], x[1], weight=x[2], reduction=r),
           [uniform(0.05, 0.95, 2, 3), rand(2, 3), rand(3)], ".weight = x[2]", grad=[0, 1])
case("bce_loss/clamped", "y[0] = aril_bce_loss_with(x[0], x[1], (aril_loss_opts){.reduction = "
     "ARIL_NONE});",
     lambda x: F.binary_cross_entropy(x[0], x[1], reduction="none"),
     [tensor([0.0, 1.0, 0.0, 1.0, 0.5]), tensor([0.0, 0.0, 1.0, 1.0, 1.0])], grad=[0])
case("bce_with_logits/short", "y[0] = aril_bce_with_logits(x[0], x[1]);",
     lambda x: F.binary_cross_entropy_with_logits(x[0], x[1]), [randn(3, 4), rand(3, 4)])
case("bce_with_logits/large", "y[0] = aril_bce_with_logits(x[0], x[1]);",
     lambda x: F.binary_cross_entropy_with_logits(x[0], x[1]),
     [tensor([-200.0, 200.0, -90.0, 90.0, 0.0]), tensor([1.0, 0.0, 0.0, 1.0, 0.3])])
reductions("bce_with_logits/weight", "aril_bce_with_logits_with(x[0], x[1],",
           "aril_bce_with_logits_opts",
           lambda x, r: F.binary_cross_entropy_with_logits(x[0], x[1], weight=x[2], reduction=r),
           [randn(2, 3), rand(2, 3), rand(3)], ".weight = x[2]", grad=[0, 1])
reductions("bce_with_logits/pos_weight", "aril_bce_with_logits_with(x[0], x[1],",
           "aril_bce_with_logits_opts",
           lambda x, r: F.binary_cross_entropy_with_logits(x[0], x[1], weight=x[2], reduction=r,
                                                           pos_weight=x[3]),
           [randn(2, 3), rand(2, 3), rand(2, 3), uniform(0.5, 3, 3)],
           ".weight = x[2], .pos_weight = x[3]", grad=[0, 1])

# ---- classes ----

for op, fn, opts in (("nll_loss", F.nll_loss, "aril_nll_loss_opts"),
                     ("cross_entropy", F.cross_entropy, "aril_cross_entropy_opts")):
    case(f"{op}/short", f"y[0] = aril_{op}(x[0], x[1]);", lambda x, fn=fn: fn(x[0], x[1]),
         [randn(5, 4), randint(0, 4, 5)])
    case(f"{op}/f64", f"y[0] = aril_{op}(x[0], x[1]);", lambda x, fn=fn: fn(x[0], x[1]),
         [randn(5, 4), randint(0, 4, 5)], dtype=torch.float64)
    case(f"{op}/bf16", f"y[0] = aril_{op}(x[0], x[1]);", lambda x, fn=fn: fn(x[0], x[1]),
         [randn(5, 4), randint(0, 4, 5)], dtype=torch.bfloat16)
    case(f"{op}/one", f"y[0] = aril_{op}(x[0], x[1]);", lambda x, fn=fn: fn(x[0], x[1]),
         [randn(4), tensor(2)])
    case(f"{op}/i32", f"y[0] = aril_{op}(x[0], aril_cast(x[1], ARIL_I32));",
         lambda x, fn=fn: fn(x[0], x[1]), [randn(5, 4), randint(0, 4, 5)])
    case(f"{op}/transposed", f"y[0] = aril_{op}(aril_t(x[0]), x[1]);",
         lambda x, fn=fn: fn(x[0].t(), x[1]), [randn(4, 5), randint(0, 4, 5)])
    case(f"{op}/all_ignored", f"y[0] = aril_{op}(x[0], x[1]);", lambda x, fn=fn: fn(x[0], x[1]),
         [randn(2, 4), tensor([-100, -100])])
    for dims in ((), (3,), (2, 3), (2, 1, 3)):
        name = f"{op}/{len(dims)}d"
        shape = (3, 4) + dims
        target = randint(0, 4, 3, *dims)
        reductions(name, f"aril_{op}_with(x[0], x[1],", opts,
                   lambda x, r, fn=fn: fn(x[0], x[1], reduction=r), [randn(*shape), target])
        reductions(name + "/weight", f"aril_{op}_with(x[0], x[1],", opts,
                   lambda x, r, fn=fn: fn(x[0], x[1], weight=x[2], reduction=r, ignore_index=1),
                   [randn(*shape), target, uniform(0.2, 2, 4)], ".weight = x[2], .ignore_index = 1",
                   grad=[0])
    case(f"{op}/ignore0",
         f"y[0] = aril_{op}_with(x[0], x[1], ({opts}){{.ignore_index = ARIL_ZERO}});",
         lambda x, fn=fn: fn(x[0], x[1], ignore_index=0), [randn(5, 3), tensor([0, 1, 2, 0, 1])])
for dims in ((), (2,)):
    reductions(f"cross_entropy/smooth{len(dims)}", "aril_cross_entropy_with(x[0], x[1],",
               "aril_cross_entropy_opts",
               lambda x, r: F.cross_entropy(x[0], x[1], reduction=r, label_smoothing=0.1),
               [randn(3, 4, *dims), randint(0, 4, 3, *dims)], ".label_smoothing = 0.1")
    reductions(f"cross_entropy/smooth_weight{len(dims)}", "aril_cross_entropy_with(x[0], x[1],",
               "aril_cross_entropy_opts",
               lambda x, r: F.cross_entropy(x[0], x[1], weight=x[2], reduction=r, ignore_index=2,
                                            label_smoothing=0.3),
               [randn(3, 4, *dims), randint(0, 4, 3, *dims), uniform(0.2, 2, 4)],
               ".weight = x[2], .ignore_index = 2, .label_smoothing = 0.3", grad=[0])
    reductions(f"cross_entropy/soft{len(dims)}", "aril_cross_entropy_with(x[0], x[1],",
               "aril_cross_entropy_opts",
               lambda x, r: F.cross_entropy(x[0], x[1], reduction=r),
               [randn(3, 4, *dims), rand(3, 4, *dims)])
    reductions(f"cross_entropy/soft_all{len(dims)}", "aril_cross_entropy_with(x[0], x[1],",
               "aril_cross_entropy_opts",
               lambda x, r: F.cross_entropy(x[0], x[1], weight=x[2], reduction=r,
                                            label_smoothing=0.2),
               [randn(3, 4, *dims), rand(3, 4, *dims), uniform(0.2, 2, 4)],
               ".weight = x[2], .label_smoothing = 0.2", grad=[0, 1])
case("cross_entropy/soft_one", "y[0] = aril_cross_entropy(x[0], x[1]);",
     lambda x: F.cross_entropy(x[0], x[1]), [randn(4), rand(4)])
case("cross_entropy/large", "y[0] = aril_cross_entropy(x[0], x[1]);",
     lambda x: F.cross_entropy(x[0], x[1]),
     [tensor([[1000.0, 0.0, -1000.0], [-1000.0, 999.0, 1000.0]]), tensor([1, 2])])
case("cross_entropy/second", "y[0] = aril_cross_entropy(aril_square(x[0]), x[1]);",
     lambda x: F.cross_entropy(x[0] ** 2, x[1]), [randn(4, 3), randint(0, 3, 4)])

for log_target in (False, True):
    reductions(f"kl_div/{'log' if log_target else 'plain'}", "aril_kl_div_with(x[0], x[1],",
               "aril_kl_div_opts",
               lambda x, r, lt=log_target: F.kl_div(x[0], x[1], reduction=r, log_target=lt),
               [randn(3, 4), uniform(0.05, 1, 3, 4)], ".log_target = true" if log_target else "",
               kinds=("mean", "sum", "none", "batchmean"))
case("kl_div/short", "y[0] = aril_kl_div(x[0], x[1]);",
     lambda x: F.kl_div(x[0], x[1], reduction="mean"), [randn(3, 4), uniform(0.05, 1, 3, 4)])
case("kl_div/zero_target", "y[0] = aril_kl_div_with(x[0], x[1], (aril_kl_div_opts){.reduction = "
     "ARIL_BATCHMEAN});",
     lambda x: F.kl_div(x[0], x[1], reduction="batchmean"),
     [randn(2, 3, 2), tensor([[[0.0, 1.0], [0.5, 0.0], [0.2, 0.8]]] * 2)], grad=[0])
