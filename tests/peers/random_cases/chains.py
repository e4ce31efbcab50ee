"""Chains of functions of images in mixed memory orders: each function meets what the one before gave, and weights of another order."""
import ctypes as C

import torch
import torch.nn.functional as F
from by_ctypes import Tensor, api, axes, pads, shape, tensors

from .engine import DTYPES, FLOATS, Call, autocast_begin, guard_end, row
from .neural import BatchNormOptions, NormOptions
from .views import PadOptions
from .vision import ConvOptions, InterpolateOptions, PoolOptions, each

T = torch


class Chain:
    """Inputs, and steps that each take (the current value, all inputs) and give the next, in both."""

    def __init__(self, d):
        self.d, self.inputs, self.ours, self.theirs, self.words = d, [], [], [], []
        self.kind = d.pick(*FLOATS)
        self.regions = d.chance(0.3)
        self.sizes = [d.random.randint(1, 3), d.pick(1, 2, 3, 4, 8, 16), d.random.randint(3, 12), d.random.randint(3, 12)]
        self.input(self.sizes)
        for _ in range(d.random.randint(2, 6)):
            d.pick(convolution, convolution, pooling, pooling, norm, group, resample, pad, activation, residual, view, concat, slices)(self)
            if self.sizes[2] * self.sizes[3] > 400:
                pooling(self)

    def input(self, sizes, domain="any"):
        self.inputs.append(self.d.tensor((self.kind,), sizes=sizes, domain=domain))
        return len(self.inputs) - 1

    def add(self, word, ours, theirs, sizes=None):
        if self.regions and self.d.chance(0.4):
            dtype = self.d.pick(T.float32, T.bfloat16, T.bfloat16, T.float16)
            word, ours, theirs = f"{word} in a region of {dtype}", region_of_ours(dtype, ours), region_of_theirs(dtype, theirs)
        self.words.append(word)
        self.ours.append(ours)
        self.theirs.append(theirs)
        self.sizes = sizes or self.sizes


def region_of_ours(dtype, step):
    """The step in an autocast region; f32: where autocast is disabled."""
    def inside(x, inputs):
        guard = autocast_begin(DTYPES.index(dtype))
        y = step(x, inputs)
        guard_end(C.byref(guard))
        return y
    return inside


def region_of_theirs(dtype, step):
    def inside(x, inputs):
        with T.autocast("cpu", T.bfloat16 if dtype == T.float32 else dtype, enabled=dtype != T.float32):
            return step(x, inputs)
    return inside


