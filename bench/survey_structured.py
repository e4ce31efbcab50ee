"""The cases of bench/survey whose operations know the structure of their input: windows, groups, signals, sequences, parts and their gradients.

Registered as those of survey_cases.py. Names that end in "channels-last" have images in that order in memory, those without the usual one.
"""
import ctypes as C

import torch
import torch.nn.functional as F
from by_ctypes import B, F64, I, I64, ListOf, Out, api, axes, options, pads, shape, tensors
from survey_cases import FLOATS, WIDE, BagOptions, case, ours, values

T = torch
PoolOptions = options("PoolOptions", (I64 * 3, "kernel stride padding padding_end dilation"), (I, "mode"), (B, "ceil_mode count_exclude_pad"),
                      (I64, "divisor"))
ConvOptions = options("ConvOptions", (I64 * 3, "stride padding padding_end dilation"), (I64, "groups"), (I, "mode"), (I64 * 3, "output_padding"),
                      (I, "activation"))
InterpolateOptions = options("InterpolateOptions", (I64 * 3, "size"), (F64 * 3, "scale"), (I, "mode"), (B, "align_corners antialias"))
GridOptions = options("GridOptions", (I, "mode padding"), (B, "align_corners"))
NormOptions = options("NormOptions", (F64, "eps"))
PadOptions = options("PadOptions", (I, "mode"), (F64, "value"))
FftOptions = options("FftOptions", (I64, "n"), (I, "norm"))
GradOptions = options("GradOptions", (B, "retain_graph create_graph allow_unused"), (type(tensors([])), "grad_outputs"))
CtcOptions = options("CtcOptions", (I, "reduction"), (I64, "blank"), (B, "zero_infinity"))


def image_case(name, kinds, make):
    """A case in both orders: make(x, a) of an image [N,C,H,W] gives both functions."""
    for order in ("", " channels-last"):
        @case(name + order, kinds)
        def both(s, kind, order=order):
            x = values(s.image(), kind)
            if order:
                x = x.contiguous(memory_format=T.channels_last)
            return make(x, ours(x))


def gradient_case(name, kinds, make):
    """Forward and backward: make(s, kind) gives inputs, which of them have a gradient, and the two functions of the inputs."""
    @case(name, kinds)
    def both(s, kind):
        made = make(s, kind)
        if made is None:
            return None
        inputs, wanted, mine, theirs = made
        leaves = [x.requires_grad_(i in wanted) for i, x in enumerate(inputs)]
        mine_inputs = [ours(x.detach()) for x in inputs]
        for i in wanted:
            api.set_requires_grad(mine_inputs[i], True)
        with T.enable_grad():
            y = theirs(*leaves)
        g = T.randn_like(y)
        given, found, whose = ours(g), Out(len(wanted)), tensors([mine_inputs[i] for i in wanted])
        plain, results = GradOptions(grad_outputs=tensors((given,))), tensors((given,))

        def run():
            results.at[0] = mine(*mine_inputs).address
            api.status("gradients_n", results, whose, found, plain)

        def run_theirs():
            with T.enable_grad():
                T.autograd.grad(theirs(*leaves), [leaves[i] for i in wanted], g)
        return run, run_theirs


# ---- Pooling --------------------------------------------------------------------------------------

