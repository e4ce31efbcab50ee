#!/usr/bin/env python3
"""Writes autocast.h: the dtype of each function's result under torch.autocast("cpu", bfloat16).

For each function: with all inputs f32, with all inputs bf16, and with the first f32 and the others
bf16. NONE where PyTorch refuses the inputs.

    python3 tests/golden/autocast.py > tests/golden/autocast.h
"""
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")
R = lambda d, *s: torch.rand(*s).to(d)
I = lambda n, *s: torch.randint(n, s)
X = lambda d: R(d, 2, 3)


def spd(d):
    return (torch.eye(3) * 2 + 0.1).to(d)


def pooled(d):
    return F.max_pool2d(torch.rand(1, 2, 4, 4), 2, return_indices=True)[1]


CASES = {
    # products
    "matmul": lambda a, b: torch.matmul(R(a, 2, 3), R(b, 3, 4)),
    "matmul_vector": lambda a, b: torch.matmul(R(a, 2, 3), R(b, 3)),
    "mm": lambda a, b: torch.mm(R(a, 2, 3), R(b, 3, 4)),
    "bmm": lambda a, b: torch.bmm(R(a, 2, 3, 4), R(b, 2, 4, 5)),
    "mv": lambda a, b: torch.mv(R(a, 2, 3), R(b, 3)),
    "dot": lambda a, b: torch.dot(R(a, 3), R(b, 3)),
    "outer": lambda a, b: torch.outer(R(a, 3), R(b, 3)),
    "addmm": lambda a, b: torch.addmm(R(a, 2, 4), R(b, 2, 3), R(b, 3, 4)),
    "baddbmm": lambda a, b: torch.baddbmm(R(a, 2, 3, 5), R(b, 2, 3, 4), R(b, 2, 4, 5)),
    "addmv": lambda a, b: torch.addmv(R(a, 2), R(b, 2, 3), R(b, 3)),
    "linear": lambda a, b: F.linear(R(a, 2, 3), R(b, 4, 3), R(b, 4)),
    "einsum": lambda a, b: torch.einsum("ij,jk->ik", R(a, 2, 3), R(b, 3, 4)),
    "matrix_power": lambda a, b: torch.linalg.matrix_power(R(a, 3, 3), 3),
    # convolutions
    "conv1d": lambda a, b: F.conv1d(R(a, 1, 2, 8), R(b, 3, 2, 3)),
    "conv2d": lambda a, b: F.conv2d(R(a, 1, 2, 8, 8), R(b, 3, 2, 3, 3), R(b, 3)),
    "conv3d": lambda a, b: F.conv3d(R(a, 1, 2, 4, 4, 4), R(b, 3, 2, 3, 3, 3)),
    "conv_transpose2d": lambda a, b: F.conv_transpose2d(R(a, 1, 2, 4, 4), R(b, 2, 3, 3, 3)),
    # attention and recurrent layers
    "attention": lambda a, b: F.scaled_dot_product_attention(
        R(a, 1, 2, 4, 8), R(b, 1, 2, 4, 8), R(b, 1, 2, 4, 8)
    ),
    "prelu": lambda a, b: F.prelu(R(a, 1, 3, 4), R(b, 3)),
    # elementwise
    "add": lambda a, b: X(a) + X(b),
    "mul_scalar": lambda a, b: X(a) * 2,
    "exp": lambda a, b: torch.exp(X(a)),
    "relu": lambda a, b: F.relu(X(a)),
    "gelu": lambda a, b: F.gelu(X(a)),
    "pow": lambda a, b: X(a) ** 2,
    # reductions and norms
    "sum": lambda a, b: X(a).sum(),
    "mean": lambda a, b: X(a).mean(),
    "prod": lambda a, b: X(a).prod(),
    "cumsum": lambda a, b: X(a).cumsum(1),
    "logsumexp": lambda a, b: torch.logsumexp(X(a), 1),
    "std": lambda a, b: X(a).std(),
    "softmax": lambda a, b: F.softmax(X(a), 1),
    "log_softmax": lambda a, b: F.log_softmax(X(a), 1),
    "quantile": lambda a, b: torch.quantile(X(a), 0.5),
    "trace": lambda a, b: torch.trace(R(a, 3, 3)),
    "layer_norm": lambda a, b: F.layer_norm(X(a), (3,), R(a, 3), R(a, 3)),
    "batch_norm_f32_weight": lambda a, b: F.batch_norm(
        R(a, 2, 3, 4), torch.zeros(3), torch.ones(3), torch.ones(3), torch.zeros(3), True
    ),
    "cdist": lambda a, b: torch.cdist(X(a), X(b)),
    # pooling, padding, resampling
    "max_pool2d": lambda a, b: F.max_pool2d(R(a, 1, 2, 4, 4), 2),
    "max_pool3d": lambda a, b: F.max_pool3d(R(a, 1, 2, 4, 4, 4), 2),
    "avg_pool2d": lambda a, b: F.avg_pool2d(R(a, 1, 2, 4, 4), 2),
    "avg_pool3d": lambda a, b: F.avg_pool3d(R(a, 1, 2, 4, 4, 4), 2),
    "adaptive_avg_pool2d": lambda a, b: F.adaptive_avg_pool2d(R(a, 1, 2, 4, 4), 2),
    "adaptive_avg_pool3d": lambda a, b: F.adaptive_avg_pool3d(R(a, 1, 2, 4, 4, 4), 2),
    "adaptive_max_pool3d": lambda a, b: F.adaptive_max_pool3d(R(a, 1, 2, 4, 4, 4), 2),
    "max_unpool2d": lambda a, b: F.max_unpool2d(R(a, 1, 2, 2, 2), pooled(a), 2),
    "pad_constant": lambda a, b: F.pad(R(a, 1, 2, 4), (1, 1)),
    "pad_reflect": lambda a, b: F.pad(R(a, 1, 2, 4), (1, 1), "reflect"),
    "pad_replicate": lambda a, b: F.pad(R(a, 1, 2, 4), (1, 1), "replicate"),
    "pad_circular": lambda a, b: F.pad(R(a, 1, 2, 4), (1, 1), "circular"),
    "grid_sample": lambda a, b: F.grid_sample(R(a, 1, 2, 4, 4), R(b, 1, 3, 3, 2)),
    "interpolate": lambda a, b: F.interpolate(R(a, 1, 2, 4, 4), (8, 8)),
    # losses
    "cross_entropy": lambda a, b: F.cross_entropy(X(a), I(3, 2)),
    "cross_entropy_soft": lambda a, b: F.cross_entropy(X(a), F.softmax(X(b), 1)),
    "nll_loss": lambda a, b: F.nll_loss(X(a), I(3, 2)),
    "mse_loss": lambda a, b: F.mse_loss(X(a), X(b)),
    "l1_loss": lambda a, b: F.l1_loss(X(a), X(b)),
    "smooth_l1_loss": lambda a, b: F.smooth_l1_loss(X(a), X(b)),
    "huber_loss": lambda a, b: F.huber_loss(X(a), X(b)),
    "bce_with_logits": lambda a, b: F.binary_cross_entropy_with_logits(X(a), X(b)),
    "kl_div": lambda a, b: F.kl_div(X(a), X(b), reduction="mean"),
    "poisson_nll_loss": lambda a, b: F.poisson_nll_loss(X(a), X(b)),
    "soft_margin_loss": lambda a, b: F.soft_margin_loss(X(a), X(b)),
    "hinge_embedding_loss": lambda a, b: F.hinge_embedding_loss(X(a), torch.ones(2, 3).to(b)),
    "margin_ranking_loss": lambda a, b: F.margin_ranking_loss(R(a, 3), R(b, 3), torch.ones(3).to(b)),
    "cosine_embedding_loss": lambda a, b: F.cosine_embedding_loss(X(a), X(b), torch.ones(2).to(b)),
    "triplet_margin_loss": lambda a, b: F.triplet_margin_loss(X(a), X(b), X(b) + 1),
    "multi_margin_loss": lambda a, b: F.multi_margin_loss(X(a), I(3, 2)),
    "multilabel_margin_loss": lambda a, b: F.multilabel_margin_loss(X(a), I(3, 2, 3)),
    "ctc_loss": lambda a, b: F.ctc_loss(
        F.log_softmax(R(a, 6, 1, 4), 2), torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
    ),
    # linear algebra and Fourier transforms
    "inverse": lambda a, b: torch.linalg.inv(spd(a)),
    "cholesky": lambda a, b: torch.linalg.cholesky(spd(a)),
    "solve": lambda a, b: torch.linalg.solve(spd(a), R(b, 3, 2)),
    "lstsq": lambda a, b: torch.linalg.lstsq(spd(a), R(b, 3, 2)).solution,
    "qr": lambda a, b: torch.linalg.qr(spd(a))[0],
    "svd": lambda a, b: torch.linalg.svd(spd(a))[0],
    "svdvals": lambda a, b: torch.linalg.svdvals(spd(a)),
    "eigh": lambda a, b: torch.linalg.eigh(spd(a))[0],
    "pinv": lambda a, b: torch.pinverse(spd(a)),
    "triangular_solve": lambda a, b: torch.triangular_solve(R(b, 3, 2), spd(a))[0],
    "rfft": lambda a, b: torch.view_as_real(torch.fft.rfft(R(a, 8))),
    "stft": lambda a, b: torch.view_as_real(torch.stft(R(a, 32), 8, return_complex=True)),
    # widest dtype
    "cat": lambda a, b: torch.cat([X(a), X(b)]),
    "stack": lambda a, b: torch.stack([X(a), X(b)]),
    "index_copy": lambda a, b: torch.index_copy(X(a), 0, torch.tensor([1]), R(b, 1, 3)),
    # moved without computing
    "reshape": lambda a, b: X(a).reshape(6),
    "embedding": lambda a, b: F.embedding(I(3, 4), R(a, 3, 2)),
    "index_select": lambda a, b: X(a).index_select(0, torch.tensor([1])),
}

NAMES = {torch.float32: "ARIL_F32", torch.bfloat16: "ARIL_BF16", torch.float64: "ARIL_F64"}


def dtype_of(case, a, b):
    try:
        with torch.autocast("cpu", torch.bfloat16):
            return NAMES[case(a, b).dtype]
    except (RuntimeError, NotImplementedError):
        return "NONE"


if __name__ == "__main__":
    low, full = torch.bfloat16, torch.float32
    print("/* Written by autocast.py with PyTorch %s. */" % torch.__version__.split("+")[0])
    for name, case in CASES.items():
        columns = [dtype_of(case, full, full), dtype_of(case, low, low), dtype_of(case, full, low)]
        print("CASE(%s, %s)" % (name, ", ".join(columns)))
