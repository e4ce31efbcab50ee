"""Losses and distances: aril/loss.h."""
import math

import torch
import torch.nn.functional as F
from by_ctypes import B, F64, I, I64, P, ZERO, api, options, tensors

from .engine import FLOATS, WIDE_FLOATS, Call, row

T = torch
LossOptions = options("LossOptions", (I, "reduction"), (P, "weight"))
NumberOptions = options("NumberOptions", (I, "reduction"), (P, "weight"), (F64, "number"))
PoissonOptions = options("PoissonOptions", (I, "reduction"), (B, "rate full"), (F64, "eps"))
GaussianOptions = options("GaussianOptions", (I, "reduction"), (B, "full"), (F64, "eps"))
LogitsOptions = options("LogitsOptions", (I, "reduction"), (P, "weight pos_weight"))
NllOptions = options("NllOptions", (I, "reduction"), (P, "weight"), (I64, "ignore_index"))
EntropyOptions = options("EntropyOptions", (I, "reduction"), (P, "weight"), (I64, "ignore_index"), (F64, "label_smoothing"))
KlOptions = options("KlOptions", (I, "reduction"), (B, "log_target"))
MultiMarginOptions = options("MultiMarginOptions", (I, "reduction"), (P, "weight"), (F64, "margin"), (I, "p"), (B, "sum_classes"))
MarginOptions = options("MarginOptions", (I, "reduction"), (F64, "margin"))
TripletOptions = options("TripletOptions", (I, "reduction"), (F64, "margin p eps"), (B, "swap"))
CosineOptions = options("CosineOptions", (F64, "eps"))
DistanceOptions = options("DistanceOptions", (F64, "p eps"), (B, "keepdim"))
CtcOptions = options("CtcOptions", (I, "reduction"), (I64, "blank"), (B, "zero_infinity"))
REDUCTIONS = ("mean", "sum", "none")


def reduction(d, name):
    """0, `mean`, for short forms."""
    return d.random.randrange(3) if name.endswith("_with") else 0


def pair(d, *domains, signs=False, ndim=(0, 4)):
    """x and a target of its shape."""
    x = d.tensor(FLOATS, domain=domains[0] if domains else "any", ndim=ndim)
    y = d.tensor((x.value.dtype,), sizes=x.value.shape, domain=domains[1] if len(domains) > 1 else "any")
    if signs:
        y.value, y.grad = T.where(y.value > 0, 1, -1).to(y.value.dtype), False
    return x, y


def both(name, inputs, short, with_options, theirs, **attributes):
    """The short form of a loss, or its full one."""
    if name.endswith("_with"):
        return Call(inputs, with_options, theirs, **attributes)
    return Call(inputs, short or (lambda *t: api[name](*t)), theirs, **attributes)


@row("mse_loss", "mse_loss_with", "l1_loss", "l1_loss_with", "smooth_l1_loss", "smooth_l1_loss_with", "huber_loss", "huber_loss_with")
def regression(d, name):
    x, y = pair(d)
    base, r = name.removesuffix("_with"), reduction(d, name)
    beta = d.float(1, 0.5, 2, 0) if name == "smooth_l1_loss_with" else d.float(1, 0.5, 2) if name.endswith("_with") else 1.0
    more = {"smooth_l1_loss": {"beta": beta}, "huber_loss": {"delta": beta}}.get(base, {})
    def full(x, y):
        if not more:
            return api[name](x, y, LossOptions(reduction=r))
        return api[name](x, y, NumberOptions(reduction=r, number=beta or float(ZERO)))
    kink = more and x.value.shape == y.value.shape and ((x.value - y.value).abs() == beta).any()  # the second derivative jumps
    return both(name, [x, y], None, full, lambda x, y: getattr(F, base)(x, y, reduction=REDUCTIONS[r], **more), second=not kink,
                reduction=REDUCTIONS[r], **more)


