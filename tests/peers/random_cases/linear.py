"""Linear algebra and Fourier transforms: aril/linalg.h and aril/fft.h."""
import math

import torch
import torch.nn.functional as F
from by_ctypes import B, F64, I, I64, P, ZERO, AxesOf, Out, api, axes, options, tensors

from .engine import ANY, FLOATS, INTS, WIDE_FLOATS, Call, row

T = torch
LinearOptions = options("LinearOptions", (I, "activation"))
TriangularOptions = options("TriangularOptions", (B, "upper transpose unitriangular right"))
FftOptions = options("FftOptions", (I64, "n"), (I, "norm"))
FftnOptions = options("FftnOptions", (AxesOf, "axes"), (I64 * 8, "n"), (I, "norm"))
RankOptions = options("RankOptions", (F64, "atol rtol"), (B, "symmetric"))
StftOptions = options("StftOptions", (I64, "hop win_length"), (P, "window"), (B, "no_center zero_pad normalized two_sided"), (I64, "length"))
NUMBERS = FLOATS + INTS
ACTIVATION = (lambda x: x, F.relu, F.relu6, lambda x: F.leaky_relu(x, 0.01), T.sigmoid, T.tanh)

# ---- Products ---------------------------------------------------------------------------------------------------


@row("matmul", "dot", "mv", "mm", "bmm", "outer", "linear", "linear_with", "addmm", "addmv", "baddbmm")
def products(d, name):
    m, k, n, b = (d.size() for _ in range(4))
    lead = [d.random.randint(1, 3) for _ in range(d.random.randint(0, 2))]
    beta, alpha, which = d.float(1, 0, 0.5, -2), d.float(1, 2, 0.5), d.random.randrange(6)
    kinds = NUMBERS if name in ("matmul", "dot", "mv", "mm", "bmm", "outer") else FLOATS
    left, right = {
        "dot": ([k], [k]), "mv": ([m, k], [k]), "mm": ([m, k], [k, n]), "bmm": ([b, m, k], [b, k, n]), "outer": ([m], [n]),
        "addmm": ([m, k], [k, n]), "addmv": ([m, k], [k]), "baddbmm": ([b, m, k], [b, k, n]),
        "matmul": d.pick(([k], [k]), ([m, k], [k]), ([k], [k, n]), (d.broadcast(lead) + [m, k], d.broadcast(lead) + [k, n]),
                         (lead + [m, k], [k]), ([k], lead + [k, n])),
        "linear": (lead + [k], [n, k]), "linear_with": (lead + [k], [n, k]),
    }[name]
    x, y = d.tensor(kinds, sizes=left), d.tensor(kinds, sizes=right)
    y.value = y.value.to(x.value.dtype) if not d.wrong else y.value
    if name.startswith("linear"):
        c = d.tensor(FLOATS, sizes=[n])
        c.value = c.value.to(x.value.dtype)
        biased = d.chance(0.7)
        opts = LinearOptions(activation=which)
        if name == "linear":
            return Call([x, y, c], lambda x, y, c: api.linear(x, y, c if biased else None), lambda x, y, c: F.linear(x, y, c if biased else None),
                        bias=biased)
        return Call([x, y, c], lambda x, y, c: api.linear_with(x, y, c if biased else None, opts),
                    lambda x, y, c: ACTIVATION[which](F.linear(x, y, c if biased else None)), bias=biased, activation=which)
    if name in ("addmm", "addmv", "baddbmm"):
        result = {"addmm": [m, n], "addmv": [m], "baddbmm": [b, m, n]}[name]
        c = d.tensor(FLOATS, sizes=d.broadcast(result))
        c.value = c.value.to(x.value.dtype)
        return Call([c, x, y], lambda c, x, y: api[name](c, x, y, beta, alpha),
                    lambda c, x, y: getattr(T, name)(c, x, y, beta=beta, alpha=alpha), beta=beta, alpha=alpha)
    return Call([x, y], api[name], getattr(T, name))


EINSUMS = ("ij,jk->ik", "ij,jk", "ij->ji", "ij->", "ii->i", "ii", "i,i->", "i,j->ij", "bij,bjk->bik", "...ij,...jk->...ik", "ij,ij->ij",
           "ijk,kl->ijl", "ij,jk,kl->il", "i->i", "ij,j->i", "bi,bj->bij", "...i,...i->...", "iij->j", "abc,cd,d->ab")


