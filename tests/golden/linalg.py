"""Matrix products, einsum, linear algebra and Fourier transforms."""
from golden import *

i64 = torch.int64
f64 = torch.float64
R = torch.view_as_real
C = torch.view_as_complex


def same(name, c, fn, *inputs, **more):
    """A case of one result."""
    case(name, f"y[0] = {c};", fn, list(inputs), **more)


# ---- products ----
MM = "aril_matmul(x[0], x[1])"


def product(name, a, b, **more):
    same("matmul/" + name, MM, lambda x: x[0] @ x[1], a, b, **more)


product("dot", randn(5), randn(5))
product("matrix_vector", randn(3, 4), randn(4))
product("vector_matrix", randn(4), randn(4, 3))
product("matrices", randn(3, 4), randn(4, 5))
product("f64", randn(3, 4, dtype=f64), randn(4, 5, dtype=f64))
product("f16", randn(3, 4, dtype=torch.float16), randn(4, 5, dtype=torch.float16))
product("bf16", randn(3, 4, dtype=torch.bfloat16), randn(4, 5, dtype=torch.bfloat16))
product("i64", randint(-9, 9, 3, 4), randint(-9, 9, 4, 5))
product("u8", randint(0, 99, 3, 4, dtype=torch.uint8), randint(0, 99, 4, 2, dtype=torch.uint8))
product("batch", randn(2, 3, 4), randn(2, 4, 5))
product("batch_matrix", randn(2, 3, 4), randn(4, 5))
product("matrix_batch", randn(3, 4), randn(2, 4, 5))
product("batch_vector", randn(2, 3, 4), randn(4))
product("vector_batch", randn(4), randn(2, 4, 3))
product("broadcast", randn(2, 1, 3, 4), randn(3, 4, 2))
product("broadcast_both", randn(2, 1, 2, 3), randn(1, 3, 3, 2))
product("no_rows", randn(0, 4), randn(4, 3))
product("no_inner", randn(2, 0), randn(0, 3))
product("no_batch", randn(0, 2, 3), randn(3, 2))
product("large", randn(33, 17), randn(17, 20))
same("matmul/transposed_a", "aril_matmul(aril_t(x[0]), x[1])", lambda x: x[0].t() @ x[1],
     randn(4, 3), randn(4, 5))
same("matmul/transposed_b", "aril_matmul(x[0], aril_t(x[1]))", lambda x: x[0] @ x[1].t(),
     randn(3, 4), randn(5, 4))
same("matmul/sliced", "aril_matmul(aril_slice(x[0], 1, 0, ARIL_END, 2), x[1])",
     lambda x: x[0][:, ::2] @ x[1], randn(3, 8), randn(4, 5))
same("matmul/permuted", "aril_matmul(aril_permute(x[0], ARIL_AXES(1, 0, 2)), x[1])",
     lambda x: x[0].permute(1, 0, 2) @ x[1], randn(3, 2, 4), randn(4, 5))
same("dot", "aril_dot(x[0], x[1])", lambda x: x[0].dot(x[1]), randn(7), randn(7))
same("mv", "aril_mv(x[0], x[1])", lambda x: x[0].mv(x[1]), randn(3, 7), randn(7))
same("mm", "aril_mm(x[0], x[1])", lambda x: x[0].mm(x[1]), randn(3, 7), randn(7, 2))
same("bmm", "aril_bmm(x[0], x[1])", lambda x: x[0].bmm(x[1]), randn(2, 3, 7), randn(2, 7, 2))
same("outer", "aril_outer(x[0], x[1])", lambda x: x[0].outer(x[1]), randn(3), randn(4))
same("addmm/plain", "aril_addmm(x[0], x[1], x[2], 1, 1)", lambda x: torch.addmm(*x), randn(2, 3),
     randn(2, 4), randn(4, 3))
same("addmm/scaled", "aril_addmm(x[0], x[1], x[2], 0.5, -2)",
     lambda x: torch.addmm(*x, beta=0.5, alpha=-2), randn(3), randn(2, 4), randn(4, 3))
