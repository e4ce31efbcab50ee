"""Views, indexing and joining: aril/view.h and aril/index.h."""
import math

import torch
import torch.nn.functional as F
from by_ctypes import B, END, F64, I, I64, ZERO, Item, Out, api, axes, items, number, options, pads, shape, tensors

from .engine import ANY, FLOATS, INTS, Call, Input, row

T = torch
EmbeddingOptions = options("EmbeddingOptions", (I64, "padding_idx"))
ScatterOptions = options("ScatterOptions", (B, "exclude_self"))
PadOptions = options("PadOptions", (I, "mode"), (F64, "value"))


def fits(x, axis):
    return -x.value.dim() <= axis < x.value.dim()


def length(x, axis):
    return x.value.shape[axis] if fits(x, axis) else 1


# ---- Views ------------------------------------------------------------------------------------------------


@row("reshape", "view", "flatten", "expand", "broadcast_to")
def other_shapes(d, name):
    x = d.tensor(ANY, plain=name == "view")
    if name == "flatten":
        start, end = d.axis(x), d.axis(x)
        return Call([x], lambda x: api.flatten(x, start, end), lambda x: T.flatten(x, start, end), exact=True, start=start, end=end)
    if name in ("expand", "broadcast_to"):
        big = [d.random.randint(1, 3) for _ in range(d.random.randint(0, 2))] + list(x.value.shape)
        x = d.tensor(ANY, sizes=d.broadcast(big))
        return Call([x], lambda x: api[name](x, shape(big)), lambda x: x.expand(big), exact=True, to=big)
    n, to = x.value.numel(), []
    while n > 1 and len(to) < 5:
        factor = d.pick(*[f for f in range(1, n + 1) if n % f == 0])
        to.append(factor)
        n //= factor
    to = (to + [n]) if n != 1 or d.chance(0.3) else to
    if to and d.chance(0.3):
        to[d.random.randrange(len(to))] = -1
    to = d.spoil(to)
    return Call([x], lambda x: api[name](x, shape(to)), lambda x: x.reshape(to), exact=True, to=to)


@row("permute", "transpose", "swapaxes", "t", "movedim", "unsqueeze", "squeeze", "flip", "diagonal", "roll")
def moved_axes(d, name):
    x = d.tensor(ANY, ndim=(2, 5) if name == "diagonal" else (0, 2) if name == "t" else (0, 5))
    a, b, which, offset = d.axis(x), d.axis(x), d.axes(x), d.int(-3, 3)
    order = list(range(x.value.dim()))
    d.random.shuffle(order)
    order = d.spoil(order)
    to = d.random.sample(range(x.value.dim()), len(which)) if len(which) <= x.value.dim() else which
    shifts = [d.random.randint(-9, 9) for _ in which] or [offset if not d.extreme else 3]
    place = d.axis(x.value.dim() + 1)
    ours, theirs = {
        "permute": (lambda x: api.permute(x, axes(*order)), lambda x: x.permute(order)),
        "transpose": (lambda x: api.transpose(x, a, b), lambda x: x.transpose(a, b)),
        "swapaxes": (lambda x: api.swapaxes(x, a, b), lambda x: x.swapaxes(a, b)),
        "t": (api.t, lambda x: x.t()),
        "movedim": (lambda x: api.movedim(x, axes(*which), axes(*to)), lambda x: x.movedim(which, to)),
        "unsqueeze": (lambda x: api.unsqueeze(x, place), lambda x: x.unsqueeze(place)),
        "squeeze": (lambda x: api.squeeze(x, axes(*which)), lambda x: x.squeeze(which) if which else x.squeeze()),
        "flip": (lambda x: api.flip(x, axes(*which)), lambda x: x.flip(which or list(range(x.dim())))),
        "diagonal": (lambda x: api.diagonal(x, offset, a, b), lambda x: x.diagonal(offset, a, b)),
        "roll": (lambda x: api.roll(x, shape(shifts), axes(*which)), lambda x: T.roll(x, shifts, which or None)),
    }[name]
    if name == "permute" and not order and x.value.dim():
        return None  # ARIL_ALL
    return Call([x], ours, theirs, exact=True, axes=which, a=a, b=b, offset=offset, order=order, to=to, shifts=shifts, place=place)