@row("poisson_nll_loss", "poisson_nll_loss_with", "gaussian_nll_loss", "gaussian_nll_loss_with", "kl_div", "kl_div_with")
def likelihoods(d, name):
    r = reduction(d, name)
    flag, full = (d.chance(0.4), d.chance(0.4)) if name.endswith("_with") else (False, False)
    word = REDUCTIONS[r]
    if name.startswith("poisson"):
        x, y = pair(d, "positive", "positive")
        y.grad = False
        return both(name, [x, y], None, lambda x, y: api[name](x, y, PoissonOptions(reduction=r, rate=flag, full=full)),
                    lambda x, y: F.poisson_nll_loss(x, y, log_input=not flag, full=full, reduction=word), reduction=word, rate=flag, full=full)
    if name.startswith("kl"):
        x, y = pair(d, "any", "any" if flag else "unit")
        if name.endswith("_with") and d.chance(0.3):
            r, word = 3, "batchmean"
        return both(name, [x, y], None, lambda x, y: api[name](x, y, KlOptions(reduction=r, log_target=flag)),
                    lambda x, y: F.kl_div(x, y, reduction=word, log_target=flag), reduction=word, log_target=flag)
    d.special = False
    x, y = pair(d, ndim=(1, 4))
    var = d.tensor((x.value.dtype,), sizes=x.value.shape if d.chance(0.6) else [*x.value.shape[:-1], 1], domain="positive")
    return both(name, [x, y, var], None, lambda x, y, v: api[name](x, y, v, GaussianOptions(reduction=r, full=full)),
                lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=full, reduction=word), reduction=word, full=full)


@row("bce_loss", "bce_loss_with", "bce_with_logits", "bce_with_logits_with")
def yes_or_no(d, name):
    r, weighted, positive = reduction(d, name), d.chance(0.4), d.chance(0.4)
    x, y = pair(d, "any" if "logits" in name else "unit", "unit")
    def plain_bce(x, y, w=None, reduction="mean"):
        """By its formula, as PyTorch's second derivative has 1e-12 added to x."""
        value = F.binary_cross_entropy(x, y, w, reduction=reduction)
        loss = -(y * x.log().clamp_min(-100) + (1 - y) * (-x).log1p().clamp_min(-100))
        loss = loss if w is None else loss * w
        return value if edges else loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
    edges = bool(((x.value <= 0) | (x.value >= 1)).any())  # where logarithms stop
    if "logits" not in name and d.wrong and x.value.numel():
        x.value.view(-1)[0] = d.pick(-0.5, 1.5)
    y.grad = False
    w, p = (d.tensor((x.value.dtype,), sizes=d.broadcast(x.value.shape), domain="positive", grad=False) for _ in range(2))
    if not name.endswith("_with"):
        theirs = F.binary_cross_entropy_with_logits if "logits" in name else plain_bce
        return Call([x, y], api[name], theirs, second="logits" in name or not edges)
    if "logits" in name:
        fields = lambda w, p: {**({"weight": w} if weighted else {}), **({"pos_weight": p} if positive else {})}
        return Call([x, y, w, p], lambda x, y, w, p: api[name](x, y, LogitsOptions(reduction=r, **fields(w, p))),
                    lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, reduction=REDUCTIONS[r], **fields(w, p)),
                    reduction=REDUCTIONS[r], weight=weighted, pos_weight=positive)
    return Call([x, y, w], lambda x, y, w: api[name](x, y, LossOptions(reduction=r, weight=w) if weighted else LossOptions(reduction=r)),
                lambda x, y, w: plain_bce(x, y, w if weighted else None, REDUCTIONS[r]), reduction=REDUCTIONS[r],
                second=not edges, weight=weighted)


@row("nll_loss", "nll_loss_with", "cross_entropy", "cross_entropy_with")
def classes(d, name):
    r, c = reduction(d, name), d.random.randint(1, 9)
    more = [] if d.chance(0.6) else [d.random.randint(1, 4) for _ in range(d.random.randint(1, 2))]
    lead = [] if d.chance(0.1) and not more else [d.random.randint(1, 9)]
    x = d.tensor(FLOATS, sizes=[*lead, c, *more])
    with_, entropy = name.endswith("_with"), name.startswith("cross")
    y = d.tensor((T.int64,), sizes=lead + more, domain=(0, c), grad=False, free=True)
    soft = entropy and with_ and d.chance(0.3)
    if soft:
        y = d.tensor((x.value.dtype,), sizes=x.value.shape, domain="unit")
    weighted = with_ and d.chance(0.4)
    ignore = d.pick(-100, -100, 0, 1) if with_ and not soft else -100
    smoothing = d.float(0, 0, 0.1, 0.5) if entropy and with_ else 0.0
    w = d.tensor((x.value.dtype,), sizes=[c], domain="positive", grad=False)
    fields = dict(reduction=r, ignore_index=0 if ignore == -100 else ignore or ZERO)
    kind = EntropyOptions if entropy else NllOptions
    if entropy:
        fields["label_smoothing"] = smoothing
    base = getattr(F, name.removesuffix("_with"))
    extra = {"label_smoothing": smoothing} if entropy else {}
    def theirs(x, y, w):
        return base(x, y, w if weighted else None, reduction=REDUCTIONS[r], ignore_index=ignore, **extra)
    def ours(x, y, w):
        if not with_:
            return api[name](x, y)
        return api[name](x, y, kind(weight=w, **fields) if weighted else kind(**fields))
    return Call([x, y, w], ours, theirs, reduction=REDUCTIONS[r], ignore=ignore, weight=weighted, smoothing=smoothing, soft=soft)


