"""Normalization, attention, recurrent layers and bags of embeddings: aril/neural.h and aril/embedding.h."""
import torch
import torch.nn.functional as F
from by_ctypes import B, F64, I, I64, P, ZERO, Out, api, options, shape, tensors

from .engine import FLOATS, WIDE_FLOATS, Call, plain, row
from .linear import ACTIVATION

T = torch
BatchNormOptions = options("BatchNormOptions", (B, "eval"), (F64, "momentum eps"), (B, "cumulative"), (P, "batches residual"), (I, "activation"))
NormOptions = options("NormOptions", (F64, "eps"))
InstanceNormOptions = options("InstanceNormOptions", (B, "eval"), (F64, "momentum eps"))
AttentionOptions = options("AttentionOptions", (P, "mask"), (B, "causal"), (F64, "scale dropout_p"), (B, "enable_gqa"))
CellOptions = options("CellOptions", (B, "relu"))
RnnOptions = options("RnnOptions", (I, "layers"), (B, "bidirectional batch_first relu"), (F64, "dropout"), (B, "eval"), (P, "lengths"))
BagOptions = options("BagOptions", (I, "mode"), (P, "per_sample_weights"), (I64, "padding_idx"), (B, "include_last_offset"))


@row("batch_norm", "batch_norm_", "instance_norm")
def running_norms(d, name):
    x = d.tensor(FLOATS, ndim=(2 if name != "instance_norm" else 3, 5))
    c = x.value.shape[1] if x.value.dim() > 1 else 1
    d.special = False
    kind = (x.value.dtype,)
    w, b, mean = (d.tensor(kind, sizes=[c]) for _ in range(3))
    var = d.tensor(kind, sizes=[c], domain="positive")
    mean.grad = var.grad = False
    evaluate, momentum, eps = d.chance(0.4), d.float(0.1, 0.3), d.float(1e-5, 1e-3)
    with_w, with_b, running = d.chance(0.7), d.chance(0.7), evaluate or d.chance(0.5)
    act = d.pick(0, 0, 1, 4, 5) if name == "batch_norm" else 0
    def ours(x, w, b, mean, var):
        arguments = (w if with_w else None, b if with_b else None)
        mean, var = (api.copy(mean), api.copy(var)) if running else (None, None)
        if name == "instance_norm":
            y = api.instance_norm(x, *arguments, mean, var, InstanceNormOptions(eval=evaluate, momentum=momentum, eps=eps))
        else:
            x = api.copy(x) if name.endswith("_") else x
            y = api[name](x, *arguments, mean, var, BatchNormOptions(eval=evaluate, momentum=momentum, eps=eps, activation=act))
        return (y, mean, var) if running else y
    def theirs(x, w, b, mean, var):
        w, b = w if with_w else None, b if with_b else None
        mean, var = (mean.clone(), var.clone()) if running else (None, None)
        if name == "instance_norm":
            y = F.instance_norm(x, mean, var, w, b, not evaluate, momentum, eps)
        else:
            y = ACTIVATION[act](F.batch_norm(x, mean, var, w, b, not evaluate, momentum, eps))
        return (y, mean, var) if running else y
    return Call([x, w, b, mean, var], ours, theirs, eval=evaluate, momentum=momentum, eps=eps, weight=with_w, bias=with_b, running=running,
                activation=act)


@row("layer_norm", "rms_norm", "group_norm")
def norms(d, name):
    x = d.tensor(FLOATS, ndim=(1 if name != "group_norm" else 2, 5))
    eps, with_w, with_b = d.float(1e-5, 1e-3), d.chance(0.7), d.chance(0.7)
    groups = d.pick(1, 2, 3)
    if name == "group_norm":
        sizes = list(x.value.shape)
        if len(sizes) > 1:
            sizes[1] = groups * d.random.randint(1, 4)
            sizes[0] = d.pick(sizes[0], sizes[0], 8, 33, 100)
        x = d.tensor(FLOATS, sizes=sizes)
        last = [x.value.shape[1] if x.value.dim() > 1 else 1]
    elif d.chance(0.2):  # many rows, which threads share
        x = d.tensor(FLOATS, sizes=[d.pick(8, 9, 32, 65, 200), *d.shape((1, 2), most=40)])
        last = list(x.value.shape[1:])
    else:
        last = list(x.value.shape[x.value.dim() - d.random.randint(1, max(1, x.value.dim())):])
    d.special = False
    w, b = (d.tensor((x.value.dtype,), sizes=last) for _ in range(2))
    last = d.spoil(last) if name != "group_norm" else last
    groups = d.int(groups, groups) if d.wrong else groups
    opts = NormOptions(eps=eps)
    ours, theirs = {
        "layer_norm": (lambda x, w, b: api.layer_norm(x, w, b, shape(last), opts), lambda x, w, b: F.layer_norm(x, last, w, b, eps)),
        "rms_norm": (lambda x, w, b: api.rms_norm(x, w, shape(last), opts), lambda x, w, b: F.rms_norm(x, last, w, eps)),
        "group_norm": (lambda x, w, b: api.group_norm(x, w, b, groups, opts), lambda x, w, b: F.group_norm(x, groups, w, b, eps)),
    }[name]
    return Call([x, w, b], lambda x, w, b: ours(x, w if with_w else None, b if with_b else None),
                lambda x, w, b: theirs(x, w if with_w else None, b if with_b else None), over=last, groups=groups, eps=eps, weight=with_w, bias=with_b)


