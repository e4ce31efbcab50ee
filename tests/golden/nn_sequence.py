"""Modules over sequences, with PyTorch's own state: recurrent networks, attention, transformers.

A case makes the same module on both sides. The C side checks that its state has PyTorch's names, order and
shapes, and takes PyTorch's values, so that gradients of all parameters are compared too.
"""
from golden import *
from torch import nn

torch.backends.mkldnn.enabled = False
torch.backends.mha.set_fastpath_enabled(False)


def module_case(name, make, call, torch_module, inputs, *, run=None, outputs=1, grad=True, dtype=None):
    """`make`: C's constructor. `call`: C's list of inputs. `run`: how PyTorch calls its module with the
    inputs (default: plainly). Parameters get random values of moderate size."""
    state = torch_module.state_dict()
    values = [randn(*t.shape) * 0.4 for t in state.values()]
    n = len(inputs)
    names = ",".join(state)
    if run is None:
        run = lambda m, x: m(*x)

    def fn(x):
        params = dict(zip(state, x[n:]))
        class Call(nn.Module):
            def __init__(self):
                super().__init__()
                self.m = torch_module
            def forward(self, xs):
                return run(self.m, xs)
        m = torch_module.to(x[0].dtype if x[0].is_floating_point() else torch.float32)
        call_ = Call()
        y = torch.func.functional_call(call_, {"m." + k: v for k, v in params.items()}, (x[:n],))
        flat = []
        for t in (y if isinstance(y, tuple) else (y,)):
            flat += list(t) if isinstance(t, tuple) else [t]
        assert len(flat) >= outputs, name
        return tuple(flat[:outputs])

    c = (f'aril_module *m = golden_state({make}, x, {n}, "{names}"); '
         f"aril_forward_all(m, ARIL_LIST({call}), {outputs}, y); aril_module_release(m);")
    grad_of = grad if grad is True else list(grad) + list(range(n, n + len(values)))
    case(name, c, fn, inputs + values, grad=grad_of, dtype=dtype)


# ---- recurrent networks ----

KINDS = (("rnn", nn.RNN, 1), ("lstm", nn.LSTM, 2), ("gru", nn.GRU, 1))
for kind, cls, states in KINDS:
    def network(name, c_opts, in_shape, states_shape=None, lengths=None, fast_first=False, **k):
        m = cls(3, 4, **k)
        inputs = [randn(*in_shape)]
        if states_shape:
            inputs += [randn(*states_shape) for _ in range(states)]
        call = ", ".join(f"x[{i}]" for i in range(len(inputs)))

        def run(mod, x):
            if not states_shape:
                return mod(x[0])
            return mod(x[0], (x[1], x[2]) if states == 2 else x[1])
        module_case(f"{kind}/{name}", f"aril_nn_{kind}_with(3, 4, (aril_nn_rnn_opts){{{c_opts}}})", call, m,
                    inputs, run=run, outputs=1 + states)

    network("plain", "0", (5, 2, 3))
    network("states", "0", (5, 2, 3), (1, 2, 4))
    network("alone", "0", (5, 3), (1, 4))
    network("layers", ".layers = 2", (4, 2, 3), (2, 2, 4), num_layers=2)
    network("both_ways", ".bidirectional = true", (4, 2, 3), (2, 2, 4), bidirectional=True)
    network("batch_first", ".batch_first = true", (2, 4, 3), (1, 2, 4), batch_first=True)
    network("no_bias", ".no_bias = true", (4, 2, 3), bias=False)
    network("all", ".layers = 2, .bidirectional = true, .batch_first = true, .no_bias = true", (2, 3, 3),
            (4, 2, 4), num_layers=2, bidirectional=True, batch_first=True, bias=False)

    def ragged(mod, x):
        packed = nn.utils.rnn.pack_padded_sequence(x[0], x[1], enforce_sorted=False)
        y, h = mod(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=x[0].shape[0])
        return y, h
    gap = "x[0], NULL, NULL, x[1]" if states == 2 else "x[0], NULL, x[1]"
    module_case(f"{kind}/lengths", f"aril_nn_{kind}_with(3, 4, (aril_nn_rnn_opts){{.bidirectional = true}})", gap,
                cls(3, 4, bidirectional=True), [randn(5, 3, 3), tensor([2, 5, 3])], run=ragged,
                outputs=1 + states)
    module_case(f"{kind}/inferred", f"aril_nn_{kind}(0, 4)", "x[0]", cls(3, 4), [randn(5, 2, 3)],
                outputs=1 + states)

