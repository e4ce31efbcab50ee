"""Random networks of aril/nn.h, trained for some steps beside PyTorch from the same weights on the same batches.

Losses, parameters, buffers and the results in evaluation mode are compared. What decides is PyTorch's training in f64: Aril may be off
by FACTOR times what PyTorch is off in the dtype of the network, plus a few roundings, plus what changing the initial weights by half a
rounding does to the f64 training. Where that change alone leads somewhere else, nothing is said of the tensor.
"""
import ctypes as C
import random

import torch
from by_ctypes import B, F64, I, I64, P, S, ZERO, Named, Tensor, api, declare, options, pads, shape, tensors
from torch import nn

from .engine import DTYPES, FACTOR, Draw, Failed, Refused, check_error, clear_error, dtype_name, guard_end, noise, plain, scope_begin, values_of

STEPS = 20
ROUNDINGS, CHAOS = 2000, 1e-3
FEW = 2  # elements that a norm makes -1 and 1 of, whatever they are: the gradient is what cancelling leaves
item = declare("aril_item", C.c_double, P)
release, optim_free = declare("aril_module_release", None, P), declare("aril_optim_free", None, P)
evaluate = declare("aril_module_eval", None, P)
state_of, parameters_of = (declare(name, C.POINTER(Named), P) for name in ("aril_state", "aril_parameters"))
Closure = C.CFUNCTYPE(P, P)
LoadOptions = options("LoadOptions", (B, "partial"))
LinearOptions, LrnOptions = options("LinearOptions", (B, "no_bias")), options("LrnOptions", (F64, "alpha beta k"))
ConvOptions = options("ConvOptions", (I64 * 3, "stride padding dilation"), (I64, "groups"), (I, "mode padding_mode"), (B, "no_bias"),
                      (I64 * 3, "output_padding kernel"))
PoolOptions = options("PoolOptions", (I64 * 3, "kernel stride padding padding_end dilation"), (I, "mode"), (B, "ceil_mode count_exclude_pad"),
                      (I64, "divisor"))
BatchNormOptions = options("BatchNormOptions", (F64, "eps momentum"), (B, "cumulative no_affine no_bias no_running"))
InstanceNormOptions = options("InstanceNormOptions", (F64, "eps momentum"), (B, "affine no_bias running"))
NormOptions = options("NormOptions", (F64, "eps"), (B, "no_affine no_bias"))
RnnOptions = options("RnnOptions", (I, "layers"), (B, "bidirectional batch_first no_bias relu"), (F64, "dropout"))
AttentionOptions = options("AttentionOptions", (I64, "kdim vdim"), (F64, "dropout"), (B, "batch_first no_bias causal per_head"))
TransformerOptions = options("TransformerOptions", (I64, "feedforward"), (F64, "dropout eps"),
                             (B, "gelu norm_first batch_first no_bias causal final_norm"))
EmbeddingOptions = options("EmbeddingOptions", (I64, "padding_idx"))
OptimOptions = options(
    "OptimOptions", (F64, "lr weight_decay momentum dampening decay beta1 beta2 eps alpha momentum_decay beta2_decay min_scale clip_update initial "
                     "eta_minus eta_plus step_min step_max trust"), (B, "nesterov amsgrad centered decoupled maximize lr_in_momentum eps_hat"), (I, "ns_steps"),
    (B, "no_nesterov match_rms master_weights"), (I, "max_iter max_eval history"),
    (F64, "tolerance_grad tolerance_change"), (B, "strong_wolfe"), (F64, "clip_norm clip_value"), (I, "accumulate"), (F64, "loss_scale"),
    (I, "loss_scale_growth"), (B, "keep_grads"))


# ---- Layers: a module of Aril, the same of PyTorch, and the shape of a sample behind it ----------------------------------


class Layer:
    def __init__(self, ours, theirs, sizes, text):
        self.ours, self.theirs, self.sizes, self.text = ours, theirs, list(sizes), text


def made(name, *arguments):
    """A function that makes a module of Aril."""
    return lambda: api["nn_" + name](*arguments)


def several(name, layers, *first):
    """A container of Aril."""
    return lambda: container(name, first, [layer.ours() for layer in layers])


def container(name, first, modules):
    at = (P * max(1, len(modules)))(*[m.address for m in modules])
    return api["nn_" + name](*first, len(modules), at)


