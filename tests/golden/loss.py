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

# ---- margins ----

SIGNS = tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0])

case("multi_margin_loss/short", "y[0] = aril_multi_margin_loss(x[0], x[1]);",
     lambda x: F.multi_margin_loss(x[0], x[1]), [randn(5, 4), randint(0, 4, 5)])
case("multi_margin_loss/one", "y[0] = aril_multi_margin_loss(x[0], x[1]);",
     lambda x: F.multi_margin_loss(x[0], x[1]), [randn(4), tensor(1)])
for p in (1, 2):
    for margin in (1.0, 0.3):
        reductions(f"multi_margin_loss/p{p}_margin{margin}",
                   "aril_multi_margin_loss_with(x[0], x[1],", "aril_multi_margin_opts",
                   lambda x, r, p=p, m=margin: F.multi_margin_loss(
                       x[0], x[1], p=p, margin=m, weight=x[2], reduction=r),
                   [randn(4, 3), randint(0, 3, 4), uniform(0.2, 2, 3)],
                   f".p = {p}, .margin = {margin}, .weight = x[2]", grad=[0])
reductions("multi_margin_loss/cs231n", "aril_multi_margin_loss_with(x[0], x[1],",
           "aril_multi_margin_opts",
           lambda x, r: F.multi_margin_loss(x[0], x[1], reduction=r) * 5,
           [randn(4, 5), randint(0, 5, 4)], ".sum_classes = true")
case("multilabel_margin_loss/short", "y[0] = aril_multilabel_margin_loss(x[0], x[1]);",
     lambda x: F.multilabel_margin_loss(x[0], x[1]), [randn(4), tensor([3, 0, -1, 1])])
reductions("multilabel_margin_loss", "aril_multilabel_margin_loss_with(x[0], x[1],",
           "aril_loss_opts", lambda x, r: F.multilabel_margin_loss(x[0], x[1], reduction=r),
           [randn(3, 4), tensor([[3, 0, -1, 1], [-1, 0, 0, 0], [2, 1, 3, -1]])])
case("multilabel_soft_margin_loss/short", "y[0] = aril_multilabel_soft_margin_loss(x[0], x[1]);",
     lambda x: F.multilabel_soft_margin_loss(x[0], x[1]), [randn(3, 4), randint(0, 2, 3, 4).float()],
     grad=[0])
reductions("multilabel_soft_margin_loss", "aril_multilabel_soft_margin_loss_with(x[0], x[1],",
           "aril_loss_opts",
           lambda x, r: F.multilabel_soft_margin_loss(x[0], x[1], weight=x[2], reduction=r),
           [randn(3, 4), randint(0, 2, 3, 4).float(), rand(4)], ".weight = x[2]", grad=[0])
case("soft_margin_loss/short", "y[0] = aril_soft_margin_loss(x[0], x[1]);",
     lambda x: F.soft_margin_loss(x[0], x[1]), [randn(2, 3), SIGNS.reshape(2, 3)],
     grad=[0])
reductions("soft_margin_loss", "aril_soft_margin_loss_with(x[0], x[1],", "aril_loss_opts",
           lambda x, r: F.soft_margin_loss(x[0], x[1], reduction=r), [randn(6), SIGNS], grad=[0])
case("hinge_loss/short", "y[0] = aril_hinge_loss(x[0], x[1]);",
     lambda x: (1 - x[0] * x[1]).clamp_min(0).mean(), [randn(6), SIGNS])
case("hinge_loss/margin", "y[0] = aril_hinge_loss_with(x[0], x[1], (aril_margin_opts){.reduction = "
     "ARIL_SUM, .margin = 0.4});",
     lambda x: (0.4 - x[0] * x[1]).clamp_min(0).sum(), [randn(6), SIGNS])
case("hinge_embedding_loss/short", "y[0] = aril_hinge_embedding_loss(x[0], x[1]);",
     lambda x: F.hinge_embedding_loss(x[0], x[1]), [randn(6), SIGNS], grad=[0])
