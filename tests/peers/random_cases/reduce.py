"""Reductions, scans, sorting and searching: aril/reduce.h and aril/sort.h."""
import math

import torch
from by_ctypes import B, P, Out, api, axes, options

from .engine import ANY, FLOATS, INTS, WHOLE, WIDE_FLOATS, Call, row

T = torch
TopkOptions = options("TopkOptions", (B, "smallest unsorted"))
SortOptions = options("SortOptions", (B, "descending"))
SearchOptions = options("SearchOptions", (B, "right"))
HistogramOptions = options("HistogramOptions", (P, "weights"), (B, "density"))


def all_axes(x, which):
    return list(which) if which else list(range(x.dim()))


SEVERAL = {
    "sum": (ANY, lambda x, a, k: T.sum(x, a, k)), "nansum": (ANY, lambda x, a, k: T.nansum(x, a, k)),
    "mean": (FLOATS, lambda x, a, k: T.mean(x, a, k)), "nanmean": (FLOATS, lambda x, a, k: T.nanmean(x, a, k)),
    "logsumexp": (FLOATS, lambda x, a, k: T.logsumexp(x, a, k)), "amax": (ANY, lambda x, a, k: T.amax(x, a, k)),
    "amin": (ANY, lambda x, a, k: T.amin(x, a, k)), "any": (ANY, lambda x, a, k: T.any(x, a, k) if a else T.any(x)),
    "all": (ANY, lambda x, a, k: T.all(x, a, k) if a else T.all(x)),
    "count_nonzero": (ANY, lambda x, a, k: keep(x, (x != 0).sum(a, k))),
    "prod": (ANY, lambda x, a, k: product(x, a, k)),
}


def keep(x, result):
    return result


def product(x, which, keepdim):
    for a in sorted((a % max(1, x.dim()) if -x.dim() <= a < x.dim() else a for a in which), reverse=True):
        x = T.prod(x, a, keepdim)
    return x if which else T.prod(x)


@row(*SEVERAL)
def over_axes(d, name):
    dtypes, theirs = SEVERAL[name]
    x = d.tensor(dtypes)
    which, kept = d.axes(x), d.chance(0.4)
    distinct = len(set(a % max(1, x.value.dim()) for a in which)) == len(which)
    def reference(x):
        if not distinct:
            raise RuntimeError("dim appears multiple times")
        return theirs(x, all_axes(x, which), kept and bool(which))
    return Call([x], lambda x: api[name](x, axes(*which, keepdim=kept and bool(which))), reference, infinite=name == "logsumexp", axes=which, keepdim=kept)


@row("var", "std", "var_mean", "std_mean", "norm")
def moments(d, name):
    x = d.tensor(FLOATS)
    which, kept, correction = d.axes(x), d.chance(0.3), d.float(0, 1, 1, 2)
    kept = kept and bool(which)
    order = d.float(2, 1, 3, 0.5, 0, math.inf, -math.inf)
    where = axes(*which, keepdim=kept)
    def with_mean(x):
        mean = Out()
        return api[name](x, where, correction, mean), mean.tensor
    count = math.prod(x.value.shape[a] for a in which) if which and not d.wrong else x.value.numel()
    ours, theirs = {
        "var": (lambda x: api.var(x, where, correction), lambda x: T.var(x, all_axes(x, which), correction=correction, keepdim=kept)),
        "std": (lambda x: api.std(x, where, correction), lambda x: T.std(x, all_axes(x, which), correction=correction, keepdim=kept)),
        "var_mean": (with_mean, lambda x: T.var_mean(x, all_axes(x, which), correction=correction, keepdim=kept)),
        "std_mean": (with_mean, lambda x: T.std_mean(x, all_axes(x, which), correction=correction, keepdim=kept)),
        "norm": (lambda x: api.norm(x, where, order), lambda x: T.linalg.vector_norm(x, order, all_axes(x, which), kept)),
    }[name]
    return Call([x], ours, theirs, grad=name == "norm" or count > correction, axes=which, keepdim=kept, correction=correction, order=order)


@row("max", "min", "argmax", "argmin", "median", "nanmedian", "mode", "kthvalue")
def one_of_an_axis(d, name):
    x = d.tensor(FLOATS + INTS)
    axis, whole, kept = d.axis(x), d.chance(0.2), d.chance(0.3)
    which = axes() if whole else axes(axis, keepdim=kept)
    k = d.int(1, max(1, x.value.shape[axis] if -x.value.dim() <= axis < x.value.dim() else 1))
    if name.startswith("arg"):
        theirs = getattr(T, name)
        return Call([x], lambda x: api[name](x, which), lambda x: theirs(x) if whole else theirs(x, axis, kept), axis=axis, all=whole)
    def ours(x):
        at = Out()
        y = api[name](x, k, which, at) if name == "kthvalue" else api[name](x, which, at)
        if name in ("max", "min") and not whole:
            return y, at.tensor
        return y
    def theirs(x):
        if name == "mode" or name == "kthvalue":
            more = (k,) if name == "kthvalue" else ()
            return getattr(T, name)(x.reshape(-1), *more, 0)[0] if whole else getattr(T, name)(x, *more, axis, kept)[0]
        y = getattr(T, name)(x) if whole else getattr(T, name)(x, axis, kept)
        return y if whole else tuple(y) if name in ("max", "min") else y[0]
    ties = x.value.numel() != x.value.unique().numel()  # which of equal elements takes the gradient is not said
    return Call([x], ours, theirs, grad=not ties and not x.value.isnan().any(), axis=axis, all=whole, keepdim=kept, k=k)


