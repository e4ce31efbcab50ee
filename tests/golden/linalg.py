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
