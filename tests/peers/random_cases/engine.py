"""Draws random calls, makes them in Aril and in PyTorch, and compares.

A row is a function of a Draw that returns a Call: inputs, the call in Aril, the call in PyTorch. It is registered with the names of
the Aril functions that it can test:

    @row("softmax", "log_softmax")
    def along_one_axis(d, name):
        x = d.tensor(FLOATS, ndim=(0, 5))
        axis = d.axis(x)
        return Call([x], lambda x: api[name](x, axis), lambda x: getattr(torch, name)(x, axis), axis=axis)

What decides is PyTorch's result on the same numbers in f64. In each element Aril may be off by FACTOR times PyTorch's largest error
in the tensor, plus a few roundings of the values met; where that is not enough, by what changing the inputs by half a rounding does to
the f64 result, so that badly conditioned inputs are not held against either side.
"""
import ctypes as C
import math
import random

import torch
from by_ctypes import DEVICE, Guard, Out, P, Tensor, api, axes, declare, lib, options, shape, tensors

FLOATS = (torch.float32,) * 4 + (torch.float64,) * 3 + (torch.float16,) * 2 + (torch.bfloat16,) * 2
WIDE_FLOATS = (torch.float32, torch.float64)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WHOLE = INTS + (torch.bool,)
ANY = FLOATS + WHOLE
DTYPES = (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64)  # in the order of aril_dtype

FACTOR = 8  # of PyTorch's own error
ROUNDINGS = {"value": 16, "gradient": 48, "second derivative": 2000}  # of the largest value met, more where many are added up
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0)
EXTREME = (-1, 0, -2, 2 ** 40 + 1, -(2 ** 31), 2 ** 40, 2 ** 62, 2 ** 63 - 1, -(2 ** 63))

rows = {}


def row(*names):
    def register(function):
        for name in names:
            assert name not in rows, name
            rows[name] = function
        return function
    return register


class Call:
    """One call: `ours` of Aril tensors and `theirs` of PyTorch's give a tensor or a tuple of them."""

    def __init__(self, inputs, ours, theirs, exact=False, zeros=False, grad=True, second=True, infinite=False, **attributes):
        self.inputs, self.ours, self.theirs = inputs, ours, theirs
        self.exact = exact    # each element of the result comes from single elements: nothing is added up
        self.zeros = zeros    # the sign of a zero counts
        self.grad, self.second = grad, second
        self.attributes = attributes
        self.autocast = None  # the dtype of the region that the call is made in
        self.dtypes = {}, {}  # of results, and of gradients, in PyTorch
        numbers = [i.value for i in inputs if i.value.is_floating_point()]
        # Sums of huge numbers overflow, or cancel, in one order and not in another.
        self.huge = not exact and any(bool(((x.abs() > 1e15) & x.isfinite()).any()) for x in numbers)
        self.nan = any(bool(x.isnan().any()) for x in numbers)
        # `infinite`: the formula of the gradient is good at infinities
        large = [x[x.isfinite()] if infinite else x for x in numbers]
        if self.nan or (not exact and any(bool((x.abs() > 1e4).any()) for x in large)):
            self.grad = False  # which number a gradient at NaN is, is not said; and inf - inf comes earlier in one formula than in another
        if any(bool((x.abs() > 1000).any()) for x in numbers):  # second derivatives overflow in one formula and not in another
            self.second = False


# ---- Inputs ----------------------------------------------------------------------------------------