for name in ("max", "avg", "lp"):
    @case(f"{name}_pool1d", FLOATS if name != "lp" else WIDE)
    def pool_1d(s, kind, name=name):
        x = values((4, 32, max(8, s.n // 128)), kind, 0.1, 1)
        a, how = ours(x), PoolOptions(kernel=(3,), stride=(2,))
        if name == "lp":
            return lambda: api.lp_pool1d(a, 2.0, how), lambda: F.lp_pool1d(x, 2.0, 3, 2)
        if name == "max":
            return lambda: api.max_pool1d(a, how, None), lambda: F.max_pool1d(x, 3, 2)
        return lambda: api.avg_pool1d(a, how), lambda: F.avg_pool1d(x, 3, 2)

HOW = PoolOptions(kernel=(3,), stride=(2,), padding=(1,))
image_case("max_pool2d", FLOATS, lambda x, a: (lambda: api.max_pool2d(a, HOW, None), lambda: F.max_pool2d(x, 3, 2, 1)))
image_case("avg_pool2d", FLOATS, lambda x, a: (lambda: api.avg_pool2d(a, HOW), lambda: F.avg_pool2d(x, 3, 2, 1)))
HOW_LP = PoolOptions(kernel=(2,))
image_case("lp_pool2d", WIDE, lambda x, a: (lambda: api.lp_pool2d(a, 2.0, HOW_LP), lambda: F.lp_pool2d(x, 2.0, 2)))
for to in (1, 4):
    image_case(f"adaptive_avg_pool2d {to}", FLOATS, lambda x, a, to=to, size=shape((to, to)): (lambda: api.adaptive_avg_pool2d(a, size),
                                                                                             lambda: F.adaptive_avg_pool2d(x, to)))
    image_case(f"adaptive_max_pool2d {to}", FLOATS, lambda x, a, to=to, size=shape((to, to)): (lambda: api.adaptive_max_pool2d(a, size, None),
                                                                                             lambda: F.adaptive_max_pool2d(x, to)))
for name in ("avg", "max"):
    @case(f"adaptive_{name}_pool1d 1", WIDE)
    def adaptive_1d(s, kind, name=name):
        x = values((4, 32, max(8, s.n // 128)), kind)
        a, mine, theirs = ours(x), api[f"adaptive_{name}_pool1d"], getattr(F, f"adaptive_{name}_pool1d")
        more = (shape((1,)), None) if name == "max" else (shape((1,)),)
        return lambda: mine(a, *more), lambda: theirs(x, 1)


def image_gradient(name, kinds, mine, theirs):
    for order in ("", " channels-last"):
        def make(s, kind, order=order):
            x = values(s.image(), kind)
            return [x.contiguous(memory_format=T.channels_last) if order else x], [0], mine, theirs
        gradient_case(f"{name} gradient{order}", kinds, make)


image_gradient("max_pool2d", WIDE, lambda a: api.max_pool2d(a, HOW, None), lambda x: F.max_pool2d(x, 3, 2, 1))
image_gradient("avg_pool2d", WIDE, lambda a: api.avg_pool2d(a, HOW), lambda x: F.avg_pool2d(x, 3, 2, 1))
for to in (1, 4):
    image_gradient(f"adaptive_avg_pool2d {to}", WIDE, lambda a, size=shape((to, to)): api.adaptive_avg_pool2d(a, size),
                   lambda x, to=to: F.adaptive_avg_pool2d(x, to))

# ---- Norms ----------------------------------------------------------------------------------------

PLAIN_NORM = NormOptions()


def norm_case(name, kinds, mine, theirs):
    for order in ("", " channels-last"):
        for grad in ("", " gradient"):
            def make(s, kind, order=order):
                x = values(s.image(), kind)
                return [x.contiguous(memory_format=T.channels_last) if order else x, values((32,), kind), values((32,), kind)]
            if grad:
                gradient_case(name + grad + order, ("f32",), lambda s, kind, make=make: (make(s, kind), [0, 1, 2], mine, theirs))
            else:
                @case(name + order, kinds)
                def both(s, kind, make=make):
                    given = make(s, kind)
                    a = [ours(x) for x in given]
                    return lambda: mine(*a), lambda: theirs(*given)


norm_case("group_norm", FLOATS, lambda a, w, b: api.group_norm(a, w, b, 8, PLAIN_NORM), lambda x, w, b: F.group_norm(x, 8, w, b))
norm_case("instance_norm", WIDE, lambda a, w, b: api.group_norm(a, w, b, 32, PLAIN_NORM),
          lambda x, w, b: F.instance_norm(x, None, None, w, b))


@case("layer_norm", FLOATS)
def layer_norm(s, kind):
    x, w, b = values(s.rows(256), kind), values((256,), kind), values((256,), kind)
    given = [ours(x), ours(w), ours(b), shape((256,)), PLAIN_NORM]
    return lambda: api.layer_norm(*given), lambda: F.layer_norm(x, (256,), w, b)


for name, theirs in (("softmax", T.softmax), ("log_softmax", T.log_softmax)):
    for axis in (0, 1):
        gradient_case(f"{name} gradient axis {axis}", ("f32", "bf16"), lambda s, kind, name=name, theirs=theirs, axis=axis: (
            [values(s.rows(256), kind)], [0], lambda a, at=I(axis): api[name](a, at), lambda x: theirs(x, axis)))
    image_case(f"{name} of channels", ("f32", "bf16"), lambda x, a, name=name, theirs=theirs, one=I(1): (lambda: api[name](a, one), lambda: theirs(x, 1)))

# ---- Padding, resampling, grids -------------------------------------------------------------------

for mode, (number, theirs) in {"zeros": (0, "constant"), "reflect": (1, "reflect"), "replicate": (2, "replicate"), "circular": (3, "circular")}.items():
    image_case(f"pad {mode}", ("f32", "bf16") if number else ("u8", "bf16", "f32", "f64"), lambda x, a, how=(pads((1, 1, 1, 1)), PadOptions(mode=number)), theirs=theirs: (
        lambda: api.pad(a, *how), lambda: F.pad(x, (1, 1, 1, 1), theirs)))

for mode, (number, theirs) in {"nearest": (0, "nearest"), "bilinear": (2, "bilinear"), "bicubic": (3, "bicubic")}.items():
    for corners in (False, True) if number else (False,):
        for scale in (2, 0.5):
            how = InterpolateOptions(scale=(scale,), mode=number, align_corners=corners)
            image_case(f"interpolate {mode} {scale}{' aligned' if corners else ''}", ("f32",), lambda x, a, how=how, theirs=theirs, corners=corners, scale=scale: (
                lambda: api.interpolate(a, how), lambda: F.interpolate(x, scale_factor=scale, mode=theirs, align_corners=corners if theirs != "nearest" else None)))
HOW_UP = {c: InterpolateOptions(scale=(2,), mode=2, align_corners=c) for c in (False, True)}
for corners in (False, True):
    image_gradient(f"interpolate bilinear 2{' aligned' if corners else ''}", ("f32",), lambda a, c=corners: api.interpolate(a, HOW_UP[c]),
                   lambda x, c=corners: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=c))

for mode, theirs in enumerate(("bilinear", "nearest", "bicubic")):
    def sampled(x, a, mode=mode, theirs=theirs):
        grid = T.rand(x.shape[0], *x.shape[2:], 2, dtype=x.dtype) * 2.2 - 1.1
        b, how = ours(grid), GridOptions(mode=mode)
        return lambda: api.grid_sample(a, b, how), lambda: F.grid_sample(x, grid, theirs, align_corners=False)
    image_case(f"grid_sample {theirs}", WIDE, sampled)


@case("affine_grid", WIDE)
def affine_grid(s, kind):
    theta, size = values((4, 2, 3), kind), (4, 32, *s.image(4)[2:])
    a, to = ours(theta), shape(size)
    return lambda: api.affine_grid(a, to, False), lambda: F.affine_grid(theta, size, align_corners=False)


# ---- Convolution ----------------------------------------------------------------------------------


def depthwise(kernel):
    def make(s, kind):
        x, w = values((4, 64, max(2 * kernel, s.n // 256)), kind), values((64, 1, kernel), kind)
        how = ConvOptions(padding=(kernel // 2,), groups=64)
        return [x, w], [0, 1], lambda a, b: api.conv1d(a, b, None, how), lambda x, w: F.conv1d(x, w, None, 1, kernel // 2, 1, 64)
    return make


for kernel in (3, 31, 127):
    @case(f"depthwise conv1d of {kernel}", ("f32",))
    def forward(s, kind, kernel=kernel):
        (x, w), _, mine, theirs = depthwise(kernel)(s, kind)
        a, b = ours(x), ours(w)
        return lambda: mine(a, b), lambda: theirs(x, w)
    gradient_case(f"depthwise conv1d of {kernel} gradient", ("f32",), depthwise(kernel))


def depthwise_2d(s, kind):
    x, w, how = values(s.image(), kind), values((32, 1, 7, 7), kind), ConvOptions(padding=(3,), groups=32)
    return [x, w], [0, 1], lambda a, b: api.conv2d(a, b, None, how), lambda x, w: F.conv2d(x, w, None, 1, 3, 1, 32)


gradient_case("depthwise conv2d of 7 gradient", ("f32",), depthwise_2d)


@case("conv_transpose2d of patches", ("f32",))
def patches(s, kind):
    """conv_dgrad of a vision transformer's patches."""
    side = max(1, round((s.n / 3 / 256) ** 0.5))
    x, w = values((1, 768, side, side), kind), values((768, 3, 16, 16), kind)
    a, b, how = ours(x), ours(w), ConvOptions(stride=(16,))
    return lambda: api.conv_transpose2d(a, b, None, how), lambda: F.conv_transpose2d(x, w, None, 16)


# ---- Signals ----------------------------------------------------------------------------------------

for n in (16, 60, 64, 100, 101, 127, 128, 256, 257, 360, 500, 512, 1000, 1009, 1024, 2187, 3125, 4096, 16384, 65536, 65537, 100000):
    for name in ("fft", "rfft", "irfft"):
        @case(f"{name} of {n}", WIDE if n in (256, 1000, 1024) else ("f32",))
        def transform(s, kind, n=n, name=name):
            if n > max(s.n, 1024):
                return None
            rows = max(1, s.n // n)
            if name == "rfft":
                x = values((rows, n), kind)
                a, plain = ours(x), FftOptions()
                return lambda: api.rfft(a, plain), lambda: T.fft.rfft(x)
            length = n if name == "fft" else n // 2 + 1
            pairs = values((rows, length, 2), kind)
            x, a, to, plain = T.view_as_complex(pairs), ours(pairs), FftOptions(n=n), FftOptions()
            if name == "irfft":
                return lambda: api.irfft(a, to), lambda: T.fft.irfft(x, n)
            return lambda: api.fft(a, plain), lambda: T.fft.fft(x)


@case("fft2", WIDE)
def fft2(s, kind):
    pairs = values((*s.square(), 2), kind)
    x, a = T.view_as_complex(pairs), ours(pairs)
    return lambda: api.fft2(a, I(0)), lambda: T.fft.fft2(x)


@case("rfft2", WIDE)
def rfft2(s, kind):
    x = values((4, *s.square()), kind)
    a = ours(x)
    return lambda: api.rfft2(a, I(0)), lambda: T.fft.rfft2(x)


# ---- Sequences and losses ---------------------------------------------------------------------------


def ctc(s, kind):
    steps, batch, classes, length = max(20, s.n // 512), 16, 32, max(5, s.n // 4096)
    x, y = F.log_softmax(values((steps, batch, classes), kind), -1), T.randint(1, classes, (batch, min(length, 60)))
    lengths, targets = T.full((batch,), steps), T.full((batch,), y.shape[1])
    b, c, d = ours(y), ours(lengths), ours(targets)
    return [x], [0], lambda a: api.ctc_loss(a, b, c, d), lambda x: F.ctc_loss(x, y, lengths, targets)


@case("ctc_loss", WIDE)
def ctc_loss(s, kind):
    (x,), _, mine, theirs = ctc(s, kind)
    a = ours(x)
    return lambda: mine(a), lambda: theirs(x)


gradient_case("ctc_loss gradient", ("f32",), ctc)

# ---- Indices ----------------------------------------------------------------------------------------


@case("bincount", ("i64",))
def bincount(s, kind):
    x = T.randint(0, 1000, (s.n,))
    a = ours(x)
    return lambda: api.bincount(a, None, 1000), lambda: T.bincount(x, minlength=1000)


def bag(s, kind):
    weight, index = values((max(10, s.n // 64), 64), kind), T.randint(0, max(10, s.n // 64), (max(1, s.n // 640), 10))
    a, mean = ours(index), BagOptions()
    return [weight], [0], lambda w: api.embedding_bag(a, w, None, mean), lambda w: F.embedding_bag(index, w)


gradient_case("embedding_bag gradient", WIDE, bag)


@case("flip copied", ("u8", "f32", "i64"))
def flipped(s, kind):
    x = values(s.rows(256), kind)
    a, one = ours(x), axes(1)
    return lambda: api.contiguous(api.flip(a, one)), lambda: T.flip(x, (1,))


# ---- Parts ------------------------------------------------------------------------------------------

for axis in (0, 1):
    def split(s, kind, axis=axis):
        side = max(100, s.square()[0] // 100 * 100)
        out, at = Out(100), I(axis)
        parts = ListOf(n=100, at=C.cast(out.at, C.POINTER(C.c_void_p)))

        def mine(a):
            api.status("split", a, side // 100, at, out)
            return api.cat(parts, at)
        return [values((side, side), kind)], [0], mine, lambda x: T.cat(x.split(side // 100, axis), axis)
    gradient_case(f"split into 100 and cat, gradient axis {axis}", ("f32",), split)


@case("batched 16 x 16, both transposed", WIDE)
def both_transposed(s, kind):
    x, y = values((max(1, s.n // 256), 16, 16), kind), values((max(1, s.n // 256), 16, 16), kind)
    a, b, at = ours(x), ours(y), (I(1), I(2))
    return lambda: api.matmul(api.transpose(a, *at), api.transpose(b, *at)), lambda: T.matmul(x.transpose(1, 2), y.transpose(1, 2))


@case("batched 16 x 16, left transposed", WIDE)
def left_transposed(s, kind):
    x, y = values((max(1, s.n // 256), 16, 16), kind), values((max(1, s.n // 256), 16, 16), kind)
    a, b, at = ours(x), ours(y), (I(1), I(2))
    return lambda: api.matmul(api.transpose(a, *at), b), lambda: T.matmul(x.transpose(1, 2), y)


for n in (4, 8, 32):
    @case(f"batched {n} x {n}", WIDE)
    def small_products(s, kind, n=n):
        x, y = values((max(1, s.n // n // n), n, n), kind), values((max(1, s.n // n // n), n, n), kind)
        a, b = ours(x), ours(y)
        return lambda: api.matmul(a, b), lambda: T.matmul(x, y)

for rule, left, right in (("bij,bij->b", 1, 1), ("bij,bj->bi", 1, 0), ("ij,ij->", 2, 2), ("bi,bi->b", 3, 3), ("bij,bik->bjk", 1, 1)):
    @case(f"einsum {rule}", WIDE)
    def contraction(s, kind, rule=rule, left=left, right=right):
        n = max(1, s.n // 1024)
        if rule.endswith("jk") and s.n > 1_100_000:
            return None
        sizes = {0: (16, n), 1: (16, 64, n), 2: (64, 16 * n), 3: (16 * n, 64)}
        if rule.endswith("jk"):
            sizes[1] = (16, n, 64)
        x, y = values(sizes[left], kind), values(sizes[right], kind)
        given, text = tensors((ours(x), ours(y))), rule.encode()
        return lambda: api.einsum(text, given), lambda: T.einsum(rule, x, y)