@row("einsum")
def einsum(d, name):
    text = d.pick(*EINSUMS)
    sizes = {letter: d.random.randint(0 if d.chance(0.1) else 1, 6) for letter in "abcdijkl"}
    lead = [d.random.randint(1, 3) for _ in range(d.random.randint(0, 2))]
    operands = []
    d.special = d.special and text.count(",") < 2  # products in another order
    for term in text.split("->")[0].split(","):
        dims = (d.broadcast(lead) if "..." in term else []) + [sizes[c] for c in term.replace("...", "")]
        if d.wrong and dims and d.chance(0.3):
            dims[-1] = 1
        t = d.tensor(NUMBERS, sizes=dims)
        t.value = t.value.to(operands[0].value.dtype) if operands else t.value
        operands.append(t)
    return Call(operands, lambda *t: api.einsum(text.encode(), tensors(t)), lambda *t: T.einsum(text, *t), text=text)


CovOptions = options("CovOptions", (F64, "correction"), (P, "fweights aweights"))


@row("inner", "cross", "cdist")
def of_vectors(d, name):
    k = d.size() if name != "cross" else 3
    if name == "inner":
        x, y = d.tensor(NUMBERS, sizes=[*d.shape((0, 2)), k] if d.chance(0.9) else []), d.tensor(NUMBERS, sizes=[*d.shape((0, 2)), k])
        return Call([x, y], api.inner, T.inner)
    if name == "cross":
        sizes = d.shape((1, 4))
        axis = d.axis(len(sizes))
        if sizes and -len(sizes) <= axis < len(sizes):
            sizes[axis] = 3
        x, y = (d.tensor(NUMBERS, sizes=sizes if d.chance(0.7) else [s if s == 3 or d.chance(0.6) else 1 for s in sizes]) for _ in range(2))
        return Call([x, y], lambda x, y: api.cross(x, y, axis), lambda x, y: T.linalg.cross(x, y, dim=axis), axis=axis)
    p, lead = d.float(2, 2, 1, 3, 1.5, 0, math.inf), d.shape((0, 2), most=8)
    x, y = d.tensor(WIDE_FLOATS, sizes=[*lead, d.size(), k]), d.tensor(WIDE_FLOATS, sizes=[*(lead if d.chance(0.7) else []), d.size(), k])
    return Call([x, y], lambda x, y: api.cdist(x, y, p), lambda x, y: T.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist"),
                second=False, p=p)


@row("cov", "corrcoef")
def covariance(d, name):
    x = d.tensor(FLOATS if name == "corrcoef" else NUMBERS, ndim=(1, 2))
    if name == "corrcoef":
        return Call([x], api.corrcoef, lambda x: T.corrcoef(x * 1), second=False)
    n, correction = x.value.shape[-1] if x.value.dim() else 1, d.random.randint(0, 2)
    f = d.tensor((T.int64, T.int32), sizes=[n], domain=(0 if d.wrong else 1, 5), grad=False, free=True) if d.chance(0.4) else None
    a = d.tensor((T.float64,) if x.value.dtype == T.float64 else (T.float32,), sizes=[n], domain="unit", free=True) if d.chance(0.4) else None
    if a is not None:
        a.value = a.value.nan_to_num(0.5, 1, 0).abs()
    if a is not None and n < 2:
        return None  # the divisor is 0, or what rounding left of it
    inputs = [x] + [w for w in (f, a) if w is not None]
    def ours(x, *w):
        w = list(w)
        return api.cov(x, CovOptions(correction=correction or ZERO, **({"fweights": w.pop(0)} if f else {}), **({"aweights": w.pop(0)} if a else {})))
    def theirs(x, *w):
        w = list(w)
        return T.cov(x * 1, correction=correction, fweights=w.pop(0) if f else None, aweights=w.pop(0).to(x.dtype if x.is_floating_point() else T.float32) if a else None)
    return Call(inputs, ours, theirs, second=False, grad=n > correction, correction=correction)


