"""Layers as modules: names and shapes of their state, how they print, results, gradients, buffers."""
from golden import *

torch.backends.mkldnn.enabled = False
torch.use_deterministic_algorithms(True, warn_only=True)  # max_unpool says it has none
nn = torch.nn


def layer(name, c, module, inputs, *, eval=False, shown=None, **options):
    """A module of PyTorch's and the C expression that makes the same. Its state is drawn anew."""
    state = {k: v.detach().clone() for k, v in module.state_dict().items()}
    for k, v in state.items():
        if v.is_floating_point():
            state[k] = uniform(0.5, 2, *v.shape) if k.endswith("running_var") else 0.5 * randn(*v.shape)
    names = list(state)
    parameters = {k for k, _ in module.named_parameters()}
    module.eval() if eval else module.train()
    n = len(inputs)

    def run(x):
        use = {k: t if k in parameters else t.detach().clone() for k, t in zip(names, x[n:])}
        y = torch.func.functional_call(module, use, tuple(x[:n]))
        y = list(y) if isinstance(y, tuple) else [y]
        return y + ([] if eval else [use[k] for k in names if k not in parameters])

    grad = [i for i in range(n) if inputs[i] is not None] + [n + i for i, k in enumerate(names) if k in parameters]
    text = (shown or repr(module)).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("  ", "\\040\\040")
    if options.get("dtype"):
        module.to(options["dtype"])
    outs = len(run([t.to(options["dtype"]) if options.get("dtype") and t.is_floating_point() else t
                    for t in [*inputs, *state.values()]])) - (0 if eval else len(names) - len(parameters & set(names)))
    case(name, f'test_module({c}, "{text}", "{",".join(names)}", {n}, {str(eval).lower()}, {outs}, x, y);',
         run, [*inputs, *state.values()], grad=grad, **options)


# ---- linear ----

layer("linear", "aril_nn_linear(5, 3)", nn.Linear(5, 3), [randn(2, 4, 5)])
layer("linear/inferred", "aril_nn_linear(0, 3)", nn.Linear(5, 3), [randn(2, 5)])
layer("linear/no_bias", "aril_nn_linear_with(5, 3, (aril_nn_linear_opts){ .no_bias = true })",
      nn.Linear(5, 3, bias=False), [randn(2, 5)])
layer("bilinear", "aril_nn_bilinear(3, 4, 2)", nn.Bilinear(3, 4, 2), [randn(5, 3), randn(5, 4)])
layer("bilinear/inferred", "aril_nn_bilinear(0, 0, 2)", nn.Bilinear(3, 4, 2), [randn(5, 3), randn(5, 4)])
layer("bilinear/leading", "aril_nn_bilinear_with(3, 4, 2, (aril_nn_linear_opts){ .no_bias = true })",
      nn.Bilinear(3, 4, 2, bias=False), [randn(2, 3, 3), randn(2, 3, 4)])

# ---- convolution ----