ALONG = {"softmax": T.softmax, "log_softmax": T.log_softmax, "softmin": lambda x, a: T.softmax(-x, a), "cumsum": T.cumsum,
         "cumprod": T.cumprod, "logcumsumexp": T.logcumsumexp}


@row(*ALONG)
def along_one_axis(d, name):
    x = d.tensor(ANY if name.startswith("cum") else FLOATS)
    axis, theirs = d.axis(x), ALONG[name]
    return Call([x], lambda x: api[name](x, axis), lambda x: theirs(x, axis), infinite=name in ("logcumsumexp", "cumsum"), axis=axis)


@row("cummax", "cummin")
def running_extremes(d, name):
    x = d.tensor(FLOATS + INTS)
    axis, theirs = d.axis(x), getattr(T, name)
    def ours(x):
        at = Out()
        return api[name](x, axis, at), at.tensor
    return Call([x], ours, lambda x: tuple(theirs(x, axis)), axis=axis)


@row("diff")
def diff(d, name):
    x = d.tensor(ANY, ndim=(1, 4))
    n, axis = d.random.randint(0, 3), d.axis(x)
    return Call([x], lambda x: api.diff(x, n, axis), lambda x: T.diff(x, n, axis), n=n, axis=axis)


# ---- Sorting --------------------------------------------------------------------------------------------


@row("sort", "argsort", "topk")
def sorting(d, name):
    x = d.tensor(FLOATS + INTS)
    axis, down = d.axis(x), d.chance(0.5)
    size = x.value.shape[axis] if -x.value.dim() <= axis < x.value.dim() and x.value.dim() else 1
    k = d.int(0, size)
    options_ = SortOptions(descending=down)
    ties = x.value.numel() != x.value.unique().numel()
    def ours(x):
        if name == "argsort":
            return api.argsort(x, axis, options_)
        at = Out()
        if name == "sort":
            return api.sort(x, axis, options_, at), at.tensor
        y = api.topk(x, k, axis, TopkOptions(smallest=not down), at)
        return y if ties else (y, at.tensor)
    def theirs(x):
        if name == "argsort":
            return T.argsort(x, dim=axis, descending=down, stable=True)
        if name == "sort":
            return tuple(T.sort(x, dim=axis, descending=down, stable=True))
        y = T.topk(x, k, axis, largest=down)
        return y[0] if ties else tuple(y)
    return Call([x], ours, theirs, grad=not ties, axis=axis, descending=down, k=k)


@row("quantile", "nanquantile")
def quantile(d, name):
    x = d.tensor(WIDE_FLOATS)
    axis, whole, kept = d.axis(x), d.chance(0.3), d.chance(0.3)
    q = d.tensor(WIDE_FLOATS, ndim=(0, 1), domain="unit", grad=False)
    q.value = q.value.to(x.value.dtype)
    if d.wrong and q.value.numel():
        q.value.view(-1)[0] = d.pick(-0.5, 1.5, 2)
    mode = d.random.randrange(5)
    words = ("linear", "lower", "higher", "midpoint", "nearest")
    which = axes() if whole else axes(axis, keepdim=kept)
    return Call([x, q], lambda x, q: api[name](x, q, which, mode),
                lambda x, q: getattr(T, name)(x, q, None if whole else axis, kept and not whole, interpolation=words[mode]),
                grad=x.value.numel() == x.value.unique().numel(), axis=axis, all=whole, keepdim=kept, mode=words[mode])


@row("aminmax")
def aminmax(d, name):
    x = d.tensor(ANY)
    axis, whole, kept = d.axis(x), d.chance(0.3), d.chance(0.3)
    def ours(x):
        most = Out()
        return api.aminmax(x, axes() if whole else axes(axis, keepdim=kept), most), most.tensor
    return Call([x], ours, lambda x: tuple(T.aminmax(x) if whole else T.aminmax(x, dim=axis, keepdim=kept)), axis=axis, all=whole, keepdim=kept)


@row("normalize", "glu")
def normalized(d, name):
    x = d.tensor(FLOATS, ndim=(1, 4))
    axis, p, eps = d.axis(x), d.float(2, 1, 3, math.inf), d.float(1e-12, 1e-3)
    if name == "glu":
        return Call([x], lambda x: api.glu(x, axis), lambda x: T.nn.functional.glu(x, axis), axis=axis)
    eps = max(eps, 1e-6) if x.value.dtype == T.float16 else eps
    slope = 0 <= axis + x.value.dim() < 2 * x.value.dim() and x.value.shape[axis] > 1  # of a sign: what rounding leaves of 0
    return Call([x], lambda x: api.normalize(x, p, axes(axis), eps), lambda x: T.nn.functional.normalize(x, p, axis, eps),
                grad=slope, second=p != math.inf, axis=axis, p=p, eps=eps)