@row("multi_margin_loss", "multi_margin_loss_with", "multilabel_margin_loss", "multilabel_margin_loss_with",
     "multilabel_soft_margin_loss", "multilabel_soft_margin_loss_with")
def class_margins(d, name):
    r, c = reduction(d, name), d.random.randint(1, 7)
    d.special = False
    lead = [] if d.chance(0.1) and name != "multilabel_soft_margin_loss" else [d.random.randint(1, 7)]
    x, word = d.tensor(FLOATS, sizes=[*lead, c]), REDUCTIONS[r]
    w = d.tensor((x.value.dtype,), sizes=[c], domain="positive", grad=False)
    weighted = name.endswith("_with") and d.chance(0.4)
    if name.startswith("multi_margin"):
        y = d.tensor((T.int64,), sizes=lead, domain=(0, c), grad=False, free=True)
        margin, p = (d.float(1, 0.5), d.pick(1, 2)) if name.endswith("_with") else (1.0, 1)
        fields = dict(reduction=r, margin=margin, p=p)
        return Call([x, y, w], lambda x, y, w: api[name](x, y, *([MultiMarginOptions(**fields, **({"weight": w} if weighted else {}))]
                                                                 if name.endswith("_with") else [])),
                    lambda x, y, w: F.multi_margin_loss(x, y, p, margin, w if weighted else None, reduction=word), second=False, weight=weighted,
                    **fields)
    if "soft" in name:
        y = d.tensor((x.value.dtype,), sizes=x.value.shape, domain="unit", grad=False)
        return both(name, [x, y, w], lambda x, y, w: api[name](x, y),
                    lambda x, y, w: api[name](x, y, LossOptions(reduction=r, weight=w) if weighted else LossOptions(reduction=r)),
                    lambda x, y, w: F.multilabel_soft_margin_loss(x, y, w if weighted else None, reduction=word), reduction=word, weight=weighted)
    y = d.tensor((T.int64,), sizes=[*lead, c], domain=(-1, c), grad=False, free=True)
    return both(name, [x, y], None, lambda x, y: api[name](x, y, LossOptions(reduction=r)),
                lambda x, y: F.multilabel_margin_loss(x, y, reduction=word), second=False, reduction=word)


@row("soft_margin_loss", "soft_margin_loss_with", "hinge_loss", "hinge_loss_with", "hinge_embedding_loss", "hinge_embedding_loss_with",
     "margin_ranking_loss", "margin_ranking_loss_with", "cosine_embedding_loss", "cosine_embedding_loss_with")
def sign_margins(d, name):
    r = reduction(d, name)
    base, word = name.removesuffix("_with"), REDUCTIONS[r]
    margin = d.float(1, 0.5, 0.3) if name.endswith("_with") else {"margin_ranking_loss": 0.0, "cosine_embedding_loss": 0.0}.get(base, 1.0)
    if base in ("margin_ranking_loss", "cosine_embedding_loss"):
        a, y = pair(d, signs=True, ndim=(1, 2) if "cosine" in name else (0, 4))
        b = d.tensor((a.value.dtype,), sizes=a.value.shape)
        if "cosine" in name:
            y = d.tensor((a.value.dtype,), sizes=a.value.shape[:-1], grad=False)
            y.value = T.where(y.value > 0, 1, -1).to(y.value.dtype)
        return both(name, [a, b, y], None, lambda a, b, y: api[name](a, b, y, MarginOptions(reduction=r, margin=margin)),
                    lambda a, b, y: getattr(F, base)(a, b, y, margin=margin, reduction=word),
                    grad="cosine" not in name or (apart(a, -1, 1e-3) and apart(b, -1, 1e-3)), reduction=word, margin=margin)
    x, y = pair(d, signs=True)
    if base == "soft_margin_loss":
        return both(name, [x, y], None, lambda x, y: api[name](x, y, LossOptions(reduction=r)), lambda x, y: F.soft_margin_loss(x, y, reduction=word),
                    reduction=word)
    def hinge(x, y):
        z = T.clamp_min(margin - y * x, 0)
        return z.mean() if r == 0 else z.sum() if r == 1 else z
    theirs = hinge if base == "hinge_loss" else lambda x, y: F.hinge_embedding_loss(x, y, margin=margin, reduction=word)
    return both(name, [x, y], None, lambda x, y: api[name](x, y, MarginOptions(reduction=r, margin=margin)), theirs, reduction=word, margin=margin)