SPACE = {1: (7,), 2: (5, 6), 3: (4, 3, 4)}
for d in (1, 2, 3):
    conv, back = getattr(nn, f"Conv{d}d"), getattr(nn, f"ConvTranspose{d}d")
    x = lambda c, n=2: [randn(n, c, *SPACE[d])]
    wide = {"dtype": torch.float64} if d == 3 else {}  # long sums of numbers that cancel
    layer(f"conv{d}d", f"aril_nn_conv{d}d(0, 3, 3)", conv(2, 3, 3), x(2), **wide)
    layer(f"conv{d}d/options", f"aril_nn_conv{d}d_with(4, 6, 2, (aril_nn_conv_opts){{ .stride = {{ 2 }},"
          " .padding = { 1 }, .dilation = { 2 }, .groups = 2, .no_bias = true })",
          conv(4, 6, 2, stride=2, padding=1, dilation=2, groups=2, bias=False), x(4), **wide)
    layer(f"conv{d}d/same", f"aril_nn_conv{d}d_with(2, 3, 4, (aril_nn_conv_opts){{ .mode = ARIL_SAME }})",
          conv(2, 3, 4, padding="same"), x(2), **wide)
    layer(f"conv{d}d/valid", f"aril_nn_conv{d}d_with(2, 3, 2, (aril_nn_conv_opts){{ .mode = ARIL_VALID }})",
          conv(2, 3, 2, padding="valid"), x(2), **wide)
    for mode in ("reflect", "replicate", "circular"):
        layer(f"conv{d}d/{mode}", f"aril_nn_conv{d}d_with(2, 3, 3, (aril_nn_conv_opts){{ .padding = {{ 1 }},"
              f" .padding_mode = ARIL_PAD_{mode.upper()} }})",
              conv(2, 3, 3, padding=1, padding_mode=mode), x(2), **wide)
    layer(f"conv_transpose{d}d", f"aril_nn_conv_transpose{d}d(0, 3, 3)", back(2, 3, 3), x(2), **wide)
    layer(f"conv_transpose{d}d/options", f"aril_nn_conv_transpose{d}d_with(4, 6, 3, (aril_nn_conv_opts){{"
          " .stride = { 2 }, .padding = { 1 }, .output_padding = { 1 }, .groups = 2 })",
          back(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), x(4), **wide)
layer("conv2d/sizes", "aril_nn_conv2d_with(2, 3, 0, (aril_nn_conv_opts){ .kernel = { 3, 1 }, .stride = { 1, 2 },"
      " .padding = { 1, ARIL_ZERO } })", nn.Conv2d(2, 3, (3, 1), stride=(1, 2), padding=(1, 0)), [randn(2, 2, 5, 6)])
layer("conv2d/one_picture", "aril_nn_conv2d(0, 3, 3)", nn.Conv2d(2, 3, 3), [randn(2, 5, 6)])
layer("conv2d/same_reflect", "aril_nn_conv2d_with(2, 3, 4, (aril_nn_conv_opts){ .mode = ARIL_SAME,"
      " .padding_mode = ARIL_PAD_REFLECT })", nn.Conv2d(2, 3, 4, padding="same", padding_mode="reflect"),
      [randn(2, 2, 5, 6)], shown="Conv2d(2, 3, kernel_size=(4, 4), stride=(1, 1), padding=same, padding_mode=reflect)")

# ---- pooling ----

for d in (1, 2, 3):
    for kind in ("Max", "Avg"):
        pool, low = getattr(nn, f"{kind}Pool{d}d"), kind.lower()
        layer(f"{low}_pool{d}d", f"aril_nn_{low}_pool{d}d(2)", pool(2), [apart(2, 2, *SPACE[d])])
        layer(f"{low}_pool{d}d/options", f"aril_nn_{low}_pool{d}d_with(3, (aril_pool_opts){{ .stride = {{ 2 }},"
              " .padding = { 1 }, .ceil_mode = true })", pool(3, stride=2, padding=1, ceil_mode=True),
              [apart(2, 2, *SPACE[d])])
        adapt = getattr(nn, f"Adaptive{kind}Pool{d}d")
        layer(f"adaptive_{low}_pool{d}d", f"aril_nn_adaptive_{low}_pool{d}d(3)", adapt(3), [apart(2, 2, *SPACE[d])])
    layer(f"max_pool{d}d/indices", f"aril_nn_max_pool{d}d(2)", getattr(nn, f"MaxPool{d}d")(2, return_indices=True),
          [apart(2, 2, *SPACE[d])])
    layer(f"lp_pool{d}d", f"aril_nn_lp_pool{d}d(2, 2)", getattr(nn, f"LPPool{d}d")(2, 2),
          [uniform(0.5, 2, 2, 2, *SPACE[d])],
          shown=f"LPPool{d}d(norm_type=2, kernel_size=2, stride=2, ceil_mode=False)")
    v, i = getattr(F, f"max_pool{d}d")(apart(1, 2, *([4] * d)), 2, return_indices=True)
    layer(f"max_unpool{d}d", f"aril_nn_max_unpool{d}d(2)", getattr(nn, f"MaxUnpool{d}d")(2), [v, i])