@row("slice", "narrow", "select", "unfold_view")
def part_of_an_axis(d, name):
    x = d.tensor(ANY, ndim=(1, 5))
    axis = d.axis(x)
    n = length(x, axis)
    start, stop, step = d.int(-n - 2, n + 2), d.pick(END, d.random.randint(-n - 2, n + 2)), d.int(1, 4)
    at, long, size = d.int(-n, max(n - 1, 0)), d.int(0, n), d.int(1, max(1, n))
    def sliced(x):
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, None if stop == END else stop, step)
        return x[tuple(index)]
    ours, theirs = {
        "slice": (lambda x: api.slice(x, axis, start, stop, step), sliced),
        "narrow": (lambda x: api.narrow(x, axis, at, long), lambda x: x.narrow(axis, at, long)),
        "select": (lambda x: api.select(x, axis, at), lambda x: x.select(axis, at)),
        "unfold_view": (lambda x: api.unfold_view(x, axis, size, step), lambda x: x.unfold(axis, size, step)),
    }[name]
    return Call([x], ours, theirs, exact=True, axis=axis, start=start, stop=stop, step=step, at=at, length=long, size=size)


@row("split", "split_sizes", "chunk", "unbind", "meshgrid", "nonzero_list")
def several_results(d, name):
    x = d.tensor(ANY, ndim=(0, 1) if name == "meshgrid" else (1, 4))
    axis = d.axis(x)
    n = length(x, axis)
    size, cut = d.int(1, max(1, n)), d.random.randint(0, n)
    xy = d.chance(0.5)
    def results(count, *arguments):
        if not 0 <= count < 10000:
            count = 0
        out = Out(max(1, count))
        status = api.status(name, *arguments, out)
        return [out[i] for i in range(count)] if status == 0 else out[0]
    sizes = (I64 * 2)(cut, n - cut)
    if name == "meshgrid":
        y = d.tensor(ANY, ndim=(0, 1))
        return Call([x, y], lambda x, y: results(2, tensors([x, y]), xy), lambda x, y: T.meshgrid(x, y, indexing="xy" if xy else "ij"),
                    exact=True, xy=xy)
    ours, theirs = {
        "split": (lambda x: results(-(-n // size) if size > 0 else 0, x, size, axis), lambda x: x.split(size, axis)),
        "split_sizes": (lambda x: results(2, x, sizes, 2, axis), lambda x: x.split([cut, n - cut], axis)),
        "chunk": (lambda x: results(-(-n // max(1, -(-n // size))) if size > 0 else 0, x, size, axis), lambda x: x.chunk(size, axis)),
        "unbind": (lambda x: results(n, x, axis), lambda x: x.unbind(axis)),
        "nonzero_list": (lambda x: results(x_dim, x), lambda x: x.nonzero(as_tuple=True)),
    }[name]
    x_dim = x.value.dim()
    if n == 0 or (name == "nonzero_list" and x_dim == 0):
        return None  # PyTorch's rules for how many parts nothing has
    return Call([x], ours, theirs, exact=True, axis=axis, size=size, cut=cut)


# ---- Indexing --------------------------------------------------------------------------------------------------


@row("index", "index_put", "index_put_")
def brackets(d, name):
    x = d.tensor(ANY, ndim=(1, 5))
    ours, theirs, inputs, left, dots = [], [], [x], list(x.value.shape), False
    together = [d.size(0.02) for _ in range(d.random.randint(0, 2))]
    while left and len(ours) < 6 and not d.chance(0.15):
        kind = d.pick("at", "range", "by", "mask", "new", "dots", "every")
        n = left[0]
        if kind == "new":
            ours.append(lambda t: Item(kind=3)), theirs.append(lambda t: None)
        elif kind == "dots" and not dots:
            dots = True
            ours.append(lambda t: Item(kind=2)), theirs.append(lambda t: ...)
            left = left[d.random.randint(0, len(left)):]
        elif kind == "at" and n:
            p = d.random.randint(-n, n - 1)
            ours.append(lambda t, p=p: Item(kind=0, start=p)), theirs.append(lambda t, p=p: p)
            left = left[1:]
        elif kind == "by" and n:
            i = d.tensor((T.int64, T.int32), sizes=d.broadcast(together), domain=(-n, n), grad=False, free=True)
            k = len(inputs)
            inputs.append(i)
            ours.append(lambda t, k=k: Item(kind=4, by=t[k])), theirs.append(lambda t, k=k: t[k].long())
            left = left[1:]
        elif kind == "mask" and name == "index" and not any(len(i.value.shape) for i in inputs[1:]) and d.chance(0.5):
            m = d.tensor((T.bool,), sizes=left[:1], grad=False, free=True)
            k = len(inputs)
            inputs.append(m)
            ours.append(lambda t, k=k: Item(kind=4, by=t[k])), theirs.append(lambda t, k=k: t[k])
            left = left[1:]
            break
        else:
            a, b, s = d.pick(0, 1, -2), d.pick(END, -1, 3), d.pick(1, 1, 2)
            ours.append(lambda t, v=(a, b, s): Item(kind=1, start=v[0], stop=v[1], step=v[2]))
            theirs.append(lambda t, v=(a, b, s): slice(v[0], None if v[1] == END else v[1], v[2]))
            left = left[1:]
    ours_items = lambda t: items([f(t) for f in ours])
    their_items = lambda t: tuple(f(t) for f in theirs)
    if name == "index":
        return Call(inputs, lambda *t: api.index(t[0], ours_items(t)), lambda *t: t[0][their_items(t)], exact=True, items=len(ours))
    accumulate = d.chance(0.5)
    try:
        target = x.value[their_items([i.value for i in inputs])].shape
    except (IndexError, RuntimeError):
        return None
    flat = T.arange(x.value.numel()).view(x.value.shape)[their_items([i.value for i in inputs])]
    if not accumulate and flat.unique().numel() != flat.numel():
        accumulate = True  # which of several values stays is not said by PyTorch
    v = d.tensor(ANY, sizes=d.broadcast(target))
    copy = api.copy if name.endswith("_") else lambda t: t
    def put(*t):
        x, v = t[0], t[-1].to(t[0].dtype)
        spots = T.arange(x.numel()).view(x.shape)[their_items(t)]
        return x.reshape(-1).index_put((spots.reshape(-1),), v.expand(spots.shape).reshape(-1), accumulate).view(x.shape)
    return Call(inputs + [v], lambda *t: api[name](copy(t[0]), ours_items(t), t[-1], accumulate), put, items=len(ours),
                accumulate=accumulate)


@row("index_copy", "index_copy_", "index_fill", "index_fill_", "index_fill_scalar", "index_fill_scalar_")
def written_along_axis(d, name):
    x = d.tensor(ANY, ndim=(1, 4))
    axis = d.axis(x)
    n = length(x, axis)
    index = d.tensor((T.int64, T.int32), sizes=[d.random.randint(0, n)], domain=(0, max(1, n)), grad=False, free=True)
    if not d.wrong:  # which of several values stays is not said by PyTorch
        index.value = T.randperm(n, generator=d.torch)[:index.value.numel()].to(index.value.dtype)
        index.layout = ("contiguous",)
    copy = api.copy if name.endswith("_") else lambda t: t
    if "scalar" in name:
        value = d.pick(0, 1, 2) if not x.value.is_floating_point() else d.pick(0, 1.5, -2)
        value = bool(value) if x.value.dtype == T.bool else value
        return Call([x, index], lambda x, i: api[name](copy(x), i, number(value), axis), lambda x, i: x.index_fill(axis, i.long(), value),
                    exact=True, axis=axis, value=value)
    sizes = list(x.value.shape)
    if "fill" in name:
        sizes = []
    elif fits(x, axis):
        sizes[axis] = index.value.numel()
    src = d.tensor((x.value.dtype,), sizes=sizes)
    theirs = T.Tensor.index_fill if "fill" in name else T.Tensor.index_copy
    return Call([x, index, src], lambda x, i, s: api[name](copy(x), i, s, axis), lambda x, i, s: theirs(x, axis, i.long(), s), exact=True,
                axis=axis)


@row("unflatten", "rot90", "tensor_split", "tensor_split_at")
def rearranged(d, name):
    x = d.tensor(ANY, ndim=(1 if name[0] != "r" else 2, 4))
    axis, other = d.axis(x), d.axis(x)
    n = length(x, axis)
    k = d.random.randint(-5, 5)
    if name == "rot90":
        return Call([x], lambda x: api.rot90(x, k, axis, other), lambda x: T.rot90(x, k, (axis, other)), exact=True, k=k, a=axis, b=other)
    if name == "unflatten":
        first = d.pick(*[i for i in range(1, n + 1) if n % i == 0] or [1])
        sizes = d.spoil(d.pick([first, -1], [-1, first], [first, n // first], [1, n], [n]))
        return Call([x], lambda x: api.unflatten(x, axis, shape(sizes)), lambda x: x.unflatten(axis, sizes), exact=True, axis=axis, sizes=sizes)
    parts = d.random.randint(1, 5)
    at = [d.random.randint(-n - 1, n + 1) for _ in range(d.random.randint(0, 3))]
    count, more = (parts, (parts,)) if name == "tensor_split" else (len(at) + 1, ((I64 * max(1, len(at)))(*at), I(len(at))))
    def ours(x):
        out = Out(count)
        status = api.status(name, x, *more, axis, out)
        return [out[i] for i in range(count)] if status == 0 else out[0]
    return Call([x], ours, lambda x: x.tensor_split(parts if name == "tensor_split" else at, axis), exact=True, axis=axis, parts=parts, at=at)


@row("repeat_interleave_by", "block_diag", "cartesian_prod")
def combined(d, name):
    if name == "repeat_interleave_by":
        x = d.tensor(ANY, ndim=(1, 4))
        axis = d.axis(x)
        times = d.tensor((T.int64, T.int32), sizes=d.pick([length(x, axis)], [1]), domain=(0, 4), grad=False, free=True)
        if times.value.numel() and times.value.max() > 100:
            return None
        return Call([x, times], lambda x, t: api.repeat_interleave_by(x, t, axis), lambda x, t: T.repeat_interleave(x, t, axis), exact=True,
                    axis=axis)
    parts = [d.tensor(ANY, ndim=(0, 2) if name == "block_diag" else 1, free=d.chance(0.1)) for _ in range(d.random.randint(1, 4))]
    if sum(p.value.numel() for p in parts) > 3000 or (name == "cartesian_prod" and math.prod(p.value.numel() for p in parts) > 1 << 18):
        return None
    theirs = {"block_diag": T.block_diag, "cartesian_prod": T.cartesian_prod}[name]
    return Call(parts, lambda *t: api[name](tensors(t)), theirs, exact=True)


@row("index_select", "index_add", "index_add_", "take")
def along_axis(d, name):
    x = d.tensor(ANY, ndim=(1, 4))
    axis = d.axis(x)
    n = length(x, axis)
    k = d.size()
    index = d.tensor((T.int64, T.int32), sizes=[k] if n else [0], domain=(0, n), grad=False, free=True)
    if name == "take":
        m = x.value.numel()
        index = d.tensor((T.int64,), sizes=d.shape(), domain=(-m, m), grad=False, free=True)
        return Call([x, index], api.take, T.take, exact=True)
    if name == "index_select":
        return Call([x, index], lambda x, i: api.index_select(x, i, axis), lambda x, i: T.index_select(x, axis, i), exact=True, axis=axis)
    sizes = list(x.value.shape)
    if fits(x, axis):
        sizes[axis] = index.value.numel()
    if d.wrong and fits(x, axis) and d.chance(0.3):
        sizes[axis] += 1
    src = d.tensor((x.value.dtype,), sizes=sizes)
    copy = api.copy if name.endswith("_") else lambda t: t
    return Call([x, index, src], lambda x, i, s: api[name](copy(x), i, s, axis), lambda x, i, s: x.index_add(axis, i, s), axis=axis)


@row("gather", "take_along_axis", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_mul", "scatter_max", "scatter_min",
     "put_along_axis")
def by_position(d, name):
    x = d.tensor(FLOATS if "scatter_m" in name else ANY, ndim=(0 if name != "put_along_axis" else 1, 4))
    axis = d.axis(x)
    n = length(x, axis)
    sizes = [d.random.randint(0 if d.chance(0.1) else min(1, s), s) for s in x.value.shape]
    if sizes and fits(x, axis):
        sizes[axis] = d.size() if n else 0
    if name in ("take_along_axis", "put_along_axis"):
        sizes = [s if i == axis % max(1, len(sizes)) or d.chance(0.7) else 1 for i, s in enumerate(x.value.shape)]
    index = d.tensor((T.int64,), sizes=sizes, domain=(0, max(1, n)), grad=False, free=True)
    if name == "gather":
        return Call([x, index], lambda x, i: api.gather(x, i, axis), lambda x, i: T.gather(x, axis, i), exact=True, axis=axis)
    if name == "take_along_axis":
        return Call([x, index], lambda x, i: api.take_along_axis(x, i, axis), lambda x, i: T.take_along_dim(x, i, axis), exact=True, axis=axis)
    if name in ("scatter", "scatter_", "put_along_axis"):  # which of several values stays is not said by PyTorch: no index twice
        order = T.rand(*index.value.shape[:0], *[max(s, n) for s in index.value.shape], generator=d.torch) if index.value.dim() else None
        if not fits(x, axis) or order is None:
            return None
        if not -order.dim() <= axis < order.dim() or order.shape[axis] < 1:
            return None
        order = order.narrow(axis, 0, min(n, order.shape[axis])).argsort(axis)
        for a, s in enumerate(index.value.shape):
            order = order.narrow(a, 0, min(s, order.shape[a]))
        index.value, index.layout = order.contiguous(), ("contiguous",)
    src = d.tensor((x.value.dtype,), sizes=[s + d.pick(0, 0, 1) if name[:9] != "scatter_m" and name != "put_along_axis" else s
                                                for s in index.value.shape])
    copy = api.copy if name.endswith("_") else lambda t: t
    if name in ("scatter_mul", "scatter_max", "scatter_min"):
        exclude, how = d.chance(0.4), {"mul": "prod", "max": "amax", "min": "amin"}[name[-3:]]
        return Call([x, index, src], lambda x, i, s: api[name](x, i, s, axis, ScatterOptions(exclude_self=exclude)),
                    lambda x, i, s: x.scatter_reduce(axis, i, s, how, include_self=not exclude), second=False,
                    # of those that are left out, equal ones count in PyTorch's gradient
                    grad=not exclude or name == "scatter_mul" or not T.isin(x.value, src.value).any(), axis=axis, exclude=exclude)
    theirs = {"scatter": T.Tensor.scatter, "scatter_": T.Tensor.scatter, "put_along_axis": T.Tensor.scatter,
              "scatter_add": T.Tensor.scatter_add, "scatter_add_": T.Tensor.scatter_add}[name]
    if name == "put_along_axis" and list(index.value.shape) != [*x.value.shape[:axis % x.value.dim()], index.value.shape[axis],
                                                                *x.value.shape[axis % x.value.dim() + 1:]]:
        return None
    return Call([x, index, src], lambda x, i, s: api[name](copy(x), i, s, axis), lambda x, i, s: theirs(x, axis, i, s), axis=axis)


@row("embedding", "one_hot")
def embedding(d, name):
    n = d.random.randint(1, 9)
    index = d.tensor((T.int64, T.int32), domain=(0, n), grad=False, free=True)
    if name == "one_hot":
        classes = d.pick(-1, n, n + 2)
        index.value = index.value.long()
        return Call([index], lambda i: api.one_hot(i, classes), lambda i: F.one_hot(i, classes), classes=classes)
    weight = d.tensor(FLOATS, sizes=[n, d.size()])
    padding = d.pick(None, None, 0, n - 1, -1)
    if d.wrong:
        padding = None
    return Call([index, weight],
                lambda i, w: api.embedding(i, w, EmbeddingOptions(padding_idx=0 if padding is None else padding or ZERO)),
                lambda i, w: F.embedding(i, w, padding_idx=padding), padding=padding)


@row("nonzero", "masked_select", "masked_scatter", "masked_scatter_", "masked_fill", "masked_fill_", "masked_fill_scalar",
     "masked_fill_scalar_")
def masks(d, name):
    x = d.tensor(ANY)
    if name == "nonzero":
        return Call([x], api.nonzero, T.nonzero)
    mask = d.tensor((T.bool,), sizes=d.broadcast(x.value.shape), grad=False, free=True)
    copy = api.copy if name.endswith("_") else lambda t: t
    if name == "masked_select":
        return Call([x, mask], api.masked_select, T.masked_select, exact=True)
    if name.startswith("masked_scatter"):
        src = d.tensor((x.value.dtype,), sizes=[x.value.numel() + d.pick(0, 2)])
        return Call([x, mask, src], lambda x, m, s: api[name](copy(x), m, s), lambda x, m, s: T.masked_scatter(x, m, s), exact=True)
    if "scalar" in name:
        value = d.pick(0, 1, 2) if not x.value.is_floating_point() else d.pick(0, 1.5, -2, -math.inf)
        value = bool(value) if x.value.dtype == T.bool else value
        return Call([x, mask], lambda x, m: api[name](copy(x), m, number(value)), lambda x, m: x.clone().masked_fill_(m, value) if name.endswith("_") else x.masked_fill(m, value), exact=True,
                    value=value)
    value = d.tensor((x.value.dtype,), sizes=[])
    return Call([x, mask, value], lambda x, m, v: api[name](copy(x), m, v), lambda x, m, v: x.clone().masked_fill_(m, v) if name.endswith("_") else x.masked_fill(m, v), exact=True)


# ---- Joining ------------------------------------------------------------------------------------------------------


@row("cat", "stack", "hstack", "vstack")
def joining(d, name):
    x = d.tensor(ANY, ndim=(0 if name != "cat" else 1, 4))
    axis = d.axis(x.value.dim() + (name == "stack"))
    parts = [x]
    for _ in range(d.random.randint(0, 3)):
        sizes = list(x.value.shape)
        where = {"cat": axis, "hstack": min(1, len(sizes) - 1), "vstack": 0}.get(name)
        if where is not None and -len(sizes) <= where < len(sizes) and not (name == "vstack" and len(sizes) == 1):
            sizes[where] = d.size()
        parts.append(d.tensor(ANY, sizes=sizes, free=d.chance(0.1)))
    theirs = {"cat": lambda *t: T.cat(t, axis), "stack": lambda *t: T.stack(t, axis), "hstack": lambda *t: T.hstack(t),
              "vstack": lambda *t: T.vstack(t)}[name]
    more = (axis,) if name in ("cat", "stack") else ()
    return Call(parts, lambda *t: api[name](tensors(t), *more), theirs, exact=True, axis=axis)


@row("repeat", "tile", "repeat_interleave", "pad")
def repeated(d, name):
    x = d.tensor(ANY if name != "pad" else FLOATS + INTS, ndim=(0, 4))
    n = x.value.dim()
    axis, count = d.axis(x), d.int(0, 3)
    times = [d.random.randint(0, 3) for _ in range(n + d.pick(0, 0, 1))]
    times = times[d.pick(0, 1):] if name == "tile" else times
    if name == "repeat_interleave":
        return Call([x], lambda x: api.repeat_interleave(x, count, axis), lambda x: T.repeat_interleave(x, count, axis), exact=True,
                    times=count, axis=axis)
    if name != "pad":
        times = d.spoil(times)
        if x.value.numel() * math.prod(times) > 1 << 20:
            return None
        return Call([x], lambda x: api[name](x, shape(times)), lambda x: getattr(x, name)(times), exact=True, times=times)
    mode = d.pick("constant", "constant", "reflect", "replicate", "circular")
    if mode != "constant":
        x = d.tensor(FLOATS, ndim=(3, 5))
        n = x.value.dim() - 2
    most = min([9] + list(x.value.shape)) if mode in ("reflect", "circular") else 4
    sides = [d.int(-1 if mode == "constant" else 0, max(0, most - 1)) for _ in range(2 * d.random.randint(0 if mode == "constant" else n, max(n, 0)))]
    value = d.float(0, 1, -2)
    if mode == "constant":
        sides = sides[:2 * n]
    modes = ("constant", "reflect", "replicate", "circular")
    return Call([x], lambda x: api.pad(x, pads(sides), PadOptions(mode=modes.index(mode), value=value if mode == "constant" else 0.0)),
                lambda x: F.pad(x, sides, mode, value if mode == "constant" else None), pads=sides, mode=mode, value=value)