@row("triplet_margin_loss", "triplet_margin_loss_with", "cosine_similarity", "cosine_similarity_with", "pairwise_distance",
     "pairwise_distance_with")
def distances(d, name):
    r, full = reduction(d, name), name.endswith("_with")
    a, b = pair(d, ndim=(1, 3))
    p, eps, flag = (d.float(2, 1, 3), d.float(1e-6, 1e-3), d.chance(0.4)) if full else (2.0, 1e-6, False)
    if name.startswith("triplet"):
        c, margin = d.tensor((a.value.dtype,), sizes=a.value.shape), d.float(1, 0.3) if full else 1.0
        return both(name, [a, b, c], None, lambda a, b, c: api[name](a, b, c, TripletOptions(reduction=r, margin=margin, p=p, eps=eps, swap=flag)),
                    lambda a, b, c: F.triplet_margin_loss(a, b, c, margin, p, eps, flag, reduction=REDUCTIONS[r]), reduction=REDUCTIONS[r], p=p,
                    margin=margin, eps=eps, swap=flag)
    if name.startswith("cosine"):
        axis, eps = d.axis(a), d.float(1e-8, 1e-3) if full else 1e-8
        b = d.tensor((a.value.dtype,), sizes=d.broadcast(a.value.shape))
        return both(name, [a, b], lambda a, b: api[name](a, b, axis), lambda a, b: api[name](a, b, axis, CosineOptions(eps=eps)),
                    lambda a, b: F.cosine_similarity(a, b, axis, eps), grad=apart(a, axis, 0.05) and apart(b, axis, 0.05, a), axis=axis, eps=eps)
    return both(name, [a, b], None, lambda a, b: api[name](a, b, DistanceOptions(p=p, eps=eps, keepdim=flag)),
                lambda a, b: F.pairwise_distance(a, b, p, eps, flag), p=p, eps=eps, keepdim=flag)


def apart(x, axis, eps, like=None):
    """No vector is short: where eps stands for the length PyTorch's gradient takes no notice of that, and near it the formula cancels."""
    x = x.value.double()
    if like is not None and x.dim() < like.value.dim():
        x = x[(None,) * (like.value.dim() - x.dim())]
    return not -x.dim() <= axis < x.dim() or not x.numel() or bool((x.norm(dim=axis) > 2 * eps).all())


@row("ctc_loss", "ctc_loss_with")
def ctc(d, name):
    d.special = False
    t, n, c, s = d.random.randint(1, 12), d.random.randint(1, 4), d.random.randint(2, 6), d.random.randint(1, 4)
    r = reduction(d, name)
    blank = d.random.randrange(c) if name.endswith("_with") else 0
    zero = name.endswith("_with") and d.chance(0.4)
    x = d.tensor(WIDE_FLOATS, sizes=[t, n, c])
    labels = d.tensor((T.int64,), sizes=[n, s], domain=(0, c - 1), grad=False, free=True)
    if labels.value.numel() and not d.wrong:
        labels.value = T.where(labels.value >= blank, labels.value + 1, labels.value)
    ins = d.tensor((T.int64,), sizes=[n], domain=(1, t + 1), grad=False, free=True)
    outs = d.tensor((T.int64,), sizes=[n], domain=(0 if zero else 1, s + 1), grad=False, free=True)
    theirs = lambda x, l, i, o: F.ctc_loss(F.log_softmax(x, -1), l, i, o, blank, REDUCTIONS[r], zero)
    ours = lambda x, l, i, o: api[name](api.log_softmax(x, -1), l, i, o, *([CtcOptions(reduction=r, blank=blank, zero_infinity=zero)]
                                                                          if name.endswith("_with") else []))
    # PyTorch's gradient of labels that are blanks is another one than that of its values.
    return Call([x, labels, ins, outs], ours, theirs, grad=not (labels.value == blank).any(), second=False, reduction=REDUCTIONS[r], blank=blank, zero_infinity=zero)


@row("l1_penalty", "l2_penalty")
def penalties(d, name):
    parts, strength = [d.tensor(FLOATS) for _ in range(d.random.randint(1, 3))], d.float(0.1, 1, 2)
    for p in parts:
        p.value = p.value.to(parts[0].value.dtype)
    def theirs(*t):
        return strength * sum((x.abs() if name == "l1_penalty" else x * x).sum() for x in t)
    return Call(parts, lambda *t: api[name](tensors(t), strength), theirs, strength=strength)