same("addmm/i64", "aril_addmm(x[0], x[1], x[2], 3, 2)",
     lambda x: torch.addmm(*x, beta=3, alpha=2), randint(0, 9, 2, 3), randint(0, 9, 2, 4),
     randint(0, 9, 4, 3))
same("baddbmm", "aril_baddbmm(x[0], x[1], x[2], 2, 0.5)",
     lambda x: torch.baddbmm(*x, beta=2, alpha=0.5), randn(2, 2, 3), randn(2, 2, 4), randn(2, 4, 3))
same("addmv", "aril_addmv(x[0], x[1], x[2], 2, 0.5)",
     lambda x: torch.addmv(*x, beta=2, alpha=0.5), randn(2), randn(2, 4), randn(4))
same("linear/bias", "aril_linear(x[0], x[1], x[2])", lambda x: F.linear(*x), randn(3, 4),
     randn(5, 4), randn(5))
same("linear/no_bias", "aril_linear(x[0], x[1], NULL)", lambda x: F.linear(*x), randn(2, 3, 4),
     randn(5, 4))
same("linear/vector", "aril_linear(x[0], x[1], x[2])", lambda x: F.linear(*x), randn(4),
     randn(5, 4), randn(5))
same("linear/permuted", "aril_linear(aril_transpose(x[0], 0, 1), x[1], x[2])",
     lambda x: F.linear(x[0].transpose(0, 1), x[1], x[2]), randn(3, 2, 4), randn(5, 4), randn(5))
same("linear/empty", "aril_linear(x[0], x[1], x[2])", lambda x: F.linear(*x), randn(0, 4),
     randn(5, 4), randn(5))

# ---- Fourier transforms ----
NORMS = {"backward": "ARIL_FFT_BACKWARD", "ortho": "ARIL_FFT_ORTHO", "forward": "ARIL_FFT_FORWARD"}
for n in (1, 2, 3, 4, 5, 8, 12, 30, 37, 49, 64, 74):
    same(f"fft/{n}", "aril_fft(x[0], (aril_fft_opts){0})",
         lambda x: R(torch.fft.fft(C(x[0]))), randn(n, 2, dtype=f64), rtol=1e-9, atol=1e-10)
for norm, c in NORMS.items():
    same(f"fft/{norm}", f"aril_fft(x[0], (aril_fft_opts){{.norm = {c}}})",
         lambda x, m=norm: R(torch.fft.fft(C(x[0]), norm=m)), randn(2, 6, 2))
    same(f"ifft/{norm}", f"aril_ifft(x[0], (aril_fft_opts){{.norm = {c}}})",
         lambda x, m=norm: R(torch.fft.ifft(C(x[0]), norm=m)), randn(2, 6, 2))
    same(f"rfft/{norm}", f"aril_rfft(x[0], (aril_fft_opts){{.norm = {c}}})",
         lambda x, m=norm: R(torch.fft.rfft(x[0], norm=m)), randn(2, 7))
    same(f"irfft/{norm}", f"aril_irfft(x[0], (aril_fft_opts){{.norm = {c}}})",
         lambda x, m=norm: torch.fft.irfft(C(x[0]), norm=m), randn(2, 5, 2))
same("fft/pad", "aril_fft(x[0], (aril_fft_opts){.n = 9})",
     lambda x: R(torch.fft.fft(C(x[0]), n=9)), randn(2, 6, 2))
same("fft/trim", "aril_fft(x[0], (aril_fft_opts){.n = 4})",
     lambda x: R(torch.fft.fft(C(x[0]), n=4)), randn(2, 6, 2))
same("rfft/even", "aril_rfft(x[0], (aril_fft_opts){0})", lambda x: R(torch.fft.rfft(x[0])),
     randn(3, 8))
same("rfft/prime", "aril_rfft(x[0], (aril_fft_opts){0})", lambda x: R(torch.fft.rfft(x[0])),
     randn(41, dtype=f64), rtol=1e-9, atol=1e-10)
