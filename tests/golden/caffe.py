"""Layers of Caffe, from Caffe's definitions: windows and sums are loops over elements here."""
import itertools
import json
import math
import re

from golden import *

f64 = torch.float64
FLT_MIN = 1.17549435e-38
FLT_MAX = 3.4028234663852886e38

prelude(r'''
/* A net of one layer: its bottoms are x[0] ..., its blobs the inputs after them. With `again` the
 * statistics after the run are results too. */
static __attribute__((unused)) void caffe_layer(aril_tensor **x, aril_tensor **y, int bottoms,
                                                int blobs, int tops, int train, int state,
                                                const char *text)
{
    char net[4096];
    size_t n = 0;
    for (int i = 0; i < bottoms; i++) {
        aril_shape s = aril_shape_of(x[i]);
        n += (size_t)snprintf(net + n, sizeof net - n,
                              "layer { name: \"in%d\" type: \"Input\" top: \"b%d\" input_param { "
                              "shape { ", i, i);
        for (int d = 0; d < s.ndim; d++)
            n += (size_t)snprintf(net + n, sizeof net - n, "dim: %d ", (int)s.dim[d]);
        n += (size_t)snprintf(net + n, sizeof net - n, "} } }\n");
    }
    n += (size_t)snprintf(net + n, sizeof net - n, "layer { name: \"l\" ");
    for (int i = 0; i < bottoms; i++)
        n += (size_t)snprintf(net + n, sizeof net - n, "bottom: \"b%d\" ", i);
    for (int i = 0; i < tops; i++)
        n += (size_t)snprintf(net + n, sizeof net - n, "top: \"t%d\" ", i);
    n += (size_t)snprintf(net + n, sizeof net - n, "%s }", text);
    aril_module *m = aril_caffe_net_parse(net, n, "golden", (aril_caffe_opts){
        .phase = train ? ARIL_CAFFE_TRAIN : ARIL_CAFFE_TEST });
    if (!m) return;
    aril_module_to(m, aril_device_of(x[0])); /* the states of LSTM and RNN */
    const aril_named *named = aril_state(m);
    for (int k = 0; k < blobs && named && k < named->n; k++)
        aril_module_share(m, named->name[k], x[bottoms + k]);
    if (named && named->n != blobs)
        test_fail(__FILE__, __LINE__, "the layer has %d blobs, not %d", named->n, blobs);
    aril_forward_all(m, (aril_list){ bottoms, x }, tops, y);
    for (int k = 0; k < state; k++) y[tops + k] = aril_copy(x[bottoms + k]);
    aril_module_release(m);
}
''')


def layer(name, text, fn, bottoms, blobs=(), tops=1, train=False, state=0, **opts):
    """fn takes bottoms and blobs as one list, and gives the tops. Numbers in the text have 32
    bits: those with a point make other results."""
    if re.search(r"\d\.\d", text) or "BatchNorm" in text or "MVN" in text:
        opts = {"rtol": 2e-6, "atol": 1e-7, **opts}
    c = (f"caffe_layer(x, y, {len(bottoms)}, {len(blobs)}, {tops}, {int(train)}, {state}, "
         f"{json.dumps(text)});")
    case(name, c, fn, list(bottoms) + list(blobs), dtype=f64, **opts)


# ---- convolution ----

def conv(x, w, b, stride, pad, dilation, group):
    """[N,C,H,W] by loops over outputs."""
    n, c, h, ww = x.shape
    k, _, kh, kw = w.shape
    oh = (h + 2 * pad[0] - (dilation[0] * (kh - 1) + 1)) // stride[0] + 1
    ow = (ww + 2 * pad[1] - (dilation[1] * (kw - 1) + 1)) // stride[1] + 1
    rows = []
    cg, kg = c // group, k // group
    for ni in range(n):
        for ki in range(k):
            g = ki // kg
            for oy in range(oh):
                for ox in range(ow):
                    s = x.new_zeros(())
                    for qy in range(kh):
                        for qx in range(kw):
                            iy = oy * stride[0] - pad[0] + qy * dilation[0]
                            ix = ox * stride[1] - pad[1] + qx * dilation[1]
                            if 0 <= iy < h and 0 <= ix < ww:
                                s = s + (x[ni, g * cg:(g + 1) * cg, iy, ix] * w[ki, :, qy, qx]).sum()
                    rows.append(s if b is None else s + b[ki])
    return torch.stack(rows).reshape(n, k, oh, ow)


