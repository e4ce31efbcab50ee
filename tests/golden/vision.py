"""Convolution, pooling, interpolation and other ops on images."""
from golden import *

torch.backends.mkldnn.enabled = False
torch.use_deterministic_algorithms(False)  # max_unpool has no such form; nothing here is random
f64, f16, bf16 = torch.float64, torch.float16, torch.bfloat16


def one(name, c, fn, *inputs, **more):
    """A case of one result."""
    case(name, f"y[0] = {c};", fn, list(inputs), **more)


def second(fn, at=0):
    """The gradient of sum(fn(x)^3) with respect to x[at]: its own gradients are second ones."""
    def grad(x):
        y = fn(x)
        return torch.autograd.grad((y * y * y).sum(), x[at], create_graph=True)[0]
    return grad


def twice(name, c, fn, *inputs, at=0):
    case(name, f"aril_tensor *o = {c}; aril_gradients(aril_sum(aril_mul(aril_mul(o, o), o), ARIL_ALL),"
         f" ARIL_LIST(x[{at}]), y, (aril_grad_opts){{.create_graph = true}});", second(fn, at),
         list(inputs), dtype=f64)


# ---- convolution ----

CONV = {1: (F.conv1d, F.conv_transpose1d), 2: (F.conv2d, F.conv_transpose2d),
        3: (F.conv3d, F.conv_transpose3d)}


def braces(v):
    """A 0 behind a first number would repeat it."""
    return "{" + ", ".join("ARIL_ZERO" if i and v[0] and n == 0 else str(n) for i, n in enumerate(v)) + "}"


def conv_opts(**k):
    fields = []
    for key, v in k.items():
        fields.append(f".{key} = {v if key in ('groups', 'mode') else braces(v)}")
    return "(aril_conv_opts){" + (", ".join(fields) or "0") + "}"


def conv(name, n, x, w, bias=True, transposed=False, c_opts=None, **k):
    """One convolution; **k are both sides' options, c_opts replaces the C side's."""
    more = {"dtype": k.pop("dtype")} if "dtype" in k else {}
    if more.get("dtype") in (f16, bf16):  # PyTorch adds up in the narrow type
        more["atol"] = 3e-3 if more["dtype"] == f16 else 3e-2
    elif not more:  # sums of many products, in an order of each machine's own
        more["atol"] = 2e-5
    opts = conv_opts(**(k if c_opts is None else c_opts))
    channels = w[1] * k.get("groups", 1) if transposed else w[0]
    fn = CONV[n][transposed]
    c = f"aril_conv{'_transpose' if transposed else ''}{n}d"
    if bias:
        one(name, f"{c}(x[0], x[1], x[2], {opts})", lambda x: fn(x[0], x[1], x[2], **k),
            randn(*x), randn(*w), randn(channels), **more)
    else:
        one(name, f"{c}(x[0], x[1], NULL, {opts})", lambda x: fn(x[0], x[1], None, **k),
            randn(*x), randn(*w), **more)


conv("conv1d/plain", 1, (2, 3, 7), (4, 3, 3))
conv("conv1d/stride", 1, (2, 3, 8), (2, 3, 3), stride=(2,))
conv("conv1d/padding", 1, (1, 2, 5), (3, 2, 3), padding=(2,))
conv("conv1d/dilation", 1, (1, 2, 9), (3, 2, 3), dilation=(3,), bias=False)
conv("conv1d/groups", 1, (2, 4, 6), (6, 2, 3), groups=2, padding=(1,))
conv("conv1d/depthwise", 1, (2, 3, 6), (3, 1, 3), groups=3, padding=(1,))
conv("conv1d/single", 1, (3, 7), (2, 3, 3))
conv("conv1d/pointwise", 1, (2, 3, 5), (4, 3, 1))
conv("conv1d/whole", 1, (2, 3, 4), (2, 3, 4))
conv("conv2d/plain", 2, (2, 3, 6, 5), (4, 3, 3, 3))
conv("conv2d/no_bias", 2, (2, 3, 6, 5), (4, 3, 3, 3), bias=False)
conv("conv2d/stride2", 2, (2, 3, 7, 6), (2, 3, 3, 3), stride=(2, 2))
conv("conv2d/stride_one_number", 2, (1, 2, 7, 6), (2, 2, 3, 3), stride=2, c_opts={"stride": (2,)})
conv("conv2d/strides_differ", 2, (1, 2, 7, 9), (2, 2, 2, 3), stride=(3, 2))
conv("conv2d/padding", 2, (1, 2, 4, 5), (3, 2, 3, 3), padding=(1, 1))
conv("conv2d/paddings_differ", 2, (1, 2, 4, 5), (3, 2, 3, 4), padding=(2, 1))
conv("conv2d/dilation", 2, (1, 2, 7, 8), (2, 2, 3, 2), dilation=(2, 3))
conv("conv2d/all", 2, (2, 4, 8, 9), (4, 2, 3, 2), stride=(2, 1), padding=(1, 2), dilation=(2, 3),
     groups=2)
