"""Small models in ONNX of one operator each, with inputs, and what onnxruntime computes."""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
DOMAINS = [("", 18), ("com.microsoft", 1), ("ai.onnx.ml", 3)]
random = np.random.default_rng(7)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def bytes_of(kind, *shape, low=None, high=None):
    info = np.iinfo(kind)
    return random.integers(info.min if low is None else low, (info.max if high is None else high) + 1, shape).astype(kind)


class Case:
    """A model with one node; inputs named in `weights` are initializers, None is an input that is left out. `expected` are results
    for an operator that onnxruntime has no kernel of on CPUs."""

    def __init__(self, name, op, inputs, outputs=1, domain="com.microsoft", weights=(), rtol=1e-4, atol=1e-5, open_sizes=False,
                 version=18, expected=None, **attributes):
        self.name, self.rtol, self.atol, self.results = name, rtol, atol, expected
        names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
        given = [(f"x{i}", value) for i, value in enumerate(inputs) if value is not None]
        initial = [numpy_helper.from_array(value, at) for at, value in given if int(at[1:]) in weights]
        self.feeds = {at: value for at, value in given if int(at[1:]) not in weights}
        kept = [f"y{i}" if not isinstance(outputs, tuple) or i in outputs else "" for i in range(outputs if isinstance(outputs, int) else max(outputs) + 1)]
        node = helper.make_node(op, names, kept, name=op.lower(), domain=domain, **attributes)

        def info(at, value):
            shape = [f"{at}_{d}" for d in range(value.ndim)] if open_sizes else value.shape
            return helper.make_tensor_value_info(at, helper.np_dtype_to_tensor_dtype(value.dtype), shape)

        graph = helper.make_graph([node], name, [info(at, value) for at, value in self.feeds.items()],
                                  [onnx.ValueInfoProto(name=at) for at in kept if at], initial)
        opsets = [helper.make_opsetid(d, version if d == "" else v) for d, v in DOMAINS]
        self.model = helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def run(self):
        """Finds the results; raises if onnxruntime has no kernel and none are given."""
        if self.results is not None:
            return
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(self.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.results = session.run(None, self.feeds)

    def write(self, folder):
        data = os.path.join(folder, self.name, "test_data_set_0")
        os.makedirs(data)
        onnx.save(self.model, os.path.join(folder, self.name, "model.onnx"))
        for kind, values in (("input", list(self.feeds.values())), ("output", self.results)):
            for i, value in enumerate(values):
                value = np.asarray(value)
                value = value.astype(object) if value.dtype.kind in "UO" else value
                with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                    file.write(numpy_helper.from_array(value, f"{kind}{i}").SerializeToString())


def activations():
    x, b = normal(2, 3, 8), normal(8)
    yield Case("gelu", "Gelu", [x])
    yield Case("bias_gelu", "BiasGelu", [x, b])
    yield Case("fast_gelu", "FastGelu", [x])
    yield Case("fast_gelu_bias", "FastGelu", [x, b])
    yield Case("quick_gelu", "QuickGelu", [x])
    yield Case("quick_gelu_alpha", "QuickGelu", [x], alpha=1.2)


def products():
    a, b = normal(2, 3, 4), normal(2, 4, 5)
    yield Case("fused_matmul", "FusedMatMul", [a, b], alpha=0.5)
    yield Case("fused_matmul_trans", "FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)], transA=1, transB=1)
    yield Case("fused_matmul_batch", "FusedMatMul", [normal(3, 2, 4), normal(2, 4, 5)], transBatchA=1)
    yield Case("transpose_matmul", "TransposeMatMul", [normal(4, 3), normal(4, 5)], transA=1)
    yield Case("fused_gemm", "FusedGemm", [normal(3, 4), normal(5, 4), normal(5)], transB=1, alpha=0.5, activation="Relu")
    yield Case("fused_gemm_leaky", "FusedGemm", [normal(3, 4), normal(4, 5)], activation="LeakyRelu", activation_alpha=0.2)
    x, w, bias = normal(1, 4, 7, 6), normal(6, 4, 3, 3), normal(6)
    yield Case("fused_conv", "FusedConv", [x, w, bias], weights=(1, 2), pads=[1, 1, 1, 1], activation="Relu")
    yield Case("fused_conv_clip", "FusedConv", [x, w], pads=[0, 1, 1, 0], activation="Clip", activation_params=[-0.5, 1.0])
    yield Case("fused_conv_leaky", "FusedConv", [x, w, bias], strides=[2, 1], activation="LeakyRelu", activation_params=[0.1])
    yield Case("fused_conv_hard", "FusedConv", [x, w, bias], activation="HardSigmoid", activation_params=[0.3, 0.4])
    yield Case("fused_conv_sum", "FusedConv", [x, w, bias, normal(1, 6, 5, 4)], activation="Relu")
    yield Case("fused_conv_tanh", "FusedConv", [normal(1, 4, 9), normal(4, 2, 3)], group=2, activation="Tanh")


def norms():
    x, skip, gamma, beta, bias = normal(2, 3, 16), normal(2, 3, 16), normal(16), normal(16), normal(16)
    yield Case("skip_layer_norm", "SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs=(0, 3), epsilon=1e-5)
    yield Case("skip_layer_norm_plain", "SkipLayerNormalization", [x, skip, gamma], epsilon=1e-6)
    yield Case("skip_layer_norm_broadcast", "SkipLayerNormalization", [x, normal(3, 16), gamma, beta])
    yield Case("skip_rms_norm", "SkipSimplifiedLayerNormalization", [x, skip, gamma], outputs=(0, 3), epsilon=1e-5)
    yield Case("skip_rms_norm_bias", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs=(0, 3), epsilon=1e-5)
    yield Case("rms_norm", "SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-5)
    yield Case("layer_norm_12", "LayerNormalization", [x, gamma, beta], outputs=3, domain="", version=12, axis=-1, epsilon=1e-5)
    ids, segments = bytes_of(np.int32, 2, 5, low=0, high=9), bytes_of(np.int32, 2, 5, low=0, high=1)
    tables = [normal(10, 16), normal(7, 16), normal(2, 16)]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    yield Case("embed_layer_norm", "EmbedLayerNormalization", [ids, segments, *tables, gamma, beta, mask], outputs=3, epsilon=1e-5)
    yield Case("embed_layer_norm_plain", "EmbedLayerNormalization", [ids, None, *tables[:2], None, gamma, beta], outputs=2)
    positions = bytes_of(np.int32, 2, 5, low=0, high=6)
    yield Case("embed_layer_norm_positions", "EmbedLayerNormalization",
               [ids, segments, *tables, gamma, beta, None, positions], outputs=2)


def attentions():
    n, t, h, heads = 2, 5, 16, 4
    x, w, b = normal(n, t, h), normal(h, 3 * h) * 0.3, normal(3 * h)
    yield Case("attention", "Attention", [x, w, b], num_heads=heads)
    lengths = np.array([3, 5], np.int32)
    yield Case("attention_lengths", "Attention", [x, w, b, lengths], num_heads=heads)
    yield Case("attention_range", "Attention", [x, w, b, np.array([3, 5, 1, 0], np.int32)], num_heads=heads)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
    yield Case("attention_mask", "Attention", [x, w, b, mask], num_heads=heads, open_sizes=False)
    yield Case("attention_mask3", "Attention", [x, w, b, np.repeat(mask[:, None], t, 1)], num_heads=heads)
    yield Case("attention_causal", "Attention", [x, w, b], num_heads=heads, unidirectional=1)
    yield Case("attention_sizes", "Attention", [x, normal(h, 40) * 0.3, normal(40)], num_heads=heads, qkv_hidden_sizes=[16, 16, 8])
    yield Case("attention_bias", "Attention", [x, w, b, None, None, normal(n, heads, t, t)], num_heads=heads, scale=0.3)
    past = normal(2, n, heads, 3, 4)
    yield Case("attention_past", "Attention", [x, w, b, None, past], outputs=2, num_heads=heads, unidirectional=1)
    yield Case("attention_past_mask", "Attention", [x, w, b, np.ones((n, 8), np.int32), past], outputs=2, num_heads=heads)
    q, k, v = normal(n, t, h), normal(n, 7, h), normal(n, 7, h)
    yield Case("multi_head", "MultiHeadAttention", [q, k, v], num_heads=heads)
    yield Case("multi_head_bias", "MultiHeadAttention", [q, k, v, normal(3 * h)], num_heads=heads)
    key_mask = np.array([[1, 1, 1, 1, 0, 0, 0], [1] * 7], np.int32)
    yield Case("multi_head_mask", "MultiHeadAttention", [q, k, v, None, key_mask], num_heads=heads)
    yield Case("multi_head_relative", "MultiHeadAttention", [q, k, v, None, None, normal(1, heads, t, 7)], num_heads=heads)
    yield Case("multi_head_causal", "MultiHeadAttention", [q, normal(n, t, h), normal(n, t, h)], num_heads=heads, unidirectional=1)
    yield Case("multi_head_cross", "MultiHeadAttention", [q, normal(n, heads, 7, 4), normal(n, heads, 7, 4)], num_heads=heads)
    pasts = [normal(n, heads, 3, 4), normal(n, heads, 3, 4)]
    yield Case("multi_head_past", "MultiHeadAttention", [q, normal(n, t, h), normal(n, t, h), None, None, None, *pasts],
               outputs=3, num_heads=heads)
    cos, sin = np.cos(normal(12, 2)), np.sin(normal(12, 2))
    x4, at = normal(n, heads, t, 4), bytes_of(np.int64, n, t, low=0, high=11)
    yield Case("rotary", "RotaryEmbedding", [x4, at, cos, sin])
    yield Case("rotary_packed", "RotaryEmbedding", [normal(n, t, h), np.array([2], np.int64), cos, sin])
    yield Case("rotary_interleaved", "RotaryEmbedding", [x4, at, cos, sin], interleaved=1)
    yield Case("rotary_part", "RotaryEmbedding", [normal(n, t, 32), at, cos, sin], num_heads=heads, rotary_embedding_dim=4)
    groups = dict(num_heads=heads, kv_num_heads=2)
    cos, sin = np.cos(normal(12, 8)), np.sin(normal(12, 8))  # half of a head, which is a multiple of 16
    q, k, v = normal(n, t, heads * 16), normal(n, t, 32), normal(n, t, 32)
    first = [np.array([4, 4], np.int32), np.array(5, np.int32)]
    yield Case("group_query", "GroupQueryAttention", [q, k, v, None, None, *first], outputs=3, weights=(6,), **groups)
    yield Case("group_query_rotary", "GroupQueryAttention", [q, k, v, None, None, *first, cos, sin], outputs=3, weights=(6,), do_rotary=1, **groups)
    yield Case("group_query_packed", "GroupQueryAttention", [normal(n, t, 128), None, None, None, None, *first], outputs=3, weights=(6,), **groups)
    later = [np.array([5, 5], np.int32), np.array(6, np.int32)]
    one = [normal(n, 1, 64), normal(n, 1, 32), normal(n, 1, 32)]
    cache = [normal(n, 2, 5, 16), normal(n, 2, 5, 16)]
    yield Case("group_query_past", "GroupQueryAttention", [*one, *cache, *later, cos, sin], outputs=3, weights=(6,), do_rotary=1, **groups)
    yield Case("group_query_window", "GroupQueryAttention", [*one, *cache, *later], outputs=3, weights=(6,), local_window_size=3, **groups)
    yield Case("group_query_softcap", "GroupQueryAttention", [q, k, v, None, None, *first], outputs=3, weights=(6,), softcap=2.0, **groups)


def quantized():
    def number(value):
        return np.array(value, np.float32)

    def scaled(kind, *shape):
        return [bytes_of(kind, *shape), number(0.02), np.array(3, kind)]

    for kind in (np.uint8, np.int8):
        suffix = "_" + np.dtype(kind).name
        a, b = scaled(kind, 2, 3, 4), scaled(kind, 3, 4)
        to = [number(0.0313), np.array(5, kind)]
        yield Case("qadd" + suffix, "QLinearAdd", [*a, *b, *to])
        yield Case("qmul" + suffix, "QLinearMul", [*a, *b, *to])
        yield Case("qsigmoid" + suffix, "QLinearSigmoid", [*a, number(1 / 256), np.array(0, kind)], weights=(1, 2, 3, 4))
        yield Case("qleaky" + suffix, "QLinearLeakyRelu", [*a, *to], weights=(1, 2, 3, 4), alpha=0.1)
        yield Case("qsoftmax" + suffix, "QLinearSoftmax", [*a, number(1 / 256), np.array(0, kind)], weights=(1, 2, 3, 4), axis=-1, opset=18)
        yield Case("qconcat" + suffix, "QLinearConcat", [*to, *a, *scaled(kind, 2, 2, 4)], weights=(0, 1, 3, 4, 6, 7), axis=1)
        x = scaled(kind, 1, 3, 6, 5)
        yield Case("qaverage" + suffix, "QLinearAveragePool", [*x, *to], weights=(1, 2, 3, 4), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0])
        yield Case("qglobal" + suffix, "QLinearGlobalAveragePool", [*x, *to], weights=(1, 2, 3, 4), channels_last=0)
        yield Case("qwhere" + suffix, "QLinearWhere", [bytes_of(np.uint8, 2, 3, 4, high=1).astype(bool), *a, *scaled(kind, 2, 3, 4), *to], weights=(2, 3, 5, 6, 7, 8))
    yield Case("qglobal_last", "QLinearGlobalAveragePool", [*scaled(np.uint8, 1, 6, 5, 3), number(0.03), np.array(5, np.uint8)],
               weights=(1, 2, 3, 4), channels_last=1)
    a, b = bytes_of(np.uint8, 5, 37), bytes_of(np.int8, 37, 70)
    zero, scale = np.array(9, np.uint8), (random.random(70).astype(np.float32) + 0.5) * 0.01
    yield Case("product_to_float", "MatMulIntegerToFloat", [a, b, number(0.02), scale, zero, bytes_of(np.int8, 70, low=-3, high=3), normal(70)])
    yield Case("dynamic_product", "DynamicQuantizeMatMul", [normal(5, 37), b, scale, np.zeros(70, np.int8), normal(70)], weights=(1, 2, 3, 4), rtol=1e-3, atol=1e-3)
    yield Case("dynamic_product_u8", "DynamicQuantizeMatMul", [normal(5, 37), bytes_of(np.uint8, 37, 20), number(0.02), np.array(120, np.uint8)], weights=(1, 2, 3), rtol=1e-3, atol=1e-3)
    bias = bytes_of(np.int32, 70, low=-999, high=999)
    yield Case("qgemm", "QGemm", [a, number(0.02), zero, b, scale, np.zeros(70, np.int8), bias, number(0.1), np.array(100, np.uint8)], weights=(1, 2, 3, 4, 5, 6, 7, 8))
    yield Case("qgemm_float", "QGemm", [a, number(0.02), zero, bytes_of(np.int8, 20, 37), number(0.01), np.array(0, np.int8)], weights=(1, 2, 3, 4, 5), transB=1, alpha=0.5)
    x, w = normal(2, 5, 16), bytes_of(np.uint8, 16, 48)
    yield Case("qattention", "QAttention", [bytes_of(np.uint8, 2, 5, 16), bytes_of(np.int8, 16, 48), normal(48), number(0.02), number(0.01), None, np.array(120, np.uint8), np.array(0, np.int8)],
               weights=(1, 2, 3, 4, 6, 7), num_heads=4)
    for bits, group in ((4, 16), (4, 32), (8, 32)):
        rows, k, n = 3, 70, 9
        blocks = (k + group - 1) // group
        packed = bytes_of(np.uint8, n, blocks, group * bits // 8)
        scales = (random.random(n * blocks).astype(np.float32) + 0.5) * 0.1
        yield Case(f"nbits_{bits}_{group}", "MatMulNBits", [normal(rows, k), packed, scales], weights=(1, 2), K=k, N=n, bits=bits, block_size=group, rtol=1e-3, atol=1e-3)
        zeros = bytes_of(np.uint8, n * ((blocks * bits + 7) // 8))
        yield Case(f"nbits_{bits}_{group}_zero", "MatMulNBits", [normal(2, rows, k), packed, scales, zeros], weights=(1, 2, 3), K=k, N=n, bits=bits, block_size=group, rtol=1e-3, atol=1e-3)
    tables = [(bytes_of(np.uint8, size, 16), number(0.01 * (i + 1)), np.array(100 + i, np.uint8)) for i, size in enumerate((10, 7, 2))]
    layer = [(bytes_of(np.uint8, 16), number(0.02), np.array(120, np.uint8)), (bytes_of(np.uint8, 16), number(0.01), np.array(110, np.uint8))]
    all_ = tables + layer
    yield Case("qembed", "QEmbedLayerNormalization", [bytes_of(np.int32, 2, 5, low=0, high=9), bytes_of(np.int32, 2, 5, low=0, high=1),
               *[v[0] for v in all_], np.ones((2, 5), np.int32), *[v[1] for v in all_], *[v[2] for v in all_]], outputs=2, weights=tuple(range(2, 7)) + tuple(range(8, 18)), epsilon=1e-5)
    yield Case("dequantize", "DequantizeLinear", [bytes_of(np.int8, 3, 4), number(0.1), np.array(2, np.int8)])
    yield Case("quantize", "QuantizeLinear", [normal(3, 4), number(0.05), np.array(2, np.uint8)])


def integers():
    """The default domain's products of integers, of sizes that kernels treat in different ways."""
    for a_kind, b_kind in ((np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)):
        suffix = f"_{np.dtype(a_kind).name}_{np.dtype(b_kind).name}"
        a, b = bytes_of(a_kind, 7, 133), bytes_of(b_kind, 133, 67)
        yield Case("matmul_integer" + suffix, "MatMulInteger", [a, b, np.array(4, a_kind), np.array(3, b_kind)], domain="", weights=(1,))
        high = [np.full((2, 64), np.iinfo(a_kind).max, a_kind), np.full((64, 5), np.iinfo(b_kind).min, b_kind)]
        yield Case("matmul_extreme" + suffix, "MatMulInteger", high, domain="")
        scales = (random.random(67).astype(np.float32) + 0.5) * 0.01
        yield Case("qmatmul" + suffix, "QLinearMatMul", [a, np.float32([0.02])[0:1], np.array([9], a_kind), b, np.float32([0.01]), np.array([0], b_kind), np.float32([0.1]), np.array([5], a_kind)],
                   domain="", weights=(1, 2, 3, 4, 5, 6, 7))
        x, w = bytes_of(a_kind, 2, 5, 9, 8), bytes_of(b_kind, 6, 5, 3, 3)
        if b_kind == np.int8 or a_kind == np.uint8:
            bias = bytes_of(np.int32, 6, low=-9999, high=9999)
            scales = (random.random(6).astype(np.float32) + 0.5) * 0.01
            rest = [scales, np.zeros(6, b_kind)] if b_kind == np.int8 else [np.array(0.01, np.float32), np.array(127, b_kind)]
            yield Case("qconv" + suffix, "QLinearConv", [x, np.array(0.02, np.float32), np.array(7, a_kind), w, *rest, np.array(0.4, np.float32), np.array(9, a_kind), bias],
                       domain="", weights=(1, 2, 3, 4, 5, 6, 7, 8), pads=[1, 1, 1, 1], strides=[2, 1])
            depth = bytes_of(b_kind, 5, 1, 3, 3)
            rest = [np.array(0.01, np.float32), np.array(0 if b_kind == np.int8 else 127, b_kind)]
            yield Case("qconv_depth" + suffix, "QLinearConv", [x, np.array(0.02, np.float32), np.array(7, a_kind), depth, *rest, np.array(0.1, np.float32), np.array(9, a_kind)],
                       domain="", weights=(1, 2, 3, 4, 5, 6, 7), pads=[1, 1, 1, 1], group=5)
        if a_kind == np.uint8:
            yield Case("conv_integer" + suffix, "ConvInteger", [x, w, np.array(7, a_kind)], domain="", weights=(1,), pads=[0, 1, 1, 0])


def trips():
    """What importers trip over, besides versions: tests/onnx/test_onnx_cases.c has a test for each prefix."""
    t, n, d, h = 4, 3, 2, 5
    x, w, r = normal(t, n, d), normal(1, 4 * h, d), normal(1, 4 * h, h)
    bias, state, cell, peep = normal(1, 8 * h), normal(1, n, h), normal(1, n, h), normal(1, 3 * h)
    lengths = np.array([4, 1, 3], np.int32)
    lstm = dict(domain="", outputs=3, hidden_size=h)
    yield Case("lstm_plain", "LSTM", [x, w, r, bias], **lstm)
    yield Case("lstm_states", "LSTM", [x, w, r, bias, None, state, cell], **lstm)
    yield Case("lstm_peepholes", "LSTM", [x, w, r, bias, None, state, cell, peep], **lstm)
    yield Case("lstm_lengths", "LSTM", [x, w, r, bias, lengths], **lstm)
    yield Case("lstm_reverse", "LSTM", [x, w, r, None, lengths], direction="reverse", **lstm)
    both = [np.concatenate([v, normal(*v.shape)]) for v in (w, r, bias)]
    yield Case("lstm_both", "LSTM", [x, *both, lengths], direction="bidirectional", **lstm)
    yield Case("lstm_both_plain", "LSTM", [x, *both], direction="bidirectional", weights=(1, 2, 3), **lstm)
    yield Case("lstm_last_state", "LSTM", [x, w, r, bias], domain="", outputs=(1,), hidden_size=h)
    yield Case("lstm_clip", "LSTM", [x, w, r, bias], clip=0.4, **lstm)
    yield Case("lstm_forget", "LSTM", [x, w, r, bias], input_forget=1, **lstm)
    gru = [normal(1, 3 * h, d), normal(1, 3 * h, h), normal(1, 6 * h)]
    for reset in (0, 1):
        yield Case(f"gru_reset_{reset}", "GRU", [x, *gru, None, state], domain="", outputs=2, hidden_size=h, linear_before_reset=reset)
    yield Case("rnn_relu", "RNN", [x, normal(1, h, d), normal(1, h, h), normal(1, 2 * h), lengths], domain="", outputs=2, hidden_size=h, activations=["Relu"])
    image = normal(1, 2, 7, 6)
    pool = dict(domain="", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1)
    for count in (0, 1):
        yield Case(f"ceil_average_{count}", "AveragePool", [image], version=19, count_include_pad=count, **pool)
    yield Case("ceil_max", "MaxPool", [image], outputs=2, **pool)
    for kind in (np.int8, np.uint8):
        q, name = bytes_of(kind, 3, 4, 5), np.dtype(kind).name
        scale, zero = (random.random(4).astype(np.float32) + 0.5) * 0.1, bytes_of(kind, 4, low=0, high=9)
        yield Case("qdq_channel_dequantize_" + name, "DequantizeLinear", [q, scale, zero], domain="", axis=1)
        yield Case("qdq_channel_quantize_" + name, "QuantizeLinear", [normal(3, 4, 5), scale, zero], domain="", axis=1)
        scale, zero = (random.random((3, 2, 5)).astype(np.float32) + 0.5) * 0.1, bytes_of(kind, 3, 2, 5, low=0, high=9)
        yield Case("qdq_block_dequantize_" + name, "DequantizeLinear", [q, scale, zero], domain="", version=21, axis=1, block_size=2)
        yield Case("qdq_block_quantize_" + name, "QuantizeLinear", [normal(3, 4, 5), scale, zero], domain="", version=21, axis=1, block_size=2)
    yield Case("unset_optional_inputs", "Clip", [normal(3, 4), None, np.array(0.5, np.float32)], domain="")
    yield Case("unset_resize_inputs", "Resize", [normal(1, 1, 2, 3), None, np.array([1, 1, 2, 2], np.float32)], domain="", weights=(2,), mode="nearest")
    yield Case("unset_outputs", "LSTM", [x, w, r, bias], domain="", outputs=(2,), hidden_size=h)


def classical():
    ml, x = dict(domain="ai.onnx.ml"), normal(5, 3)
    w, b = [float(v) for v in normal(9)], [float(v) for v in normal(3)]
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        yield Case("ml_linear_classes_" + post.lower(), "LinearClassifier", [x], outputs=2, coefficients=w, intercepts=b,
                   classlabels_ints=[4, 7, 9], post_transform=post, **ml)
    yield Case("ml_linear_words", "LinearClassifier", [x], outputs=2, coefficients=w, intercepts=b, classlabels_strings=["a", "b", "c"], **ml)
    yield Case("ml_linear_two", "LinearClassifier", [x], outputs=2, coefficients=w[:6], intercepts=b[:2], classlabels_ints=[0, 1], post_transform="LOGISTIC", **ml)
    yield Case("ml_linear_numbers", "LinearRegressor", [x], coefficients=w[:6], intercepts=b[:2], targets=2, **ml)
    yield Case("ml_scaler", "Scaler", [x], offset=b, scale=w[:3], **ml)
    for norm in ("MAX", "L1", "L2"):
        yield Case("ml_normalizer_" + norm.lower(), "Normalizer", [x], norm=norm, **ml)
    holes = x.copy()
    holes[::2, 1] = np.nan
    yield Case("ml_imputer", "Imputer", [holes], imputed_value_floats=b, replaced_value_float=float("nan"), **ml)
    yield Case("ml_one_hot", "OneHotEncoder", [bytes_of(np.int64, 4, 1, low=0, high=4)], cats_int64s=[0, 2, 4], zeros=1, **ml)
    yield Case("ml_vectorizer", "FeatureVectorizer", [x, normal(5, 2)], inputdimensions=[3, 2], **ml)
    # two trees: a split with two leaves, and a split whose true side splits again
    tree = dict(nodes_treeids=[0, 0, 0, 1, 1, 1, 1, 1], nodes_nodeids=[0, 1, 2, 0, 1, 2, 3, 4], nodes_featureids=[0, 0, 0, 1, 2, 0, 0, 0],
                nodes_values=[0.1, 0.0, 0.0, 0.3, -0.2, 0.0, 0.0, 0.0], nodes_truenodeids=[1, 0, 0, 1, 3, 0, 0, 0], nodes_falsenodeids=[2, 0, 0, 2, 4, 0, 0, 0],
                nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "BRANCH_GT", "LEAF", "LEAF", "LEAF"], nodes_missing_value_tracks_true=[0, 0, 0, 1, 0, 0, 0, 0])
    leaf = dict(treeids=[0, 0, 1, 1, 1], nodeids=[1, 2, 2, 3, 4], weights=[0.5, -1.25, 2.0, 0.25, -0.75])
    given = {f"target_{key}": value for key, value in leaf.items()}
    for way in ("SUM", "AVERAGE", "MIN", "MAX"):
        yield Case("ml_trees_" + way.lower(), "TreeEnsembleRegressor", [x], aggregate_function=way, target_ids=[0] * 5, n_targets=1, base_values=[0.5], **tree, **given, **ml)
    yield Case("ml_trees_missing", "TreeEnsembleRegressor", [holes], target_ids=[0, 1, 0, 1, 1], n_targets=2, **tree, **given, **ml)
    given = {f"class_{key}": value for key, value in leaf.items()}
    yield Case("ml_trees_classes", "TreeEnsembleClassifier", [x], outputs=2, class_ids=[0, 1, 2, 1, 0], classlabels_int64s=[3, 5, 8], post_transform="SOFTMAX", **tree, **given, **ml)
    yield Case("ml_trees_two", "TreeEnsembleClassifier", [x], outputs=2, class_ids=[0] * 5, classlabels_strings=["no", "yes"], post_transform="LOGISTIC", **tree, **given, **ml)
    given["class_weights"] = [0.1, 0.4, 0.3, 0.2, 0.6]
    yield Case("ml_trees_positive", "TreeEnsembleClassifier", [x], outputs=2, class_ids=[0] * 5, classlabels_int64s=[0, 1], **tree, **given, **ml)
    vectors, weights = [float(v) for v in normal(12)], [float(v) for v in normal(4)]
    for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        svm = dict(kernel_type=kernel, kernel_params=[0.5, 0.1, 2.0], support_vectors=vectors, rho=[0.2])
        yield Case("ml_svm_" + kernel.lower(), "SVMRegressor", [x], n_supports=4, coefficients=weights, **svm, **ml)
        yield Case("ml_svm_two_" + kernel.lower(), "SVMClassifier", [x], outputs=2, vectors_per_class=[1, 3], coefficients=weights, classlabels_ints=[0, 1], **svm, **ml)
    svm = dict(kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], support_vectors=vectors, rho=[0.2, -0.1, 0.3], coefficients=[float(v) for v in normal(8)])
    yield Case("ml_svm_classes", "SVMClassifier", [x], outputs=2, vectors_per_class=[1, 2, 1], classlabels_ints=[0, 1, 2], **svm, **ml)
    yield Case("ml_svm_certain", "SVMClassifier", [x], outputs=2, vectors_per_class=[1, 2, 1], classlabels_ints=[0, 1, 2], prob_a=[-1.0, -2.0, -1.5], prob_b=[0.1, 0.0, -0.1], **svm, **ml)


def ort(op, inputs, **attributes):
    """What onnxruntime computes by an operator of the default domain."""
    case = Case("ort", op, inputs, domain="", **attributes)
    case.run()
    return case.results[0]


def gelu(x):
    return ort("Gelu", [x], version=20)


def group_norm(x, gamma, beta, groups, activation=0, epsilon=1e-5):
    """[N,H,W,C]"""
    n, h, w, c = x.shape
    f = x.astype(np.float64).reshape(n, h * w, groups, c // groups)
    f = (f - f.mean((1, 3), keepdims=True)) / np.sqrt(f.var((1, 3), keepdims=True) + epsilon)
    f = f.reshape(x.shape) * gamma + beta
    return (f / (1 + np.exp(-f)) if activation else f).astype(np.float32)


def channels(x, last):
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1) if last else x.transpose(0, 3, 1, 2))


def images():
    """Operators of diffusion models, images with the channels last, and others that few models have."""
    x, b, skip = normal(2, 3, 8), normal(8), normal(2, 3, 8)
    y = x + b
    yield Case("bias_split_gelu", "BiasSplitGelu", [x, b], expected=[y[..., :4] * gelu(y[..., 4:])])
    yield Case("bias_add", "BiasAdd", [x, b, skip], expected=[x + b + skip])
    x, gamma, beta, skip, b = normal(2, 3, 4, 8), normal(8), normal(8), normal(2, 3, 4, 8), normal(8)
    yield Case("group_norm", "GroupNorm", [x, gamma, beta], groups=4, activation=0, expected=[group_norm(x, gamma, beta, 4)])
    yield Case("group_norm_silu", "GroupNorm", [x, gamma, beta], groups=2, activation=1, epsilon=1e-3,
               expected=[group_norm(x, gamma, beta, 2, 1, 1e-3)])
    first = channels(x, False)
    yield Case("group_norm_first", "GroupNorm", [first, gamma, beta], groups=4, activation=0, channels_last=0,
               expected=[channels(group_norm(x, gamma, beta, 4), False)])
    s = x + skip + b
    yield Case("skip_group_norm", "SkipGroupNorm", [x, gamma, beta, skip, b], outputs=2, groups=4, activation=1,
               expected=[group_norm(s, gamma, beta, 4, 1), s])
    row = normal(2, 8)
    s = x + row[:, None, None]
    yield Case("skip_group_norm_row", "SkipGroupNorm", [x, gamma, beta, row], outputs=2, groups=4, activation=0,
               expected=[group_norm(s, gamma, beta, 4), s])
    w, b, z = normal(6, 8, 3, 3), normal(6), normal(2, 3, 4, 6)
    y = channels(ort("Conv", [first, w, b], pads=[1, 1, 1, 1]), True)
    yield Case("nhwc_conv", "NhwcFusedConv", [x, w, b], pads=[1, 1, 1, 1], expected=[y])
    yield Case("nhwc_conv_sum", "NhwcFusedConv", [x, w, b, z], pads=[1, 1, 1, 1], activation="Relu", expected=[np.maximum(y + z, 0)])
    yield Case("nhwc_max_pool", "NhwcMaxPool", [bytes_of(np.uint8, 1, 5, 6, 3)], kernel_shape=[2, 3], strides=[2, 1], pads=[0, 1, 1, 1])
    x = normal(2, 4, 5)
    yield Case("trilu_lower", "Trilu", [x, np.array(1, np.int64)], upper=0)
    yield Case("trilu_upper", "Trilu", [x])
    yield Case("inverse", "Inverse", [normal(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)])
    yield Case("expand_dims", "ExpandDims", [x, np.array(1, np.int32)], weights=(1,))
    yield Case("expand_dims_last", "ExpandDims", [x, np.array(-1, np.int32)], weights=(1,))
    scale, zero = np.array(0.05, np.float32), np.array(3, np.uint8)
    q, to = bytes_of(np.uint8, 2, 3, 5), [np.array(0.04, np.float32), np.array(10, np.uint8)]
    for name, axes, keep in (("last", [-1], 1), ("two", [0, 2], 0)):
        y = np.clip(np.rint(((q - 3.0) * 0.05).mean(tuple(axes), keepdims=bool(keep)) / 0.04) + 10, 0, 255).astype(np.uint8)
        yield Case("qmean_" + name, "QLinearReduceMean", [q, scale, zero, *to], axes=axes, keepdims=keep, expected=[y])
    table, at = bytes_of(np.uint8, 6, 16), np.array([[5, 0], [2, 2]], np.int64)
    scales, zeros = (random.random((6, 2)).astype(np.float32) + 0.5) * 0.1, bytes_of(np.uint8, 6, 1)
    for name, given in (("plain", None), ("zeros", zeros)):
        yield Case("gather_blocks_" + name, "GatherBlockQuantized", [table, at, scales, given], weights=(0, 2, 3), bits=4, block_size=16,
                   gather_axis=0, quantize_axis=1)


def texts():
    x = np.array([["ab c,d  e", ""], ["xyz \u00e9 q", "one two"]], object)
    how = {"pad_value": "#", "mark": 0, "mincharnum": 1}
    yield Case("tokenizer_words", "Tokenizer", [x], tokenexp="[a-z]+", **how)
    yield Case("tokenizer_marks", "Tokenizer", [x], tokenexp="[a-z]+", pad_value="#", mark=1, mincharnum=2)
    yield Case("tokenizer_between", "Tokenizer", [x], separators=["[ ,]+", "b"], **how)
    yield Case("tokenizer_characters", "Tokenizer", [x], separators=[""], **how)


def cases():
    for group in (activations, products, norms, attentions, quantized, integers, trips, classical, images, texts):
        yield from group()


def archive(path):
    """Writes all that onnxruntime computes into one file: for each file its path, its size, and its bytes."""
    import struct
    import tempfile
    with tempfile.TemporaryDirectory() as work, open(path, "wb") as to:
        for case in cases():
            try:
                case.run()
            except Exception:  # noqa: BLE001
                continue
            case.write(work)
        for folder, _, files in sorted(os.walk(work)):
            for file in sorted(files):
                name = os.path.relpath(os.path.join(folder, file), work).encode()
                with open(os.path.join(folder, file), "rb") as source:
                    data = source.read()
                to.write(struct.pack("<II", len(name), len(data)) + name + data)