layer("adaptive_avg_pool2d/sizes", "aril_nn_adaptive_avg_pool2d_with(ARIL_SHAPE(2, -1))",
      nn.AdaptiveAvgPool2d((2, None)), [randn(1, 2, 5, 6)], shown="AdaptiveAvgPool2d(output_size=(2, -1))")
layer("adaptive_max_pool2d/sizes", "aril_nn_adaptive_max_pool2d_with(ARIL_SHAPE(2, 3))",
      nn.AdaptiveMaxPool2d((2, 3)), [apart(1, 2, 5, 6)])
layer("avg_pool2d/counted", "aril_nn_avg_pool2d_with(3, (aril_pool_opts){ .padding = { 1 }, .stride = { 2 },"
      " .count_exclude_pad = true })", nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), [randn(1, 2, 5, 6)])
layer("global_avg_pool", "aril_nn_global_avg_pool()", nn.AdaptiveAvgPool2d(1), [randn(2, 3, 4, 5)],
      shown="GlobalAvgPool()")
layer("global_max_pool", "aril_nn_global_max_pool()", nn.AdaptiveMaxPool3d(1), [apart(2, 3, 2, 4, 5)],
      shown="GlobalMaxPool()")
layer("unfold", "aril_nn_unfold(2, (aril_pool_opts){ .stride = { 2, 1 }, .padding = { 1 } })",
      nn.Unfold(2, stride=(2, 1), padding=1), [randn(2, 3, 4, 5)])
layer("fold", "aril_nn_fold(ARIL_SHAPE(4, 5), 2, (aril_pool_opts){ .dilation = { 1 } })", nn.Fold((4, 5), 2),
      [randn(2, 8, 12)])

# ---- norms ----

for d in (1, 2, 3):
    bn, inorm = getattr(nn, f"BatchNorm{d}d"), getattr(nn, f"InstanceNorm{d}d")
    for eval in (False, True):
        end = "/eval" if eval else ""
        layer(f"batch_norm{d}d{end}", f"aril_nn_batch_norm{d}d(0)", bn(3), [randn(3, 3, *SPACE[d])], eval=eval)
        layer(f"batch_norm{d}d/options{end}", f"aril_nn_batch_norm{d}d_with(3, (aril_nn_batch_norm_opts){{ .eps = 0.01,"
              " .momentum = 0.3, .no_affine = true })", bn(3, eps=0.01, momentum=0.3, affine=False),
              [randn(3, 3, *SPACE[d])], eval=eval)
        layer(f"instance_norm{d}d/all{end}", f"aril_nn_instance_norm{d}d_with(0, (aril_nn_instance_norm_opts){{"
              " .affine = true, .running = true })", inorm(3, affine=True, track_running_stats=True),
              [randn(3, 3, *SPACE[d])], eval=eval) if eval else None
    layer(f"instance_norm{d}d", f"aril_nn_instance_norm{d}d(3)", inorm(3), [randn(2, 3, *SPACE[d])])
    layer(f"instance_norm{d}d/single", f"aril_nn_instance_norm{d}d_with(3, (aril_nn_instance_norm_opts){{"
          " .affine = true })", inorm(3, affine=True), [randn(3, *SPACE[d])])
layer("batch_norm1d/rows", "aril_nn_batch_norm1d(3)", nn.BatchNorm1d(3), [randn(5, 3)])
layer("batch_norm2d/cumulative", "aril_nn_batch_norm2d_with(3, (aril_nn_batch_norm_opts){ .cumulative = true })",
      nn.BatchNorm2d(3, momentum=None), [randn(2, 3, 4, 5)])