conv("conv2d/depthwise", 2, (2, 3, 5, 6), (3, 1, 3, 3), groups=3, padding=(1, 1))
conv("conv2d/depthwise_stride", 2, (1, 3, 6, 7), (3, 1, 3, 3), groups=3, stride=(2, 2),
     padding=(1, 0))
conv("conv2d/depthwise_more", 2, (1, 2, 5, 5), (6, 1, 2, 3), groups=2)
conv("conv2d/pointwise", 2, (2, 5, 3, 4), (3, 5, 1, 1))
conv("conv2d/pointwise_stride", 2, (1, 3, 5, 4), (2, 3, 1, 1), stride=(2, 2))
conv("conv2d/pointwise_padded", 2, (1, 3, 3, 2), (2, 3, 1, 1), padding=(1, 1))
conv("conv2d/whole", 2, (2, 3, 3, 4), (5, 3, 3, 4))
conv("conv2d/row", 2, (1, 2, 5, 6), (2, 2, 1, 5), padding=(0, 2))
conv("conv2d/column", 2, (1, 2, 5, 6), (2, 2, 3, 1))
conv("conv2d/wide_padding", 2, (1, 1, 2, 2), (1, 1, 3, 3), padding=(3, 3))
conv("conv2d/single", 2, (3, 5, 5), (2, 3, 3, 3))
conv("conv2d/more_channels", 2, (1, 17, 4, 4), (9, 17, 3, 3), padding=(1, 1))
conv("conv2d/empty_batch", 2, (0, 2, 4, 4), (3, 2, 3, 3))
conv("conv2d/f64", 2, (1, 2, 5, 4), (2, 2, 3, 3), dtype=f64)
conv("conv2d/f16", 2, (1, 2, 5, 4), (2, 2, 3, 3), dtype=f16)
conv("conv2d/bf16", 2, (1, 2, 5, 4), (2, 2, 3, 3), dtype=bf16)
conv("conv2d/same", 2, (1, 2, 5, 6), (2, 2, 3, 2), padding="same", c_opts={"mode": "ARIL_SAME"})
conv("conv2d/same_dilated", 2, (1, 2, 5, 6), (2, 2, 3, 2), padding="same", dilation=(2, 3),
     c_opts={"mode": "ARIL_SAME", "dilation": (2, 3)})
conv("conv2d/valid", 2, (1, 2, 5, 6), (2, 2, 3, 2), padding="valid", c_opts={"mode": "ARIL_VALID"})
one("conv2d/same_stride2", "aril_conv2d(x[0], x[1], NULL, (aril_conv_opts){.stride = {2}, "
    ".mode = ARIL_SAME})", lambda x: F.conv2d(F.pad(x[0], (0, 1, 1, 1)), x[1], stride=2),
    randn(1, 2, 5, 6), randn(2, 2, 3, 3))
one("conv2d/same_lower_stride2", "aril_conv2d(x[0], x[1], NULL, (aril_conv_opts){.stride = {2}, "
    ".mode = ARIL_SAME_LOWER})", lambda x: F.conv2d(F.pad(x[0], (1, 0, 1, 1)), x[1], stride=2),
    randn(1, 2, 5, 6), randn(2, 2, 3, 3))
one("conv2d/asymmetric", "aril_conv2d(x[0], x[1], x[2], (aril_conv_opts){.padding = {1, ARIL_ZERO}, "
    ".padding_end = {2, 3}})", lambda x: F.conv2d(F.pad(x[0], (0, 3, 1, 2)), x[1], x[2]),
    randn(1, 2, 4, 4), randn(2, 2, 3, 3), randn(2))