module_case("rnn/relu", "aril_nn_rnn_with(3, 4, (aril_nn_rnn_opts){.relu = true})", "x[0]",
            nn.RNN(3, 4, nonlinearity="relu"), [randn(5, 2, 3)], outputs=2)
module_case("lstm/f64", "aril_nn_lstm(3, 4)", "x[0]", nn.LSTM(3, 4), [randn(5, 2, 3)], outputs=3,
            dtype=torch.float64)

for kind, cls, states in (("rnn", nn.RNNCell, 1), ("lstm", nn.LSTMCell, 2), ("gru", nn.GRUCell, 1)):
    def cell_run(mod, x):
        if len(x) == 1:
            return mod(x[0])
        return mod(x[0], (x[1], x[2]) if len(x) == 3 else x[1])
    given = [randn(2, 4) for _ in range(states)]
    call = ", ".join(f"x[{i}]" for i in range(1 + states))
    module_case(f"{kind}_cell/plain", f"aril_nn_{kind}_cell(3, 4)", "x[0]", cls(3, 4), [randn(2, 3)], run=cell_run,
                outputs=states)
    module_case(f"{kind}_cell/states", f"aril_nn_{kind}_cell(3, 4)", call, cls(3, 4), [randn(2, 3)] + given,
                run=cell_run, outputs=states)
    module_case(f"{kind}_cell/alone", f"aril_nn_{kind}_cell_with(0, 4, (aril_nn_cell_opts){{.no_bias = true}})", "x[0]",
                cls(3, 4, bias=False), [randn(3)], run=cell_run, outputs=states)
module_case("rnn_cell/relu", "aril_nn_rnn_cell_with(3, 4, (aril_nn_cell_opts){.relu = true})", "x[0]",
            nn.RNNCell(3, 4, nonlinearity="relu"), [randn(2, 3)])

# ---- attention ----


def attention(name, c_opts, call, inputs, run, *, outputs=1, heads=2, grad=True, embed="6", **k):
    module_case(f"attention/{name}",
                f"aril_nn_multihead_attention_with({embed}, {heads}, (aril_nn_attention_opts){{{c_opts}}})", call,
                nn.MultiheadAttention(6, heads, **k), inputs, run=run, outputs=outputs, grad=grad)


def plain(m, x):
    return m(x[0], x[1], x[2], need_weights=False)[0]


def own(m, x):
    return m(x[0], x[0], x[0], need_weights=False)[0]


attention("self", "0", "x[0]", [randn(4, 2, 6)], own)
attention("self_weights", "0", "x[0]", [randn(4, 2, 6)], lambda m, x: m(x[0], x[0], x[0]), outputs=2)
attention("inferred", "0", "x[0]", [randn(4, 2, 6)], own, embed="0")
attention("batch_first", ".batch_first = true", "x[0]", [randn(2, 4, 6)], own, batch_first=True)
attention("alone", "0", "x[0]", [randn(4, 6)], lambda m, x: m(x[0], x[0], x[0]), outputs=2)
attention("no_bias", ".no_bias = true", "x[0]", [randn(4, 2, 6)], own, bias=False)
attention("cross", "0", "x[0], x[1], x[2]", [randn(3, 2, 6), randn(5, 2, 6), randn(5, 2, 6)], plain)
attention("cross_of_one", "0", "x[0], x[1]", [randn(3, 2, 6), randn(5, 2, 6)],
          lambda m, x: m(x[0], x[1], x[1], need_weights=False)[0])
attention("kdim_vdim", ".kdim = 4, .vdim = 5", "x[0], x[1], x[2]", [randn(3, 2, 6), randn(5, 2, 4), randn(5, 2, 5)],
          lambda m, x: m(*x), outputs=2, kdim=4, vdim=5)
attention("per_head", ".per_head = true", "x[0], x[1], x[2]", [randn(3, 2, 6), randn(5, 2, 6), randn(5, 2, 6)],
          lambda m, x: m(*x, average_attn_weights=False), outputs=2)