same("rfft/pad", "aril_rfft(x[0], (aril_fft_opts){.n = 9})",
     lambda x: R(torch.fft.rfft(x[0], n=9)), randn(2, 6))
same("rfft/trim", "aril_rfft(x[0], (aril_fft_opts){.n = 4})",
     lambda x: R(torch.fft.rfft(x[0], n=4)), randn(2, 6))
same("irfft/odd", "aril_irfft(x[0], (aril_fft_opts){.n = 7})",
     lambda x: torch.fft.irfft(C(x[0]), n=7), randn(2, 4, 2))
same("irfft/trim", "aril_irfft(x[0], (aril_fft_opts){.n = 6})",
     lambda x: torch.fft.irfft(C(x[0]), n=6), randn(2, 6, 2))
same("irfft/pad", "aril_irfft(x[0], (aril_fft_opts){.n = 14})",
     lambda x: torch.fft.irfft(C(x[0]), n=14), randn(2, 6, 2))
same("fft2", "aril_fft2(x[0], ARIL_FFT_BACKWARD)", lambda x: R(torch.fft.fft2(C(x[0]))),
     randn(2, 3, 4, 2))
same("ifft2", "aril_ifft2(x[0], ARIL_FFT_ORTHO)",
     lambda x: R(torch.fft.ifft2(C(x[0]), norm="ortho")), randn(3, 4, 2))
same("fftfreq/even", "aril_fftfreq(8, 0.5)", lambda x: torch.fft.fftfreq(8, 0.5))
same("fftfreq/odd", "aril_fftfreq(5, 2)", lambda x: torch.fft.fftfreq(5, 2))
same("rfftfreq", "aril_rfftfreq(7, 1)", lambda x: torch.fft.rfftfreq(7))

hann = torch.hann_window


def stft(name, n_fft, c, x, w=None, **more):
    inputs = [x] if w is None else [x, w]
    window = "" if w is None else ".window = x[1], "
    same("stft/" + name, f"aril_stft(x[0], {n_fft}, (aril_stft_opts){{{window}{c}}})",
         lambda x: R(torch.stft(x[0], n_fft, window=x[1] if len(x) > 1 else torch.ones(
             more.get("win_length", n_fft), dtype=x[0].dtype), return_complex=True, **more)),
         *inputs, rtol=1e-4, atol=1e-5)


stft("plain", 8, ".hop = 2", randn(20), hann(8), hop_length=2)
stft("batch", 8, ".hop = 3", randn(2, 20), hann(8), hop_length=3)
stft("no_center", 8, ".hop = 2, .no_center = true", randn(2, 17), hann(8), hop_length=2,
     center=False)
stft("normalized", 8, ".normalized = true", randn(20), hann(8), normalized=True)
stft("two_sided", 8, ".two_sided = true, .hop = 4", randn(20), hann(8), onesided=False,
     hop_length=4)
stft("short_window", 9, ".win_length = 6, .hop = 2", randn(20), hann(6), win_length=6, hop_length=2)
stft("zero_pad", 6, ".zero_pad = true, .hop = 2", randn(11), hann(6), hop_length=2,
     pad_mode="constant")
stft("no_window", 6, ".hop = 3", randn(2, 13), hop_length=3)


def istft(name, n_fft, c, x, w=None, **more):
    inputs = [x] if w is None else [x, w]
    window = "" if w is None else ".window = x[1], "
    same("istft/" + name, f"aril_istft(x[0], {n_fft}, (aril_stft_opts){{{window}{c}}})",
         lambda x: torch.istft(C(x[0]), n_fft, window=x[1] if len(x) > 1 else None, **more),
         *inputs, rtol=1e-4, atol=1e-5)