one("conv2d/padding_before", "aril_conv2d(x[0], x[1], NULL, (aril_conv_opts){.padding = {1, 2}, "
    ".padding_end = {ARIL_ZERO, ARIL_ZERO}})",
    lambda x: F.conv2d(F.pad(x[0], (2, 0, 1, 0)), x[1]), randn(1, 2, 4, 4), randn(2, 2, 3, 3))
one("conv2d/channels_last", "aril_conv2d(aril_permute(x[0], ARIL_AXES(0, 3, 1, 2)), x[1], x[2], "
    "(aril_conv_opts){.padding = {1, 1}})",
    lambda x: F.conv2d(x[0].permute(0, 3, 1, 2), x[1], x[2], padding=1),
    randn(2, 4, 5, 3), randn(4, 3, 3, 3), randn(4))
one("conv2d/transposed_weights", "aril_conv2d(x[0], aril_transpose(x[1], 0, 1), NULL, "
    "(aril_conv_opts){0})", lambda x: F.conv2d(x[0], x[1].transpose(0, 1)),
    randn(1, 2, 4, 4), randn(2, 3, 2, 2))
conv("conv3d/plain", 3, (1, 2, 4, 3, 4), (2, 2, 2, 2, 2))
conv("conv3d/stride_padding", 3, (1, 2, 4, 3, 5), (2, 2, 3, 2, 3), stride=(2, 1, 2),
     padding=(1, 0, 1))
conv("conv3d/dilation_groups", 3, (1, 2, 5, 3, 4), (2, 1, 2, 2, 2), dilation=(2, 1, 3), groups=2)
conv("conv3d/single", 3, (2, 3, 3, 3), (1, 2, 2, 2, 2))
conv("conv_transpose1d/plain", 1, (2, 3, 4), (3, 2, 3), transposed=True)
conv("conv_transpose1d/stride", 1, (2, 3, 4), (3, 2, 3), transposed=True, stride=(3,),
     output_padding=(2,))
conv("conv_transpose1d/dilated_padding", 1, (1, 2, 4), (2, 2, 3), transposed=True, dilation=(3,),
     output_padding=(2,), padding=(1,))
conv("conv_transpose1d/single", 1, (3, 4), (3, 2, 3), transposed=True)
conv("conv_transpose2d/plain", 2, (1, 3, 3, 4), (3, 2, 3, 2), transposed=True)
conv("conv_transpose2d/no_bias", 2, (2, 3, 3, 4), (3, 2, 3, 2), transposed=True, bias=False)
conv("conv_transpose2d/stride", 2, (1, 2, 3, 3), (2, 3, 3, 3), transposed=True, stride=(2, 2),
     padding=(1, 1), output_padding=(1, 1))
conv("conv_transpose2d/groups", 2, (1, 4, 3, 3), (4, 1, 2, 3), transposed=True, groups=2,
     stride=(1, 2))
conv("conv_transpose2d/depthwise", 2, (1, 3, 3, 3), (3, 1, 3, 3), transposed=True, groups=3,
     stride=(2, 2), padding=(1, 1))
conv("conv_transpose2d/pointwise", 2, (1, 3, 3, 2), (3, 4, 1, 1), transposed=True)
conv("conv_transpose2d/f16", 2, (1, 2, 3, 3), (2, 2, 2, 2), transposed=True, dtype=f16)
conv("conv_transpose3d/plain", 3, (1, 2, 2, 3, 2), (2, 2, 2, 2, 2), transposed=True, stride=(2, 1, 2))

C2 = "aril_conv2d(x[0], x[1], x[2], (aril_conv_opts){.stride = {2, 1}, .padding = {1, 1}, .groups = 2})"
for at, what in enumerate(("x", "w", "b")):
    twice(f"conv2d/second_{what}", C2,
          lambda x: F.conv2d(x[0], x[1], x[2], stride=(2, 1), padding=1, groups=2),
          randn(1, 2, 4, 4), randn(2, 1, 3, 2), randn(2), at=at)
for at, what in enumerate(("x", "w")):
    twice(f"conv_transpose2d/second_{what}",
          "aril_conv_transpose2d(x[0], x[1], NULL, (aril_conv_opts){.stride = {2, 2}, "
          ".output_padding = {1, ARIL_ZERO}})",
          lambda x: F.conv_transpose2d(x[0], x[1], stride=2, output_padding=(1, 0)),
          randn(1, 2, 2, 3), randn(2, 2, 2, 2), at=at)