@row("tensordot", "kron", "matrix_power", "trace")
def other_products(d, name):
    x = d.tensor(FLOATS if name != "kron" else NUMBERS, ndim={"trace": 2, "kron": (0, 3)}.get(name, (1, 3)))
    if name == "trace":
        x = d.tensor(ANY, ndim=2)
        return Call([x], api.trace, T.trace)
    if name == "kron":
        y = d.tensor((x.value.dtype,), ndim=(0, 3))
        y.value = y.value[tuple(slice(0, 4) for _ in range(y.value.dim()))].contiguous()
        y.layout = ("contiguous",)
        return Call([x, y], api.kron, T.kron)
    if name == "matrix_power":
        n, k = d.random.randint(0, 5), d.random.randint(-2, 4)
        x = d.tensor(WIDE_FLOATS, sizes=[*[d.random.randint(1, 3) for _ in range(d.pick(0, 1))], n, n])
        x.value, x.layout = well_conditioned(x.value), ("contiguous",)
        return Call([x], lambda x: api.matrix_power(x, k), lambda x: T.linalg.matrix_power(x, k), power=k)
    if x.value.dim() == 0:
        return None  # nothing to sum over
    count = d.random.randint(0 if d.chance(0.2) else 1, x.value.dim())
    a = d.random.sample(range(x.value.dim()), count)
    others = [d.random.randint(1, 4) for _ in range(d.random.randint(0, 2))]
    sizes = [x.value.shape[i] for i in a] + others
    y = d.tensor((x.value.dtype,), sizes=sizes)
    b = list(range(count))
    if count == 0:
        return None  # no axes mean all of them
    return Call([x, y], lambda x, y: api.tensordot(x, y, axes(*a), axes(*b)), lambda x, y: T.tensordot(x, y, (a, b)), a=a, b=b)


# ---- Equations and factors ----------------------------------------------------------------------------------------


def well_conditioned(x):
    """A square matrix plus a diagonal; what is not finite is replaced."""
    x = x.nan_to_num(0, 1, -1).clamp(-3, 3)
    return x + 4 * T.eye(x.shape[-1], dtype=x.dtype) if x.dim() > 1 and x.shape[-1] == x.shape[-2] else x


@row("solve", "triangular_solve", "cholesky_solve", "lstsq", "inverse", "pinv", "det", "slogdet", "cholesky", "qr", "svd", "svdvals",
     "eigh")