win = uniform(0.3, 1, 8)
istft("plain", 8, ".hop = 2", randn(5, 7, 2), win, hop_length=2)
istft("batch", 8, ".hop = 4", randn(2, 5, 4, 2), win, hop_length=4)
istft("length", 8, ".hop = 2, .length = 10", randn(5, 7, 2), win, hop_length=2, length=10)
istft("no_center", 8, ".hop = 2, .no_center = true", randn(5, 7, 2), win, hop_length=2, center=False)
istft("normalized", 8, ".hop = 2, .normalized = true", randn(5, 7, 2), win, hop_length=2,
      normalized=True)
istft("two_sided", 8, ".hop = 2, .two_sided = true", randn(8, 7, 2), win, hop_length=2,
      onesided=False)
istft("no_window", 6, ".hop = 3", randn(4, 5, 2), hop_length=3)

# ---- einsum ----
SIZES = dict(a=2, b=3, c=4, d=2, i=3, j=4, k=5, l=2, m=3, n=2, B=2, H=3)


def einsum(name, expression, *shapes, dtype=f64):
    """Shapes are given, or follow from the letters."""
    if not shapes:
        terms = expression.split("->")[0].replace(" ", "").split(",")
        shapes = [[SIZES[c] for c in t] for t in terms]
    inputs = ", ".join(f"x[{i}]" for i in range(len(shapes)))
    same("einsum/" + name, f'aril_einsum("{expression}", ARIL_LIST({inputs}))',
         lambda x: torch.einsum(expression, *x), *[randn(*s, dtype=dtype) for s in shapes])


einsum("matmul", "ij,jk->ik")
einsum("f32", "ij,jk->ik", dtype=torch.float32)
einsum("batched", "aij,ajk->aik")
einsum("implicit", "ij,jk")
einsum("implicit_order", "ba,a")
einsum("transpose", "ij->ji")
einsum("implicit_transpose", "ba")
einsum("sum", "ij->")
einsum("sum_rows", "ij->i")
einsum("trace", "ii", (3, 3))
einsum("diagonal", "ii->i", (3, 3))
einsum("batch_diagonal", "aii->ai", (2, 3, 3))
einsum("triple_diagonal", "iii->i", (3, 3, 3))
einsum("diagonal_product", "ii,ij->j", (3, 3), (3, 4))
einsum("dot", "i,i->")
einsum("outer", "i,j->ij")
einsum("elementwise", "ij,ij->ij")
einsum("batch_dot", "ai,ai->a")
einsum("inner_two", "ijk,jkl->il")
einsum("outer_three", "i,j,k->kij")
einsum("chain", "ij,jk,kl->il")
einsum("bilinear", "ai,kij,aj->ak")
einsum("attention", "BiHd,BjHd->BHij")
einsum("attention_out", "BHij,BjHd->BiHd")
einsum("left_alone", "ijk,j->j")
einsum("both_alone", "ij,kl->jl")
einsum("free_groups", "abij,cdj->abicd")
einsum("ellipsis", "...ij,...jk->...ik", (2, 3, 4), (2, 4, 5))
einsum("ellipsis_broadcast", "...ij,...jk->...ik", (2, 1, 3, 4), (3, 4, 5))
einsum("ellipsis_one", "...ij,jk->...ik", (2, 3, 4), (4, 5))
einsum("ellipsis_front", "i...->...i", (2, 3, 4))
einsum("ellipsis_sum", "i...->...", (2, 3))
einsum("ellipsis_implicit", "...a,...a", (2, 3), (2, 3))
einsum("ellipsis_empty", "...i,i->...", (3,), (3,))
einsum("ellipsis_dropped", "a...->a", (2, 3, 4))
einsum("broadcast_one", "ij,ij->ij", (3, 1), (3, 4))
einsum("broadcast_summed", "ij,jk->ik", (3, 1), (4, 5))
einsum("spaces", " i j , j k -> i k ", (3, 4), (4, 5))
einsum("upper_case", "Ba,aB->", (2, 3), (3, 2))
einsum("empty", "ij,jk->ik", (0, 4), (4, 5))
einsum("empty_inner", "ij,jk->ik", (3, 0), (0, 5))
einsum("scalar", ",i->i", (), (3,))
same("tensordot/one", "aril_tensordot(x[0], x[1], ARIL_AXES(1), ARIL_AXES(0))",
     lambda x: torch.tensordot(x[0], x[1], ([1], [0])), randn(2, 3, 4), randn(3, 5))