# ---- pooling ----


def pool_opts(kernel, stride=None, padding=None, dilation=None, ceil_mode=False,
              count_include_pad=True, divisor_override=None):
    fields = [f".kernel = {braces(kernel)}"]
    if stride:
        fields.append(f".stride = {braces(stride)}")
    if padding:
        fields.append(f".padding = {braces(padding)}")
    if dilation:
        fields.append(f".dilation = {braces(dilation)}")
    if ceil_mode:
        fields.append(".ceil_mode = true")
    if not count_include_pad:
        fields.append(".count_exclude_pad = true")
    if divisor_override:
        fields.append(f".divisor = {divisor_override}")
    return "(aril_pool_opts){" + ", ".join(fields) + "}"


MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def max_pool(name, n, shape, kernel, dtype=torch.float32, **k):
    opts = pool_opts(kernel, **k)
    case(name, f"y[0] = aril_max_pool{n}d(x[0], {opts}, &y[1]);",
         lambda x: MAX[n](x[0], kernel, return_indices=True, **k), [apart(*shape, dtype=dtype)])


def avg_pool(name, n, shape, kernel, dtype=None, **k):
    one(name, f"aril_avg_pool{n}d(x[0], {pool_opts(kernel, **k)})",
        lambda x: AVG[n](x[0], kernel, **k), randn(*shape), dtype=dtype)


max_pool("max_pool1d/plain", 1, (2, 3, 8), (2,))
max_pool("max_pool1d/stride", 1, (1, 2, 9), (3,), stride=(2,), padding=(1,))
max_pool("max_pool1d/ceil", 1, (1, 2, 8), (3,), stride=(3,), ceil_mode=True)
max_pool("max_pool1d/dilation", 1, (1, 2, 9), (3,), stride=(1,), dilation=(2,))
max_pool("max_pool1d/single", 1, (2, 8), (2,))
max_pool("max_pool2d/plain", 2, (2, 3, 4, 6), (2, 2))
max_pool("max_pool2d/rest_left", 2, (1, 2, 5, 7), (2, 3))
max_pool("max_pool2d/overlap", 2, (1, 2, 6, 6), (3, 3), stride=(2, 1), padding=(1, 1))
max_pool("max_pool2d/ceil", 2, (1, 2, 6, 7), (3, 2), stride=(2, 2), ceil_mode=True)
max_pool("max_pool2d/ceil_padding", 2, (1, 1, 7, 6), (3, 3), stride=(3, 2), padding=(1, 1),
         ceil_mode=True)
max_pool("max_pool2d/dilation", 2, (1, 2, 7, 8), (2, 3), stride=(1, 2), dilation=(3, 2))
max_pool("max_pool2d/single", 2, (2, 4, 4), (2, 2))
max_pool("max_pool2d/f64", 2, (1, 2, 4, 4), (2, 2), dtype=f64)
max_pool("max_pool2d/f16", 2, (1, 2, 4, 4), (2, 2), dtype=f16)
max_pool("max_pool2d/bf16", 2, (1, 1, 4, 4), (2, 2), dtype=bf16)
max_pool("max_pool2d/empty_batch", 2, (0, 2, 4, 4), (2, 2))
max_pool("max_pool3d/plain", 3, (1, 2, 4, 4, 2), (2, 2, 2))
max_pool("max_pool3d/all", 3, (1, 1, 5, 6, 5), (3, 2, 2), stride=(2, 2, 1), padding=(1, 0, 1),
         ceil_mode=True)
case("max_pool2d/ties", "y[0] = aril_max_pool2d(x[0], (aril_pool_opts){.kernel = {2}}, &y[1]);",
     lambda x: F.max_pool2d(x[0], 2, return_indices=True), [torch.ones(1, 1, 4, 4)])
case("max_pool2d/nan", "y[0] = aril_max_pool2d(x[0], (aril_pool_opts){.kernel = {2}}, &y[1]);",
     lambda x: F.max_pool2d(x[0], 2, return_indices=True),
     [tensor([[[[1., float("nan"), 3, 2], [5, 2, 4, 1]]]])], grad=False)
