"""Normalisation, attention and recurrent layers."""
from golden import *

torch.backends.mkldnn.enabled = False


def second(fn, at=0):
    """The gradient of sum(fn(x)^3) with respect to x[at]: its own gradients are second ones."""
    def grad(x):
        y = fn(x)
        return torch.autograd.grad((y * y * y).sum(), x[at], create_graph=True)[0]
    return grad


def c_second(call, at=0):
    """The same in C."""
    return (f"aril_tensor *o = {call}; aril_gradients(aril_sum(aril_mul(aril_mul(o, o), o), ARIL_ALL),"
            f" ARIL_LIST(x[{at}]), y, (aril_grad_opts){{.create_graph = true}});")


# ---- batch_norm ----

BN = "y[0] = aril_batch_norm(x[0], x[1], x[2], NULL, NULL, (aril_batch_norm_opts){0});"


def bn(x, **k):
    return F.batch_norm(x[0], None, None, x[1], x[2], training=True, **k)


for name, shape in (("nc", (5, 3)), ("ncl", (3, 2, 4)), ("nchw", (2, 3, 2, 3)),
                    ("ncdhw", (2, 2, 2, 1, 3))):
    case(f"batch_norm/{name}", BN, bn, [randn(*shape), randn(shape[1]), randn(shape[1])])
case("batch_norm/f64", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.float64)
case("batch_norm/wide", BN, bn, [randn(3, 70), randn(70), randn(70)])
case("batch_norm/long", BN, bn, [randn(2, 2, 37), randn(2), randn(2)])
case("batch_norm/plain", BN, bn, [randn(4, 3, 2), None, None])
case("batch_norm/weight_only", BN, bn, [randn(4, 3), randn(3), None])
case("batch_norm/bias_only", BN, bn, [randn(4, 3), None, randn(3)])
case("batch_norm/empty", BN, bn, [randn(0, 3, 2), randn(3), randn(3)])
case("batch_norm/f16", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.float16)
case("batch_norm/bf16", BN, bn, [randn(4, 3, 2), randn(3), randn(3)], dtype=torch.bfloat16)
case("batch_norm/f16_f32", BN, bn, [randn(4, 3, 2, dtype=torch.float16), randn(3), randn(3)])
case("batch_norm/bf16_f32", BN, bn, [randn(4, 3, 2, dtype=torch.bfloat16), randn(3), randn(3)])
case("batch_norm/large_mean", BN, bn,
     [randn(8, 2, dtype=torch.float64) + 1e6, randn(2, dtype=torch.float64),
      randn(2, dtype=torch.float64)], rtol=1e-7, atol=1e-8)
case("batch_norm/eps", "y[0] = aril_batch_norm(x[0], x[1], x[2], NULL, NULL,"
     "(aril_batch_norm_opts){.eps = 0.5});", lambda x: bn(x, eps=0.5),
     [randn(4, 3), randn(3), randn(3)])
for at in range(3):
    case(f"batch_norm/second{at}", c_second("aril_batch_norm(x[0], x[1], x[2], NULL, NULL,"
         "(aril_batch_norm_opts){0})", at), second(bn, at), [randn(4, 2, 2), randn(2), randn(2)],
         dtype=torch.float64)
case("batch_norm/second_plain", c_second("aril_batch_norm(x[0], NULL, NULL, NULL, NULL,"
     "(aril_batch_norm_opts){0})"), second(lambda x: F.batch_norm(x[0], None, None, training=True)),
     [randn(4, 2, 2)], dtype=torch.float64)


def bn_running(x, training=True, **k):
    m, v = x[3].detach().clone(), x[4].detach().clone()
    return F.batch_norm(x[0], m, v, x[1], x[2], training=training, **k), m, v


def c_running(opts, fn="batch_norm"):
    return (f"aril_tensor *m = aril_copy(x[3]), *v = aril_copy(x[4]);"
            f"y[0] = aril_{fn}(x[0], x[1], x[2], m, v, (aril_batch_norm_opts){{{opts}}});"
            f"y[1] = m; y[2] = v;")


stats = lambda n: [randn(n), uniform(0.5, 2, n)]
case("batch_norm/running", c_running("0"), bn_running, [randn(4, 3, 2), randn(3), randn(3), *stats(3)],
     grad=[0, 1, 2])