same("tensordot/two", "aril_tensordot(x[0], x[1], ARIL_AXES(1, -1), ARIL_AXES(2, 0))",
     lambda x: torch.tensordot(x[0], x[1], ([1, 2], [2, 0])), randn(2, 3, 4), randn(4, 5, 3))
same("tensordot/none", "aril_tensordot(x[0], x[1], ARIL_ALL, ARIL_ALL)",
     lambda x: torch.tensordot(x[0], x[1], 0), randn(2, 3), randn(2))
same("kron/matrices", "aril_kron(x[0], x[1])", lambda x: torch.kron(*x), randn(2, 3), randn(3, 2))
same("kron/mixed", "aril_kron(x[0], x[1])", lambda x: torch.kron(*x), randn(3), randn(2, 2))

# ---- linear algebra ----
L = torch.linalg


def near_eye(*shape):
    """Well-conditioned matrices."""
    return torch.eye(shape[-1], dtype=f64) * 2 + 0.4 * randn(*shape, dtype=f64)


def positive(*shape):
    a = randn(*shape, dtype=f64)
    return a @ a.mT + torch.eye(shape[-1], dtype=f64)


same("inverse/one", "aril_inverse(x[0])", lambda x: L.inv(x[0]), near_eye(4, 4))
same("inverse/batch", "aril_inverse(x[0])", lambda x: L.inv(x[0]), near_eye(2, 2, 3, 3))
same("inverse/f32", "aril_inverse(x[0])", lambda x: L.inv(x[0]), near_eye(3, 3).float(), rtol=1e-4)
same("inverse/empty", "aril_inverse(x[0])", lambda x: L.inv(x[0]), near_eye(0, 3, 3))
same("det/one", "aril_det(x[0])", lambda x: L.det(x[0]), randn(4, 4, dtype=f64))
same("det/batch", "aril_det(x[0])", lambda x: L.det(x[0]), randn(3, 3, 3, dtype=f64))
same("det/singular", "aril_det(x[0])", lambda x: L.det(x[0]), tensor([[1., 2], [2, 4]], f64),
     grad=False)
same("det/no_size", "aril_det(x[0])", lambda x: L.det(x[0]), randn(2, 0, 0, dtype=f64), grad=False)
case("slogdet/one", "y[0] = aril_slogdet(x[0], &y[1]);", lambda x: tuple(L.slogdet(x[0])),
     [randn(4, 4, dtype=f64)])
case("slogdet/batch", "y[0] = aril_slogdet(x[0], &y[1]);", lambda x: tuple(L.slogdet(x[0])),
     [randn(3, 2, 2, dtype=f64)])
case("slogdet/singular", "y[0] = aril_slogdet(x[0], &y[1]);", lambda x: tuple(L.slogdet(x[0])),
     [torch.zeros(2, 2, dtype=f64)], grad=False)
same("solve/matrix", "aril_solve(x[0], x[1])", lambda x: L.solve(*x), near_eye(3, 3),
     randn(3, 2, dtype=f64))
same("solve/vector", "aril_solve(x[0], x[1])", lambda x: L.solve(*x), near_eye(3, 3),
     randn(3, dtype=f64))
same("solve/batch", "aril_solve(x[0], x[1])", lambda x: L.solve(*x), near_eye(2, 3, 3),
     randn(2, 3, 2, dtype=f64))
same("solve/vectors", "aril_solve(x[0], x[1])", lambda x: L.solve(*x), near_eye(2, 3, 3),
     randn(2, 3, dtype=f64))
same("solve/broadcast", "aril_solve(x[0], x[1])", lambda x: L.solve(*x), near_eye(3, 3),
     randn(2, 3, 2, dtype=f64))