@row("isin")
def isin(d, name):
    x = d.tensor(ANY, domain="small", grad=False)
    values, invert = d.tensor(ANY, domain="small", grad=False, free=d.chance(0.1)), d.chance(0.3)
    return Call([x, values], lambda x, v: api.isin(x, v, invert), lambda x, v: T.isin(x, v, invert=invert), invert=invert)


@row("unique_consecutive", "unique_consecutive_axis")
def runs(d, name):
    x = d.tensor(ANY, domain="small", grad=False)
    axis = d.axis(x)
    def ours(x):
        inverse, counts = Out(), Out()
        y = api[name](x, *((axis,) if name.endswith("axis") else ()), inverse, counts)
        return y, inverse.tensor, counts.tensor
    return Call([x], ours, lambda x: T.unique_consecutive(x, return_inverse=True, return_counts=True,
                                                          **({"dim": axis} if name.endswith("axis") else {})), axis=axis)


@row("unique", "unique_axis")
def unique(d, name):
    x = d.tensor(INTS + WIDE_FLOATS, domain="small", grad=False)
    x.value = x.value.nan_to_num(0)
    axis = d.axis(x)
    def ours(x):
        inverse, counts = Out(), Out()
        y = api.unique(x, inverse, counts) if name == "unique" else api.unique_axis(x, axis, inverse, counts)
        return y, inverse.tensor, counts.tensor
    return Call([x], ours, lambda x: T.unique(x, return_inverse=True, return_counts=True, **({} if name == "unique" else {"dim": axis})),
                axis=axis)


@row("bincount")
def bincount(d, name):
    x = d.tensor(INTS, ndim=1, domain=(0, 9), grad=False)
    least, weighted = d.int(0, 12), d.chance(0.4)
    if weighted:
        w = d.tensor(WIDE_FLOATS, sizes=x.value.shape, free=True, grad=False)
        return Call([x, w], lambda x, w: api.bincount(x, w, least), lambda x, w: T.bincount(x, w, least), minlength=least)
    return Call([x], lambda x: api.bincount(x, None, least), lambda x: T.bincount(x, None, least), minlength=least)


@row("histc", "histogram", "histogram_bins")
def histograms(d, name):
    x = d.tensor(WIDE_FLOATS, grad=False)
    x.value = x.value.nan_to_num(0, 1, -1).clamp(-100, 100) + 0.0123  # on no edge
    bins, low = d.int(1, 9), d.float(-2, 0, -1)
    high = d.float(2, 1.5, 3)
    if name == "histc":
        return Call([x], lambda x: api.histc(x, bins, low, high), lambda x: T.histc(x, bins, low, high), bins=bins, range=(low, high))
    weighted, density = d.chance(0.3), d.chance(0.3)
    w = d.tensor(WIDE_FLOATS, sizes=x.value.shape, domain="unit", grad=False)
    w.value = w.value.to(x.value.dtype) if not d.wrong else w.value
    options_ = lambda w: HistogramOptions(weights=w, density=density) if weighted else HistogramOptions(density=density)
    if name == "histogram":
        edges = d.tensor(WIDE_FLOATS, ndim=1, grad=False)
        edges.value = edges.value.nan_to_num(0, 1, -1).sort()[0].to(x.value.dtype) if edges.value.dim() else edges.value
        edges.layout = ("contiguous",)
        return Call([x, w, edges], lambda x, w, e: api.histogram(x, e, options_(w)),
                    lambda x, w, e: T.histogram(x, e, weight=w if weighted else None, density=density)[0], weights=weighted, density=density)
    def ours(x, w):
        edges = Out()
        return api.histogram_bins(x, bins, low, high, options_(w), edges), edges.tensor
    return Call([x, w], ours, lambda x, w: tuple(T.histogram(x, bins, range=(low, high), weight=w if weighted else None, density=density)),
                bins=bins, range=(low, high), weights=weighted, density=density)


@row("searchsorted", "bucketize")
def searching(d, name):
    values, right = d.tensor(WIDE_FLOATS + INTS, grad=False), d.chance(0.5)
    several = name == "searchsorted" and d.chance(0.4)
    sizes = [*values.value.shape[:-1], d.size()] if several else [d.size()]
    ordered = d.tensor(WIDE_FLOATS + INTS, sizes=sizes, grad=False)
    ordered.layout = ("contiguous",)
    ordered.value = ordered.value.to(values.value.dtype)
    ordered.value = ordered.value.sort(-1)[0] if ordered.value.dim() else ordered.value
    if name == "bucketize":
        return Call([values, ordered], lambda v, s: api.bucketize(v, s, SearchOptions(right=right)),
                    lambda v, s: T.bucketize(v, s, right=right), right=right)
    return Call([ordered, values], lambda s, v: api.searchsorted(s, v, SearchOptions(right=right)),
                lambda s, v: T.searchsorted(s, v, right=right), right=right)