case("batch_norm/running_f64", c_running("0"), bn_running,
     [randn(4, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2], dtype=torch.float64)
case("batch_norm/running_f16", c_running("0"), bn_running,
     [randn(4, 3, 2, dtype=torch.float16), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/momentum", c_running(".momentum = 0.7"), lambda x: bn_running(x, momentum=0.7),
     [randn(4, 3), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/momentum_one", c_running(".momentum = 1"), lambda x: bn_running(x, momentum=1.0),
     [randn(2, 3, 2), None, None, *stats(3)], grad=[0])
case("batch_norm/momentum_zero", c_running(".momentum = ARIL_ZERO"),
     lambda x: bn_running(x, momentum=0.0), [randn(4, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(4, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/eval_plain", c_running(".eval = true, .eps = 0.1"),
     lambda x: bn_running(x, False, eps=0.1), [randn(1, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval_eps_zero", c_running(".eval = true, .eps = ARIL_ZERO"),
     lambda x: bn_running(x, False, eps=0.0), [randn(2, 3), None, None, *stats(3)], grad=[0])
case("batch_norm/eval_bf16", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(4, 3, 2, dtype=torch.bfloat16), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("batch_norm/eval_empty", c_running(".eval = true"), lambda x: bn_running(x, False),
     [randn(0, 3, 2), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])


def bn_cumulative(x):
    m = torch.nn.BatchNorm1d(3, momentum=None, affine=False)
    m(x[1].detach())
    m(x[2].detach())
    return m(x[0]), m.running_mean.clone(), m.running_var.clone(), m.num_batches_tracked.clone()


case("batch_norm/cumulative",
     "aril_tensor *m = aril_zeros(ARIL_SHAPE(3), ARIL_F32, test_device()), *v = aril_ones(ARIL_SHAPE(3),"
     " ARIL_F32, test_device()), *n = aril_zeros(ARIL_SHAPE(), ARIL_I64, test_device());"
     "aril_batch_norm_opts o = {.cumulative = true, .batches = n};"
     "aril_batch_norm(x[1], NULL, NULL, m, v, o); aril_batch_norm(x[2], NULL, NULL, m, v, o);"
     "y[0] = aril_batch_norm(x[0], NULL, NULL, m, v, o); y[1] = m; y[2] = v; y[3] = n;",
     bn_cumulative, [randn(4, 3), randn(5, 3), randn(4, 3)], grad=[0])

# ---- layer_norm, rms_norm, group_norm, instance_norm ----


def ln(k):
    return lambda x: F.layer_norm(x[0], k, x[1], x[2])


def c_ln(k, opts="0"):
    return f"aril_layer_norm(x[0], x[1], x[2], ARIL_SHAPE({', '.join(map(str, k))}), (aril_norm_opts){{{opts}}})"


def set_y(c):
    return f"y[0] = {c};"


for name, shape, k in (("last", (2, 3, 5), (5,)), ("two", (2, 3, 4), (3, 4)), ("all", (3, 4), (3, 4)),
                       ("one_row", (7,), (7,)), ("long", (2, 67), (67,)), ("many", (70, 3), (3,)),
                       ("wide", (3, 130), (130,))):
    case(f"layer_norm/{name}", set_y(c_ln(k)), ln(k), [randn(*shape), randn(*k), randn(*k)])
case("layer_norm/f64", set_y(c_ln((5,))), ln((5,)), [randn(4, 5), randn(5), randn(5)],
     dtype=torch.float64)
case("layer_norm/plain", set_y(c_ln((4,))), ln((4,)), [randn(2, 3, 4), None, None])
case("layer_norm/weight_only", set_y(c_ln((4,))), ln((4,)), [randn(3, 4), randn(4), None])
case("layer_norm/bias_only", set_y(c_ln((4,))), ln((4,)), [randn(3, 4), None, randn(4)])
case("layer_norm/empty", set_y(c_ln((4,))), ln((4,)), [randn(0, 4), randn(4), randn(4)])
case("layer_norm/f16", set_y(c_ln((4,))), ln((4,)), [randn(3, 4), randn(4), randn(4)],
     dtype=torch.float16)
case("layer_norm/bf16", set_y(c_ln((4,))), ln((4,)), [randn(3, 4), randn(4), randn(4)],
     dtype=torch.bfloat16)
case("layer_norm/eps", set_y(c_ln((4,), ".eps = 0.3")),
     lambda x: F.layer_norm(x[0], (4,), x[1], x[2], 0.3), [randn(3, 4), randn(4), randn(4)])
case("layer_norm/eps_zero", set_y(c_ln((4,), ".eps = ARIL_ZERO")),
     lambda x: F.layer_norm(x[0], (4,), x[1], x[2], 0.0), [randn(3, 4), randn(4), randn(4)])
case("layer_norm/large_mean", set_y(c_ln((9,))), ln((9,)), [randn(2, 9, dtype=torch.float64) + 1e6,
     randn(9, dtype=torch.float64), randn(9, dtype=torch.float64)], rtol=1e-7, atol=1e-8)
for at in range(3):
    case(f"layer_norm/second{at}", c_second(c_ln((4,)), at), second(ln((4,)), at),
         [randn(3, 4), randn(4), randn(4)], dtype=torch.float64)
case("layer_norm/second_plain", c_second(c_ln((2, 3))), second(ln((2, 3))), [randn(2, 2, 3), None, None],
     dtype=torch.float64)


def rms(k, eps=None):
    return lambda x: F.rms_norm(x[0], k, x[1], eps)


def c_rms(k, opts="0"):
    return f"aril_rms_norm(x[0], x[1], ARIL_SHAPE({', '.join(map(str, k))}), (aril_norm_opts){{{opts}}})"


case("rms_norm/last", set_y(c_rms((5,))), rms((5,)), [randn(2, 3, 5), randn(5)])
case("rms_norm/two", set_y(c_rms((3, 4))), rms((3, 4)), [randn(2, 3, 4), randn(3, 4)])
case("rms_norm/plain", set_y(c_rms((5,))), rms((5,)), [randn(3, 5), None])
case("rms_norm/small", set_y(c_rms((5,))), rms((5,)), [randn(3, 5) * 1e-3, randn(5)], atol=1e-3)
case("rms_norm/f64", set_y(c_rms((5,))), rms((5,)), [randn(3, 5), randn(5)], dtype=torch.float64)
case("rms_norm/f16", set_y(c_rms((5,))), rms((5,)), [randn(3, 5), randn(5)], dtype=torch.float16)
case("rms_norm/bf16", set_y(c_rms((5,))), rms((5,)), [randn(3, 5), randn(5)], dtype=torch.bfloat16)
case("rms_norm/eps", set_y(c_rms((5,), ".eps = 0.2")), rms((5,), 0.2), [randn(3, 5), randn(5)])
for at in range(2):
    case(f"rms_norm/second{at}", c_second(c_rms((4,)), at), second(rms((4,)), at),
         [randn(3, 4), randn(4)], dtype=torch.float64)


def gn(groups, eps=1e-5):
    return lambda x: F.group_norm(x[0], groups, x[1], x[2], eps)


def c_gn(groups, opts="0"):
    return f"aril_group_norm(x[0], x[1], x[2], {groups}, (aril_norm_opts){{{opts}}})"


for name, shape, groups in (("nc", (3, 6), 2), ("ncl", (2, 4, 3), 2), ("nchw", (2, 6, 2, 3), 3),
                            ("one", (2, 4, 3), 1), ("each", (2, 3, 4), 3), ("long", (2, 2, 19), 1)):
    case(f"group_norm/{name}", set_y(c_gn(groups)), gn(groups),
         [randn(*shape), randn(shape[1]), randn(shape[1])])
case("group_norm/plain", set_y(c_gn(2)), gn(2), [randn(2, 4, 3), None, None])
case("group_norm/weight_only", set_y(c_gn(2)), gn(2), [randn(2, 4, 3), randn(4), None])
case("group_norm/eps", set_y(c_gn(2, ".eps = 0.2")), gn(2, 0.2), [randn(2, 4, 3), randn(4), randn(4)])
# PyTorch keeps these statistics in f16.
case("group_norm/f16", set_y(c_gn(2)), gn(2), [randn(2, 4, 3), randn(4), randn(4)],
     dtype=torch.float16, rtol=8e-3, atol=1e-3)
for at in range(3):
    case(f"group_norm/second{at}", c_second(c_gn(2), at), second(gn(2), at),
         [randn(2, 4, 2), randn(4), randn(4)], dtype=torch.float64)
case("group_norm/second_nchw", c_second(c_gn(1)), second(gn(1)), [randn(2, 2, 2, 2), randn(2), None],
     dtype=torch.float64)


def inorm(x, **k):
    return F.instance_norm(x[0], None, None, x[1], x[2], **k)


INORM = "aril_instance_norm(x[0], x[1], x[2], NULL, NULL, (aril_instance_norm_opts){0})"


def inorm_running(x, use_input=True, **k):
    m, v = x[3].detach().clone(), x[4].detach().clone()
    return F.instance_norm(x[0], m, v, x[1], x[2], use_input_stats=use_input, **k), m, v


def c_in_running(opts):
    return c_running(opts, "instance_norm").replace("batch_norm_opts", "instance_norm_opts")


case("instance_norm/ncl", set_y(INORM), inorm, [randn(2, 3, 4), randn(3), randn(3)])
case("instance_norm/nchw", set_y(INORM), inorm, [randn(2, 3, 2, 3), randn(3), randn(3)])
case("instance_norm/plain", set_y(INORM), inorm, [randn(2, 3, 4), None, None])
case("instance_norm/second", c_second(INORM), second(inorm), [randn(2, 2, 3), randn(2), randn(2)],
     dtype=torch.float64)
case("instance_norm/running", c_in_running("0"), inorm_running,
     [randn(2, 3, 4), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])
case("instance_norm/momentum", c_in_running(".momentum = 0.6"),
     lambda x: inorm_running(x, momentum=0.6), [randn(3, 2, 4), None, None, *stats(2)], grad=[0])
case("instance_norm/eval", c_in_running(".eval = true"), lambda x: inorm_running(x, False),
     [randn(2, 3, 4), randn(3), randn(3), *stats(3)], grad=[0, 1, 2])

# ---- recurrent layers ----

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def cell_inputs(kind, n, i, h, bias=True):
    g = GATES[kind] * h
    states = [randn(n, h), randn(n, h)] if kind == "lstm" else [randn(n, h)]
    return [randn(n, i), *states, randn(g, i), randn(g, h)] + (
        [randn(g), randn(g)] if bias else [None, None])


case("rnn_cell/tanh", "y[0] = aril_rnn_cell(x[0], x[1], x[2], x[3], x[4], x[5],"
     "(aril_rnn_cell_opts){0});", lambda x: torch.rnn_tanh_cell(*x), cell_inputs("rnn", 2, 3, 4))
case("rnn_cell/relu", "y[0] = aril_rnn_cell(x[0], x[1], x[2], x[3], x[4], x[5],"
     "(aril_rnn_cell_opts){.relu = true});", lambda x: torch.rnn_relu_cell(*x),
     cell_inputs("rnn", 2, 3, 4))
case("rnn_cell/no_bias", "y[0] = aril_rnn_cell(x[0], x[1], x[2], x[3], x[4], x[5],"
     "(aril_rnn_cell_opts){0});", lambda x: torch.rnn_tanh_cell(*x),
     cell_inputs("rnn", 2, 3, 4, False))
case("rnn_cell/alone", "y[0] = aril_rnn_cell(x[0], x[1], x[2], x[3], x[4], x[5],"
     "(aril_rnn_cell_opts){0});",
     lambda x: torch.rnn_tanh_cell(x[0][None], x[1][None], *x[2:])[0],
     [randn(3), randn(2), randn(2, 3), randn(2, 2), randn(2), randn(2)])
LSTM_CELL = "y[0] = aril_lstm_cell(x[0], x[1], x[2], x[3], x[4], x[5], x[6], &y[1]);"
lstm_cell = lambda x: torch.lstm_cell(x[0], (x[1], x[2]), *x[3:])
case("lstm_cell/bias", LSTM_CELL, lstm_cell, cell_inputs("lstm", 2, 3, 4))
case("lstm_cell/no_bias", LSTM_CELL, lstm_cell, cell_inputs("lstm", 2, 3, 2, False))
GRU_CELL = "y[0] = aril_gru_cell(x[0], x[1], x[2], x[3], x[4], x[5]);"
case("gru_cell/bias", GRU_CELL, lambda x: torch.gru_cell(*x), cell_inputs("gru", 2, 3, 4))
case("gru_cell/no_bias", GRU_CELL, lambda x: torch.gru_cell(*x), cell_inputs("gru", 2, 3, 2, False))


def sequence(name, kind, t=4, n=2, i=3, h=2, layers=1, both=False, bias=True, first=False, states=True,
             relu=False, lengths=None, alone=False, dtype=torch.float64, **k):
    """A network with all its weights as inputs: y, h_n (and c_n), and every gradient."""
    d = 2 if both else 1
    g = GATES[kind] * h
    shape = (t, i) if alone else (n, t, i) if first else (t, n, i)
    x = [randn(*shape)]
    state = (layers * d, h) if alone else (layers * d, n, h)
    n_states = 2 if kind == "lstm" else 1
    x += [randn(*state) if states else None for _ in range(n_states)]
    at = len(x)
    for layer in range(layers):
        for _ in range(d):
            x += [randn(g, i if layer == 0 else d * h), randn(g, h)]
            x += [randn(g), randn(g)] if bias else [None, None]
    if lengths:
        x.append(tensor(lengths))

    def run(x):
        s = x[1:at] if states else [torch.zeros(state, dtype=x[0].dtype)] * n_states
        s = tuple(s) if kind == "lstm" else s[0]
        w = [v for v in x[at:at + 4 * layers * d] if v is not None]
        fn = {"lstm": torch.lstm, "gru": torch.gru, "rnn": torch.rnn_relu if relu else torch.rnn_tanh}
        args = (w, bias, layers, 0.0, False, both)
        if lengths:
            p = torch.nn.utils.rnn.pack_padded_sequence(x[0], x[-1], batch_first=first,
                                                        enforce_sorted=False)
            order, back = p.sorted_indices, p.unsorted_indices
            s = tuple(v[:, order] for v in s) if kind == "lstm" else s[:, order]
            data, *last = fn[kind](p.data, p.batch_sizes, s, *args)
            p = torch.nn.utils.rnn.PackedSequence(data, p.batch_sizes, order, back)
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(p, batch_first=first, total_length=t)
            return (y, *(v[:, back] for v in last))
        if alone:
            s = tuple(v[:, None] for v in s) if kind == "lstm" else s[:, None]
            y, *last = fn[kind](x[0][:, None], s, *args, False)
            return (y[:, 0], *(v[:, 0] for v in last))
        return fn[kind](x[0], s, *args, first)

    h0 = "x[1], x[2]" if kind == "lstm" else "x[1]"
    last = "&y[1], &y[2]" if kind == "lstm" else "&y[1]"
    opts = [f".layers = {layers}"]
    opts += [".bidirectional = true"] * both + [".batch_first = true"] * first + [".relu = true"] * relu
    if lengths:
        opts.append(f".lengths = x[{len(x) - 1}]")
    case(f"{kind}/{name}", f"y[0] = aril_{kind}(x[0], {h0}, (aril_list){{{4 * layers * d}, x + {at}}},"
         f"(aril_rnn_opts){{{', '.join(opts)}}}, {last});", run, x, dtype=dtype, **k)


for kind in GATES:
    sequence("one", kind)
    sequence("f32", kind, dtype=torch.float32)
    sequence("no_bias", kind, bias=False)
    sequence("no_state", kind, states=False)
    sequence("both", kind, both=True)
    sequence("layers", kind, layers=2)
    sequence("layers_both_first", kind, layers=2, both=True, first=True, t=3)
    sequence("alone", kind, alone=True, both=True)
    sequence("packed", kind, n=3, lengths=[2, 4, 1])
    sequence("packed_both", kind, n=3, layers=2, both=True, lengths=[3, 1, 2], t=3)
    sequence("packed_first", kind, n=2, first=True, both=True, lengths=[3, 4], t=5)
sequence("relu", "rnn", relu=True)
sequence("relu_both", "rnn", relu=True, both=True, layers=2)
sequence("one_step", "lstm", t=1)
sequence("wide", "lstm", t=2, n=3, i=2, h=9, dtype=torch.float32)


def second_sequence(name, kind, at, lengths=None, both=False):
    """Gradients of a gradient with respect to input `at`."""
    t, n, i, h = 3, 2, 2, 2
    d, g = (2 if both else 1), GATES[kind] * h
    k = 3 if kind == "lstm" else 2
    x = [randn(t, n, i)] + [randn(d, n, h) for _ in range(k - 1)]
    for _ in range(d):
        x += [randn(g, i), randn(g, h), randn(g), randn(g)]

    def run(x):
        net = []
        for e in range(d):
            w = x[k + 4 * e:k + 4 * e + 4]
            s = [v[e] for v in x[1:k]]
            ys = [None] * t
            for step in (reversed(range(t)) if e else range(t)):
                if kind == "lstm":
                    new = torch.lstm_cell(x[0][step], s, *w)
                else:
                    new = [(torch.gru_cell if kind == "gru" else torch.rnn_tanh_cell)(
                        x[0][step], s[0], *w)]
                if lengths:
                    m = (tensor(lengths) > step)[:, None]
                    ys[step] = torch.where(m, new[0], 0.0)
                    s = [torch.where(m, a, b) for a, b in zip(new, s)]
                else:
                    ys[step], s = new[0], list(new)
            net.append((torch.stack(ys), s))
        y = torch.cat([v[0] for v in net], 2)
        total = (y ** 3).sum() + sum((v ** 2).sum() for _, s in net for v in s)
        return torch.autograd.grad(total, x[at], create_graph=True)[0]

    if lengths:
        opts = f".lengths = x[{len(x)}]"
    else:
        opts = ".layers = 1"
    if both:
        opts += ", .bidirectional = true"
    h0 = "x[1], x[2]" if kind == "lstm" else "x[1]"
    last = "&s[0], &s[1]" if kind == "lstm" else "&s[0]"
    more = "o = aril_add(o, aril_sum(aril_square(s[1]), ARIL_ALL));" if kind == "lstm" else ""
    case(f"{kind}/{name}",
         f"aril_tensor *s[2], *o = aril_{kind}(x[0], {h0}, (aril_list){{{4 * d}, x + {k}}},"
         f"(aril_rnn_opts){{{opts}}}, {last});"
         f"o = aril_add(aril_sum(aril_mul(aril_mul(o, o), o), ARIL_ALL),"
         f"aril_sum(aril_square(s[0]), ARIL_ALL)); {more}"
         f"aril_gradients(o, ARIL_LIST(x[{at}]), y, (aril_grad_opts){{.create_graph = true}});",
         run, x + ([tensor(lengths)] if lengths else []), dtype=torch.float64)


for kind in GATES:
    at = 3 if kind == "lstm" else 2
    second_sequence("second_x", kind, 0)
    second_sequence("second_w", kind, at + 1)
    second_sequence("second_packed", kind, 0, lengths=[2, 3], both=True)

# ---- attention ----


def sdpa(**k):
    return lambda x: F.scaled_dot_product_attention(*x[:3], x[3] if len(x) > 3 else None, **k)


def c_sdpa(opts="0"):
    return f"aril_scaled_dot_product_attention(x[0], x[1], x[2], (aril_attention_opts){{{opts}}})"


def attend(name, q, k, v, mask=None, opts="0", **kw):
    grad = kw.pop("grad", True)
    x = [q, k, v] + ([mask] if mask is not None else [])
    if mask is not None:
        opts = ".mask = x[3]" + (", " + opts if opts != "0" else "")
    case(f"attention/{name}", set_y(c_sdpa(opts)), sdpa(**kw), x, grad=grad, rtol=1e-8, atol=1e-10,
         dtype=torch.float64)


additive = lambda *s: torch.where(randbool(*s), randn(*s), float("-inf"))
attend("plain", randn(3, 4), randn(5, 4), randn(5, 2))
attend("batch", randn(2, 3, 4), randn(2, 5, 4), randn(2, 5, 2))
attend("heads", randn(2, 2, 3, 4), randn(2, 2, 3, 4), randn(2, 2, 3, 4))
attend("long", randn(18, 3), randn(35, 3), randn(35, 2))
attend("long_causal", randn(35, 2), randn(35, 2), randn(35, 2), opts=".causal = true", is_causal=True)
attend("causal", randn(2, 4, 3), randn(2, 4, 3), randn(2, 4, 3), opts=".causal = true", is_causal=True)
attend("causal_short", randn(2, 3, 3), randn(2, 5, 3), randn(2, 5, 3), opts=".causal = true",
       is_causal=True)
attend("causal_tall", randn(5, 3), randn(3, 3), randn(3, 3), opts=".causal = true", is_causal=True)
attend("scale", randn(3, 4), randn(5, 4), randn(5, 2), opts=".scale = 0.3", scale=0.3)
attend("scale_zero", randn(3, 4), randn(5, 4), randn(5, 2), opts=".scale = ARIL_ZERO", scale=0.0)
attend("bool", randn(3, 4), randn(5, 4), randn(5, 2), randbool(3, 5) | (torch.arange(5) == 2))
attend("bool_blind", randn(3, 4), randn(4, 4), randn(4, 2),
       tensor([[True, False, True, True], [False] * 4, [False, False, False, True]]))
attend("bool_batch", randn(2, 2, 3, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 2),
       randbool(2, 1, 3, 5) | (torch.arange(5) == 1))
attend("bool_keys", randn(2, 3, 4), randn(2, 4, 4), randn(2, 4, 4),
       tensor([[[True, True, False, True]], [[True, False, False, False]]]))
attend("added", randn(3, 4), randn(5, 4), randn(5, 2), randn(3, 5))
attend("added_batch", randn(2, 2, 3, 2), randn(2, 2, 4, 2), randn(2, 2, 4, 2), randn(2, 1, 1, 4))
attend("added_inf", randn(3, 4), randn(5, 4), randn(5, 2), torch.where(
    randbool(3, 5) | (torch.arange(5) == 4), randn(3, 5), float("-inf")), grad=[0, 1, 2])
attend("added_blind", randn(2, 3), randn(4, 3), randn(4, 2),
       tensor([[float("-inf")] * 4, [0.0, 1.0, float("-inf"), 2.0]]), grad=[0, 1, 2])
attend("broadcast", randn(2, 2, 3, 4), randn(2, 1, 5, 4), randn(1, 5, 2))
attend("broadcast_bool", randn(2, 3, 4), randn(5, 4), randn(5, 2),
       randbool(2, 3, 5) | (torch.arange(5) == 0))
attend("gqa", randn(2, 4, 3, 2), randn(2, 2, 5, 2), randn(2, 2, 5, 3), opts=".enable_gqa = true",
       enable_gqa=True)
attend("gqa_one", randn(3, 2, 2), randn(1, 4, 2), randn(1, 4, 2), opts=".enable_gqa = true",
       enable_gqa=True)
attend("one_key", randn(3, 4), randn(1, 4), randn(1, 2))
attend("empty", randn(0, 3, 4), randn(0, 5, 4), randn(0, 5, 2))
case("attention/f32", set_y(c_sdpa()), sdpa(), [randn(2, 5, 8), randn(2, 6, 8), randn(2, 6, 3)])
case("attention/f16", set_y(c_sdpa()), sdpa(), [randn(2, 3, 4), randn(2, 4, 4), randn(2, 4, 3)],
     dtype=torch.float16, rtol=5e-3, atol=2e-3)
case("attention/bf16", set_y(c_sdpa()), sdpa(), [randn(2, 3, 4), randn(2, 4, 4), randn(2, 4, 3)],
     dtype=torch.bfloat16, rtol=4e-2, atol=2e-2)


def plain(x, mask=None, causal=False):
    """Attention by its formula, for second gradients."""
    s = x[0] @ x[1].mT / x[0].shape[-1] ** 0.5
    if mask is not None:
        s = s + mask if mask.is_floating_point() else s.masked_fill(~mask, float("-inf"))
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
    return s.softmax(-1) @ x[2]


for at, what in enumerate("qkv"):
    case(f"attention/second_{what}", c_second(c_sdpa(), at), second(plain, at),
         [randn(2, 3, 2), randn(2, 4, 2), randn(2, 4, 2)], dtype=torch.float64)
case("attention/second_causal", c_second(c_sdpa(".causal = true")),
     second(lambda x: plain(x, causal=True)), [randn(3, 2), randn(3, 2), randn(3, 2)],
     dtype=torch.float64)
case("attention/second_bool", c_second(c_sdpa(".mask = x[3]"), 1), second(lambda x: plain(x, x[3]), 1),
     [randn(3, 2), randn(4, 2), randn(4, 2), randbool(3, 4) | (torch.arange(4) == 1)],
     dtype=torch.float64)
case("attention/second_added", c_second(c_sdpa(".mask = x[3]"), 3), second(lambda x: plain(x, x[3]), 3),
     [randn(3, 2), randn(4, 2), randn(4, 2), randn(3, 4)], dtype=torch.float64)