same("cholesky/lower", "aril_cholesky(x[0], false)", lambda x: L.cholesky(x[0]), positive(4, 4))
same("cholesky/upper", "aril_cholesky(x[0], true)", lambda x: L.cholesky(x[0], upper=True),
     positive(2, 3, 3))
for upper in (False, True):
    for transpose in (False, True):
        for unit in (False, True):
            for right in (False, True):
                name = "".join("-x"[b] for b in (upper, transpose, unit, right))
                opts = (f".upper = {str(upper).lower()}, .transpose = {str(transpose).lower()}, "
                        f".unitriangular = {str(unit).lower()}, .right = {str(right).lower()}")
                same("triangular_solve/" + name.replace("-", "o"),
                     f"aril_triangular_solve(x[0], x[1], (aril_triangular_opts){{{opts}}})",
                     lambda x, u=upper, t=transpose, d=unit, r=right: L.solve_triangular(
                         x[0].mT if t else x[0], x[1], upper=u != t, left=not r, unitriangular=d),
                     near_eye(3, 3), randn(*((2, 3) if right else (3, 2)), dtype=f64))
same("triangular_solve/batch",
     "aril_triangular_solve(x[0], x[1], (aril_triangular_opts){.upper = true})",
     lambda x: L.solve_triangular(x[0], x[1], upper=True), near_eye(2, 3, 3),
     randn(3, 2, dtype=f64))
same("cholesky_solve/lower", "aril_cholesky_solve(x[0], x[1], false)",
     lambda x: torch.cholesky_solve(x[0], x[1].tril()), randn(3, 2, dtype=f64), near_eye(3, 3))
same("cholesky_solve/upper", "aril_cholesky_solve(x[0], x[1], true)",
     lambda x: torch.cholesky_solve(x[0], x[1].triu(), upper=True), randn(2, 3, 2, dtype=f64),
     near_eye(2, 3, 3))
case("qr/square", "y[0] = aril_qr(x[0], &y[1]);", lambda x: tuple(L.qr(x[0])),
     [randn(3, 3, dtype=f64)])
case("qr/tall", "y[0] = aril_qr(x[0], &y[1]);", lambda x: tuple(L.qr(x[0])),
     [randn(2, 4, 3, dtype=f64)])
case("qr/wide", "y[0] = aril_qr(x[0], &y[1]);",
     lambda x: tuple(L.qr(x[0])), [randn(2, 4, dtype=f64)], grad=False)
same("svdvals/tall", "aril_svdvals(x[0])", lambda x: L.svdvals(x[0]), randn(4, 3, dtype=f64))
same("svdvals/batch", "aril_svdvals(x[0])", lambda x: L.svdvals(x[0]), randn(2, 3, 4, dtype=f64))
SVD = "aril_tensor *u, *s, *v; u = aril_svd(x[0], &s, &v); "


def low_rank(x):
    u, s, v = L.svd(x[0], full_matrices=False)
    return (u[..., :2] * s[..., :2].sin().unsqueeze(-2)) @ v[..., :2, :]


for name, shape in (("square", (3, 3)), ("tall", (4, 3)), ("wide", (2, 3, 4))):
    case("svd/" + name, SVD + "aril_tensor *a = aril_mul(aril_slice(u, -1, 0, 2, 1), aril_unsqueeze("
         "aril_sin(aril_slice(s, -1, 0, 2, 1)), -2)); y[0] = aril_matmul(a, aril_slice(v, -2, 0, 2, 1));",
         low_rank, [randn(*shape, dtype=f64)], rtol=1e-8, atol=1e-10)
case("eigh/values", "y[0] = aril_eigh(x[0], NULL);", lambda x: L.eigh(x[0] + x[0].mT)[0] / 2,
     [randn(3, 3, dtype=f64)])
case("eigh/vectors", "aril_tensor *v; aril_eigh(x[0], &v); y[0] = aril_square(v);",
     lambda x: L.eigh((x[0] + x[0].mT) / 2)[1] ** 2, [randn(2, 3, 3, dtype=f64)], rtol=1e-8,
     atol=1e-10)