class Input:
    """A tensor of a call: its values for PyTorch, and how it lies in memory for Aril."""

    def __init__(self, value, layout, grad):
        self.value, self.layout, self.wanted = value, layout, grad

    @property
    def grad(self):
        """Whether its gradient is compared."""
        return self.wanted and self.value.is_floating_point()

    @grad.setter
    def grad(self, wanted):
        self.wanted = wanted

    def text(self):
        kind, text = self.layout[0], f"{dtype_name(self.value.dtype)}{list(self.value.shape)}"
        text += "" if kind == "contiguous" else f" {kind}{list(self.layout[1:])}"
        if self.value.numel() <= 12:
            text += f" = {self.value.tolist()}"
        return text

    def build(self, leaf=True):
        x, (kind, *how) = self.value, self.layout
        if kind == "permuted":
            order = how[0]
            t = api.permute(plain(x.permute(order).contiguous()), axes(*[order.index(i) for i in range(x.dim())]))
        elif kind == "stepped":
            steps, base = how[0], x
            for axis, step in enumerate(steps):
                wide = torch.zeros([*base.shape[:axis], base.shape[axis] * abs(step) + 1, *base.shape[axis + 1:]], dtype=x.dtype)
                wide.narrow(axis, 1, base.shape[axis] * abs(step)).unflatten(axis, (base.shape[axis], abs(step))).select(
                    axis + 1, 0).copy_(base.flip(axis) if step < 0 else base)
                base = wide
            t = plain(base)
            for axis, step in enumerate(steps):
                t = api.slice(t, axis, 1, 2 ** 63 - 1, abs(step))
                t = api.flip(t, axes(axis)) if step < 0 else t
        elif kind == "expanded":
            small = x
            for axis in how[0]:
                small = small.narrow(axis, 0, 1)
            t = api.expand(plain(small), shape(x.shape))
        else:
            t = plain(x)
            t = api.channels_last(t) if kind == "channels_last" else t
        t = api.detach(t)
        if leaf and self.grad:
            api.status("set_requires_grad", t, True)
        return t


def plain(x):
    """A tensor of the library with the values of x."""
    x = x.detach().contiguous()
    return api["from"](x.data_ptr() or 8, shape(x.shape), DTYPES.index(x.dtype), DEVICE)


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