@row("scaled_dot_product_attention")
def attention(d, name):
    lead = [d.random.randint(1, 3) for _ in range(d.pick(0, 1, 2))]
    length, keys, e, ev = (d.random.randint(1, 12) for _ in range(4))
    broadcast = d.chance(0.3)
    near = lambda: d.broadcast(lead) if broadcast else lead
    q = d.tensor(FLOATS, sizes=near() + [length, e])
    kind = (q.value.dtype,)
    k, v = d.tensor(kind, sizes=near() + [keys, e]), d.tensor(kind, sizes=near() + [keys, ev])
    if q.value.dtype == T.float16 and d.chance(0.3):  # scores that f16 does not hold
        q.value, k.value = q.value * 40, k.value * 40
    choice, scale = d.pick("none", "none", "causal", "bool", "numbers"), d.pick(None, None, 0.5)
    mask = d.tensor((T.bool,) if choice == "bool" else kind, sizes=d.pick([], lead) + [length, keys], free=True, grad=d.chance(0.5))
    fields = dict(causal=choice == "causal", scale=scale or 0.0)
    def ours(q, k, v, mask):
        return api[name](q, k, v, AttentionOptions(mask=mask, **fields) if choice in ("bool", "numbers") else AttentionOptions(**fields))
    def theirs(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask if choice in ("bool", "numbers") else None, 0.0, choice == "causal", scale=scale)
    return Call([q, k, v, mask], ours, theirs, mask=choice, scale=scale)


# ---- Recurrent layers -------------------------------------------------------------------------------------------------


@row("rnn_cell", "lstm_cell", "gru_cell")
def cells(d, name):
    gates = {"rnn_cell": 1, "lstm_cell": 4, "gru_cell": 3}[name]
    n = [d.random.randint(1, 5)]
    i, h = d.random.randint(1, 7), d.random.randint(1, 6)
    x = d.tensor(WIDE_FLOATS, sizes=n + [i])
    kind = (x.value.dtype,)
    inputs = [x, *(d.tensor(kind, sizes=s) for s in (n + [h], [gates * h, i], [gates * h, h], [gates * h], [gates * h]))]
    relu, biased = d.chance(0.5), d.chance(0.7)
    bias = lambda b: b if biased else (None, None)
    if name == "lstm_cell":
        def ours(x, h, w, u, b, c, state):
            after = Out()
            return api.lstm_cell(x, h, state, w, u, *bias((b, c)), after), after.tensor
        return Call(inputs + [d.tensor(kind, sizes=n + [h])], ours, lambda x, h, w, u, b, c, s: T.lstm_cell(x, (h, s), w, u, *bias((b, c))),
                    bias=biased)
    if name == "gru_cell":
        return Call(inputs, lambda x, h, w, u, b, c: api.gru_cell(x, h, w, u, *bias((b, c))),
                    lambda x, h, w, u, b, c: T.gru_cell(x, h, w, u, *bias((b, c))), bias=biased)
    return Call(inputs, lambda x, h, w, u, b, c: api.rnn_cell(x, h, w, u, *bias((b, c)), CellOptions(relu=relu)),
                lambda x, h, w, u, b, c: (T.rnn_relu_cell if relu else T.rnn_tanh_cell)(x, h, w, u, *bias((b, c))), relu=relu, bias=biased)