case("max_pool2d/channels_last", "y[0] = aril_max_pool2d(aril_permute(x[0], "
     "ARIL_AXES(0, 3, 1, 2)), (aril_pool_opts){.kernel = {2}}, &y[1]);",
     lambda x: F.max_pool2d(x[0].permute(0, 3, 1, 2), 2, return_indices=True), [apart(2, 4, 4, 3)])
twice("max_pool2d/second", "aril_max_pool2d(x[0], (aril_pool_opts){.kernel = {2}, .stride = {1}}, NULL)",
      lambda x: F.max_pool2d(x[0], 2, 1), apart(1, 2, 3, 4, dtype=f64))
avg_pool("avg_pool1d/plain", 1, (2, 3, 8), (2,))
avg_pool("avg_pool1d/padding", 1, (1, 2, 7), (3,), stride=(2,), padding=(1,))
avg_pool("avg_pool1d/exclude", 1, (1, 2, 7), (3,), stride=(2,), padding=(1,), count_include_pad=False)
avg_pool("avg_pool1d/ceil", 1, (1, 2, 8), (3,), stride=(2,), ceil_mode=True)
avg_pool("avg_pool1d/single", 1, (2, 8), (2,))
avg_pool("avg_pool2d/plain", 2, (2, 3, 4, 6), (2, 2))
avg_pool("avg_pool2d/padding", 2, (1, 2, 5, 6), (3, 2), stride=(2, 1), padding=(1, 1))
avg_pool("avg_pool2d/exclude", 2, (1, 2, 5, 6), (3, 2), stride=(2, 1), padding=(1, 1),
         count_include_pad=False)
avg_pool("avg_pool2d/ceil", 2, (1, 2, 6, 7), (3, 2), stride=(2, 2), padding=(1, 1), ceil_mode=True)
avg_pool("avg_pool2d/ceil_exclude", 2, (1, 2, 6, 7), (3, 2), stride=(2, 2), padding=(1, 1),
         ceil_mode=True, count_include_pad=False)
avg_pool("avg_pool2d/divisor", 2, (1, 2, 5, 6), (3, 2), stride=(2, 1), divisor_override=5)
avg_pool("avg_pool2d/f16", 2, (1, 2, 4, 4), (2, 2), dtype=f16)
avg_pool("avg_pool2d/bf16", 2, (1, 2, 4, 4), (2, 2), dtype=bf16)
avg_pool("avg_pool2d/f64", 2, (1, 2, 4, 4), (3, 3), dtype=f64)
avg_pool("avg_pool3d/plain", 3, (1, 2, 4, 4, 2), (2, 2, 2))
avg_pool("avg_pool3d/all", 3, (1, 1, 5, 4, 5), (3, 2, 2), stride=(2, 1, 2), padding=(1, 1, 0),
         ceil_mode=True, count_include_pad=False)
twice("avg_pool2d/second", "aril_avg_pool2d(x[0], (aril_pool_opts){.kernel = {2, 3}, .stride = {1, 2}, "
      ".padding = {1, 1}})", lambda x: F.avg_pool2d(x[0], (2, 3), (1, 2), 1), randn(1, 2, 3, 4))
one("lp_pool1d", "aril_lp_pool1d(x[0], 2, (aril_pool_opts){.kernel = {3}, .stride = {2}})",
    lambda x: F.lp_pool1d(x[0], 2, 3, 2), uniform(0.2, 2, 1, 2, 7))
one("lp_pool2d", "aril_lp_pool2d(x[0], 2, (aril_pool_opts){.kernel = {2}})",
    lambda x: F.lp_pool2d(x[0], 2, 2), randn(1, 2, 4, 6))
one("lp_pool2d/p3", "aril_lp_pool2d(x[0], 3, (aril_pool_opts){.kernel = {2, 3}, .stride = {1, 2}})",
    lambda x: F.lp_pool2d(x[0], 3, (2, 3), (1, 2)), uniform(0.2, 2, 1, 2, 4, 5))
one("lp_pool2d/ceil", "aril_lp_pool2d(x[0], 1, (aril_pool_opts){.kernel = {2}, .ceil_mode = true})",
    lambda x: F.lp_pool2d(x[0], 1, 2, ceil_mode=True), uniform(0.2, 2, 1, 1, 4, 4))