def equations(d, name):
    d.special = False
    lead = [d.random.randint(1, 3) for _ in range(d.pick(0, 0, 1, 2))]
    n, k = d.random.randint(0 if d.chance(0.1) else 1, 6), d.random.randint(1, 4)
    m = n + d.random.randint(0, 3) if name in ("lstsq", "qr", "svd", "svdvals", "pinv") else n
    a = d.tensor(WIDE_FLOATS, sizes=[*lead, m, n])
    a.value, a.layout = well_conditioned(a.value), a.layout if a.layout[0] != "expanded" else ("contiguous",)
    upper, flags = d.chance(0.5), [d.chance(0.5) for _ in range(4)]
    b = d.tensor((a.value.dtype,), sizes=[*lead, m, k] if not flags[3] or name != "triangular_solve" else [*lead, k, n])
    def with_out(function):
        def ours(a):
            out = Out()
            y = function(a, out)
            return y, out.tensor
        return ours
    options_ = TriangularOptions(upper=flags[0], transpose=flags[1], unitriangular=flags[2], right=flags[3])
    def triangular(a, b):
        return T.linalg.solve_triangular(a.mT if flags[1] else a, b, upper=flags[0] != flags[1], left=not flags[3], unitriangular=flags[2])
    def qr(a):
        r = Out()
        q = api.qr(a, r)
        signs = api.sign(api.detach(api.diagonal(r.tensor, 0, -2, -1)))
        return api.mul(q, api.unsqueeze(signs, -2)), api.mul(r.tensor, api.unsqueeze(signs, -1))
    def qr_theirs(a):
        q, r = T.linalg.qr(a)
        signs = r.detach().diagonal(0, -2, -1).sign()
        return q * signs.unsqueeze(-2), r * signs.unsqueeze(-1)
    def svd(a):
        s, vh = Out(), Out()
        u = api.svd(a, s, vh)
        return s.tensor, api.matmul(api.mul(u, api.unsqueeze(s.tensor, -2)), vh.tensor)
    def svd_theirs(a):
        u, s, vh = T.linalg.svd(a, full_matrices=False)
        return s, (u * s.unsqueeze(-2)) @ vh
    if name in ("solve", "triangular_solve", "cholesky_solve", "lstsq"):
        ours, theirs = {
            "solve": (api.solve, T.linalg.solve),
            "triangular_solve": (lambda a, b: api.triangular_solve(a, b, options_), triangular),
            "cholesky_solve": (lambda a, b: api.cholesky_solve(b, a, upper), lambda a, b: T.cholesky_solve(b, T.triu(a) if upper else T.tril(a), upper)),
            "lstsq": (api.lstsq, lambda a, b: T.linalg.lstsq(a, b, driver="gelsd").solution if b.dim() > 1 and a.shape[:-1] == b.shape[:-1]
                      and a.shape[-2] >= a.shape[-1] > 0 else T.linalg.lstsq(a, b).solution),
        }[name]
        if name == "lstsq" and (d.wrong or n == 0 or T.linalg.matrix_rank(a.value.double()).min() < n):
            return None
        return Call([a, b], ours, theirs, upper=upper, flags=flags)
    if name in ("qr", "svd", "cholesky") and (d.wrong or a.value.dim() < 2 or not a.value.numel()
                                              or T.linalg.matrix_rank(a.value.double()).min() < n):
        return None
    ours, theirs = {
        "inverse": (api.inverse, T.linalg.inv), "pinv": (lambda a: api.pinv(a, 0.0), T.linalg.pinv), "det": (api.det, T.linalg.det),
        "slogdet": (with_out(api.slogdet), lambda a: tuple(T.linalg.slogdet(a))),
        "cholesky": (lambda a: api.cholesky(api.matmul(a, api.transpose(a, -1, -2)), upper), lambda a: T.linalg.cholesky(a @ a.mT, upper=upper)),
        "qr": (qr, qr_theirs), "svd": (svd, svd_theirs), "svdvals": (api.svdvals, T.linalg.svdvals),
        "eigh": (lambda a: api.eigh(api.add(a, api.transpose(a, -1, -2)), None), lambda a: T.linalg.eigvalsh(a + a.mT)),
    }[name]
    # det's second derivative divides by the matrix in PyTorch; svd's formulas part where values meet
    values = T.linalg.svdvals(a.value.double()) if name in ("svd", "svdvals") and a.value.dim() > 1 else T.tensor([1.0])
    apart = bool((values.diff().abs() > 1e-2).all()) and bool((values > 1e-3).all())
    return Call([a], ours, theirs, grad=apart, second=name in ("inverse", "cholesky", "qr", "det", "slogdet"), upper=upper)


@row("lu", "eig", "eigvals", "matrix_rank", "matrix_exp")
def factors(d, name):
    d.special = False
    lead = [d.random.randint(1, 3) for _ in range(d.pick(0, 0, 1, 2))]
    n = d.random.randint(1, 6)
    m = d.random.randint(1, 6) if name in ("lu", "matrix_rank") else n
    a = d.tensor(WIDE_FLOATS, sizes=[*lead, m, n])
    a.value, a.layout = a.value.nan_to_num(0, 1, -1).clamp(-3, 3), a.layout if a.layout[0] != "expanded" else ("contiguous",)
    if name == "matrix_exp":
        a.value = a.value.clamp(-1, 1)
        return Call([a], api.matrix_exp, T.matrix_exp, second=False)
    if d.wrong or a.value.dim() < 2:
        return None
    wide = a.value.double()
    if name == "matrix_rank":
        if d.chance(0.5):
            a.value = a.value[..., :1] @ a.value[..., :1, :]
        atol, rtol = d.pick((0, 0), (0.5, 0.25), (1.0, 0), (0, 0.1))
        values = T.linalg.svdvals(a.value.double())
        limit = T.clamp_min(values[..., :1] * (rtol or (0 if atol else max(m, n) * T.finfo(a.value.dtype).eps)), atol)
        if ((values - limit).abs() <= 1e-3 * limit + 1e-7).any():
            return None  # a value at the limit
        return Call([a], lambda a: api.matrix_rank(a, RankOptions(atol=float(atol), rtol=float(rtol))),
                    lambda a: T.linalg.matrix_rank(a, atol=atol or None, rtol=rtol or None), atol=atol, rtol=rtol)
    if name == "lu":
        if T.linalg.lu(wide)[2].diagonal(0, -2, -1).abs().min() < 0.02:  # the gradient divides by it
            return None
        def ours(a):
            l, u = Out(), Out()
            p = api.lu(a, l, u)
            return p, l.tensor, u.tensor
        return Call([a], ours, lambda a: tuple(T.linalg.lu(a)), second=False)
    values, vectors = T.linalg.eig(wide)
    gaps = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs() + 9 * T.eye(n)
    if gaps.min() < 0.1 or T.linalg.cond(vectors).max() > 50:
        return None
    # neither the order of the values nor the phase of the vectors is defined: functions that depend on neither
    def powers(re, im):
        return api.sum(api.square(re), axes(-1)), api.sum(api.mul(re, api.square(im)), axes(-1))
    def ours(a):
        out = Out()
        e = api.eig(a, out) if name == "eig" else api.eigvals(a)
        re, im = api.select(e, -1, 0), api.select(e, -1, 1)
        if name == "eigvals":
            return powers(re, im)
        return (api.matmul(api.sum(api.square(out.tensor), axes(-1)), api.unsqueeze(re, -1)),)
    def theirs(a):
        e, v = T.linalg.eig(a)
        if name == "eigvals":
            return e.real.square().sum(-1), (e.real * e.imag.square()).sum(-1)
        return ((v.abs() ** 2) @ e.real.unsqueeze(-1),)
    return Call([a], ours, theirs, second=False)