reductions("hinge_embedding_loss", "aril_hinge_embedding_loss_with(x[0], x[1],", "aril_margin_opts",
           lambda x, r: F.hinge_embedding_loss(x[0], x[1], margin=0.5, reduction=r),
           [randn(6), SIGNS], ".margin = 0.5", grad=[0])
case("margin_ranking_loss/short", "y[0] = aril_margin_ranking_loss(x[0], x[1], x[2]);",
     lambda x: F.margin_ranking_loss(x[0], x[1], x[2]), [randn(6), randn(6), SIGNS])
reductions("margin_ranking_loss", "aril_margin_ranking_loss_with(x[0], x[1], x[2],",
           "aril_margin_opts",
           lambda x, r: F.margin_ranking_loss(x[0], x[1], x[2], margin=0.5, reduction=r),
           [randn(6), randn(6), SIGNS], ".margin = 0.5")
case("cosine_embedding_loss/short", "y[0] = aril_cosine_embedding_loss(x[0], x[1], x[2]);",
     lambda x: F.cosine_embedding_loss(x[0], x[1], x[2]), [randn(6, 3), randn(6, 3), SIGNS],
     grad=[0, 1])
case("cosine_embedding_loss/one", "y[0] = aril_cosine_embedding_loss(x[0], x[1], x[2]);",
     lambda x: F.cosine_embedding_loss(x[0], x[1], x[2]), [randn(3), randn(3), tensor(-1.0)],
     grad=[0, 1])
reductions("cosine_embedding_loss", "aril_cosine_embedding_loss_with(x[0], x[1], x[2],",
           "aril_margin_opts",
           lambda x, r: F.cosine_embedding_loss(x[0], x[1], x[2], margin=-0.2, reduction=r),
           [randn(6, 3), randn(6, 3), SIGNS], ".margin = -0.2", grad=[0, 1])
case("triplet_margin_loss/short", "y[0] = aril_triplet_margin_loss(x[0], x[1], x[2]);",
     lambda x: F.triplet_margin_loss(x[0], x[1], x[2]), [randn(4, 3), randn(4, 3), randn(4, 3)])
for p in (1.0, 2.0, 3.0):
    for swap in (False, True):
        reductions(f"triplet_margin_loss/p{p}{'_swap' if swap else ''}",
                   "aril_triplet_margin_loss_with(x[0], x[1], x[2],", "aril_triplet_margin_opts",
                   lambda x, r, p=p, s=swap: F.triplet_margin_loss(
                       x[0], x[1], x[2], margin=0.7, p=p, eps=1e-4, swap=s, reduction=r),
                   [randn(4, 3), randn(4, 3), randn(4, 3)],
                   f".margin = 0.7, .p = {p}, .eps = 1e-4" + (", .swap = true" if swap else ""))

# ---- distances ----

for axis in (0, 1, -1):
    case(f"cosine_similarity/axis{axis}", f"y[0] = aril_cosine_similarity(x[0], x[1], {axis});",
         lambda x, d=axis: F.cosine_similarity(x[0], x[1], dim=d), [randn(2, 3, 4), randn(2, 3, 4)])
case("cosine_similarity/broadcast", "y[0] = aril_cosine_similarity(x[0], x[1], 1);",
     lambda x: F.cosine_similarity(x[0], x[1], dim=1), [randn(4, 3), randn(1, 3)])
case("cosine_similarity/broadcast_axis", "y[0] = aril_cosine_similarity(x[0], x[1], 1);",
     lambda x: F.cosine_similarity(x[0], x[1], dim=1), [randn(4, 3), randn(4, 1)])
case("cosine_similarity/fewer_axes", "y[0] = aril_cosine_similarity(x[0], x[1], -1);",
     lambda x: F.cosine_similarity(x[0], x[1], dim=-1), [randn(2, 4, 3), randn(3)])
case("cosine_similarity/eps", "y[0] = aril_cosine_similarity_with(x[0], x[1], 1, "
     "(aril_cosine_opts){.eps = 0.5});",
     lambda x: F.cosine_similarity(x[0], x[1], dim=1, eps=0.5), [randn(4, 3), randn(4, 3)])