@row("rnn", "lstm", "gru")
def sequences(d, name):
    d.extreme = d.wrong  # PyTorch's own layers free what is not theirs when sizes do not fit
    gates = {"rnn": 1, "lstm": 4, "gru": 3}[name]
    layers, both, first, relu, biased = d.pick(1, 1, 2), d.chance(0.4), d.chance(0.4), d.chance(0.3), d.chance(0.8)
    n, t, i, h, ways = d.random.randint(1, 4) if d.chance(0.95) else 0, d.random.randint(1, 6), d.random.randint(1, 5), d.random.randint(1, 5), 2 if both else 1
    x = d.tensor(WIDE_FLOATS, sizes=[n, t, i] if first else [t, n, i])
    kind = (x.value.dtype,)
    states = [d.tensor(kind, sizes=[layers * ways, n, h]) for _ in range(2 if name == "lstm" else 1)]
    weights = []
    for layer in range(layers):
        for _ in range(ways):
            width = i if layer == 0 else h * ways
            weights += [d.tensor(kind, sizes=s) for s in ([gates * h, width], [gates * h, h], *(([gates * h],) * 2 if biased else ()))]
    lengths = T.tensor([d.random.randint(1, t) for _ in range(n)]) if n and d.chance(0.4) and not d.wrong else None
    zero_start = d.chance(0.2)
    fields = dict(layers=layers, bidirectional=both, batch_first=first, relu=relu)
    def ours(x, *rest):
        start, flat = rest[:len(states)], list(rest[len(states):])
        start = [None] * len(states) if zero_start else start
        opts = RnnOptions(**fields) if lengths is None else RnnOptions(lengths=plain(lengths), **fields)
        if not biased:
            flat = [t for k in range(0, len(flat), 2) for t in (flat[k], flat[k + 1], None, None)]
        hn, cn = Out(), Out()
        if name == "lstm":
            return api.lstm(x, *start, tensors(flat), opts, hn, cn), hn.tensor, cn.tensor
        return api[name](x, *start, tensors(flat), opts, hn), hn.tensor
    def theirs(x, *rest):
        start, flat = rest[:len(states)], list(rest[len(states):])
        start = [0 * s for s in start] if zero_start else start
        function = {"lstm": T.lstm, "gru": T.gru, "rnn": T.rnn_relu if relu else T.rnn_tanh}[name]
        if lengths is None:
            return function(x, start if name == "lstm" else start[0], flat, biased, layers, 0.0, False, both, first)
        packed = T.nn.utils.rnn.pack_padded_sequence(x, lengths, first, enforce_sorted=False)
        start = [s.index_select(1, packed.sorted_indices) for s in start]
        y, *last = function(packed.data, packed.batch_sizes, start if name == "lstm" else start[0], flat, biased, layers, 0.0, False, both)
        packed = T.nn.utils.rnn.PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return (T.nn.utils.rnn.pad_packed_sequence(packed, first, total_length=t)[0], *[s.index_select(1, packed.unsorted_indices) for s in last])
    return Call([x, *states, *weights], ours, theirs, zero_start=zero_start, lengths=None if lengths is None else lengths.tolist(), bias=biased, **fields)


@row("embedding_bag")
def bags(d, name):
    n, width = d.random.randint(1, 8), d.size()
    weight = d.tensor(WIDE_FLOATS, sizes=[n, width])
    mode, flat = d.pick("mean", "sum", "max"), d.chance(0.5)
    padding = d.pick(None, None, n - 1, 0)
    number = {"mean": 0, "sum": 1, "max": 4}[mode]
    fields = dict(mode=number, padding_idx=0 if padding is None else padding or ZERO)
    index = d.tensor((T.int64,), sizes=[d.random.randint(1, 9)] if flat else [d.random.randint(1, 5), d.random.randint(1, 5)], domain=(0, n),
                     grad=False, free=True)
    if not flat:
        return Call([index, weight], lambda i, w: api.embedding_bag(i, w, None, BagOptions(**fields)),
                    lambda i, w: F.embedding_bag(i, w, mode=mode, padding_idx=padding), second=mode != "max", mode=mode, padding=padding)
    count = index.value.numel()
    offsets = d.tensor((T.int64,), sizes=[d.random.randint(1, 4)], domain=(0, max(1, count)), grad=False, free=True)
    if offsets.value.dim() == 1 and offsets.value.numel() and not d.wrong:
        offsets.value = offsets.value.sort()[0]
        offsets.value[0] = 0
    offsets.layout = ("contiguous",)
    per = d.tensor((weight.value.dtype,), sizes=[count])
    weighted = mode == "sum" and d.chance(0.5)
    return Call([index, weight, offsets, per],
                lambda i, w, o, p: api.embedding_bag(i, w, o, BagOptions(per_sample_weights=p, **fields) if weighted else BagOptions(**fields)),
                lambda i, w, o, p: F.embedding_bag(i, w, o, mode=mode, padding_idx=padding, per_sample_weights=p if weighted else None),
                second=mode != "max", mode=mode, padding=padding, weighted=weighted)