def deconv(x, w, b, stride, pad, dilation, group):
    n, c, h, ww = x.shape
    _, kg, kh, kw = w.shape
    cg = c // group
    oh = stride[0] * (h - 1) + dilation[0] * (kh - 1) + 1 - 2 * pad[0]
    ow = stride[1] * (ww - 1) + dilation[1] * (kw - 1) + 1 - 2 * pad[1]
    y = {}
    for ni in range(n):
        for ci in range(c):
            for iy in range(h):
                for ix in range(ww):
                    for qy in range(kh):
                        for qx in range(kw):
                            oy = iy * stride[0] - pad[0] + qy * dilation[0]
                            ox = ix * stride[1] - pad[1] + qx * dilation[1]
                            if not (0 <= oy < oh and 0 <= ox < ow):
                                continue
                            for kk in range(kg):
                                at = (ni, ci // cg * kg + kk, oy, ox)
                                v = x[ni, ci, iy, ix] * w[ci, kk, qy, qx]
                                y[at] = y[at] + v if at in y else v
    k = kg * group
    out = [y.get((a, i, o, p), x.new_zeros(())) + (0 if b is None else b[i])
           for a in range(n) for i in range(k) for o in range(oh) for p in range(ow)]
    return torch.stack(out).reshape(n, k, oh, ow)


CONV = 'type: "Convolution" convolution_param { %s }'
layer("convolution/plain", CONV % "num_output: 2 kernel_size: 3",
      lambda x: conv(x[0], x[1], x[2], (1, 1), (0, 0), (1, 1), 1),
      [randn(2, 3, 4, 5)], [randn(2, 3, 3, 3), randn(2)])
layer("convolution/all", CONV % "num_output: 4 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 "
      "pad_h: 2 pad_w: 1 dilation: 1 dilation: 2 group: 2 bias_term: false",
      lambda x: conv(x[0], x[1], None, (2, 1), (2, 1), (1, 2), 2),
      [randn(1, 4, 5, 5)], [randn(4, 2, 3, 2)])
layer("convolution/1d", CONV % "num_output: 2 kernel_size: 3 pad: 1 stride: 2",
      lambda x: F.conv1d(x[0], x[1], x[2], stride=2, padding=1),
      [randn(2, 3, 7)], [randn(2, 3, 3), randn(2)])
layer("convolution/3d", CONV % "num_output: 2 kernel_size: 2 kernel_size: 1 kernel_size: 3 pad: 1 "
      "pad: 0 pad: 1 stride: 2 stride: 1 stride: 1",
      lambda x: F.conv3d(x[0], x[1], x[2], stride=(2, 1, 1), padding=(1, 0, 1)),
      [randn(1, 2, 4, 3, 3)], [randn(2, 2, 2, 1, 3), randn(2)])
layer("convolution/axis", CONV % "num_output: 2 kernel_size: 2 axis: 2",
      lambda x: torch.stack([conv(x[0][:, i], x[1], x[2], (1, 1), (0, 0), (1, 1), 1)
                             for i in range(3)], 1),
      [randn(2, 3, 2, 3, 3)], [randn(2, 2, 2, 2), randn(2)])
layer("convolution/two_bottoms", CONV % "num_output: 2 kernel_size: 2",
      lambda x: (conv(x[0], x[2], x[3], (1, 1), (0, 0), (1, 1), 1),
                 conv(x[1], x[2], x[3], (1, 1), (0, 0), (1, 1), 1)),
      [randn(1, 2, 3, 3), randn(1, 2, 3, 3)], [randn(2, 2, 2, 2), randn(2)], tops=2)
DECONV = 'type: "Deconvolution" convolution_param { %s }'
layer("deconvolution/plain", DECONV % "num_output: 2 kernel_size: 3 stride: 2 pad: 1",
      lambda x: deconv(x[0], x[1], x[2], (2, 2), (1, 1), (1, 1), 1),
      [randn(2, 3, 3, 2)], [randn(3, 2, 3, 3), randn(2)])
layer("deconvolution/group", DECONV % "num_output: 4 kernel_h: 2 kernel_w: 3 group: 2 dilation: 2 "
      "bias_term: false",
      lambda x: deconv(x[0], x[1], None, (1, 1), (0, 0), (2, 2), 2),
      [randn(1, 4, 3, 3)], [randn(4, 2, 2, 3)])


def im2col(x, k, stride, pad, dilation):
    n, c, h, w = x.shape
    oh = (h + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1
    ow = (w + 2 * pad - (dilation * (k - 1) + 1)) // stride + 1
    out = []
    for ni in range(n):
        for ci in range(c):
            for qy in range(k):
                for qx in range(k):
                    for oy in range(oh):
                        for ox in range(ow):
                            iy, ix = oy * stride - pad + qy * dilation, ox * stride - pad + qx * dilation
                            out.append(x[ni, ci, iy, ix] if 0 <= iy < h and 0 <= ix < w
                                       else x.new_zeros(()))
    return torch.stack(out).reshape(n, c * k * k, oh, ow)


layer("im2col/all", 'type: "Im2col" convolution_param { kernel_size: 2 stride: 2 pad: 1 dilation: 2 }',
      lambda x: im2col(x[0], 2, 2, 1, 2), [randn(2, 2, 4, 5)])


def im2col_nd(x, axis, k, stride, pad, dilation):
    """The same with any number of spatial axes, which have their own sizes."""
    lead, c, spatial = x.shape[:axis], x.shape[axis], x.shape[axis + 1:]
    n = range(len(spatial))
    out = [(spatial[i] + 2 * pad[i] - (dilation[i] * (k[i] - 1) + 1)) // stride[i] + 1 for i in n]
    x = x.reshape(-1, c, *spatial)
    all_of = lambda sizes: itertools.product(*(range(s) for s in sizes))
    values = []
    for b, ci, q, o in itertools.product(range(x.shape[0]), range(c), all_of(k), list(all_of(out))):
        at = tuple(o[i] * stride[i] - pad[i] + q[i] * dilation[i] for i in n)
        inside = all(0 <= at[i] < spatial[i] for i in n)
        values.append(x[(b, ci) + at] if inside else x.new_zeros(()))
    return torch.stack(values).reshape(*lead, c * math.prod(k), *out)


layer("im2col/line", 'type: "Im2col" convolution_param { kernel_size: 3 stride: 2 pad: 1 }',
      lambda x: im2col_nd(x[0], 1, [3], [2], [1], [1]), [randn(2, 2, 6)])
layer("im2col/volume", 'type: "Im2col" convolution_param { kernel_size: 2 kernel_size: 1 kernel_size: 3 '
      'stride: 1 stride: 2 stride: 2 pad: 1 pad: 0 pad: 2 dilation: 2 dilation: 1 dilation: 1 }',
      lambda x: im2col_nd(x[0], 1, [2, 1, 3], [1, 2, 2], [1, 0, 2], [2, 1, 1]), [randn(2, 2, 3, 3, 2)])
layer("im2col/axis", 'type: "Im2col" convolution_param { kernel_size: 2 axis: 2 }',
      lambda x: im2col_nd(x[0], 2, [2, 2], [1, 1], [0, 0], [1, 1]), [randn(2, 1, 2, 3, 3)])

# ---- pooling ----


def pooled(size, k, stride, pad, any_pad, floor=False):
    n = size + 2 * pad - k
    out = (n // stride if floor else math.ceil(n / stride)) + 1
    if any_pad and (out - 1) * stride >= size + pad:
        out -= 1
    return out


def pool(x, method, k, stride, pad, floor=False):
    n, c, h, w = x.shape
    any_pad = pad[0] or pad[1]
    oh = pooled(h, k[0], stride[0], pad[0], any_pad, floor)
    ow = pooled(w, k[1], stride[1], pad[1], any_pad, floor)
    out, mask = [], []
    for ni in range(n):
        for ci in range(c):
            for oy in range(oh):
                for ox in range(ow):
                    y0, x0 = oy * stride[0] - pad[0], ox * stride[1] - pad[1]
                    y1, x1 = min(y0 + k[0], h + pad[0]), min(x0 + k[1], w + pad[1])
                    size = (y1 - y0) * (x1 - x0)
                    y0, x0, y1, x1 = max(y0, 0), max(x0, 0), min(y1, h), min(x1, w)
                    at = [(i, j) for i in range(y0, y1) for j in range(x0, x1)]
                    if method == "AVE":
                        v = sum((x[ni, ci, i, j] for i, j in at), x.new_zeros(())) / size
                    elif method == "MAX":
                        best, where = x.new_tensor(-FLT_MAX), -1
                        for i, j in at:
                            if x[ni, ci, i, j] > best:
                                best, where = x[ni, ci, i, j], i * w + j
                        v = best
                        mask.append(where)
                    else:  # STOCHASTIC in the test phase
                        s = sum((x[ni, ci, i, j] for i, j in at), x.new_zeros(()))
                        q = sum((x[ni, ci, i, j] ** 2 for i, j in at), x.new_zeros(()))
                        v = q / s if s > 0 else s * 0
                    out.append(v)
    y = torch.stack(out).reshape(n, c, oh, ow)
    return (y, torch.tensor(mask, dtype=f64).reshape(n, c, oh, ow)) if mask else y


POOL = 'type: "Pooling" pooling_param { pool: %s %s }'
for method in ("MAX", "AVE"):
    def run(k, s, p, floor=False, method=method):
        def fn(x):
            y = pool(x[0], method, k, s, p, floor)
            return y[0] if method == "MAX" else y
        return fn
    make = apart if method == "MAX" else randn
    word = method.lower()
    layer(f"pooling/{word}_ceil", POOL % (method, "kernel_size: 3 stride: 2"),
          run((3, 3), (2, 2), (0, 0)), [make(2, 2, 6, 7)])
    layer(f"pooling/{word}_pad", POOL % (method, "kernel_size: 3 stride: 2 pad: 1"),
          run((3, 3), (2, 2), (1, 1)), [make(1, 2, 6, 5)])
    layer(f"pooling/{word}_clipped", POOL % (method, "kernel_size: 2 stride: 3 pad: 1"),
          run((2, 2), (3, 3), (1, 1)), [make(1, 2, 4, 5)])
    layer(f"pooling/{word}_sides", POOL % (method, "kernel_h: 2 kernel_w: 4 stride_h: 3 stride_w: 2 "
          "pad_h: 0 pad_w: 2"), run((2, 4), (3, 2), (0, 2)), [make(1, 2, 6, 6)])
    layer(f"pooling/{word}_floor", POOL % (method, "kernel_size: 3 stride: 2 round_mode: FLOOR"),
          run((3, 3), (2, 2), (0, 0), True), [make(1, 2, 6, 8)])
    layer(f"pooling/{word}_global", POOL % (method, "global_pooling: true"),
          run((3, 5), (1, 1), (0, 0)), [make(2, 2, 3, 5)])
    layer(f"pooling/{word}_larger", POOL % (method, "kernel_size: 7 stride: 2"),
          run((7, 7), (2, 2), (0, 0)), [make(1, 2, 6, 6)])
    layer(f"pooling/{word}_empty_window", POOL % (method, "kernel_size: 1 stride: 2"),
          run((1, 1), (2, 2), (0, 0)) if method == "MAX" else
          lambda x: F.pad(x[0][:, :, ::2, ::2], (0, 1, 0, 1)), [make(1, 2, 4, 4)])
layer("pooling/mask", POOL % ("MAX", "kernel_size: 2 stride: 2"),
      lambda x: pool(x[0], "MAX", (2, 2), (2, 2), (0, 0)), [apart(1, 2, 5, 4)], tops=2)
layer("pooling/stochastic_test", POOL % ("STOCHASTIC", "kernel_size: 3 stride: 2"),
      lambda x: pool(x[0], "STOCHASTIC", (3, 3), (2, 2), (0, 0)), [uniform(0.1, 1, 1, 2, 6, 5)])


def spp(x, levels, method):
    parts = []
    for i in range(levels):
        bins = 2 ** i
        k, p = [], []
        for size in x.shape[2:]:
            kk = math.ceil(size / bins)
            k.append(kk)
            p.append((kk * bins - size + 1) // 2)
        y = pool(x, method, k, k, p)
        parts.append((y[0] if method == "MAX" else y).flatten(1))
    return torch.cat(parts, 1)


layer("spp/max", 'type: "SPP" spp_param { pyramid_height: 3 }', lambda x: spp(x[0], 3, "MAX"),
      [apart(2, 2, 9, 6)])
layer("spp/ave", 'type: "SPP" spp_param { pyramid_height: 2 pool: AVE }',
      lambda x: spp(x[0], 2, "AVE"), [randn(2, 2, 5, 6)])
layer("spp/one", 'type: "SPP" spp_param { pyramid_height: 1 }',
      lambda x: x[0].amax((2, 3), keepdim=True), [apart(2, 2, 3, 4)])

# ---- products ----

IP = 'type: "InnerProduct" inner_product_param { %s }'
layer("inner_product/plain", IP % "num_output: 3", lambda x: x[0].flatten(1) @ x[1].T + x[2],
      [randn(2, 2, 3, 1)], [randn(3, 6), randn(3)])
layer("inner_product/transpose", IP % "num_output: 3 transpose: true bias_term: false",
      lambda x: x[0] @ x[1], [randn(2, 4)], [randn(4, 3)])
layer("inner_product/axis", IP % "num_output: 3 axis: 2",
      lambda x: x[0].flatten(2) @ x[1].T + x[2], [randn(2, 3, 2, 2)], [randn(3, 4), randn(3)])
layer("inner_product/negative_axis", IP % "num_output: 2 axis: -1",
      lambda x: x[0] @ x[1].T + x[2], [randn(2, 3, 4)], [randn(2, 4), randn(2)])
layer("inner_product/axis_0", IP % "num_output: 2 axis: 0",
      lambda x: x[0].flatten() @ x[1].T + x[2], [randn(2, 3)], [randn(2, 6), randn(2)])
EMBED = 'type: "Embed" embed_param { %s }'
layer("embed/plain", EMBED % "num_output: 3 input_dim: 5", lambda x: x[1][x[0]] + x[2],
      [randint(0, 5, 2, 4)], [randn(5, 3), randn(3)])
layer("embed/no_bias", EMBED % "num_output: 2 input_dim: 4 bias_term: false",
      lambda x: x[1][x[0]], [tensor([0, 3, 3, 1])], [randn(4, 2)])
SCALE = 'type: "Scale" scale_param { %s }'
layer("scale/plain", SCALE % "bias_term: true",
      lambda x: x[0] * x[1][:, None, None] + x[2][:, None, None], [randn(2, 3, 2, 2)],
      [randn(3), randn(3)])
layer("scale/axes", SCALE % "axis: 1 num_axes: 2", lambda x: x[0] * x[1][:, :, None],
      [randn(2, 3, 2, 2)], [randn(3, 2)])
layer("scale/all_axes", SCALE % "axis: 0 num_axes: -1", lambda x: x[0] * x[1], [randn(2, 3)],
      [randn(2, 3)])
layer("scale/number", SCALE % "num_axes: 0", lambda x: x[0] * x[1], [randn(2, 3)], [randn()])
layer("scale/two_bottoms", SCALE % "axis: 0 bias_term: true",
      lambda x: x[0] * x[1][:, None] + x[2][:, None], [randn(2, 3), randn(2)], [randn(2)])
BIAS = 'type: "Bias" bias_param { %s }'
layer("bias/plain", BIAS % "", lambda x: x[0] + x[1][:, None], [randn(2, 3, 2)], [randn(3)])
layer("bias/two_bottoms", BIAS % "axis: -1", lambda x: x[0] + x[1], [randn(2, 3, 2), randn(2)])

# ---- normalization ----


def lrn(x, size, alpha, beta, k=1.0):
    rows = []
    for c in range(x.shape[1]):
        low, high = max(0, c - (size - 1) // 2), min(x.shape[1], c + (size - 1) // 2 + 1)
        rows.append(x[:, c] * (k + alpha / size * (x[:, low:high] ** 2).sum(1)) ** -beta)
    return torch.stack(rows, 1)


def lrn_within(x, size, alpha, beta):
    pad = (size - 1) // 2
    return x * (1 + alpha * pool(x * x, "AVE", (size, size), (1, 1), (pad, pad))) ** -beta


LRN = 'type: "LRN" lrn_param { %s }'
layer("lrn/across", LRN % "local_size: 3 alpha: 0.7 beta: 0.6", lambda x: lrn(x[0], 3, 0.7, 0.6),
      [randn(2, 5, 2, 2)])
layer("lrn/k", LRN % "k: 2", lambda x: lrn(x[0], 5, 1.0, 0.75, 2.0), [randn(1, 6, 2, 2)])
layer("lrn/within", LRN % "local_size: 3 alpha: 0.7 beta: 0.6 norm_region: WITHIN_CHANNEL",
      lambda x: lrn_within(x[0], 3, 0.7, 0.6), [randn(1, 2, 4, 3)])


def bn_global(x, mean, var, s, eps):
    f = 0 if s == 0 else 1 / s
    shape = (1, -1) + (1,) * (x.dim() - 2)
    return (x - (mean * f).reshape(shape)) / (var * f + eps).sqrt().reshape(shape)


def bn_batch(x, mean, var, s, eps, fraction):
    axes = (0,) + tuple(range(2, x.dim()))
    shape = (1, -1) + (1,) * (x.dim() - 2)
    n = x.numel() // x.shape[1]
    m = x.mean(axes)
    v = ((x - m.reshape(shape)) ** 2).mean(axes)
    y = (x - m.reshape(shape)) / (v + eps).sqrt().reshape(shape)
    with torch.no_grad():
        return (y, fraction * mean + m, fraction * var + v * (n / (n - 1) if n > 1 else 1),
                fraction * s + 1)


BN = 'type: "BatchNorm" batch_norm_param { %s }'
STATS = [randn(3), uniform(1, 2, 3), tensor([2.5])]
layer("batch_norm/test", BN % "", lambda x: bn_global(x[0], x[1], x[2], x[3], 1e-5),
      [randn(2, 3, 2, 2)], STATS, grad=[0])
layer("batch_norm/empty_statistics", BN % "eps: 0.5",
      lambda x: bn_global(x[0], x[1], x[2], x[3], 0.5), [randn(2, 3, 2, 2)],
      [randn(3), randn(3), tensor([0.0])], grad=[0])
layer("batch_norm/train", BN % "moving_average_fraction: 0.9",
      lambda x: bn_batch(x[0], x[1], x[2], x[3], 1e-5, 0.9), [randn(3, 3, 2, 2)], STATS, train=True,
      state=3, grad=[0])
layer("batch_norm/train_global", BN % "use_global_stats: true",
      lambda x: bn_global(x[0], x[1], x[2], x[3], 1e-5), [randn(2, 3, 2, 2)], STATS, train=True,
      grad=[0])
layer("batch_norm/test_batch", BN % "use_global_stats: false moving_average_fraction: 0.5 eps: 0.1",
      lambda x: bn_batch(x[0], x[1], x[2], x[3], 0.1, 0.5), [randn(4, 3)], STATS, state=3, grad=[0])
layer("batch_norm/single_element", BN % "use_global_stats: false",
      lambda x: bn_batch(x[0], x[1], x[2], x[3], 1e-5, 0.999), [randn(1, 3)], STATS, state=3,
      grad=False)


class Normalized(torch.autograd.Function):
    """Caffe's backward takes eps as a part of the deviation: not quite the derivative."""

    @staticmethod
    def forward(ctx, x, axes, eps):
        d = x - x.mean(axes, keepdim=True)
        divisor = (d * d).mean(axes, keepdim=True).sqrt() + eps
        ctx.axes = axes
        ctx.save_for_backward(d / divisor, divisor)
        return d / divisor

    @staticmethod
    def backward(ctx, g):
        y, divisor = ctx.saved_tensors
        mean = lambda t: t.mean(ctx.axes, keepdim=True)
        return (g - mean(g) - y * mean(y * g)) / divisor, None, None


def mvn(x, variance, across, eps):
    shape = x.shape
    x = x.reshape(shape + (1,) * (4 - x.dim()))
    axes = (1, 2, 3) if across else (2, 3)
    y = Normalized.apply(x, axes, eps) if variance else x - x.mean(axes, keepdim=True)
    return y.reshape(shape)


for across in (False, True):
    for variance in (False, True):
        layer(f"mvn/{'across' if across else 'channel'}_{'variance' if variance else 'mean'}",
              f'type: "MVN" mvn_param {{ across_channels: {str(across).lower()} '
              f'normalize_variance: {str(variance).lower()} eps: 0.01 }}',
              lambda x, a=across, v=variance: mvn(x[0], v, a, 0.01), [randn(2, 3, 2, 3)])
layer("mvn/large_eps", 'type: "MVN" mvn_param { eps: 0.5 }', lambda x: mvn(x[0], True, False, 0.5),
      [randn(2, 3, 2, 3)])
layer("mvn/no_spatial_axes", 'type: "MVN"', lambda x: mvn(x[0], True, False, 1e-9), [randn(2, 3)])
layer("mvn/across_vectors", 'type: "MVN" mvn_param { across_channels: true }',
      lambda x: mvn(x[0], True, True, 1e-9), [randn(2, 3)])

# ---- functions of elements ----

for name, text, fn in (
        ("relu", "", lambda x: x * (x > 0)),
        ("relu_slope", "relu_param { negative_slope: 0.3 }", lambda x: torch.where(x > 0, x, 0.3 * x)),
        ("elu", "elu_param { alpha: 0.7 }", lambda x: torch.where(x > 0, x, 0.7 * (x.exp() - 1))),
        ("sigmoid", "", lambda x: 1 / (1 + (-x).exp())),
        ("tanH", "", lambda x: 2 / (1 + (-2 * x).exp()) - 1),
        ("absVal", "", lambda x: x * torch.sign(x)),
        ("bNLL", "", lambda x: torch.where(x > 0, x + (1 + (-x).exp()).log(), (1 + x.exp()).log())),
        ("power", "power_param { power: 3 scale: 0.5 shift: 0.1 }", lambda x: (0.5 * x + 0.1) ** 3),
        ("power_2", "power_param { power: 2 }", lambda x: x * x),
        ("power_linear", "power_param { scale: 2 shift: 1 }", lambda x: 2 * x + 1),
        ("power_0", "power_param { power: 0 scale: 2 }", lambda x: torch.ones_like(x)),
        ("power_constant", "power_param { power: 2 scale: 0 shift: 3 }", lambda x: x.detach() * 0 + 9),
        ("exp", "exp_param { scale: 0.5 shift: 0.2 }", lambda x: (0.5 * x + 0.2).exp()),
        ("exp_base", "exp_param { base: 2 }", lambda x: 2 ** x),
        ("threshold", "threshold_param { threshold: 0.2 }", lambda x: (x.detach() > 0.2).double()),
        ("clip", "clip_param { min: -0.5 max: 0.75 }", lambda x: x.clamp(-0.5, 0.75)),
        ("swish", "", lambda x: x / (1 + (-x).exp())),
        ("swish_beta", "swish_param { beta: 1.5 }", lambda x: x / (1 + (-1.5 * x).exp()))):
    kind = {"relu": "ReLU", "elu": "ELU"}.get(name.split("_")[0],
                                              name.split("_")[0][0].upper() + name.split("_")[0][1:])
    # Numbers of messages are floats of 32 bits.
    layer(f"{kind}/{name}", f'type: "{kind}" {text}', lambda x, fn=fn: fn(x[0]),
          [apart(2, 3, 4) * 0.7 + 0.013])
AT_BOUNDS = tensor([-1, 0, 3, 6, 7], dtype=f64)


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward((x >= low) & (x <= high))
        return x.clamp(max=high).clamp(min=low)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None, None


layer("Clip/at_bounds", 'type: "Clip" clip_param { min: 0 max: 6 }',
      lambda x: Clip.apply(x[0], 0, 6), [AT_BOUNDS])
layer("Clip/crossed", 'type: "Clip" clip_param { min: 1 max: -1 }',
      lambda x: Clip.apply(x[0], 1, -1), [AT_BOUNDS])
layer("Log/log", 'type: "Log" log_param { base: 10 scale: 2 shift: 0.5 }',
      lambda x: (2 * x[0] + 0.5).log() / math.log(10), [uniform(0.1, 2, 2, 3)])
layer("Log/natural", 'type: "Log"', lambda x: x[0].log(), [uniform(0.1, 2, 2, 3)])
layer("PReLU/channels", 'type: "PReLU"',
      lambda x: torch.where(x[0] > 0, x[0], x[1][:, None] * x[0]), [apart(2, 3, 2)], [randn(3)])
layer("PReLU/shared", 'type: "PReLU" prelu_param { channel_shared: true }',
      lambda x: torch.where(x[0] > 0, x[0], x[1] * x[0]), [apart(2, 3, 2)], [randn()])
layer("Dropout/test", 'type: "Dropout" dropout_param { dropout_ratio: 0.9 }', lambda x: x[0] * 1,
      [randn(2, 3)])

# ---- shapes ----

layer("concat/axis", 'type: "Concat" concat_param { axis: -1 }', lambda x: torch.cat(x, 2),
      [randn(2, 2, 1), randn(2, 2, 3)])
layer("concat/older", 'type: "Concat" concat_param { concat_dim: 0 }', lambda x: torch.cat(x, 0),
      [randn(1, 2), randn(3, 2)])
layer("slice/equal", 'type: "Slice"', lambda x: (x[0][:, :2], x[0][:, 2:4], x[0][:, 4:]),
      [randn(2, 6)], tops=3)
layer("slice/points", 'type: "Slice" slice_param { axis: 2 slice_point: 1 slice_point: 3 }',
      lambda x: (x[0][:, :, :1], x[0][:, :, 1:3], x[0][:, :, 3:]), [randn(2, 2, 5)], tops=3)
layer("split/plain", 'type: "Split"', lambda x: (x[0] * 1, x[0] * 1), [randn(2, 3)], tops=2)
layer("flatten/plain", 'type: "Flatten"', lambda x: x[0].flatten(1), [randn(2, 3, 2)])
layer("flatten/axes", 'type: "Flatten" flatten_param { axis: 0 end_axis: 1 }',
      lambda x: x[0].flatten(0, 1), [randn(2, 3, 2)])
layer("reshape/copy", 'type: "Reshape" reshape_param { shape { dim: 0 dim: -1 dim: 2 } }',
      lambda x: x[0].reshape(2, 6, 2), [randn(2, 3, 4)])
layer("reshape/axis", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 2 } axis: 1 num_axes: 1 }',
      lambda x: x[0].reshape(2, 2, 2, 3), [randn(2, 4, 3)])
layer("reshape/insert", 'type: "Reshape" reshape_param { shape { dim: 1 } axis: -1 num_axes: 0 }',
      lambda x: x[0].reshape(2, 4, 1), [randn(2, 4)])
layer("permute/all", 'type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 }',
      lambda x: x[0].permute(0, 2, 3, 1), [randn(2, 3, 2, 4)])
layer("permute/rest", 'type: "Permute" permute_param { order: 2 }',
      lambda x: x[0].permute(2, 0, 1), [randn(2, 3, 4)])
layer("crop/offset", 'type: "Crop" crop_param { axis: 2 offset: 1 offset: 2 }',
      lambda x: x[0][:, :, 1:3, 2:5] + 0 * x[1].sum(), [randn(2, 2, 4, 5), randn(2, 2, 2, 3)])
layer("crop/one_offset", 'type: "Crop" crop_param { axis: 1 offset: 1 }',
      lambda x: x[0][:, 1:2, 1:3] + 0 * x[1].sum(), [randn(2, 3, 3), randn(2, 1, 2)])
layer("tile/axis", 'type: "Tile" tile_param { axis: 1 tiles: 3 }',
      lambda x: torch.cat([x[0]] * 3, 1), [randn(2, 2, 2)])

# ---- combining and choosing ----

layer("eltwise/sum", 'type: "Eltwise" eltwise_param { coeff: 1 coeff: -0.5 coeff: 2 }',
      lambda x: x[0] - 0.5 * x[1] + 2 * x[2], [randn(2, 3), randn(2, 3), randn(2, 3)])
layer("eltwise/prod", 'type: "Eltwise" eltwise_param { operation: PROD }',
      lambda x: x[0] * x[1] * x[2], [randn(2, 3), randn(2, 3), randn(2, 3)])
layer("eltwise/prod_unstable", 'type: "Eltwise" eltwise_param { operation: PROD '
      'stable_prod_grad: false }', lambda x: x[0] * x[1], [randn(2, 3), randn(2, 3)])
layer("eltwise/max", 'type: "Eltwise" eltwise_param { operation: MAX }',
      lambda x: torch.stack(x).amax(0), [randn(2, 3), randn(2, 3), randn(2, 3)])
layer("eltwise/max_equal", 'type: "Eltwise" eltwise_param { operation: MAX }',
      lambda x: x[1] + 0 * x[0], [tensor([1.0, 2.0]), tensor([1.0, 2.0])])
for op, fn in (("SUM", lambda t: t.sum(-1)), ("ASUM", lambda t: t.abs().sum(-1)),
               ("SUMSQ", lambda t: (t * t).sum(-1)), ("MEAN", lambda t: t.mean(-1))):
    layer(f"reduction/{op.lower()}", f'type: "Reduction" reduction_param {{ operation: {op} axis: 1 '
          'coeff: 1.5 }', lambda x, fn=fn: 1.5 * fn(x[0].flatten(1)), [randn(2, 3, 2)])
layer("reduction/all", 'type: "Reduction"', lambda x: x[0].sum(), [randn(2, 3)])
layer("batch_reindex/plain", 'type: "BatchReindex"', lambda x: x[0][x[1]],
      [randn(3, 2), tensor([2, 0, 0, 1])])
layer("filter/plain", 'type: "Filter"', lambda x: (x[0][[1, 2]], x[1][[1, 2]]),
      [randn(4, 2), randn(4, 1, 2), tensor([0, 1, 1, 0])], tops=2)
layer("filter/none", 'type: "Filter"', lambda x: x[0][:0], [randn(2, 2), tensor([0, 0])], grad=False)


def argmax(x, k, values, axis=None):
    """Indices of the k largest elements; of equal ones the last first."""
    moved = x.flatten(1) if axis is None else x.movedim(axis, -1)
    rows = moved.reshape(-1, moved.shape[-1]).tolist()
    best = [sorted(((v, i) for i, v in enumerate(r)), reverse=True)[:k] for r in rows]
    i = torch.tensor([[float(p[1]) for p in b] for b in best], dtype=x.dtype)
    v = torch.tensor([[p[0] for p in b] for b in best], dtype=x.dtype)
    if axis is not None:
        return (v if values else i).reshape(*moved.shape[:-1], k).movedim(-1, axis)
    y = torch.stack([i, v], 1) if values else i.unsqueeze(1)
    return y.reshape(y.shape + (1,) * (x.dim() - 3))


ARGMAX = 'type: "ArgMax" argmax_param { %s }'
layer("argmax/plain", ARGMAX % "", lambda x: argmax(x[0], 1, False), [apart(3, 4)], grad=False)
layer("argmax/values", ARGMAX % "out_max_val: true top_k: 2", lambda x: argmax(x[0], 2, True),
      [apart(2, 3, 2, 1)], grad=False)
layer("argmax/axis", ARGMAX % "axis: 1 top_k: 2", lambda x: argmax(x[0], 2, False, 1),
      [apart(2, 4, 3)], grad=False)
layer("argmax/axis_values", ARGMAX % "axis: -1 out_max_val: true", lambda x: argmax(x[0], 1, True, 2),
      [apart(2, 4, 3)], grad=False)
layer("argmax/equal", ARGMAX % "top_k: 2", lambda x: argmax(x[0], 2, False),
      [tensor([[1.0, 3.0, 3.0, 0.0]])], grad=False)

# ---- losses ----


def positions(x, axis):
    """[outer,C,inner]"""
    outer = math.prod(x.shape[:axis])
    return x.reshape(outer, x.shape[axis], -1)


def normalizer(mode, each, valid, outer):
    n = {"FULL": each.numel(), "VALID": sum(valid), "BATCH_SIZE": outer, "NONE": 1}[mode]
    return max(1, n)


def softmax_loss(x, label, axis=1, ignore=None, mode="VALID"):
    p = positions(torch.softmax(x, axis), axis)
    t = label.reshape(p.shape[0], p.shape[2])
    total, valid = x.new_zeros(()), []
    for o in range(p.shape[0]):
        for i in range(p.shape[2]):
            k = int(t[o, i])
            valid.append(k != ignore)
            if valid[-1]:
                total = total - p[o, k, i].log()
    return total / normalizer(mode, t, valid, p.shape[0])


SML = 'type: "SoftmaxWithLoss" %s'
layer("softmax/axis", 'type: "Softmax" softmax_param { axis: 2 }', lambda x: torch.softmax(x[0], 2),
      [randn(2, 3, 4)])
layer("softmax_loss/plain", SML % "", lambda x: softmax_loss(x[0], x[1]),
      [randn(3, 4), randint(0, 4, 3)])
layer("softmax_loss/float_labels", SML % "", lambda x: softmax_loss(x[0], x[1]),
      [randn(3, 4), randint(0, 4, 3).double()], grad=[0])
layer("softmax_loss/positions", SML % "", lambda x: (softmax_loss(x[0], x[1]), torch.softmax(x[0], 1)),
      [randn(2, 4, 2, 3), randint(0, 4, 2, 1, 2, 3)], tops=2)
layer("softmax_loss/axis", SML % "softmax_param { axis: -1 }", lambda x: softmax_loss(x[0], x[1], 2),
      [randn(2, 3, 4), randint(0, 4, 2, 3)])
for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE"):
    layer(f"softmax_loss/{mode.lower()}",
          SML % f"loss_param {{ ignore_label: 1 normalization: {mode} }}",
          lambda x, mode=mode: softmax_loss(x[0], x[1], 1, 1, mode),
          [randn(2, 4, 3), tensor([[1, 2, 3], [0, 1, 1]])])
layer("softmax_loss/legacy", SML % "loss_param { ignore_label: -1 normalize: false }",
      lambda x: softmax_loss(x[0], x[1], 1, -1, "BATCH_SIZE"),
      [randn(2, 4, 3), tensor([[-1, 2, 3], [0, 1, -1]])])
layer("softmax_loss/all_ignored", SML % "loss_param { ignore_label: 7 }", lambda x: x[0].sum() * 0,
      [randn(2, 4), tensor([7, 7])])
layer("softmax_loss/underflow", SML % "", lambda x: x[0].sum() * 0 - math.log(FLT_MIN),
      [tensor([[0.0, 500.0]]), tensor([0])], grad=False)


def multinomial(x, label):
    p = torch.stack([x[i, int(label[i])] for i in range(len(label))]).flatten()
    return -(p.clamp(min=1e-20).log()).sum() / len(label)


layer("multinomial/plain", 'type: "MultinomialLogisticLoss"', lambda x: multinomial(x[0], x[1]),
      [uniform(0.1, 0.9, 3, 4), randint(0, 4, 3)])


def infogain(x, label, h, axis=1, ignore=None, mode="VALID"):
    p = positions(torch.softmax(x, axis), axis)
    t = label.reshape(p.shape[0], p.shape[2])
    h = h.reshape(p.shape[1], p.shape[1])
    total, valid = x.new_zeros(()), []
    for o in range(p.shape[0]):
        for i in range(p.shape[2]):
            k = int(t[o, i])
            valid.append(k != ignore)
            if valid[-1]:
                total = total - (h[k] * p[o, :, i].clamp(min=1e-20).log()).sum()
    return total / normalizer(mode, t, valid, p.shape[0])


layer("infogain/bottom", 'type: "InfogainLoss"', lambda x: infogain(x[0], x[1], x[2]),
      [randn(3, 4), randint(0, 4, 3), rand(1, 1, 4, 4)], grad=[0])
layer("infogain/positions", 'type: "InfogainLoss" loss_param { ignore_label: 0 normalization: FULL }',
      lambda x: (infogain(x[0], x[1], x[2], 1, 0, "FULL"), torch.softmax(x[0], 1)),
      [randn(2, 3, 2), tensor([[0, 1], [2, 0]]), rand(3, 3)], tops=2, grad=[0])


def sigmoid_loss(x, t, ignore=None, mode="BATCH_SIZE"):
    total, valid = x.new_zeros(()), []
    for a, b in zip(x.flatten(), t.flatten()):
        valid.append(int(b) != ignore if ignore is not None else True)
        if valid[-1]:
            total = total - (b * torch.sigmoid(a).log() + (1 - b) * (1 - torch.sigmoid(a)).log())
    return total / normalizer(mode, x, valid, x.shape[0])


SCE = 'type: "SigmoidCrossEntropyLoss" %s'
layer("sigmoid_loss/plain", SCE % "", lambda x: sigmoid_loss(x[0], x[1]), [randn(2, 3), rand(2, 3)],
      grad=[0])
layer("sigmoid_loss/ignored", SCE % "loss_param { ignore_label: -1 normalization: VALID }",
      lambda x: (sigmoid_loss(x[0], x[1], -1, "VALID"), torch.sigmoid(x[0])),
      [randn(2, 3), tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])], tops=2, grad=[0])
layer("euclidean/plain", 'type: "EuclideanLoss"',
      lambda x: ((x[0] - x[1]) ** 2).sum() / (2 * x[0].shape[0]), [randn(3, 2, 2), randn(3, 2, 2)])


def hinge(x, label, square):
    total = x.new_zeros(())
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            d = (1 + (-1 if k == label[i] else 1) * x[i, k]).clamp(min=0)
            total = total + (d * d if square else d)
    return total / x.shape[0]


layer("hinge/l1", 'type: "HingeLoss"', lambda x: hinge(x[0], x[1], False),
      [randn(3, 4), randint(0, 4, 3)])
layer("hinge/l2", 'type: "HingeLoss" hinge_loss_param { norm: L2 }',
      lambda x: hinge(x[0].flatten(1), x[1], True), [randn(3, 4, 1, 1), randint(0, 4, 3)])


class Unit(torch.autograd.Function):
    """The distance, with Caffe's gradient."""
    @staticmethod
    def forward(ctx, d):
        r = (d * d).sum(1).sqrt()
        ctx.save_for_backward(d, r)
        return r

    @staticmethod
    def backward(ctx, g):
        d, r = ctx.saved_tensors
        return g[:, None] * d / (r + 1e-4)[:, None]


def contrastive(a, b, y, margin, legacy):
    d = a - b
    q = (d * d).sum(1)
    apart_ = (margin - q).clamp(min=0) if legacy else (margin - Unit.apply(d)).clamp(min=0) ** 2
    return torch.where(y != 0, q, apart_).sum() / (2 * len(y))


for legacy in (False, True):
    layer(f"contrastive/{'legacy' if legacy else 'plain'}",
          f'type: "ContrastiveLoss" contrastive_loss_param {{ margin: 3 legacy_version: '
          f'{str(legacy).lower()} }}',
          lambda x, legacy=legacy: contrastive(x[0], x[1], x[2], 3.0, legacy),
          [randn(4, 3), randn(4, 3), tensor([1, 0, 0, 1])])
layer("contrastive/equal", 'type: "ContrastiveLoss"', lambda x: contrastive(x[0], x[1], x[2], 1.0, False),
      [tensor([[1.0, 2.0]]), tensor([[1.0, 2.0]]), tensor([0])])


def accuracy(x, label, k=1, axis=1, ignore=None, classes=False):
    p = positions(x, axis)
    t = label.reshape(p.shape[0], p.shape[2])
    good = n = 0
    each = [[0, 0] for _ in range(p.shape[1])]
    for o in range(p.shape[0]):
        for i in range(p.shape[2]):
            own = int(t[o, i])
            if own == ignore:
                continue
            n += 1
            hit = int((p[o, :, i] >= p[o, own, i]).sum()) - 1 < k
            good += hit
            each[own][0] += hit
            each[own][1] += 1
    y = x.new_tensor(good / n if n else 0.0)
    return (y, x.new_tensor([a / b if b else 0.0 for a, b in each])) if classes else y


ACC = 'type: "Accuracy" accuracy_param { %s }'
layer("accuracy/plain", ACC % "", lambda x: accuracy(x[0], x[1]), [randn(5, 4), randint(0, 4, 5)],
      grad=False)
layer("accuracy/top_k", ACC % "top_k: 2", lambda x: accuracy(x[0], x[1], 2),
      [randn(6, 4), randint(0, 4, 6)], grad=False)
layer("accuracy/equal", ACC % "", lambda x: accuracy(x[0], x[1]),
      [tensor([[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]), tensor([0, 0])], grad=False)
layer("accuracy/axis", ACC % "axis: -1", lambda x: accuracy(x[0], x[1], 1, 2),
      [randn(2, 3, 4), randint(0, 4, 2, 3)], grad=False)
layer("accuracy/classes", ACC % "ignore_label: 3", lambda x: accuracy(x[0], x[1], 1, 1, 3, True),
      [randn(3, 4, 2), tensor([[0, 3], [1, 0], [3, 1]])], tops=2, grad=False)

# ---- sequences ----


def lstm(x, cont, w, b, wh, static=None, ws=None, h=None, c=None):
    t, n = cont.shape
    size = wh.shape[1]
    h = x.new_zeros(n, size) if h is None else h[0]
    c = x.new_zeros(n, size) if c is None else c[0]
    out = []
    for i in range(t):
        k = cont[i][:, None].to(x.dtype)
        g = x[i].flatten(1) @ w.T + b + (k * h) @ wh.T
        if static is not None:
            g = g + static.flatten(1) @ ws.T
        ii, f, o, v = (g[:, j * size:(j + 1) * size] for j in range(4))
        c = k * torch.sigmoid(f) * c + torch.sigmoid(ii) * torch.tanh(v)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out), h[None], c[None]


def rnn(x, cont, w, b, wh, wo, bo, h=None):
    t, n = cont.shape
    h = x.new_zeros(n, wh.shape[0]) if h is None else h[0]
    out = []
    for i in range(t):
        h = torch.tanh(x[i].flatten(1) @ w.T + b + (cont[i][:, None].to(x.dtype) * h) @ wh.T)
        out.append(torch.tanh(h @ wo.T + bo))
    return torch.stack(out), h[None]


CONT = tensor([[0, 0], [1, 1], [1, 0], [1, 1]])
LSTM = 'type: "LSTM" recurrent_param { num_output: 2 %s }'
RNN = 'type: "RNN" recurrent_param { num_output: 2 %s }'
layer("lstm/plain", LSTM % "", lambda x: lstm(x[0], x[1], x[2], x[3], x[4])[0],
      [randn(4, 2, 3), CONT], [randn(8, 3), randn(8), randn(8, 2)])
layer("lstm/static", LSTM % "",
      lambda x: lstm(x[0], x[1], x[3], x[4], x[6], x[2], x[5])[0],
      [randn(4, 2, 3, 1), CONT, randn(2, 2)], [randn(8, 3), randn(8), randn(8, 2), randn(8, 2)])
layer("lstm/exposed", LSTM % "expose_hidden: true",
      lambda x: lstm(x[0], x[1], x[4], x[5], x[6], h=x[2], c=x[3]),
      [randn(3, 2, 3), tensor([[1, 1], [1, 0], [1, 1]]), randn(1, 2, 2), randn(1, 2, 2)],
      [randn(8, 3), randn(8), randn(8, 2)], tops=3)
layer("rnn/plain", RNN % "", lambda x: rnn(x[0], x[1], *x[2:])[0], [randn(4, 2, 3), CONT],
      [randn(2, 3), randn(2), randn(2, 2), randn(2, 2), randn(2)])
layer("rnn/exposed", RNN % "expose_hidden: true",
      lambda x: rnn(x[0], x[1], *x[3:], h=x[2]),
      [randn(3, 2, 3), tensor([[1, 1], [1, 0], [1, 1]]), randn(1, 2, 2)],
      [randn(2, 3), randn(2), randn(2, 2), randn(2, 2), randn(2)], tops=2)
layer("parameter/plain", 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 } }',
      lambda x: x[0] * 1, [], [randn(2, 3)])