case("pairwise_distance/short", "y[0] = aril_pairwise_distance(x[0], x[1]);",
     lambda x: F.pairwise_distance(x[0], x[1]), [randn(4, 3), randn(4, 3)])
case("pairwise_distance/broadcast", "y[0] = aril_pairwise_distance(x[0], x[1]);",
     lambda x: F.pairwise_distance(x[0], x[1]), [randn(4, 3), randn(3)])
for p, text in ((1.0, "1"), (3.0, "3"), (float("inf"), "(double)INFINITY")):
    case(f"pairwise_distance/p{p}", "y[0] = aril_pairwise_distance_with(x[0], x[1], "
         f"(aril_distance_opts){{.p = {text}, .eps = 1e-3, .keepdim = true}});",
         lambda x, p=p: F.pairwise_distance(x[0], x[1], p=p, eps=1e-3, keepdim=True),
         [randn(4, 3), randn(4, 3)])

# ---- sequences ----


def ctc(name, shape, target, inputs, targets, fields="", **kw):
    for kind in ("mean", "sum", "none"):
        case(f"ctc_loss/{name}/{kind}",
             "y[0] = aril_ctc_loss_with(aril_log_softmax(x[0], -1), x[1], x[2], x[3], "
             f"(aril_ctc_opts){{.reduction = {NAMES[kind]}{fields and ', ' + fields}}});",
             lambda x, kind=kind: F.ctc_loss(x[0].log_softmax(-1), x[1], x[2], x[3],
                                             reduction=kind, **kw),
             [randn(*shape), target, tensor(inputs), tensor(targets)])


case("ctc_loss/short",
     "y[0] = aril_ctc_loss(aril_log_softmax(x[0], 2), x[1], x[2], x[3]);",
     lambda x: F.ctc_loss(x[0].log_softmax(2), x[1], x[2], x[3]),
     [randn(6, 2, 4), tensor([[1, 2, 2], [3, 1, 0]]), tensor([6, 5]), tensor([3, 2])])
case("ctc_loss/f64",
     "y[0] = aril_ctc_loss(aril_log_softmax(x[0], 2), x[1], x[2], x[3]);",
     lambda x: F.ctc_loss(x[0].log_softmax(2), x[1], x[2], x[3]),
     [randn(7, 3, 5), randint(1, 5, 3, 3), tensor([7, 7, 6]), tensor([3, 1, 2])],
     dtype=torch.float64)
ctc("padded", (8, 3, 5), tensor([[1, 1, 2, 4], [3, 2, 0, 0], [4, 4, 4, 0]]), [8, 5, 7], [4, 2, 3])
ctc("joined", (8, 3, 5), tensor([1, 1, 2, 4, 3, 2, 4, 4, 4]), [8, 5, 7], [4, 2, 3])
ctc("blank", (6, 2, 4), tensor([[0, 1, 1], [2, 0, 1]]), [6, 6], [3, 2], ".blank = 3", blank=3)
ctc("empty_target", (4, 2, 3), tensor([[1, 2], [0, 0]]), [4, 3], [2, 0])
ctc("zero_infinity", (4, 2, 3), tensor([[1, 1, 1], [1, 2, 0]]), [4, 3], [3, 2],
    ".zero_infinity = true", zero_infinity=True)
ctc("single", (6, 4), tensor([2, 1, 1]), 6, 3)

# ---- penalties ----

case("l1_penalty", "y[0] = aril_l1_penalty(ARIL_LIST(x[0], x[1]), 0.3);",
     lambda x: 0.3 * (x[0].abs().sum() + x[1].abs().sum()), [randn(2, 3), randn(4)])
case("l2_penalty", "y[0] = aril_l2_penalty(ARIL_LIST(x[0], x[1], x[2]), 0.3);",
     lambda x: 0.3 * sum((t ** 2).sum() for t in x), [randn(2, 3), randn(4), randn()])