same("pinv/tall", "aril_pinv(x[0], 0)", lambda x: L.pinv(x[0]), randn(4, 2, dtype=f64), rtol=1e-8)
same("pinv/wide", "aril_pinv(x[0], 0)", lambda x: L.pinv(x[0]), randn(2, 2, 3, dtype=f64),
     rtol=1e-8)
same("pinv/rank_one", "aril_pinv(x[0], 0)", lambda x: L.pinv(x[0]),
     tensor([[1., 2], [2, 4], [3, 6]], f64), grad=False)
same("lstsq/tall", "aril_lstsq(x[0], x[1])", lambda x: L.lstsq(*x).solution,
     randn(4, 2, dtype=f64), randn(4, 3, dtype=f64), rtol=1e-8)
same("lstsq/wide", "aril_lstsq(x[0], x[1])", lambda x: L.lstsq(*x).solution,
     randn(2, 4, dtype=f64), randn(2, 1, dtype=f64), rtol=1e-8)
for n in (-2, 0, 1, 3, 5):
    same(f"matrix_power/{'minus' if n < 0 else ''}{abs(n)}", f"aril_matrix_power(x[0], {n})",
         lambda x, n=n: L.matrix_power(x[0], n), near_eye(2, 3, 3), rtol=1e-9, grad=n != 0)
same("trace", "aril_trace(x[0])", lambda x: x[0].trace(), randn(3, 4))

# ---- LU, general eigenvalues, exponential, rank ----
for name, shape in (("square", (4, 4)), ("tall", (5, 3)), ("wide", (2, 3, 5))):
    case("lu/" + name, "aril_tensor *l, *u; y[0] = aril_lu(x[0], &l, &u); y[1] = l; y[2] = u;",
         lambda x: tuple(L.lu(x[0])), [randn(*shape, dtype=f64)], rtol=1e-9)
case("lu/singular", "aril_tensor *l, *u; y[0] = aril_lu(x[0], &l, &u); y[1] = l; y[2] = u;",
     lambda x: tuple(L.lu(x[0])), [torch.zeros(2, 2)], grad=False)

# the order of eigenvalues and the phase of eigenvectors are arbitrary: functions that depend on neither
RE, IM = "aril_select(e, -1, 0)", "aril_select(e, -1, 1)"
case("eig/powers", f"aril_tensor *e = aril_eigvals(x[0]), *r = {RE}, *i = {IM}; "
     "y[0] = aril_sum(aril_square(aril_add(aril_square(r), aril_square(i))), ARIL_AXES(-1)); "
     "y[1] = aril_sum(aril_mul(r, aril_square(i)), ARIL_AXES(-1));",
     lambda x: ((L.eigvals(x[0]).abs() ** 4).sum(-1), (L.eigvals(x[0]).real * L.eigvals(x[0]).imag ** 2).sum(-1)),
     [randn(2, 5, 5, dtype=f64)], rtol=1e-8)


def eig_vectors(x):
    e, v = L.eig(x[0])
    return ((v.abs() ** 2) @ e.real.unsqueeze(-1),)


case("eig/vectors", f"aril_tensor *v, *e = aril_eig(x[0], &v); "
     "aril_tensor *size = aril_sum(aril_square(v), ARIL_AXES(-1)); "
     f"y[0] = aril_matmul(size, aril_unsqueeze({RE}, -1));", eig_vectors, [randn(2, 4, 4, dtype=f64)], rtol=1e-7)

for name, t in (("small", randn(3, 3, dtype=f64) * 0.01), ("batch", randn(2, 4, 4, dtype=f64)),
                ("large", randn(3, 3, dtype=f64) * 8), ("f32", randn(2, 3, 3)), ("zero", torch.zeros(2, 2, dtype=f64))):
    same("matrix_exp/" + name, "aril_matrix_exp(x[0])", lambda x: torch.matrix_exp(x[0]), t,
         rtol=1e-4 if name == "f32" else 1e-9)
