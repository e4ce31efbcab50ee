"""Convolution, pooling and resampling: aril/conv.h."""
import torch
import torch.nn.functional as F
from by_ctypes import B, F64, I, I64, ZERO, Out, api, options, shape

from .engine import FLOATS, WIDE_FLOATS, Call, row
from .linear import ACTIVATION

T = torch
ConvOptions = options("ConvOptions", (I64 * 3, "stride padding padding_end dilation"), (I64, "groups"), (I, "mode"),
                      (I64 * 3, "output_padding"), (I, "activation"))
PoolOptions = options("PoolOptions", (I64 * 3, "kernel stride padding padding_end dilation"), (I, "mode"), (B, "ceil_mode count_exclude_pad"),
                      (I64, "divisor"))
InterpolateOptions = options("InterpolateOptions", (I64 * 3, "size"), (F64 * 3, "scale"), (I, "mode"), (B, "align_corners antialias"))
GridOptions = options("GridOptions", (I, "mode padding"), (B, "align_corners"))
LrnOptions = options("LrnOptions", (F64, "alpha beta k"))


def each(numbers):
    """Numbers of which a 0 after the first does not repeat it."""
    return [*numbers[:1], *[n or ZERO for n in numbers[1:]]]


def images(d, spatial, channels=None, least=1, domain="any", dtypes=FLOATS):
    """[N,C,spatial...], now and then without N."""
    most = {1: 40, 2: 14, 3: 7}[spatial]
    sizes = [d.random.randint(least, max(least, most)) for _ in range(spatial)]
    lead = [] if d.chance(0.1) else [0 if d.chance(0.03) else d.random.randint(1, 4)]
    return d.tensor(dtypes, sizes=[*lead, channels or d.random.randint(1, 6), *sizes], domain=domain)


# ---- Convolution ---------------------------------------------------------------------------------------------------