class Residual(nn.Module):
    def __init__(self, body, projection=None):
        super().__init__()
        self.body = body
        if projection is not None:
            self.projection = projection

    def forward(self, x):
        return (self.projection(x) if hasattr(self, "projection") else x) + self.body(x)


class Branches(nn.Sequential):
    def __init__(self, *branches, axis=None):
        super().__init__(*branches)
        self.axis = axis

    def forward(self, x):
        results = [branch(x) for branch in self]
        return sum(results) if self.axis is None else torch.cat(results, self.axis)


def first_result(kind):
    """A recurrent network that gives its first result alone."""
    return type(kind.__name__, (kind,), {"forward": lambda self, x: kind.forward(self, x)[0]})


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


RNNS = {"rnn": first_result(nn.RNN), "lstm": first_result(nn.LSTM), "gru": first_result(nn.GRU)}
ACTIVATIONS = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "logsigmoid": nn.LogSigmoid, "selu": nn.SELU, "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU("tanh"), "silu": nn.SiLU, "mish": nn.Mish, "softsign": nn.Softsign, "hardswish": nn.Hardswish,
    "tanhshrink": nn.Tanhshrink, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "celu": nn.CELU, "softplus": nn.Softplus, "hardtanh": nn.Hardtanh,
    "softshrink": nn.Softshrink, "hardshrink": nn.Hardshrink, "prelu": nn.PReLU, "identity": nn.Identity,
}


def activation(d, sizes):
    name = d.pick(*ACTIVATIONS)
    return Layer(made(name), ACTIVATIONS[name](), sizes, name)


def linear(d, sizes, out=None):
    out, biased = out or d.random.randint(1, 12), d.chance(0.8)
    size = 0 if d.chance(0.3) else sizes[-1]
    return Layer(made("linear_with", size, out, LinearOptions(no_bias=not biased)), nn.Linear(sizes[-1], out, biased), [*sizes[:-1], out],
                 f"linear({size} of {sizes[-1]}, {out}, {biased})")