# ---- Fourier transforms ---------------------------------------------------------------------------------------------

NORMS = ("backward", "ortho", "forward")
complex_of, pair_of = T.view_as_complex, T.view_as_real


@row("fft", "ifft", "fft2", "ifft2", "rfft", "irfft")
def fourier(d, name):
    d.special = False  # one NaN is many, and how many depends on the algorithm
    n = d.random.choice((1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 30, 31, 64))
    lead = [d.random.randint(1, 3) for _ in range(d.pick(0, 1, 2))]
    pair = [] if name == "rfft" else [2]
    h = d.random.randint(1, 9)
    x = d.tensor(WIDE_FLOATS, sizes=lead + ([h] if name.endswith("2") else []) + [n] + pair)
    norm, length = d.random.randrange(3), d.pick(0, 0, d.random.randint(1, 20))
    if d.wrong and d.chance(0.3):
        length = d.int(0, 4)
    options_ = FftOptions(n=length, norm=norm)
    cut = length or None
    word = NORMS[norm]
    as_complex = lambda x: complex_of(x.contiguous()) if x.dim() > 1 or x.dim() == 1 and x.shape == (2,) else fail_shape()
    ours, theirs = {
        "fft": (lambda x: api.fft(x, options_), lambda x: pair_of(T.fft.fft(as_complex(x), cut, norm=word))),
        "ifft": (lambda x: api.ifft(x, options_), lambda x: pair_of(T.fft.ifft(as_complex(x), cut, norm=word))),
        "fft2": (lambda x: api.fft2(x, norm), lambda x: pair_of(T.fft.fft2(as_complex(x), norm=word))),
        "ifft2": (lambda x: api.ifft2(x, norm), lambda x: pair_of(T.fft.ifft2(as_complex(x), norm=word))),
        "rfft": (lambda x: api.rfft(x, options_), lambda x: pair_of(T.fft.rfft(x, cut, norm=word))),
        "irfft": (lambda x: api.irfft(x, options_), lambda x: T.fft.irfft(as_complex(x), cut, norm=word)),
    }[name]
    return Call([x], ours, theirs, n=length, norm=word)


def fail_shape():
    raise RuntimeError("the last dimension must have size 2")


@row("fftfreq", "rfftfreq")
def frequencies(d, name):
    n, spacing = d.int(1, 40), d.float(1, 0.5, 2, 0.01)
    return Call([], lambda: api[name](n, spacing), lambda: getattr(T.fft, name)(n, spacing), n=n, d=spacing)