@row("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolution(d, name):
    spatial, transposed = int(name[-2]), "transpose" in name
    groups = d.pick(1, 1, 1, 2, 3)
    c, k = groups * d.pick(1, 2, 4, 8), groups * d.pick(1, 2, 3, 8)
    if d.chance(0.1):
        groups = c = k = d.pick(2, 8, 16)  # depthwise
    kernel = [d.random.randint(1, 4 if spatial < 3 else 3) for _ in range(spatial)]
    stride, padding, dilation = ([d.random.randint(*r) for _ in range(spatial)] for r in ((1, 3), (0, 2), (1, 2)))
    if d.chance(0.4):
        stride, dilation = [1] * spatial, [1] * spatial
    extra = [d.random.randint(0, max(0, max(s, q) - 1)) for s, q in zip(stride, dilation)] if transposed and d.chance(0.5) else [0] * spatial
    x = images(d, spatial, c)
    d.special = False
    w = d.tensor(FLOATS, sizes=[c, k // groups, *kernel] if transposed else [k, c // groups, *kernel])
    b = d.tensor(FLOATS, sizes=[k])
    biased, act = d.chance(0.6), d.pick(0, 0, 0, 1, 2, 3, 4, 5)
    mode = "numbers" if transposed else d.pick("numbers", "numbers", "valid", "same")
    if mode == "same":
        stride = [1] * spatial
    wrong_groups = d.int(groups, groups) if d.wrong else groups
    if wrong_groups == 0:
        wrong_groups = 1  # 0 stands for the default
    fields = dict(stride=stride, padding=each(padding) if mode == "numbers" else (0,) * spatial, dilation=dilation, groups=wrong_groups, activation=act,
                  mode={"numbers": 0, "valid": 1, "same": 2}[mode], output_padding=each(extra))
    def theirs(x, w, b):
        how = padding if mode == "numbers" else mode
        b = b if biased else None
        if transposed:
            y = getattr(F, name)(x, w, b, stride, padding, extra, wrong_groups, dilation)
        else:
            y = getattr(F, name)(x, w, b, stride, how, dilation, wrong_groups)
        return ACTIVATION[act](y)
    return Call([x, w, b], lambda x, w, b: api[name](x, w, b if biased else None, ConvOptions(**fields)), theirs, bias=biased, **fields)


# ---- Pooling ---------------------------------------------------------------------------------------------------------


def windows(d, spatial, padded=True):
    kernel = [d.random.randint(1, 4) for _ in range(spatial)]
    stride = [d.random.randint(1, 3) for _ in range(spatial)]
    padding = [d.random.randint(0, k // 2) for k in kernel] if padded and d.chance(0.6) else [0] * spatial
    return kernel, stride, padding


@row("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d")
def pooling(d, name):
    spatial, kind = int(name[-2]), name[:3]
    kernel, stride, padding = windows(d, spatial, kind != "lp_")
    ceil, exclude, dilation = d.chance(0.3), d.chance(0.5), [d.pick(1, 1, 2) for _ in range(spatial)]
    x = images(d, spatial, domain="positive" if kind == "lp_" else "any")
    if d.wrong and kind != "lp_" and d.chance(0.3):
        padding[0] = d.pick(-1, kernel[0], kernel[0] + 1)
    fields = dict(kernel=kernel, stride=stride, padding=each(padding), ceil_mode=ceil)
    if kind == "max":
        ties = x.value.numel() != x.value.unique().numel()
        def ours(x):
            at = Out()
            y = api[name](x, PoolOptions(dilation=dilation, **fields), at)
            return y if ties else (y, at.tensor)
        def theirs(x):
            y = getattr(F, name)(x, kernel, stride, padding, dilation, ceil, return_indices=True)
            return y[0] if ties else tuple(y)
        return Call([x], ours, theirs, grad=not ties, dilation=dilation, **fields)
    if kind == "avg":
        divisor = d.pick(0, 0, 3) if spatial > 1 else 0
        more = (divisor or None,) if spatial > 1 else ()
        return Call([x], lambda x: api[name](x, PoolOptions(count_exclude_pad=exclude, divisor=divisor, **fields)),
                    lambda x: getattr(F, name)(x, kernel, stride, padding, ceil, not exclude, *more), exclude=exclude, divisor=divisor, **fields)
    p = d.float(2, 1, 3, 1.5)
    return Call([x], lambda x: api[name](x, p, PoolOptions(**fields)), lambda x: plain_lp(x, p, kernel, stride, ceil, spatial), p=p, **fields)


def plain_lp(x, p, kernel, stride, ceil, spatial):
    """F.lp_pool by its formula, in terms of avg_pool: its own has no 3-d form for every dtype."""
    mean = getattr(F, f"avg_pool{spatial}d")(x.pow(p), kernel, stride, 0, ceil)
    if ceil:  # windows that hang over the end are divided by fewer elements
        ones = getattr(F, f"avg_pool{spatial}d")(T.ones_like(x), kernel, stride, 0, ceil, *(() if spatial == 1 else (True, 1)))
        if spatial > 1:
            return getattr(F, f"avg_pool{spatial}d")(x.pow(p), kernel, stride, 0, ceil, True, 1).pow(1 / p) + 0 * ones
        return (F.avg_pool2d(x.pow(p).unsqueeze(-2), (1, kernel[0]), (1, stride[0]), 0, ceil, True, 1).squeeze(-2)).pow(1 / p)
    size = 1
    for k in kernel:
        size *= k
    return (mean * size).pow(1 / p)


@row("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
     "adaptive_max_pool3d", "global_avg_pool", "global_max_pool")
def adaptive(d, name):
    if name.startswith("global"):
        x = images(d, d.pick(1, 2, 3))
        if x.value.dim() < 3 or d.wrong:
            return None
        over = tuple(range(2, x.value.dim()))
        ties = "max" in name and x.value.numel() != x.value.unique().numel()
        return Call([x], api[name], lambda x: x.mean(over, True) if "avg" in name else x.amax(over, True), grad=not ties)
    spatial = int(name[-2])
    x, size = images(d, spatial), [d.int(1, 6) for _ in range(spatial)]
    if "avg" in name:
        return Call([x], lambda x: api[name](x, shape(size)), lambda x: getattr(F, name)(x, size), size=size)
    ties = x.value.numel() != x.value.unique().numel()
    def ours(x):
        at = Out()
        y = api[name](x, shape(size), at)
        return y if ties else (y, at.tensor)
    def theirs(x):
        y = getattr(F, name)(x, size, return_indices=True)
        return y[0] if ties else tuple(y)
    return Call([x], ours, theirs, grad=not ties, size=size)


@row("max_unpool1d", "max_unpool2d", "max_unpool3d")
def unpooling(d, name):
    spatial = int(name[-2])
    d.special = False
    kernel = stride = [d.random.randint(1, 3) for _ in range(spatial)]
    source = d.values([2, d.random.randint(1, 3), *[d.random.randint(3, 8) for _ in range(spatial)]], T.float32)
    pooled, at = getattr(F, name.replace("unpool", "pool"))(source, kernel, stride, return_indices=True)
    x = d.tensor(FLOATS, sizes=pooled.shape)
    index = d.tensor((T.int64,), sizes=pooled.shape, domain=(0, 1), grad=False, free=True)
    if index.value.shape == at.shape:
        index.value, index.layout = at, ("contiguous",)
    size = list(source.shape[2:])
    if d.wrong and d.chance(0.5):
        one = d.pick(x, index)
        one.value, one.layout = d.pick(one.value[:1], one.value[0] if one.value.dim() else one.value, one.value[None]).contiguous(), ("contiguous",)
    return Call([x, index], lambda x, i: api[name](x, i, shape(size), PoolOptions(kernel=kernel, stride=stride)),
                lambda x, i: getattr(F, name)(x, i, kernel, stride, output_size=size), size=size, kernel=kernel)


@row("unfold", "fold")
def columns(d, name):
    kernel, stride, padding = windows(d, 2)
    dilation = [d.pick(1, 2), 1]
    x = images(d, 2, least=5)
    fields = dict(kernel=kernel, stride=stride, padding=each(padding), dilation=dilation)
    if name == "unfold":
        return Call([x], lambda x: api.unfold(x, PoolOptions(**fields)), lambda x: F.unfold(x, kernel, dilation, padding, stride), **fields)
    size = [d.random.randint(5, 12), d.random.randint(5, 12)]
    count = 1
    for i in range(2):
        count *= max(0, (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1)
    x = d.tensor(FLOATS, sizes=[d.random.randint(1, 3), d.random.randint(1, 3) * kernel[0] * kernel[1], count])
    return Call([x], lambda x: api.fold(x, shape(size), PoolOptions(**fields)), lambda x: F.fold(x, size, kernel, dilation, padding, stride),
                size=size, **fields)


# ---- Other sizes -------------------------------------------------------------------------------------------------------

MODES = {1: ("nearest", "nearest-exact", "linear", "area"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
         3: ("nearest", "nearest-exact", "trilinear", "area")}
NUMBERS = {"nearest": 0, "nearest-exact": 1, "linear": 2, "bilinear": 2, "trilinear": 2, "bicubic": 3, "area": 4}


@row("interpolate")
def interpolate(d, name):
    d.special = False
    spatial = d.pick(1, 2, 2, 3)
    mode = d.pick(*MODES[spatial])
    corners = d.chance(0.5) if NUMBERS[mode] in (2, 3) else False
    smooth = NUMBERS[mode] in (2, 3) and spatial == 2 and not corners and d.chance(0.4)
    most = {1: 30, 2: 12, 3: 6}[spatial]
    x = d.tensor(WIDE_FLOATS, sizes=[d.random.randint(1, 3), d.random.randint(1, 4), *[d.random.randint(1, most) for _ in range(spatial)]])
    by_size = d.chance(0.6) or smooth
    size = [d.random.randint(1, 2 * most) for _ in range(spatial)]
    scale = [d.pick(0.5, 1.0, 1.5, 2.0, 3.0, 0.7) for _ in range(spatial)]
    fields = dict(mode=NUMBERS[mode], align_corners=corners, antialias=smooth, **(dict(size=size) if by_size else dict(scale=scale)))
    return Call([x], lambda x: api.interpolate(x, InterpolateOptions(**fields)),
                lambda x: F.interpolate(x, size if by_size else None, None if by_size else scale, mode,
                                        corners if NUMBERS[mode] in (2, 3) else None, antialias=smooth), kind=mode, **fields)


@row("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
def shuffled(d, name):
    r, c = d.int(1, 3), d.random.randint(1, 4)
    lead = [d.random.randint(1, 3)]
    safe = min(max(r, 1), 4)
    sizes = {"pixel_shuffle": lead + [c * safe * safe, d.size(0), d.size(0)], "channel_shuffle": lead + [c * safe, d.size(0), d.size(0)],
             "pixel_unshuffle": lead + [c, safe * d.random.randint(1, 4), safe * d.random.randint(1, 4)]}[name]
    x = d.tensor(FLOATS, sizes=sizes)
    return Call([x], lambda x: api[name](x, r), lambda x: getattr(F if name != "channel_shuffle" else T.nn.functional, name)(x, r), exact=True,
                factor=r)


@row("affine_grid", "grid_sample")
def grids(d, name):
    deep = d.chance(0.3)
    dims = 3 if deep else 2
    n, c, corners = d.random.randint(1, 3), d.random.randint(1, 3), d.chance(0.5)
    sizes = [d.random.randint(1, 6) for _ in range(dims)]
    if name == "affine_grid":
        theta, size = d.tensor(WIDE_FLOATS, sizes=[n, dims, dims + 1]), [n, c, *sizes]
        return Call([theta], lambda t: api.affine_grid(t, shape(size), corners), lambda t: F.affine_grid(t, size, corners), size=size,
                    align_corners=corners)
    d.special = False
    mode, padding = d.random.randrange(3), d.random.randrange(3)
    x = d.tensor(WIDE_FLOATS, sizes=[n, c, d.random.randint(1, 7), d.random.randint(1, 7)])
    grid = d.tensor(WIDE_FLOATS, sizes=[n, *sizes[:2], 2])
    grid.value = grid.value.to(x.value.dtype)
    words = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding]
    return Call([x, grid], lambda x, g: api.grid_sample(x, g, GridOptions(mode=mode, padding=padding, align_corners=corners)),
                lambda x, g: F.grid_sample(x, g, *words, align_corners=corners), second=padding == 0, mode=words, align_corners=corners)


@row("local_response_norm")
def response_norm(d, name):
    x, size = d.tensor(FLOATS, ndim=(3, 5)), d.int(1, 5)
    alpha, beta, k = d.float(1e-4, 0.1), d.float(0.75, 0.5), d.float(1, 2)
    return Call([x], lambda x: api.local_response_norm(x, size, LrnOptions(alpha=alpha, beta=beta, k=k)),
                lambda x: F.local_response_norm(x, size, alpha, beta, k), size=size, alpha=alpha, beta=beta, k=k)