# ---- bags of embeddings ----


def bag(name, c, fn, inputs, **kw):
    case(f"embedding_bag/{name}", f"y[0] = aril_embedding_bag({c});", fn, inputs, **kw)


OPTS = "(aril_embedding_bag_opts)"
for mode in ("mean", "sum", "max"):
    field = f".mode = ARIL_{mode.upper()}"
    bag(f"{mode}/rows", f"x[1], x[0], NULL, {OPTS}{{{field}}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], mode=m), [apart(6, 3), randint(0, 6, 4, 3)])
    bag(f"{mode}/offsets", f"x[1], x[0], x[2], {OPTS}{{{field}}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], x[2], mode=m),
        [apart(6, 3), randint(0, 6, 8), tensor([0, 3, 3, 7])])
    bag(f"{mode}/last_offset", f"x[1], x[0], x[2], {OPTS}{{{field}, .include_last_offset = true}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], x[2], mode=m, include_last_offset=True),
        [apart(6, 3), randint(0, 6, 8), tensor([0, 3, 3, 8])])
    bag(f"{mode}/padding", f"x[1], x[0], x[2], {OPTS}{{{field}, .padding_idx = 2}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], x[2], mode=m, padding_idx=2),
        [apart(4, 3), tensor([2, 0, 1, 2, 2, 3, 2, 1]), tensor([0, 3, 5])])
    bag(f"{mode}/padding_rows", f"x[1], x[0], NULL, {OPTS}{{{field}, .padding_idx = -1}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], mode=m, padding_idx=-1),
        [apart(4, 3), tensor([[3, 0, 1], [3, 3, 3], [1, 1, 2]])])
    bag(f"{mode}/i32", f"x[1], x[0], NULL, {OPTS}{{{field}}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], mode=m),
        [apart(6, 70), randint(0, 6, 2, 3, dtype=torch.int32)])
    bag(f"{mode}/f64", f"x[1], x[0], NULL, {OPTS}{{{field}}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], mode=m), [apart(6, 3), randint(0, 6, 4, 3)],
        dtype=torch.float64)
    bag(f"{mode}/empty", f"x[1], x[0], x[2], {OPTS}{{{field}}}",
        lambda x, m=mode: F.embedding_bag(x[1], x[0], x[2], mode=m),
        [apart(3, 2), randint(0, 3, 0), tensor([0, 0])])
bag("default", f"x[1], x[0], NULL, {OPTS}{{0}}", lambda x: F.embedding_bag(x[1], x[0]),
    [randn(6, 3), randint(0, 6, 4, 3)])
bag("padding_first", f"x[1], x[0], NULL, {OPTS}{{.padding_idx = ARIL_ZERO}}",
    lambda x: F.embedding_bag(x[1], x[0], padding_idx=0),
    [randn(3, 3), tensor([[0, 1], [2, 1], [0, 0]])])
bag("weights/rows", f"x[1], x[0], NULL, {OPTS}{{.mode = ARIL_SUM, .per_sample_weights = x[2]}}",
    lambda x: F.embedding_bag(x[1], x[0], per_sample_weights=x[2], mode="sum"),
    [randn(6, 3), randint(0, 6, 4, 3), randn(4, 3)])
bag("weights/offsets", f"x[1], x[0], x[2], {OPTS}{{.mode = ARIL_SUM, .per_sample_weights = x[3]}}",
    lambda x: F.embedding_bag(x[1], x[0], x[2], per_sample_weights=x[3], mode="sum"),
    [randn(6, 3), randint(0, 6, 8), tensor([0, 3, 3, 7]), randn(8)])
bag("weights/padding", f"x[1], x[0], x[2], {OPTS}{{.mode = ARIL_SUM, .padding_idx = 1, "
    ".per_sample_weights = x[3]}",
    lambda x: F.embedding_bag(x[1], x[0], x[2], per_sample_weights=x[3], mode="sum", padding_idx=1),
    [randn(3, 3), randint(0, 3, 8), tensor([0, 3, 3, 7]), randn(8)])