@row("fftn", "ifftn", "rfftn", "irfftn", "rfft2", "irfft2")
def fourier_axes(d, name):
    d.special = False
    real_in, real_out = name.startswith("rfft"), name.startswith("irfft")
    sizes = [d.random.randint(1, 7) for _ in range(d.random.randint(2 if name.endswith("2") else 1, 4))]
    if real_out:
        sizes[-1] += 1  # the default length, 2(m-1), is at least 1 then
    x = d.tensor(WIDE_FLOATS, sizes=sizes + ([] if real_in else [2]))
    norm = d.random.randrange(3)
    word, n = NORMS[norm], len(sizes)
    to = (lambda x: x) if real_in else lambda x: complex_of(x.contiguous()) if x.dim() > 1 or x.shape == (2,) else fail_shape()
    back = (lambda y: y) if real_out else pair_of
    if name.endswith("2"):
        return Call([x], lambda x: api[name](x, norm), lambda x: back(getattr(T.fft, name)(to(x), norm=word)), norm=word)
    which = d.random.sample(range(n), d.random.randint(1, n))
    which = [a - n if d.chance(0.3) else a for a in which]
    given, cut = d.chance(0.7), d.chance(0.4)
    if not given:
        which = []
    over = [a % n for a in which] or list(range(n))
    lengths = [d.random.randint(1, 9) if cut else 0 for _ in over]
    usual = [sizes[a] for a in over]
    if real_out:
        usual[-1] = 2 * (sizes[over[-1]] - 1)
        if usual[-1] < 1 and not cut:
            return None
    theirs = [a or b for a, b in zip(lengths, usual)] if cut else None
    options_ = FftnOptions(axes=axes(*which), n=tuple(lengths + [0] * (8 - len(lengths))), norm=norm)
    if d.wrong:
        return None
    return Call([x], lambda x: api[name](x, options_), lambda x: back(getattr(T.fft, name)(to(x), theirs, over, norm=word)),
                axes=which, n=lengths, norm=word)


@row("fftshift", "ifftshift")
def shifts(d, name):
    x = d.tensor(ANY, sizes=[d.random.randint(1, 6) for _ in range(d.random.randint(1, 4))])
    n = x.value.dim()
    if n == 0:
        return None  # NumPy and Aril give a copy, PyTorch an error
    which = d.random.sample(range(n), d.random.randint(0, n))
    return Call([x], lambda x: api[name](x, axes(*which)), lambda x: getattr(T.fft, name)(x, which or None), axes=which)


@row("hann_window", "hamming_window", "blackman_window", "kaiser_window")
def windows(d, name):
    n, symmetric, beta = d.int(0, 40), d.chance(0.5), d.float(12, 0, 3, 40)
    more = (beta,) if name == "kaiser_window" else ()
    def theirs():
        return getattr(T, name)(n, not symmetric, *more, dtype=T.float64).to(T.float32)
    return Call([], lambda: api[name](n, symmetric, *more), theirs, n=n, symmetric=symmetric, beta=beta)


@row("stft", "istft")
def short_time(d, name):
    d.special = False
    n_fft = d.random.choice((4, 8, 7, 16, 12))
    hop, win = d.random.randint(1, n_fft // 2), d.random.randint(max(2, n_fft // 2), n_fft)
    lead = [d.random.randint(1, 3) for _ in range(d.pick(0, 1))]
    frames = d.random.randint(3, 8)
    window = d.tensor(WIDE_FLOATS, sizes=[win], domain="positive", grad=d.chance(0.5))
    center, normalized, two_sided, zero = d.chance(0.7), d.chance(0.3), d.chance(0.3), d.chance(0.3)
    fields = dict(hop=hop, win_length=win, no_center=not center, normalized=normalized, two_sided=two_sided, zero_pad=zero)
    if name == "stft":
        x = d.tensor(WIDE_FLOATS, sizes=[*lead, n_fft + hop * frames])
        window.value = window.value.to(x.value.dtype)
        return Call([x, window], lambda x, w: api.stft(x, n_fft, StftOptions(window=w, **fields)),
                    lambda x, w: pair_of(T.stft(x, n_fft, hop, win, w, center, "constant" if zero else "reflect", normalized, not two_sided, True)),
                    n_fft=n_fft, **fields)
    x = d.tensor(WIDE_FLOATS, sizes=[*lead, n_fft if two_sided else n_fft // 2 + 1, frames, 2])
    window.value = window.value.to(x.value.dtype)
    return Call([x, window], lambda x, w: api.istft(x, n_fft, StftOptions(window=w, **fields)),
                lambda x, w: T.istft(complex_of(x.contiguous()), n_fft, hop, win, w, center, normalized, not two_sided), n_fft=n_fft, **fields)