one("lp_pool3d", "aril_lp_pool3d(x[0], 2, (aril_pool_opts){.kernel = {2}})",
    lambda x: F.lp_pool3d(x[0], 2, 2), uniform(0.2, 2, 1, 1, 2, 4, 4))

for n, shape, sizes in ((1, (2, 2, 7), (3,)), (2, (1, 2, 5, 7), (3, 4)), (2, (2, 2, 3, 2), (5, 3)),
                        (3, (1, 2, 4, 3, 5), (2, 3, 2))):
    name = f"{n}d/{'x'.join(map(str, sizes))}"
    avg = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[n]
    mx = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[n]
    arg = f"ARIL_SHAPE({', '.join(map(str, sizes))})"
    one(f"adaptive_avg_pool{name}", f"aril_adaptive_avg_pool{n}d(x[0], {arg})",
        lambda x: avg(x[0], sizes), randn(*shape))
    case(f"adaptive_max_pool{name}", f"y[0] = aril_adaptive_max_pool{n}d(x[0], {arg}, &y[1]);",
         lambda x: mx(x[0], sizes, return_indices=True), [apart(*shape)])
one("adaptive_avg_pool2d/keep", "aril_adaptive_avg_pool2d(x[0], ARIL_SHAPE(-1, 2))",
    lambda x: F.adaptive_avg_pool2d(x[0], (None, 2)), randn(1, 2, 3, 5))
one("adaptive_avg_pool2d/single", "aril_adaptive_avg_pool2d(x[0], ARIL_SHAPE(1, 1))",
    lambda x: F.adaptive_avg_pool2d(x[0], 1), randn(2, 3, 5))
one("global_avg_pool", "aril_global_avg_pool(x[0])", lambda x: x[0].mean((2, 3), keepdim=True),
    randn(2, 3, 4, 5))
one("global_avg_pool/3d", "aril_global_avg_pool(x[0])",
    lambda x: x[0].mean((2, 3, 4), keepdim=True), randn(1, 3, 2, 2, 3))
one("global_max_pool", "aril_global_max_pool(x[0])", lambda x: x[0].amax((2, 3), keepdim=True),
    apart(2, 3, 4, 5))

UNPOOL = "aril_tensor *i, *p = aril_max_pool{n}d(x[0], {o}, &i); y[0] = aril_max_unpool{n}d(p, i, {s}, {o});"


def unpool(name, n, shape, size=None, **k):
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[n]
    back = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}[n]

    def fn(x):
        p, i = pool(x[0], 2, return_indices=True)
        return back(p, i, 2, output_size=size)
    sizes = "ARIL_SHAPE(" + ", ".join(map(str, size or ())) + ")"
    case(name, UNPOOL.format(n=n, o="(aril_pool_opts){.kernel = {2}}", s=sizes), fn, [apart(*shape)])


unpool("max_unpool1d", 1, (1, 2, 6))
unpool("max_unpool2d", 2, (1, 2, 4, 6))
unpool("max_unpool2d/size", 2, (1, 2, 5, 5), size=(5, 5))
unpool("max_unpool2d/single", 2, (2, 4, 4))
unpool("max_unpool3d", 3, (1, 1, 2, 4, 2))

# ---- columns ----


def unfold(name, shape, kernel, **k):
    opts = pool_opts(kernel, **k)
    one(f"unfold/{name}", f"aril_unfold(x[0], {opts})", lambda x: F.unfold(x[0], kernel, **k),
        randn(*shape))
    columns = F.unfold(torch.zeros(shape), kernel, **k).shape
    one(f"fold/{name}", f"aril_fold(x[0], ARIL_SHAPE({shape[-2]}, {shape[-1]}), {opts})",
        lambda x: F.fold(x[0], shape[-2:], kernel, **k), randn(*columns))


unfold("plain", (2, 3, 4, 5), (2, 3))
unfold("stride", (1, 2, 5, 6), (2, 2), stride=(2, 3))
unfold("all", (1, 2, 5, 6), (2, 3), stride=(1, 2), padding=(1, 2), dilation=(2, 1))
unfold("single", (2, 4, 4), (2, 2))
twice("unfold/second", "aril_unfold(x[0], (aril_pool_opts){.kernel = {2}})",
      lambda x: F.unfold(x[0], 2), randn(1, 2, 3, 3))