KEYS = tensor([[False, False, False, True], [False, True, False, True]])
PAIRS = tensor([[False, True, False, False], [False, False, True, False], [True, False, False, False],
                [False, False, False, True]])


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


for weights, tail in ((False, ""), (True, "_weights")):
    def masked(m, x, keys=None, pairs=None, weights=weights):
        y = m(x[0], x[0], x[0], key_padding_mask=keys, attn_mask=pairs, need_weights=weights)
        return y if weights else y[0]
    n_out = 2 if weights else 1
    attention("keys" + tail, "0", "x[0], NULL, NULL, x[1]", [randn(4, 2, 6), KEYS],
              lambda m, x, f=masked: f(m, x, keys=x[1]), outputs=n_out, grad=[0])
    attention("pairs" + tail, "0", "x[0], NULL, NULL, NULL, x[1]", [randn(4, 2, 6), PAIRS],
              lambda m, x, f=masked: f(m, x, pairs=x[1]), outputs=n_out, grad=[0])
    attention("added" + tail, "0", "x[0], NULL, NULL, NULL, x[1]", [randn(4, 2, 6), randn(4, 4)],
              lambda m, x, f=masked: f(m, x, pairs=x[1]), outputs=n_out, grad=[0])
    attention("each_head" + tail, "0", "x[0], NULL, NULL, NULL, x[1]", [randn(4, 2, 6), randn(4, 4, 4)],
              lambda m, x, f=masked: f(m, x, pairs=x[1]), outputs=n_out, grad=[0])
    attention("both" + tail, "0", "x[0], NULL, NULL, x[1], x[2]", [randn(4, 2, 6), KEYS, PAIRS],
              lambda m, x, f=masked: f(m, x, keys=x[1], pairs=x[2]), outputs=n_out, grad=[0])
    attention("mixed" + tail, "0", "x[0], NULL, NULL, x[1], x[2]", [randn(4, 2, 6), KEYS, randn(4, 4)],
              lambda m, x, f=masked: f(m, x, keys=torch.zeros(2, 4).masked_fill(x[1], float("-inf")), pairs=x[2]),
              outputs=n_out, grad=[0])
    attention("causal" + tail, ".causal = true", "x[0]", [randn(4, 2, 6)],
              lambda m, x, f=masked: f(m, x, pairs=causal(4)), outputs=n_out)
    attention("causal_keys" + tail, ".causal = true", "x[0], NULL, NULL, x[1]",
              [randn(4, 2, 6), tensor([[False, False, True, False], [False, False, False, True]])],
              lambda m, x, f=masked: f(m, x, keys=x[1], pairs=causal(4)), outputs=n_out, grad=[0])
attention("keys_alone", "0", "x[0], NULL, NULL, x[1]", [randn(4, 6), tensor([False, False, True, False])],
          lambda m, x: m(x[0], x[0], x[0], key_padding_mask=x[1]), outputs=2, grad=[0])

# ---- transformers ----

OFF = ".dropout = ARIL_ZERO, .feedforward = 8"
K = {"dropout": 0.0, "dim_feedforward": 8}


def encoder_layer(name, c_opts, call, inputs, run=None, grad=True, embed="4", **k):
    module_case(f"encoder_layer/{name}",
                f"aril_nn_transformer_encoder_layer_with({embed}, 2, (aril_nn_transformer_opts){{{OFF}{c_opts}}})", call,
                nn.TransformerEncoderLayer(4, 2, **K, **k), inputs, run=run, grad=grad)


encoder_layer("plain", "", "x[0]", [randn(3, 2, 4)])
encoder_layer("alone", "", "x[0]", [randn(3, 4)])
encoder_layer("inferred", "", "x[0]", [randn(3, 2, 4)], embed="0")
encoder_layer("norm_first", ", .norm_first = true", "x[0]", [randn(3, 2, 4)], norm_first=True)
encoder_layer("gelu", ", .gelu = true", "x[0]", [randn(3, 2, 4)], activation="gelu")
encoder_layer("batch_first", ", .batch_first = true", "x[0]", [randn(2, 3, 4)], batch_first=True)
encoder_layer("no_bias", ", .no_bias = true", "x[0]", [randn(3, 2, 4)], bias=False)
encoder_layer("eps", ", .eps = 0.1", "x[0]", [randn(3, 2, 4)], layer_norm_eps=0.1)
encoder_layer("masks", "", "x[0], x[1], x[2]",
              [randn(3, 2, 4), causal(3), tensor([[False, False, True], [False, False, False]])],
              run=lambda m, x: m(x[0], src_mask=x[1], src_key_padding_mask=x[2]), grad=[0])