layer("batch_norm2d/batch_alone", "aril_nn_batch_norm2d_with(3, (aril_nn_batch_norm_opts){ .no_running = true })",
      nn.BatchNorm2d(3, track_running_stats=False), [randn(2, 3, 4, 5)], eval=True)
layer("layer_norm", "aril_nn_layer_norm(0)", nn.LayerNorm(6), [randn(2, 3, 6)])
layer("layer_norm/sizes", "aril_nn_layer_norm_with(ARIL_SHAPE(3, 6), (aril_nn_norm_opts){ .eps = 0.01 })",
      nn.LayerNorm((3, 6), eps=0.01), [randn(2, 3, 6)])
layer("layer_norm/plain", "aril_nn_layer_norm_with(ARIL_SHAPE(6), (aril_nn_norm_opts){ .no_affine = true })",
      nn.LayerNorm(6, elementwise_affine=False), [randn(2, 3, 6)])
layer("layer_norm/no_bias", "aril_nn_layer_norm_with(ARIL_SHAPE(6), (aril_nn_norm_opts){ .no_bias = true })",
      nn.LayerNorm(6, bias=False), [randn(2, 3, 6)])
layer("rms_norm", "aril_nn_rms_norm(0)", nn.RMSNorm(6), [randn(2, 3, 6)])
layer("rms_norm/eps", "aril_nn_rms_norm_with(ARIL_SHAPE(3, 6), (aril_nn_norm_opts){ .eps = 0.01 })",
      nn.RMSNorm((3, 6), eps=0.01), [randn(2, 3, 6)])
layer("group_norm", "aril_nn_group_norm(2, 0)", nn.GroupNorm(2, 6), [randn(2, 6, 4)])
layer("group_norm/plain", "aril_nn_group_norm_with(3, 6, (aril_nn_norm_opts){ .no_affine = true })",
      nn.GroupNorm(3, 6, affine=False), [randn(2, 6, 4, 3)])
layer("local_response_norm", "aril_nn_local_response_norm(3)", nn.LocalResponseNorm(3), [randn(2, 6, 4)],
      shown="LocalResponseNorm(3, alpha=0.0001, beta=0.75, k=1)")
layer("local_response_norm/options", "aril_nn_local_response_norm_with(2, (aril_lrn_opts){ .alpha = 0.1, .beta = 0.5,"
      " .k = 2 })", nn.LocalResponseNorm(2, alpha=0.1, beta=0.5, k=2.0), [randn(2, 6, 4, 3)],
      shown="LocalResponseNorm(2, alpha=0.1, beta=0.5, k=2)")

# ---- activations ----

PLAIN = {"relu": "ReLU", "relu6": "ReLU6", "sigmoid": "Sigmoid", "tanh": "Tanh", "logsigmoid": "LogSigmoid",
         "selu": "SELU", "gelu": "GELU", "silu": "SiLU", "mish": "Mish", "softsign": "Softsign",
         "hardsigmoid": "Hardsigmoid", "hardswish": "Hardswish", "tanhshrink": "Tanhshrink"}
for c, python in PLAIN.items():
    layer(c, f"aril_nn_{c}()", getattr(nn, python)(), [4 * apart(7, 5) / 5])
layer("gelu/tanh", "aril_nn_gelu_tanh()", nn.GELU(approximate="tanh"), [2 * randn(4, 5)])
for c, python, args in (("leaky_relu", "LeakyReLU", "0.2"), ("elu", "ELU", "0.7"), ("celu", "CELU", "1.3"),
                        ("softplus", "Softplus", "2, 3"), ("hardtanh", "Hardtanh", "-2, 3"),
                        ("softshrink", "Softshrink", "0.8"), ("hardshrink", "Hardshrink", "0.8")):
    make = getattr(nn, python)
    layer(c, f"aril_nn_{c}()", make(), [apart(5, 5)], shown=repr(make()).replace(".0,", ",").replace(".0)", ")"))
    numbers = [float(a) for a in args.split(",")]
    layer(f"{c}/numbers", f"aril_nn_{c}_with({args})", make(*numbers), [apart(5, 5)],
          shown=repr(make(*numbers)).replace(".0,", ",").replace(".0)", ")"))