class Draw:
    """A source of random shapes, values and attributes. With `wrong`, some of them do not fit."""

    def __init__(self, seed, wrong):
        self.random = random.Random(seed)
        self.torch = torch.Generator().manual_seed(self.random.getrandbits(62))
        self.wrong = wrong
        self.extreme = False  # an attribute is so far off that PyTorch is not asked
        self.special = self.chance(0.2)
        self.dtype = None
        self.large = self.chance(0.06)

    def chance(self, p):
        return self.random.random() < p

    def pick(self, *choices):
        return self.random.choice(choices)

    def int(self, low, high):
        """An attribute from low to high."""
        if self.wrong and self.chance(0.3):
            if self.chance(0.5):
                self.extreme = True
                return self.random.choice(EXTREME)
            return self.pick(low - 1, low - 2, high + 1, high + 3)
        return self.random.randint(low, high)

    def float(self, *choices):
        return float(self.random.choice(choices) if choices else round(self.random.uniform(-3, 3), 2))

    def size(self, empty=0.04):
        if self.chance(empty):
            return 0
        if self.chance(0.2):
            return 1
        return self.random.choice((2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33) if not self.large else (16, 17, 31, 33, 64, 65, 100))

    def shape(self, ndim=(0, 5), empty=0.04, most=None):
        n = self.random.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6)) if not isinstance(ndim, int) else ndim
        if not isinstance(ndim, int):
            n = min(max(n, ndim[0]), ndim[1])
        if self.wrong and self.chance(0.15):
            n = self.random.randint(0, 6)
        sizes = [self.size(empty) for _ in range(n)]
        most = most or (60000 if self.large else 1500)
        while math.prod(sizes) > most:
            i = self.random.randrange(n)
            sizes[i] = max(1, sizes[i] // 2)
        if self.wrong and self.chance(0.1):
            sizes = [s if self.chance(0.7) else self.random.choice((0, 1, s + 1)) for s in sizes]
        return sizes

    def broadcast(self, sizes):
        """A shape that broadcasts to `sizes`."""
        sizes = [1 if self.chance(0.2) else s for s in sizes]
        if self.chance(0.3):
            sizes = sizes[self.random.randint(0, len(sizes)):]
        return self.spoil(sizes)

    def spoil(self, sizes):
        if self.wrong and self.chance(0.25):
            return self.shape() if self.chance(0.5) or not sizes else [*sizes[:-1], sizes[-1] + self.random.choice((1, 2, -1))] if sizes[-1] else sizes
        return sizes

    def axis(self, x):
        """An axis of x, which may count from the end."""
        n = x.dim() if isinstance(x, torch.Tensor) else x.value.dim() if isinstance(x, Input) else x
        if self.wrong and self.chance(0.3):
            return self.random.choice((n, -n - 1, n + 3, -n - 5))
        return self.random.randrange(-max(n, 1), max(n, 1))

    def axes(self, x, least=0):
        """Some different axes of x."""
        n = x.value.dim()
        which = self.random.sample(range(n), self.random.randint(min(least, n), n))
        which = [a - n if self.chance(0.3) else a for a in which]
        if self.wrong and self.chance(0.3):
            which.append(self.random.choice((n, -n - 1, 0, n + 2)))
        return which[:8]

    def values(self, sizes, dtype, domain="any"):
        """Numbers: `any`, `positive`, `unit` (0..1), `inner` (-1..1), `above1`, `small` whole ones, or a range of integers."""
        r = self.torch
        if isinstance(domain, tuple):
            high = max(domain[1], domain[0] + 1)
            x = torch.randint(domain[0], high, sizes, generator=r)
            if self.wrong and self.chance(0.3) and x.numel():
                x.view(-1)[self.random.randrange(x.numel())] = self.pick(-1, domain[0] - 1, high, high + 5, -high - 1, 2 ** 31, -(2 ** 40))
            return x.to(dtype)
        if dtype == torch.bool:
            return torch.rand(sizes, generator=r) < self.random.choice((0.5, 0.1, 0.9))
        if not dtype.is_floating_point:
            low, high = (-12, 12) if dtype.is_signed else (0, 12)
            if domain == "positive":
                low = 1
            if self.chance(0.1):
                low, high = max(torch.iinfo(dtype).min, -(2 ** 62)), min(torch.iinfo(dtype).max, 2 ** 62)
            return torch.randint(low, high, sizes, generator=r).to(dtype)
        x = torch.rand(sizes, generator=r, dtype=torch.float64)
        if domain == "positive":
            x = x * 3 + 0.01
        elif domain == "inner":
            x = x * 2 - 1
        elif domain == "above1":
            x = x * 4 + 1
        elif domain == "small":
            x = (x * 7 - 3).floor()
        elif domain != "unit":
            x = torch.randn(sizes, generator=r, dtype=torch.float64) * self.random.choice((1, 1, 1, 3, 10, 0.1))
        if self.chance(0.15) and domain == "any":
            x = (x * 2).round() / 2  # ties and kinks
        if self.special and domain != "unit" and x.numel() and self.chance(0.6):
            info = torch.finfo(dtype)
            for _ in range(self.random.randint(1, 3 if self.chance(0.7) else 1 + x.numel() // 2)):
                x.view(-1)[self.random.randrange(x.numel())] = self.random.choice(SPECIAL + (info.max, info.tiny, -info.max, 100.0))
        return x.to(dtype)

    def dtype_of(self, among):
        """A dtype; floats of one call agree, now and then not."""
        if self.dtype is None or self.dtype not in among or (self.wrong and self.chance(0.2)) or self.chance(0.03):
            dtype = self.random.choice(among)
            self.dtype = self.dtype or dtype
            return dtype
        return self.dtype

    def layout(self, x):
        kind = self.pick("contiguous", "contiguous", "permuted", "stepped", "expanded", "channels_last")
        n = x.dim()
        if kind == "permuted" and n > 1:
            order = list(range(n))
            self.random.shuffle(order)
            return x, (kind, order)
        if kind == "stepped" and n:
            return x, (kind, [self.pick(1, 1, 2, 3, -1, -2) for _ in range(n)])
        if kind == "channels_last" and n in (4, 5):
            return x, (kind,)
        return x, ("contiguous",)

    def tensor(self, dtypes=FLOATS, sizes=None, ndim=(0, 5), domain="any", grad=True, plain=False, free=False):
        """An input. `free`: its dtype need not be that of the others; `plain`: contiguous."""
        dtype = self.random.choice(dtypes) if free else self.dtype_of(dtypes)
        sizes = self.shape(ndim) if sizes is None else self.spoil(list(sizes))
        sizes = [max(0, s) for s in sizes]
        if not plain and sizes and self.chance(0.08):  # equal along some axes, which take no memory
            where = [i for i in range(len(sizes)) if sizes[i] > 1 and self.chance(0.5)]
            if where:
                small = self.values([1 if i in where else s for i, s in enumerate(sizes)], dtype, domain)
                return Input(small.expand(sizes).contiguous(), ("expanded", where), grad)
        x, layout = (self.values(sizes, dtype, domain), ("contiguous",))
        if not plain:
            x, layout = self.layout(x)
        return Input(x, layout, grad)


# ---- Running one call in both ------------------------------------------------------------------------

GradOptions = options("GradOptions", (C.c_bool, "retain_graph create_graph allow_unused"), (type(tensors([])), "grad_outputs"))
ndim_of = declare("aril_ndim", C.c_int, P)
size_of = declare("aril_size", C.c_int64, P, C.c_int)
dtype_of = declare("aril_dtype_of", C.c_int, P)
requires_grad = declare("aril_requires_grad", C.c_bool, P)
tensor_status = declare("aril_tensor_status", C.c_int, P)
tensor_error = declare("aril_tensor_error", C.c_char_p, P)
read = declare("aril_read", C.c_int, P, P)
ok, clear_error = declare("aril_ok", C.c_bool), declare("aril_clear_error", None)
error = declare("aril_error", C.c_char_p)
autocast_begin = declare("aril_autocast_begin", Guard, C.c_int)
scope_begin, guard_end = declare("aril_scope_begin", Guard), declare("aril_guard_end", None, C.POINTER(Guard))


class Refused(Exception):
    """The library gave an error."""


class Failed(Exception):
    """A difference: kind and text."""


def check_error():
    if not ok():
        message = (error() or b"").decode(errors="replace")
        clear_error()
        if not message.strip():
            raise Failed("error without a message", "")
        raise Refused(message)


def values_of(t):
    """A tensor of the library as a PyTorch one."""
    if not t.address:
        raise Failed("NULL result", "without an error")
    if tensor_status(t.address) != 0:
        raise Failed("poison without an error", (tensor_error(t.address) or b"").decode())
    sizes = [size_of(t.address, i) for i in range(ndim_of(t.address))]
    out = torch.empty(sizes, dtype=DTYPES[dtype_of(t.address)])
    read(t.address, out.data_ptr() or 8)
    check_error()
    return out


def as_tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def noise(shape_, seed, at):
    """Upstream gradients: numbers that follow from the seed and the result's place among the results."""
    return torch.randn(shape_, generator=torch.Generator().manual_seed(seed * 16 + at), dtype=torch.float64)


class Outcome:
    """What a call gave: values, gradients, second derivatives, or the error that came instead of one of them."""

    def __init__(self):
        self.values = self.gradients = self.seconds = None
        self.error, self.stage = None, "value"


def run_ours(call, seed):
    out = Outcome()
    leaves = [i.build() for i in call.inputs]
    try:
        check_error()
    except Refused as refused:
        raise Failed("an input could not be made", str(refused)) from None
    before = [values_of(t) for t in leaves]
    try:
        results = as_tuple(in_region(call, lambda: call.ours(*leaves)))
        check_error()
        out.values = [values_of(t) for t in results]
        for i, (t, b) in enumerate(zip(leaves, before)):
            if not same_bits(values_of(t), b):
                raise Failed("changed its input", f"input {i}: {b.flatten()[:8].tolist()} is now {values_of(t).flatten()[:8].tolist()}")
        wanted = [t for t, i in zip(leaves, call.inputs) if i.grad]
        sources = [(t, noise(v.shape, seed, k).to(v.dtype)) for k, (t, v) in enumerate(zip(results, out.values)) if requires_grad(t.address)]
        if not call.grad or not wanted or not sources:
            return out
        out.stage = "gradient"
        up = [Input(g, ("contiguous",), True).build() for _, g in sources]
        grads = gradients([t for t, _ in sources], wanted, up, create=call.second)
        out.gradients = [values_of(g) for g in grads]
        sources = [(g, noise(v.shape, seed + 1, k).to(v.dtype)) for k, (g, v) in enumerate(zip(grads, out.gradients))
                   if requires_grad(g.address)]
        if not call.second or not sources:
            return out
        out.stage = "second derivative"
        out.seconds = [values_of(g) for g in gradients([g for g, _ in sources], wanted + up, [plain(g) for _, g in sources])]
    except Refused as refused:
        out.error = str(refused)
    return out


def in_region(call, function):
    """Calls a function of the library in the autocast region of a call."""
    if call.autocast is None:
        return function()
    guard = autocast_begin(DTYPES.index(call.autocast))
    results = function()
    guard_end(C.byref(guard))
    return results


def gradients(outputs, inputs, up, create=False):
    grads = Out(len(inputs))
    opts = GradOptions(retain_graph=create, create_graph=create, allow_unused=True, grad_outputs=tensors(up))
    api.status("gradients_n", tensors(outputs), tensors(inputs), grads, opts)
    check_error()
    return [grads[i] for i in range(len(inputs))]


def run_theirs(call, seed, wide, nudge=None):
    """The same in PyTorch; `wide`: in f64, from the same numbers. `nudge` changes them by half a rounding."""
    out = Outcome()
    leaves = []
    for k, i in enumerate(call.inputs):
        x = i.value.clone()
        if wide and x.is_floating_point():
            eps = torch.finfo(x.dtype).eps
            x = x.double()
            if nudge is not None:
                x = x * (1 + noise(x.shape, nudge, k).clamp(-2, 2) * (eps / 2))
        leaves.append(x.requires_grad_(i.grad))
    try:
        with torch.autocast("cpu", call.autocast or torch.bfloat16, enabled=call.autocast is not None):
            results = as_tuple(call.theirs(*leaves))
        out.values = [r.detach() for r in results]
        wanted = [x for x, i in zip(leaves, call.inputs) if i.grad]
        sources, up = upstream(results, seed, call.dtypes[0], wide)
        if not call.grad or not wanted or not sources:
            return out
        out.stage = "gradient"
        grads = torch.autograd.grad(sources, wanted, up, create_graph=call.second, allow_unused=True)
        out.gradients = [torch.zeros_like(x) if g is None else g.detach() for g, x in zip(grads, wanted)]
        sources, up2 = upstream(grads, seed + 1, call.dtypes[1], wide)
        if not call.second or not sources:
            return out
        out.stage = "second derivative"
        grads = torch.autograd.grad(sources, wanted + up, up2, allow_unused=True)
        out.seconds = [torch.zeros_like(x) if g is None else g.detach() for g, x in zip(grads, wanted + up)]
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError, AssertionError, OverflowError) as e:
        out.error = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"
    return out


def upstream(results, seed, dtypes, wide):
    """Results that have a gradient, and numbers to start it from, rounded to the dtypes of the narrow run."""
    sources, up = [], []
    for k, r in enumerate(results):
        if r is not None and r.requires_grad:
            if not wide:
                dtypes[k] = r.dtype
            sources.append(r)
            up.append(noise(r.shape, seed, k).to(dtypes.get(k, r.dtype)).to(r.dtype).requires_grad_())
    return sources, up


# ---- Comparison --------------------------------------------------------------------------------------


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def largest(tensors_):
    """The largest finite number among tensors."""
    most = 0.0
    for t in tensors_:
        if t.is_floating_point() and t.numel():
            finite = t[t.isfinite()]
            most = max(most, finite.abs().max().item() if finite.numel() else 0.0)
    return most


def compare(stage, k, ours, theirs, exact64, call, spread):
    """Raises Failed where ours is not about as close to the f64 result as theirs. `theirs` may be None."""
    label = stage if k == 0 else f"{stage} {k}"
    if list(ours.shape) != list(exact64.shape):
        raise Failed(f"{stage}: shape", f"{label} is {list(ours.shape)}, PyTorch's {list(exact64.shape)}")
    if theirs is not None and ours.dtype != theirs.dtype:
        raise Failed(f"{stage}: dtype", f"{label} is {dtype_name(ours.dtype)}, PyTorch's {dtype_name(theirs.dtype)}")
    if not ours.numel():
        return
    if not ours.is_floating_point():
        reference = exact64 if theirs is None else theirs
        differ = ours.to(torch.int64) != reference.to(torch.int64)
        if differ.any() and (theirs is None or (ours.to(torch.int64) != exact64.to(torch.int64)).any()):
            raise Failed(stage, describe(label, differ, ours, theirs, exact64))
        return
    if call.huge:
        return
    info = torch.finfo(ours.dtype)
    exact = exact64.double()
    reference = exact.to(ours.dtype) if theirs is None else theirs
    a, b, e = ours.double(), reference.double(), exact
    # Classes: NaN, the infinities and the rest. Where f64 and PyTorch's dtype differ, either will do.
    odd = ~a.isfinite()
    fine = (a.isnan() & (b.isnan() | e.isnan())) | ((a == b) | (a == e) | (a == e.to(ours.dtype).double()))
    overflow = (b.isfinite() != e.isfinite()) | (b.isnan() != e.isnan()) | (e.abs() > info.max * 0.5)
    wrong = (odd != (~b.isfinite())) | odd
    if stage == "second derivative":  # what overflows on the way, though the result would not
        overflow |= (e.abs() > info.max ** 0.5) | torch.tensor(ours.dtype == torch.float16)
    if not call.nan:  # a number where PyTorch has NaN, though no input is: its formula has inf - inf or 0 / 0, Aril's has not
        fine |= a.isfinite() & b.isnan()
    bad = wrong & ~fine & ~overflow
    if bad.any():
        raise Failed(stage + ": special values", describe(label, bad, ours, theirs, exact64))
    both = a.isfinite() & b.isfinite() & e.isfinite()
    if call.zeros and stage == "value":
        zero = both & (a == 0) & (b == 0) & (e == 0) & (a.signbit() != b.signbit()) & (a.signbit() != e.signbit())
        if zero.any():
            raise Failed("value: signed zero", describe(label, zero, ours, theirs, exact64))
    off, theirs_off = (a - e).abs(), (b - e).abs()
    off[~both], theirs_off[~both] = 0, 0
    size = e.abs()
    size[~both] = 0
    if call.exact and stage == "value":
        bound = 4 * theirs_off + 4 * info.eps * size + info.tiny * info.eps * 4
    else:
        many = max([1] + [i.value.numel() for i in call.inputs]) ** 0.5
        met = max(largest([i.value for i in call.inputs if i.grad]), 1.0)
        met = max(size.max().item(), min(met, 10.0 * max(1.0, size.max().item())))
        eps = max([info.eps] + [torch.finfo(t).eps for t in call.dtypes[0].values()])  # a result may be narrower than an input
        bound = FACTOR * theirs_off.max() + ROUNDINGS[stage] * eps * met * (1 + many / 16) + info.tiny
        bound = torch.full_like(off, bound)
    bad = off > bound
    if bad.any():
        bound = bound + 16 * spread(stage, k, off)
        bad = off > bound
    if bad.any():
        raise Failed(stage, describe(label, bad, ours, theirs, exact64))


def describe(label, bad, ours, theirs, exact64):
    where = bad.nonzero()[0].tolist()
    at = lambda t: "none" if t is None else repr(t[tuple(where)].item())
    return (f"{label}{where if where else ''}: got {at(ours)}, PyTorch {at(theirs)}, in f64 {at(exact64)} "
            f"({int(bad.sum())} of {bad.numel()} elements)")


def unsupported(message):
    """PyTorch lacks a kernel or a formula: no word on whether the call is right."""
    return any(text in message for text in (
        "not implemented for", "not implemented", "is not currently supported", "Promotion for", "derivative for", "not supported for",
        "does not support", "does not have a derivative", "unsupported", "Expected object of scalar type", "isDifferentiableType"))


def run_call(call, seed, extreme, progress):
    """Raises Failed. Gives True where values were compared."""
    scope = scope_begin()
    clear_error()
    try:
        ours = run_ours(call, seed)
        progress(None)
        if extreme:
            return False
        theirs, wide = run_theirs(call, seed, False), Outcome()
        wide = run_theirs(call, seed, True)
        return judge(call, seed, ours, theirs, wide)
    finally:
        guard_end(C.byref(scope))
        clear_error()


STAGES = ("value", "values"), ("gradient", "gradients"), ("second derivative", "seconds")


def judge(call, seed, ours, theirs, wide):
    spreads = {}

    def spread(stage, k, like):
        """How far the f64 result moves when inputs move by half a rounding."""
        most = torch.zeros_like(like)
        for nudge in range(3):
            if nudge not in spreads:
                spreads[nudge] = run_theirs(call, seed, True, seed + 100 * nudge)
            got, base = (getattr(o, dict(STAGES)[stage]) for o in (spreads[nudge], wide))
            if got and len(got) > k and got[k].shape == base[k].shape:
                moved = (got[k].double() - base[k].double()).abs()
                most = torch.maximum(most, torch.where(moved.isfinite(), moved, torch.full_like(moved, math.inf)))
        return most if call.exact else most.max().expand_as(most) if most.numel() else most

    for stage, field in STAGES:
        mine, other, exact = getattr(ours, field), getattr(theirs, field), getattr(wide, field)
        if ours.error and ours.stage == stage:
            if theirs.error and theirs.stage == stage:
                return True
            if other is None and (stage != "value" or (theirs.error and unsupported(theirs.error))):
                return True
            raise Failed(f"{stage}: refused", f"PyTorch takes it; Aril: {ours.error}")
        if theirs.error and theirs.stage == stage:
            if stage != "value":
                return True
            if not unsupported(theirs.error):
                raise Failed("accepted", f"PyTorch: {theirs.error}")
            if exact is None:
                return True
        if mine is None or exact is None:
            if stage == "gradient" and exact is not None and any(g.any() for g in exact):
                raise Failed("gradient: missing", "PyTorch has one")
            return True
        if stage == "gradient" and any(bool(v.isnan().any()) for v in wide.values):
            return True  # outside the domain
        if stage == "value" and len(mine) != len(exact):
            raise Failed("value: number of results", f"{len(mine)}, PyTorch's {len(exact)}")
        if stage == "second derivative" and len(mine) != len(exact):
            return True
        for k in range(len(mine)):
            compare(stage, k, mine[k], other[k] if other is not None and len(other) > k else None, exact[k], call, spread)
    return True


def run_case(seed, name, progress, autocast=False):
    """Draws and runs the case of a seed for one function. Gives None, or (kind, text, inputs). Calls `progress` with the inputs before
    Aril's turn and with None before PyTorch's."""
    source = random.Random(f"{seed} {name}")
    d = Draw(source.getrandbits(60), source.random() < 0.15)
    text = "wrong call: " if d.wrong else ""
    call = rows[name](d, name)
    if call is None:
        return None
    if autocast:
        call.autocast = source.choice((torch.bfloat16, torch.bfloat16, torch.float16))
        text += f"autocast to {dtype_name(call.autocast)}: "
    text += ", ".join(i.text() for i in call.inputs) + "".join(f", {k} = {v}" for k, v in call.attributes.items())
    progress(text)
    try:
        run_call(call, seed & 0x7FFFFFFF, d.extreme, progress)
    except Failed as failed:
        return (*failed.args, text)
    return None


__all__ = [n for n in dir() if not n.startswith("_")]