twice("fold/second", "aril_fold(x[0], ARIL_SHAPE(3, 3), (aril_pool_opts){.kernel = {2}})",
      lambda x: F.fold(x[0], (3, 3), 2), randn(1, 8, 4))

# ---- other sizes ----

MODES = {"nearest": "ARIL_NEAREST", "nearest-exact": "ARIL_NEAREST_EXACT", "linear": "ARIL_LINEAR",
         "bilinear": "ARIL_LINEAR", "trilinear": "ARIL_LINEAR", "bicubic": "ARIL_CUBIC",
         "area": "ARIL_AREA"}


def interpolate(name, shape, mode, size=None, scale=None, align=None, antialias=False, dtype=None):
    fields = [f".mode = {MODES[mode]}"]
    fields.append(f".size = {braces(size)}" if size else f".scale = {braces(scale)}")
    if align:
        fields.append(".align_corners = true")
    if antialias:
        fields.append(".antialias = true")
    one(f"interpolate/{name}", f"aril_interpolate(x[0], (aril_interpolate_opts){{{', '.join(fields)}}})",
        lambda x: F.interpolate(x[0], size=size, scale_factor=scale, mode=mode, align_corners=align,
                                antialias=antialias), randn(*shape), dtype=dtype)


for mode in ("nearest", "nearest-exact", "area"):
    word = mode.replace("-", "_")
    interpolate(f"{word}_1d", (2, 2, 5), mode, size=(8,))
    interpolate(f"{word}_2d_up", (1, 2, 3, 4), mode, size=(7, 6))
    interpolate(f"{word}_2d_down", (1, 2, 7, 6), mode, size=(3, 4))
    interpolate(f"{word}_3d", (1, 1, 2, 3, 4), mode, size=(3, 4, 2))
    interpolate(f"{word}_scale", (1, 2, 4, 5), mode, scale=(1.7, 0.6))
for align in (False, True):
    word = "aligned" if align else "plain"
    interpolate(f"linear_1d_{word}", (2, 2, 5), "linear", size=(8,), align=align)
    interpolate(f"linear_1d_down_{word}", (1, 2, 8), "linear", size=(3,), align=align)
    interpolate(f"linear_1d_to_one_{word}", (1, 2, 8), "linear", size=(1,), align=align)
    interpolate(f"bilinear_up_{word}", (1, 2, 3, 4), "bilinear", size=(7, 6), align=align)
    interpolate(f"bilinear_down_{word}", (1, 2, 7, 6), "bilinear", size=(3, 4), align=align)
    interpolate(f"bilinear_scale_{word}", (1, 2, 4, 5), "bilinear", scale=(1.7, 0.6), align=align)
    interpolate(f"bicubic_up_{word}", (1, 2, 3, 4), "bicubic", size=(7, 6), align=align)
    interpolate(f"bicubic_down_{word}", (1, 2, 7, 6), "bicubic", size=(3, 4), align=align)
    interpolate(f"bicubic_scale_{word}", (1, 2, 4, 5), "bicubic", scale=(2.0, 2.0), align=align)
    interpolate(f"trilinear_{word}", (1, 2, 2, 3, 4), "trilinear", size=(3, 5, 2), align=align)
interpolate("bilinear_f64", (1, 2, 3, 4), "bilinear", scale=(2.5, 1.5), align=False, dtype=f64)
interpolate("bilinear_f16", (1, 1, 3, 4), "bilinear", size=(5, 5), align=False, dtype=f16)
interpolate("bilinear_smooth", (1, 2, 7, 9), "bilinear", size=(3, 4), align=False, antialias=True)
interpolate("bilinear_smooth_up", (1, 2, 3, 4), "bilinear", size=(5, 7), align=False, antialias=True)
interpolate("bicubic_smooth", (1, 2, 7, 9), "bicubic", size=(3, 4), align=False, antialias=True)
twice("interpolate/second", "aril_interpolate(x[0], (aril_interpolate_opts){.mode = ARIL_LINEAR, "
      ".size = {4, 5}})", lambda x: F.interpolate(x[0], (4, 5), mode="bilinear"), randn(1, 1, 3, 3))
one("interpolate/one_scale", "aril_interpolate(x[0], (aril_interpolate_opts){.scale = {2}})",
    lambda x: F.interpolate(x[0], scale_factor=2), randn(1, 2, 2, 3))