layer("threshold", "aril_nn_threshold(0.3, 7)", nn.Threshold(0.3, 7), [apart(4, 5)])
layer("prelu", "aril_nn_prelu()", nn.PReLU(), [apart(2, 3, 4)])
layer("prelu/channels", "aril_nn_prelu_with(3, 0.25)", nn.PReLU(3), [apart(2, 3, 2, 4)])
layer("prelu/rows", "aril_nn_prelu_with(3, 0.25)", nn.PReLU(3), [apart(5, 3)])
layer("rrelu/eval", "aril_nn_rrelu_with(0.125, 0.375)", nn.RReLU(0.125, 0.375), [apart(4, 5)], eval=True)
for c, python in (("softmax", "Softmax"), ("log_softmax", "LogSoftmax"), ("softmin", "Softmin"), ("glu", "GLU")):
    layer(c, f"aril_nn_{c}(1)", getattr(nn, python)(dim=1), [randn(3, 4, 2)])
layer("softmax2d", "aril_nn_softmax2d()", nn.Softmax2d(), [randn(2, 3, 2, 2)])

# ---- embeddings ----

layer("embedding", "aril_nn_embedding(7, 3)", nn.Embedding(7, 3), [randint(0, 7, 2, 4)])
layer("embedding/padding", "aril_nn_embedding_with(7, 3, (aril_nn_embedding_opts){ .padding_idx = 2 })",
      nn.Embedding(7, 3, padding_idx=2), [randint(0, 4, 3, 4)])
layer("embedding_bag", "aril_nn_embedding_bag(7, 3)", nn.EmbeddingBag(7, 3), [randint(0, 7, 3, 4)],
      shown="EmbeddingBag(7, 3, mode='mean')")
layer("embedding_bag/offsets", "aril_nn_embedding_bag_with(7, 3, (aril_nn_embedding_bag_opts){ .mode = ARIL_SUM })",
      nn.EmbeddingBag(7, 3, mode="sum"), [randint(0, 7, 9), tensor([0, 4, 4])])
layer("embedding_bag/weighted", "aril_nn_embedding_bag_with(7, 3, (aril_nn_embedding_bag_opts){ .mode = ARIL_SUM })",
      nn.EmbeddingBag(7, 3, mode="sum"), [randint(0, 7, 9), tensor([0, 4, 4]), randn(9)])

# ---- shapes ----

layer("flatten", "aril_nn_flatten()", nn.Flatten(), [randn(2, 3, 4)])
layer("flatten/some", "aril_nn_flatten_with(0, 1)", nn.Flatten(0, 1), [randn(2, 3, 4)])
layer("unflatten", "aril_nn_unflatten(1, ARIL_SHAPE(2, -1))", nn.Unflatten(1, (2, -1)), [randn(2, 6, 4)])
layer("upsample", "aril_nn_upsample(2)", nn.Upsample(scale_factor=2), [randn(1, 2, 3, 4)],
      shown="Upsample(scale_factor=2, mode='nearest')")
layer("upsample/bilinear", "aril_nn_upsample_with((aril_interpolate_opts){ .size = { 5, 7 }, .mode = ARIL_LINEAR })",
      nn.Upsample(size=(5, 7), mode="bilinear"), [randn(1, 2, 3, 4)], shown="Upsample(size=(5, 7), mode='linear')")