encoder_layer("causal", ", .causal = true", "x[0]", [randn(3, 2, 4)],
              run=lambda m, x: m(x[0], src_mask=causal(3), is_causal=True))


def decoder_layer(name, c_opts, call, inputs, run=None, grad=True, **k):
    module_case(f"decoder_layer/{name}",
                f"aril_nn_transformer_decoder_layer_with(4, 2, (aril_nn_transformer_opts){{{OFF}{c_opts}}})", call,
                nn.TransformerDecoderLayer(4, 2, **K, **k), inputs, run=run, grad=grad)


decoder_layer("plain", "", "x[0], x[1]", [randn(3, 2, 4), randn(5, 2, 4)])
decoder_layer("norm_first", ", .norm_first = true, .gelu = true", "x[0], x[1]", [randn(3, 2, 4), randn(5, 2, 4)],
              norm_first=True, activation="gelu")
decoder_layer("batch_first", ", .batch_first = true, .no_bias = true", "x[0], x[1]",
              [randn(2, 3, 4), randn(2, 5, 4)], batch_first=True, bias=False)
decoder_layer("masks", "", "x[0], x[1], x[2], x[3], x[4], x[5]",
              [randn(3, 2, 4), randn(5, 2, 4), causal(3), randn(3, 5),
               tensor([[False, False, True], [False, False, False]]),
               tensor([[False, False, True, False, True], [False] * 5])],
              run=lambda m, x: m(x[0], x[1], tgt_mask=x[2],
                                 memory_mask=x[3], tgt_key_padding_mask=x[4],
                                 memory_key_padding_mask=torch.zeros(2, 5).masked_fill(x[5], float("-inf"))),
              grad=[0, 1])
decoder_layer("causal", ", .causal = true", "x[0], x[1]", [randn(3, 2, 4), randn(5, 2, 4)],
              run=lambda m, x: m(x[0], x[1], tgt_mask=causal(3), tgt_is_causal=True))

for final, tail in ((False, ""), (True, "_norm")):
    c_final = ", .final_norm = true" if final else ""
    module_case(f"encoder/two{tail}",
                f"aril_nn_transformer_encoder(4, 2, 2, (aril_nn_transformer_opts){{{OFF}{c_final}}})", "x[0], x[1]",
                nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, **K), 2,
                                      norm=nn.LayerNorm(4) if final else None, enable_nested_tensor=False),
                [randn(3, 2, 4), causal(3)], run=lambda m, x: m(x[0], mask=x[1]), grad=[0], dtype=torch.float64)
    module_case(f"decoder/two{tail}",
                f"aril_nn_transformer_decoder(4, 2, 2, (aril_nn_transformer_opts){{{OFF}{c_final}}})", "x[0], x[1]",
                nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, **K), 2,
                                      norm=nn.LayerNorm(4) if final else None),
                [randn(3, 2, 4), randn(5, 2, 4)], dtype=torch.float64)

module_case("transformer/plain",
            f"aril_nn_transformer(4, 2, 1, 1, (aril_nn_transformer_opts){{{OFF}}})", "x[0], x[1]",
            nn.Transformer(4, 2, 1, 1, **K), [randn(5, 2, 4), randn(3, 2, 4)], dtype=torch.float64)
module_case("transformer/masks",
            f"aril_nn_transformer(4, 2, 1, 2, (aril_nn_transformer_opts){{{OFF}, .causal = true, .norm_first = true}})",
            "x[0], x[1], x[2], NULL, x[3], x[4], NULL, x[4]",
            nn.Transformer(4, 2, 1, 2, norm_first=True, **K),
            [randn(5, 2, 4), randn(3, 2, 4), causal(5), randn(3, 5),
             torch.tensor([[False] * 5, [False, False, True, False, True]])],
            run=lambda m, x: m(x[0], x[1], src_mask=x[2], tgt_mask=causal(3), memory_mask=x[3],
                               src_key_padding_mask=x[4], memory_key_padding_mask=x[4], tgt_is_causal=True),
            grad=[0, 1], dtype=torch.float64)