one("pixel_shuffle", "aril_pixel_shuffle(x[0], 2)", lambda x: F.pixel_shuffle(x[0], 2),
    randn(2, 8, 2, 3))
one("pixel_shuffle/3", "aril_pixel_shuffle(x[0], 3)", lambda x: F.pixel_shuffle(x[0], 3),
    randn(9, 2, 2))
one("pixel_unshuffle", "aril_pixel_unshuffle(x[0], 2)", lambda x: F.pixel_unshuffle(x[0], 2),
    randn(2, 2, 4, 6))
one("channel_shuffle", "aril_channel_shuffle(x[0], 3)", lambda x: F.channel_shuffle(x[0], 3),
    randn(2, 6, 2, 2))
one("channel_shuffle/3d", "aril_channel_shuffle(x[0], 2)",
    lambda x: x[0].view(2, 2, 2, 3).transpose(1, 2).reshape(2, 4, 3), randn(2, 4, 3))
for align in (False, True):
    word = "aligned" if align else "plain"
    flag = "true" if align else "false"
    one(f"affine_grid/2d_{word}", f"aril_affine_grid(x[0], ARIL_SHAPE(2, 3, 4, 5), {flag})",
        lambda x: F.affine_grid(x[0], (2, 3, 4, 5), align_corners=align), randn(2, 2, 3))
    one(f"affine_grid/3d_{word}", f"aril_affine_grid(x[0], ARIL_SHAPE(1, 1, 2, 3, 2), {flag})",
        lambda x: F.affine_grid(x[0], (1, 1, 2, 3, 2), align_corners=align), randn(1, 3, 4))

PADDINGS = ("zeros", "border", "reflection")
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in PADDINGS:
        for align in (False, True):
            opts = (f"(aril_grid_opts){{.mode = ARIL_GRID_{mode.upper()}, .padding = "
                    f"ARIL_GRID_{padding.upper()}, .align_corners = {str(align).lower()}}}")

            def sample(x):
                return F.grid_sample(x[0], x[1], mode, padding, align)
            word = f"{mode}_{padding}_{'aligned' if align else 'plain'}"
            one(f"grid_sample/{word}", f"aril_grid_sample(x[0], x[1], {opts})", sample,
                randn(1, 2, 3, 4), uniform(-1.6, 1.6, 1, 3, 4, 2), dtype=f64)
            if mode == "bilinear" and not align:
                twice(f"grid_sample/second_{word}", f"aril_grid_sample(x[0], x[1], {opts})", sample,
                      randn(1, 2, 3, 4), uniform(-1.6, 1.6, 1, 2, 3, 2), at=0)
one("grid_sample/f32", "aril_grid_sample(x[0], x[1], (aril_grid_opts){0})",
    lambda x: F.grid_sample(x[0], x[1], align_corners=False), randn(2, 3, 4, 5),
    uniform(-1.2, 1.2, 2, 3, 2, 2))
one("grid_sample/moved", "aril_grid_sample(x[0], aril_affine_grid(x[1], ARIL_SHAPE(2, 1, 3, 4), "
    "false), (aril_grid_opts){0})",
    lambda x: F.grid_sample(x[0], F.affine_grid(x[1], (2, 1, 3, 4), align_corners=False),
                            align_corners=False), randn(2, 1, 4, 4), randn(2, 2, 3))

# ---- across channels ----

for shape in ((2, 5, 3), (1, 6, 3, 2), (1, 4, 2, 2, 2)):
    one(f"local_response_norm/{len(shape)}d",
        "aril_local_response_norm(x[0], 3, (aril_lrn_opts){.alpha = 0.5})",
        lambda x: F.local_response_norm(x[0], 3, alpha=0.5), randn(*shape))
one("local_response_norm/even", "aril_local_response_norm(x[0], 4, (aril_lrn_opts){.alpha = 0.3, "
    ".beta = 0.5, .k = 2})", lambda x: F.local_response_norm(x[0], 4, 0.3, 0.5, 2.0),
    randn(1, 6, 2, 2))
one("local_response_norm/defaults", "aril_local_response_norm(x[0], 5, (aril_lrn_opts){0})",
    lambda x: F.local_response_norm(x[0], 5), randn(1, 6, 2, 2))