def convolution(d, sizes, same=False):
    n = len(sizes) - 1
    groups = d.pick(1, 1, *[g for g in (2, 3, sizes[0]) if sizes[0] % g == 0])
    out = sizes[0] if same else groups * d.random.randint(1, 6)
    kernel = d.pick(1, 3) if same else d.random.randint(1, min(4, *sizes[1:]))
    stride, dilation, padding = (1, 1, kernel // 2) if same else (d.pick(1, 1, 2), d.pick(1, 1, 2), d.random.randint(0, 1))
    if dilation * (kernel - 1) + 1 > min(sizes[1:]) + 2 * padding:
        dilation = 1
    mode = d.pick("zeros", "zeros", "zeros", "reflect", "replicate", "circular")
    if padding >= min(sizes[1:]) or n == 3:
        mode = "zeros"
    biased = d.chance(0.7)
    size = 0 if d.chance(0.3) else sizes[0]
    fields = dict(stride=[stride], padding=[padding], dilation=[dilation], groups=groups, no_bias=not biased,
                  padding_mode=("zeros", "reflect", "replicate", "circular").index(mode))
    theirs = getattr(nn, f"Conv{n}d")(sizes[0], out, kernel, stride, padding, dilation, groups, biased, mode)
    after = [(s + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for s in sizes[1:]]
    return Layer(made(f"conv{n}d_with", size, out, kernel, ConvOptions(**fields)), theirs, [out, *after], f"conv{n}d({size}, {out}, {kernel}, {fields})")


def transposed(d, sizes):
    n = len(sizes) - 1
    if sizes[1] > 8:
        return convolution(d, sizes)
    kernel, stride, out, biased = d.random.randint(1, 3), d.pick(1, 2), d.random.randint(1, 4), d.chance(0.7)
    theirs = getattr(nn, f"ConvTranspose{n}d")(sizes[0], out, kernel, stride, bias=biased)
    return Layer(made(f"conv_transpose{n}d_with", sizes[0], out, kernel, ConvOptions(stride=[stride], no_bias=not biased)), theirs,
                 [out, *[(s - 1) * stride + kernel for s in sizes[1:]]], f"conv_transpose{n}d({out}, {kernel}, {stride}, {biased})")


def pool(d, sizes):
    n, kind = len(sizes) - 1, d.pick("max", "avg", "adaptive_avg", "adaptive_max")
    if kind.startswith("adaptive"):
        size = d.random.randint(1, 4)
        theirs = getattr(nn, f"Adaptive{kind[9:].title()}Pool{n}d")(size)
        return Layer(made(f"{kind}_pool{n}d", size), theirs, [sizes[0]] + [size] * n, f"{kind}_pool{n}d({size})")
    kernel, stride, ceil = d.random.randint(1, min(3, *sizes[1:])), d.random.randint(1, 3), d.chance(0.3)
    padding = d.random.randint(0, kernel // 2)
    theirs = getattr(nn, f"{kind.title()}Pool{n}d")(kernel, stride, padding, ceil_mode=ceil)
    after = list(theirs(torch.zeros(1, *sizes)).shape[1:])
    fields = dict(stride=[stride], padding=[padding], ceil_mode=ceil)
    return Layer(made(f"{kind}_pool{n}d_with", kernel, PoolOptions(**fields)), theirs, after, f"{kind}_pool{n}d({kernel}, {fields})")


def channel_norm(d, sizes):
    n, c = max(1, len(sizes) - 1), sizes[0]
    kind = d.pick("batch", "batch", "instance", "group", "response") if len(sizes) > 1 and torch.Size(sizes[1:]).numel() > FEW else "batch"
    size = 0 if d.chance(0.3) else c
    if kind == "batch":
        momentum, affine, cumulative, running = d.pick(0.1, 0.3), d.chance(0.8), d.chance(0.2), d.chance(0.9)
        theirs = getattr(nn, f"BatchNorm{n}d")(c, 1e-5, None if cumulative else momentum, affine, running)
        fields = dict(momentum=momentum, cumulative=cumulative, no_affine=not affine, no_running=not running)
        return Layer(made(f"batch_norm{n}d_with", size, BatchNormOptions(**fields)), theirs, sizes, f"batch_norm{n}d({fields})")
    if kind == "instance":
        affine, running = d.chance(0.5), d.chance(0.4)
        theirs = getattr(nn, f"InstanceNorm{n}d")(c, affine=affine, track_running_stats=running)
        return Layer(made(f"instance_norm{n}d_with", c, InstanceNormOptions(affine=affine, running=running)), theirs, sizes,
                     f"instance_norm{n}d({affine}, {running})")
    if kind == "group":
        groups = d.pick(*[g for g in (1, 2, 3, c) if c % g == 0])
        return Layer(made("group_norm", groups, c), nn.GroupNorm(groups, c), sizes, f"group_norm({groups}, {c})")
    size, alpha = d.random.randint(1, 4), d.pick(1e-4, 0.1)
    return Layer(made("local_response_norm_with", size, LrnOptions(alpha=alpha)), nn.LocalResponseNorm(size, alpha), sizes,
                 f"local_response_norm({size}, {alpha})")


def last_norm(d, sizes):
    k = d.random.randint(1, len(sizes))
    last = sizes[-k:]
    if d.chance(0.5) and torch.Size(last).numel() > FEW:
        return Layer(made("layer_norm_with", shape(last), NormOptions()), nn.LayerNorm(last), sizes, f"layer_norm({last})")
    return Layer(made("rms_norm_with", shape(last), NormOptions(eps=1e-3)), nn.RMSNorm(last, 1e-3), sizes, f"rms_norm({last})")


def resized(d, sizes):
    """Padding, upsampling, shuffling of images."""
    n = len(sizes) - 1
    kind = d.pick("pad", "upsample", "shuffle", "unshuffle") if n == 2 else "pad"
    if kind == "upsample" and max(sizes[1:]) < 8:
        return Layer(made("upsample", 2.0), nn.Upsample(scale_factor=2), [sizes[0], *[2 * s for s in sizes[1:]]], "upsample(2)")
    if kind == "shuffle" and sizes[0] % 4 == 0:
        return Layer(made("pixel_shuffle", 2), nn.PixelShuffle(2), [sizes[0] // 4, 2 * sizes[1], 2 * sizes[2]], "pixel_shuffle(2)")
    if kind == "unshuffle" and sizes[1] % 2 == 0 and sizes[2] % 2 == 0:
        return Layer(made("pixel_unshuffle", 2), nn.PixelUnshuffle(2), [4 * sizes[0], sizes[1] // 2, sizes[2] // 2], "pixel_unshuffle(2)")
    word, at = d.pick("zero", "replication", "reflection", "circular"), [d.random.randint(0, 1) for _ in range(2 * n)]
    if min(sizes[1:]) < 2:
        word = "zero"
    title = {"zero": "ZeroPad", "replication": "ReplicationPad", "reflection": "ReflectionPad", "circular": "CircularPad"}[word]
    after = [s + at[2 * (n - 1 - i)] + at[2 * (n - 1 - i) + 1] for i, s in enumerate(sizes[1:])]
    return Layer(made(f"{word}_pad{n}d", pads(at)), getattr(nn, f"{title}{n}d")(tuple(at)), [sizes[0], *after], f"{word}_pad{n}d({at})")


def recurrent(d, sizes):
    name, hidden, layers, both = d.pick("rnn", "lstm", "gru"), d.random.randint(1, 6), d.pick(1, 1, 2), d.chance(0.3)
    biased, relu = d.chance(0.8), name == "rnn" and d.chance(0.3)
    size = 0 if d.chance(0.3) else sizes[-1]
    more = {"nonlinearity": "relu"} if relu else {}
    theirs = RNNS[name](sizes[-1], hidden, num_layers=layers, bias=biased, batch_first=True, bidirectional=both, **more)
    fields = dict(layers=layers, bidirectional=both, batch_first=True, no_bias=not biased, relu=relu)
    return Layer(made(name + "_with", size, hidden, RnnOptions(**fields)), theirs, [sizes[0], hidden * (2 if both else 1)],
                 f"{name}({size}, {hidden}, {fields})")


def attention(d, sizes):
    embed = sizes[-1]
    heads = d.pick(*[h for h in (1, 2, 3, 4) if embed % h == 0])
    biased = d.chance(0.7)
    if d.chance(0.4) or embed <= FEW:
        theirs = SelfAttention(embed, heads, bias=biased, batch_first=True)
        return Layer(made("multihead_attention_with", embed, C.c_int(heads), AttentionOptions(batch_first=True, no_bias=not biased)), theirs, sizes,
                     f"multihead_attention({embed}, {heads}, {biased})")
    wide, gelu, before = d.random.randint(1, 12), d.chance(0.5), d.chance(0.5)
    theirs = nn.TransformerEncoderLayer(embed, heads, wide, 0.0, "gelu" if gelu else "relu", batch_first=True, norm_first=before, bias=biased)
    fields = dict(feedforward=wide, dropout=float(ZERO), gelu=gelu, norm_first=before, batch_first=True, no_bias=not biased)
    return Layer(made("transformer_encoder_layer_with", embed, C.c_int(heads), TransformerOptions(**fields)), theirs, sizes,
                 f"transformer_encoder_layer({embed}, {heads}, {fields})")


def branched(d, sizes):
    """Layers beside each other, or around which the input is led."""
    same = (lambda: convolution(d, sizes, True)) if len(sizes) > 2 or len(sizes) == 2 and d.channels else lambda: linear(d, sizes, sizes[-1])
    a, b = same(), same()
    text = f"({a.text}; {b.text})"
    kind = d.pick("residual", "projection", "concat", "sum")
    if kind == "residual":
        return Layer(lambda: api.nn_residual(a.ours()), Residual(a.theirs), sizes, f"residual({a.text})")
    if kind == "projection":
        return Layer(lambda: api.nn_residual_with(a.ours(), b.ours()), Residual(a.theirs, b.theirs), sizes, "residual" + text)
    if kind == "concat":
        return Layer(several("concat_of", [a, b]), Branches(a.theirs, b.theirs, axis=1), [2 * sizes[0], *sizes[1:]], "concat" + text)
    return Layer(several("sum_of", [a, b]), Branches(a.theirs, b.theirs), sizes, "sum" + text)


# ---- Networks ------------------------------------------------------------------------------------------------------------


def body(d, sizes):
    """Some layers."""
    layers = []
    for _ in range(d.random.randint(1, 6)):
        if d.channels:
            choices = (convolution, convolution, convolution, channel_norm, channel_norm, activation, activation, pool, resized, transposed, branched,
                       last_norm)
        elif len(sizes) == 2:
            look = attention if sizes[0] > 1 else recurrent  # of a single key the scores have no effect, but for roundings
            choices = recurrent, recurrent, look, linear, last_norm, activation, branched
        else:
            choices = linear, linear, activation, activation, channel_norm, last_norm, branched
        layers.append(d.pick(*choices)(d, sizes))
        sizes = layers[-1].sizes
        if torch.Size(sizes).numel() > 600:
            layers.append(pool(d, sizes) if d.channels else linear(d, sizes, 3))
            sizes = layers[-1].sizes
    return layers


class Network:
    """A network, its batches, its loss and its optimizer, in both."""

    def __init__(self, seed):
        d = self.draw = Draw(seed, False)
        torch.manual_seed(seed & 0x7FFFFFFF)
        self.dtype = d.pick(torch.float64, torch.float64, torch.float32)
        kind = d.pick("vector", "image", "image", "signal", "volume", "sequence", "tokens")
        d.channels = kind in ("image", "signal", "volume")
        few = {"signal": 1, "image": 2, "volume": 3}.get(kind, 0)
        sizes = [d.random.randint(1, 8)] + [d.random.randint(3, {1: 24, 2: 9, 3: 5}[few]) for _ in range(few)] if few else (
            [d.random.randint(1, 12)] if kind == "vector" else [d.random.randint(1, 6), d.random.randint(1, 8)])
        self.batch, self.sizes, self.words = d.random.randint(FEW + 1, 9), sizes, d.random.randint(2, 10) if kind == "tokens" else 0
        layers = []
        if self.words:
            padding = d.pick(0, 0, self.words - 1)
            layers.append(Layer(made("embedding_with", self.words, sizes[1], EmbeddingOptions(padding_idx=padding)),
                                nn.Embedding(self.words, sizes[1], padding or None), sizes, f"embedding({self.words}, {sizes[1]}, {padding})"))
        layers += body(d, sizes)
        last = layers[-1].sizes
        if len(last) > 1:
            layers.append(Layer(made("flatten"), nn.Flatten(), [torch.Size(last).numel()], "flatten"))
        self.classes = d.random.randint(1, 5)
        layers.append(linear(d, layers[-1].sizes, self.classes))
        self.layers, self.theirs = layers, nn.Sequential(*[layer.theirs for layer in layers]).double()
        for p in self.theirs.state_dict().values():  # what a narrower dtype can hold
            if p.is_floating_point():
                p.copy_(p.to(self.dtype))
        self.loss = d.pick("mse_loss", "cross_entropy", "bce_with_logits", "smooth_l1_loss", "huber_loss")
        self.batches = [self.make_batch() for _ in range(3)]
        self.optimizer = optimizer(d)
        self.closure = self.optimizer[0] == "lbfgs"
        if self.closure:  # whose line search takes another way by a rounding of f32
            self.dtype, self.batches = torch.float64, [tuple(t.double() if t.is_floating_point() else t for t in b) for b in self.batches]
        self.clip, self.accumulate = (0.0, 1) if self.closure else (d.pick(0.0, 0.0, 0.0, 0.5), d.pick(1, 1, 1, 2))

    def make_batch(self):
        d, r = self.draw, self.draw.torch
        n = self.batch if d.chance(0.7) else d.random.randint(FEW + 1, 9)
        x = torch.randint(0, self.words, [n, self.sizes[0]], generator=r) if self.words else torch.randn([n, *self.sizes], generator=r).to(self.dtype)
        if self.loss == "cross_entropy":
            return x, torch.randint(0, self.classes, [n], generator=r)
        return x, (torch.rand if self.loss == "bce_with_logits" else torch.randn)([n, self.classes], generator=r).to(self.dtype)

    def text(self):
        name, ours, _, _ = self.optimizer
        return (f"{dtype_name(self.dtype)} [{self.batch}, {self.sizes}]: {' | '.join(layer.text for layer in self.layers)}; {self.loss}; {name} "
                f"{ours}, clip {self.clip}, accumulate {self.accumulate}")


def optimizer(d):
    """A name, Aril's options, PyTorch's class and its options."""
    lr, decay = d.pick(0.01, 0.003, 0.05), d.pick(0.0, 0.0, 0.01)
    name = d.pick("sgd", "sgd", "adam", "adam", "adamw", "adamax", "nadam", "radam", "adagrad", "adadelta", "rmsprop", "rprop", "lbfgs")
    ours = theirs = dict(lr=lr, weight_decay=decay)
    if name == "sgd":
        ours = theirs = dict(ours, momentum=d.pick(0.0, 0.9, 0.5))
        ours = theirs = dict(ours, nesterov=True) if ours["momentum"] and d.chance(0.4) else dict(ours, dampening=d.pick(0.0, 0.3))
    elif name in ("adam", "adamw", "adamax", "nadam", "radam"):
        betas = d.pick((0.9, 0.999), (0.8, 0.95))
        ours, theirs = dict(ours, beta1=betas[0], beta2=betas[1]), dict(theirs, betas=betas)
        if name in ("adam", "adamw") and d.chance(0.3):
            ours, theirs = dict(ours, amsgrad=True), dict(theirs, amsgrad=True)
    elif name == "adagrad":
        start = d.pick(0.0, 0.1)
        ours, theirs = dict(ours, decay=0.1, initial=start), dict(theirs, lr_decay=0.1, initial_accumulator_value=start)
    elif name == "adadelta":
        ours, theirs = dict(ours, alpha=0.8), dict(theirs, rho=0.8)
    elif name == "rmsprop":
        more = dict(alpha=0.9, momentum=d.pick(0.0, 0.5), centered=d.chance(0.4))
        ours, theirs = dict(ours, **more), dict(theirs, **more)
    elif name == "rprop":
        ours = theirs = dict(lr=lr)
    elif name == "lbfgs":
        ours = dict(lr=d.pick(0.1, 0.5), max_iter=d.random.randint(1, 6), history=5, strong_wolfe=d.chance(0.4))
        theirs = dict(lr=ours["lr"], max_iter=ours["max_iter"], history_size=5, line_search_fn="strong_wolfe" if ours["strong_wolfe"] else None)
    if name == "adamw" and not decay:
        ours = dict(ours, weight_decay=float(ZERO))
    titles = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adamax": "Adamax", "nadam": "NAdam", "radam": "RAdam", "adagrad": "Adagrad",
              "adadelta": "Adadelta", "rmsprop": "RMSprop", "rprop": "Rprop", "lbfgs": "LBFGS"}
    return name, ours, getattr(torch.optim, titles[name]), theirs


# ---- Training ------------------------------------------------------------------------------------------------------------

THEIR_LOSSES = {"bce_with_logits": nn.functional.binary_cross_entropy_with_logits}


def train_theirs(net, start, dtype, nudge=None):
    """Losses, state and results in evaluation mode."""
    model = net.theirs.to(dtype)
    model.load_state_dict(start)
    if nudge is not None:
        with torch.no_grad():
            for k, p in enumerate(model.parameters()):
                p.mul_(1 + noise(p.shape, nudge, k).clamp(-2, 2) * (torch.finfo(net.dtype).eps / 2))
    model.train()
    _, _, kind, fields = net.optimizer
    torch.set_default_dtype(dtype)  # NAdam keeps a product in it
    step, losses = kind(model.parameters(), **fields), []
    loss_of = THEIR_LOSSES.get(net.loss) or getattr(nn.functional, net.loss)
    batches = [tuple(t.to(dtype) if t.is_floating_point() else t for t in b) for b in net.batches]
    for k in range(STEPS):
        x, y = batches[k % len(batches)]
        if net.closure:
            def walk():
                step.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                return loss
            losses.append(step.step(walk).item())
            continue
        loss = loss_of(model(x), y)
        losses.append(loss.item())
        (loss / net.accumulate).backward()
        if (k + 1) % net.accumulate == 0:
            if net.clip:
                nn.utils.clip_grad_norm_(model.parameters(), net.clip)
            step.step()
            step.zero_grad()
    torch.set_default_dtype(torch.float32)
    model.eval()
    with torch.no_grad():
        result = model(batches[0][0])
    state = {name: t.detach().clone() for name, t in model.state_dict().items()}
    return {"the losses": torch.tensor(losses, dtype=torch.float64), **state, "the result in evaluation mode": result}


def named(which):
    """aril_named of a dictionary of tensors."""
    at = (P * max(1, len(which)))(*[plain(t).address for t in which.values()])
    names = (S * max(1, len(which)))(*[name.encode() for name in which])
    return Named(n=len(which), at=C.cast(at, C.POINTER(P)), name=C.cast(names, C.POINTER(S)))


def train_ours(net, start):
    modules = [layer.ours() for layer in net.layers]
    model = container("sequential_of", (), modules)
    optim = None
    try:
        check_error()
        x = net.batches[0][0]
        api.status("module_build_n", model, tensors([plain(x.float() if x.is_floating_point() else x)]))
        api.status("module_cast", model, DTYPES.index(net.dtype))
        check_error()
        state = state_of(model.address)
        names = [state.contents.name[i].decode() for i in range(state.contents.n)]
        if names != list(start):
            raise Failed("names", f"{names}, PyTorch's {list(start)}")
        from_ = {name: t.to(net.dtype) if t.is_floating_point() else t for name, t in start.items()}
        api.status("load_state", model, C.byref(named(from_)), LoadOptions())
        name, fields, _, _ = net.optimizer
        optim = api.optim_new(name.encode(), parameters_of(model.address),
                              OptimOptions(clip_norm=net.clip, accumulate=net.accumulate if net.accumulate > 1 else 0, **fields)).address
        check_error()
        losses = [step_ours(net, model, optim, k) for k in range(STEPS)]
        evaluate(model.address)
        result = values_of(api.forward(model, plain(net.batches[0][0])))
        state = state_of(model.address).contents
        values = {names[i]: values_of(Tensor(state.at[i])) for i in range(state.n)}
        return {"the losses": torch.tensor(losses, dtype=torch.float64), **values, "the result in evaluation mode": result}
    finally:
        optim_free(optim)
        release(model.address)


def step_ours(net, model, optim, k):
    scope = scope_begin()
    try:
        x, y = (plain(t) for t in net.batches[k % len(net.batches)])
        if net.closure:
            def walk(_):
                loss = api[net.loss](api.forward(model, x), y)
                api.status("backward", loss)
                return loss.address
            loss = api.step_closure(Tensor(optim), Closure(walk), None)
            check_error()
            return item(loss.address)
        loss = api[net.loss](api.forward(model, x), y)
        api.status("backward", loss)
        api.status("step", Tensor(optim))
        check_error()
        return item(loss.address)
    finally:
        guard_end(C.byref(scope))


# ---- Comparison ----------------------------------------------------------------------------------------------------------


def judge(net, ours, theirs, exact, spreads):
    for name, e in exact.items():
        a = ours[name]
        if list(a.shape) != list(e.shape):
            raise Failed("shape", f"{name} is {list(a.shape)}, PyTorch's {list(e.shape)}")
        a, e, b = a.double(), e.double(), theirs[name].double()
        moved = max([0.0] + [(s[name].double() - e).abs().max().nan_to_num(float("inf")).item() for s in spreads if e.numel()])
        size = max(1.0, e.abs().max().item() if e.numel() else 0.0)
        if not e.isfinite().all() or moved > CHAOS * size:
            continue
        off, theirs_off = (a - e).abs(), (b - e).abs().max().item() if e.numel() else 0.0
        bound = FACTOR * theirs_off + ROUNDINGS * torch.finfo(net.dtype).eps * size + 50 * moved
        bad = ~(off <= bound)
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise Failed("training", f"{name}{list(at)}: got {a[at].item()!r}, PyTorch {b[at].item()!r}, in f64 {e[at].item()!r}; off by "
                         f"{off[at].item():.2g}, bound {bound:.2g} ({int(bad.sum())} of {bad.numel()} elements)")


def run_network(seed, name, progress):
    """As run_case, for a network."""
    net = Network(random.Random(f"network {seed}").getrandbits(60))
    text = net.text()
    start = {name: t.clone() for name, t in net.theirs.state_dict().items()}
    progress(text)
    scope = scope_begin()
    clear_error()
    try:
        ours = train_ours(net, start)
        progress(None)
        exact = train_theirs(net, start, torch.float64)
        theirs = exact if net.dtype == torch.float64 else train_theirs(net, start, net.dtype)
        judge(net, ours, theirs, exact, [train_theirs(net, start, torch.float64, seed + k) for k in range(2)])
    except Refused as refused:
        return "refused", str(refused), text
    except Failed as failed:
        return (*failed.args, text)
    finally:
        guard_end(C.byref(scope))
        clear_error()
    return None