RANKS = torch.stack([torch.outer(randn(4), randn(3)), randn(4, 3), torch.zeros(4, 3)])
same("matrix_rank/default", "aril_matrix_rank(x[0], (aril_rank_opts){ 0 })", lambda x: L.matrix_rank(x[0]), RANKS,
     grad=False)
same("matrix_rank/tolerances", "aril_matrix_rank(x[0], (aril_rank_opts){ .atol = 0.5, .rtol = 0.3 })",
     lambda x: L.matrix_rank(x[0], atol=0.5, rtol=0.3), RANKS, grad=False)
same("matrix_rank/symmetric", "aril_matrix_rank(x[0], (aril_rank_opts){ .symmetric = true })",
     lambda x: L.matrix_rank(x[0], hermitian=True), RANKS @ RANKS.mT, grad=False)

# ---- Fourier transforms over several axes ----
F_ = torch.fft
NORMS = (("backward", "ARIL_FFT_BACKWARD"), ("ortho", "ARIL_FFT_ORTHO"), ("forward", "ARIL_FFT_FORWARD"))
for word, c_norm in NORMS:
    same("fftn/" + word, f"aril_fftn(x[0], (aril_fftn_opts){{ .norm = {c_norm} }})",
         lambda x: R(F_.fftn(C(x[0]), norm=word)), randn(3, 4, 5, 2, dtype=f64))
    same("ifftn/" + word, f"aril_ifftn(x[0], (aril_fftn_opts){{ .axes = ARIL_AXES(0, -1), .n = {{ 5, 3 }}, .norm = {c_norm} }})",
         lambda x: R(F_.ifftn(C(x[0]), (5, 3), (0, -1), norm=word)), randn(3, 4, 5, 2, dtype=f64))
    same("rfftn/" + word, f"aril_rfftn(x[0], (aril_fftn_opts){{ .axes = ARIL_AXES(2, 0), .norm = {c_norm} }})",
         lambda x: R(F_.rfftn(x[0], dim=(2, 0), norm=word)), randn(3, 4, 5, dtype=f64))
    same("irfftn/" + word, f"aril_irfftn(x[0], (aril_fftn_opts){{ .axes = ARIL_AXES(0, 1), .n = {{ 0, 5 }}, .norm = {c_norm} }})",
         lambda x: F_.irfftn(C(x[0]), (3, 5), (0, 1), norm=word), randn(3, 4, 2, 2, dtype=f64))
    same("rfft2/" + word, f"aril_rfft2(x[0], {c_norm})", lambda x: R(F_.rfft2(x[0], norm=word)), randn(2, 4, 5, dtype=f64))
    same("irfft2/" + word, f"aril_irfft2(x[0], {c_norm})", lambda x: F_.irfft2(C(x[0]), norm=word),
         randn(2, 4, 5, 2, dtype=f64))
for name in ("fftshift", "ifftshift"):
    fn = getattr(F_, name)
    same(name + "/all", f"aril_{name}(x[0], ARIL_ALL)", lambda x: fn(x[0]), randn(4, 5))
    same(name + "/one", f"aril_{name}(x[0], ARIL_AXES(-2))", lambda x: fn(x[0], dim=-2), randn(3, 5, 2))
for name in ("hann", "hamming", "blackman"):
    fn = getattr(torch, name + "_window")
    for n in (0, 1, 2, 9, 16):
        for symmetric in (False, True):
            same(f"{name}_window/{n}{'_symmetric' if symmetric else ''}",
                 f"aril_{name}_window({n}, {str(symmetric).lower()})", lambda x: fn(n, periodic=not symmetric),
                 grad=False, atol=1e-6)
for beta in (0.0, 5.0, 12.0, 60.0):
    same(f"kaiser_window/{int(beta)}", f"aril_kaiser_window(17, false, {beta})",
         lambda x: torch.kaiser_window(17, True, beta, dtype=f64).float(), grad=False, atol=1e-6)