def convolution(c):
    d, (n, channels, h, w) = c.d, c.sizes
    groups = d.pick(1, 1, *[g for g in (2, channels) if channels % g == 0])
    padding = d.random.randint(0, 1)
    out, kernel, stride = groups * d.pick(1, 2, 4, 8), d.random.randint(1, min(3, h + 2 * padding, w + 2 * padding)), d.pick(1, 1, 2)
    if groups * d.pick(1, 2) > 16:
        return
    weight, bias = c.input([out, channels // groups, kernel, kernel]), c.input([out])
    fields = dict(stride=[stride] * 2, padding=each([padding] * 2), groups=groups)
    c.add(f"conv2d({out}, {kernel}, {stride}, {padding}, {groups})", lambda x, i: api.conv2d(x, i[weight], i[bias], ConvOptions(**fields)),
          lambda x, i: F.conv2d(x, i[weight], i[bias], stride, padding, 1, groups),
          [n, out, *[(s + 2 * padding - kernel) // stride + 1 for s in (h, w)]])


def pooling(c):
    d, (n, channels, h, w) = c.d, c.sizes
    kernel, kind = d.random.randint(1, min(3, h, w)), d.pick("max", "avg", "adaptive_avg", "adaptive_max")
    if kind.startswith("adaptive"):
        size = [d.random.randint(1, 4), d.random.randint(1, 4)]
        ours = (lambda x, i: api.adaptive_avg_pool2d(x, shape(size))) if kind[9:] == "avg" else lambda x, i: api.adaptive_max_pool2d(x, shape(size), None)
        c.add(f"{kind}({size})", ours, lambda x, i: getattr(F, kind + "_pool2d")(x, size), [n, channels, *size])
        return
    stride = d.pick(1, 2)
    opts = lambda: PoolOptions(kernel=[kernel] * 2, stride=[stride] * 2)
    ours = (lambda x, i: api.max_pool2d(x, opts(), None)) if kind == "max" else lambda x, i: api.avg_pool2d(x, opts())
    c.add(f"{kind}({kernel}, {stride})", ours, lambda x, i: getattr(F, kind + "_pool2d")(x, kernel, stride),
          [n, channels, *[(s - kernel) // stride + 1 for s in (h, w)]])


def norm(c):
    if c.sizes[0] * c.sizes[2] * c.sizes[3] < 6:
        return
    w, b = c.input([c.sizes[1]]), c.input([c.sizes[1]])
    c.add("batch_norm", lambda x, i: api.batch_norm(x, i[w], i[b], None, None, BatchNormOptions(eps=0.1)),
          lambda x, i: F.batch_norm(x, None, None, i[w], i[b], True, 0.1, 0.1))


def group(c):
    if c.sizes[2] * c.sizes[3] < 4:
        return
    groups = c.d.pick(*[g for g in (1, 2, c.sizes[1]) if c.sizes[1] % g == 0])
    w, b = c.input([c.sizes[1]]), c.input([c.sizes[1]])
    c.add(f"group_norm({groups})", lambda x, i: api.group_norm(x, i[w], i[b], groups, NormOptions(eps=0.1)),
          lambda x, i: F.group_norm(x, groups, i[w], i[b], 0.1))


def resample(c):
    size, mode = [c.d.random.randint(1, 14), c.d.random.randint(1, 14)], c.d.pick("nearest", "bilinear", "bicubic")
    number = {"nearest": 0, "bilinear": 2, "bicubic": 3}[mode]
    c.add(f"interpolate({size}, {mode})", lambda x, i: api.interpolate(x, InterpolateOptions(size=size, mode=number)),
          lambda x, i: F.interpolate(x, size, None, mode), [*c.sizes[:2], *size])


def pad(c):
    at, mode = [c.d.random.randint(0, 2) for _ in range(4)], c.d.pick("constant", "reflect", "replicate", "circular")
    if min(c.sizes[2:]) < 3:
        mode = "constant"
    number = ("constant", "reflect", "replicate", "circular").index(mode)
    c.add(f"pad({at}, {mode})", lambda x, i: api.pad(x, pads(at), PadOptions(mode=number)), lambda x, i: F.pad(x, at, mode),
          [*c.sizes[:2], c.sizes[2] + at[2] + at[3], c.sizes[3] + at[0] + at[1]])


def activation(c):
    name = c.d.pick("tanh", "silu", "sigmoid", "softsign")
    c.add(name, lambda x, i: api[name](x), lambda x, i: {"tanh": T.tanh, "sigmoid": T.sigmoid}.get(name, getattr(F, name))(x))


def residual(c):
    other = c.input(c.sizes)
    c.add("add", lambda x, i: api.add(x, i[other]), lambda x, i: x + i[other])


def view(c):
    """Height and width exchanged, or the order in memory changed."""
    n, channels, h, w = c.sizes
    kind = c.d.pick("transpose", "channels_last", "contiguous", "flip")
    if kind == "transpose":
        c.add(kind, lambda x, i: api.permute(x, axes(0, 1, 3, 2)), lambda x, i: x.permute(0, 1, 3, 2), [n, channels, w, h])
    elif kind == "flip":
        c.add(kind, lambda x, i: api.flip(x, axes(3)), lambda x, i: x.flip(3))
    else:
        c.add(kind, lambda x, i: api[kind](x), lambda x, i: x)


def concat(c):
    if c.sizes[1] > 16:
        return
    n, channels, h, w = c.sizes
    extra = c.d.random.randint(1, 3)
    other = c.input([n, extra, h, w])
    c.add(f"cat({extra})", lambda x, i: api.cat(tensors([x, i[other]]), 1), lambda x, i: T.cat([x, i[other]], 1), [n, channels + extra, h, w])


def slices(c):
    """Some channels, rows or samples of the value."""
    axis = c.d.random.randrange(4)
    size = c.sizes[axis]
    start = c.d.random.randint(0, size - 1) // 2
    step = c.d.pick(1, 2) if size - start > 3 else 1
    after = list(c.sizes)
    after[axis] = (size - start + step - 1) // step
    index = tuple(slice(None) if k != axis else slice(start, None, step) for k in range(4))
    c.add(f"slice({axis}, {start}, {step})", lambda x, i: api.slice(x, axis, start, 2 ** 63 - 1, step), lambda x, i: x[index], after)


@row("chain_of_images")
def chain(d, name):
    d.wrong = d.special = False
    c = Chain(d)
    def run(steps, inputs):
        x = inputs[0]
        for step in steps:
            x = step(x, inputs)
        return x
    def ours(*inputs):
        y = run(c.ours, inputs)
        assert isinstance(y, Tensor)
        return y
    return Call(c.inputs, ours, lambda *inputs: run(c.theirs, inputs), second=d.chance(0.2), chain=" | ".join(c.words))