layer("pixel_shuffle", "aril_nn_pixel_shuffle(2)", nn.PixelShuffle(2), [randn(1, 8, 2, 3)])
layer("pixel_unshuffle", "aril_nn_pixel_unshuffle(2)", nn.PixelUnshuffle(2), [randn(1, 2, 4, 6)])
layer("channel_shuffle", "aril_nn_channel_shuffle(2)", nn.ChannelShuffle(2), [randn(1, 4, 2, 3)])
for d in (1, 2, 3):
    sides = [1, 2, 0, 1, 1, 0][:2 * d]
    pads = "ARIL_PADS(" + ", ".join(map(str, sides)) + ")"
    for c, python in (("zero", "Zero"), ("reflection", "Reflection"), ("replication", "Replication"),
                      ("circular", "Circular")):
        make = getattr(nn, f"{python}Pad{d}d")
        layer(f"{c}_pad{d}d", f"aril_nn_{c}_pad{d}d({pads})", make(tuple(sides)), [randn(1, 2, *SPACE[d])])
        layer(f"{c}_pad{d}d/one", f"aril_nn_{c}_pad{d}d(ARIL_PADS(1))", make(1), [randn(1, 2, *SPACE[d])])
    layer(f"constant_pad{d}d", f"aril_nn_constant_pad{d}d({pads}, 2.5)", getattr(nn, f"ConstantPad{d}d")(tuple(sides), 2.5),
          [randn(1, 2, *SPACE[d])])

# ---- distances, functions, containers ----

layer("cosine_similarity", "aril_nn_cosine_similarity(1)", nn.CosineSimilarity(dim=1), [randn(3, 4), randn(3, 4)])
layer("pairwise_distance", "aril_nn_pairwise_distance((aril_distance_opts){ .p = 3 })", nn.PairwiseDistance(p=3),
      [randn(3, 4), randn(3, 4)])
layer("identity", "aril_nn_identity()", nn.Identity(), [randn(3, 4)])
for c in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
    python = "".join(w.capitalize() for w in c.split("_"))
    x = randn(2, 3, 4) if c[-2:] != "2d" and c[-2:] != "3d" else randn(2, 3, *([2] * int(c[-2])))
    layer(f"{c}/eval", f"aril_nn_{c}(0.3)", getattr(nn, python)(0.3), [x], eval=True)
layer("sequential", "aril_nn_sequential(aril_nn_conv2d(0, 4, 3), aril_nn_batch_norm2d(0), aril_nn_relu(),"
      " aril_nn_sequential(aril_nn_max_pool2d(2), aril_nn_flatten()), aril_nn_linear(0, 5), aril_nn_tanh(), aril_nn_linear(0, 2))",
      nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Sequential(nn.MaxPool2d(2), nn.Flatten()),
                    nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 2)), [randn(3, 2, 6, 6)])


class Residual(nn.Module):
    def __init__(self, body, projection=None):
        super().__init__()
        self.body = body
        if projection is not None:
            self.projection = projection

    def forward(self, x):
        return (self.projection(x) if hasattr(self, "projection") else x) + self.body(x)


class Concat(nn.Sequential):
    def forward(self, x):
        return torch.cat([m(x) for m in self], 1)

    def extra_repr(self):
        return "dim=1"


class Sum(nn.Sequential):
    def forward(self, x):
        return sum(m(x) for m in self)


layer("residual", "aril_nn_residual(aril_nn_sequential(aril_nn_linear(4, 4), aril_nn_relu()))",
      Residual(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), [randn(3, 4)])
layer("residual/projection", "aril_nn_residual_with(aril_nn_conv2d(0, 3, 1), aril_nn_conv2d(0, 3, 1))",
      Residual(nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1)), [randn(2, 2, 3, 3)])
layer("concat", "aril_nn_concat(aril_nn_conv2d(0, 3, 1), aril_nn_identity(), aril_nn_conv2d(0, 1, 1))",
      Concat(nn.Conv2d(2, 3, 1), nn.Identity(), nn.Conv2d(2, 1, 1)), [randn(2, 2, 3, 3)])
layer("sum", "aril_nn_sum(aril_nn_linear(4, 4), aril_nn_identity(), aril_nn_identity())",
      Sum(nn.Linear(4, 4), nn.Identity(), nn.Identity()), [randn(2, 4)])
