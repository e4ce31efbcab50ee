"""Networks that Keras saved, loaded by aril_keras_load and compared with Keras itself: every layer with random options, small networks
of all kinds, and VGG16, ResNet50, InceptionV3 and EfficientNetB0 of keras.applications with random weights. Outputs must agree within
1e-4, relative to the largest, for .keras and for .h5 files.

With ARIL_KERAS=tf_keras the files are those of Keras 2. Arguments: the number of random cases for each layer (default 12), then names of the tests to run (default: all)."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import logging  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402

from by_ctypes import B, I, I64, P, S, declare, error, options, shape  # noqa: E402

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
try:
    import importlib

    import numpy as np
    keras = importlib.import_module(os.environ.get("ARIL_KERAS", "keras"))  # tf_keras: Keras 2
    L = keras.layers
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Shape, Device = type(shape([1])), options("Device", (C.c_int16, "kind index"))


class List(C.Structure):
    _fields_ = [("n", I), ("at", C.POINTER(P))]


KerasOptions = options("KerasOptions", (B, "channels_last"), (S, "weights"), (Device, "device"))
load, release = declare("aril_keras_load", P, S, KerasOptions), declare("aril_module_release", None, P)
evaluate, forward_all = declare("aril_module_eval", None, P), declare("aril_forward_all", I, P, List, I, C.POINTER(P))
from_memory, read = declare("aril_from", P, P, Shape, I, Device), declare("aril_read", I, P, P)
numel, shape_of, dtype_of = declare("aril_numel", I64, P), declare("aril_shape_of", Shape, P), declare("aril_dtype_of", I, P)
clear = declare("aril_clear_error", None)
parameter_count, trainable_count = declare("aril_parameter_count", I64, P), declare("aril_trainable_count", I64, P)
DTYPES = {"float32": 11, "int64": 8, "int32": 7, "bool": 0}
failures = []


def tensor_of(a):
    a = np.ascontiguousarray(a)
    return from_memory(a.ctypes.data, shape(list(a.shape)), DTYPES[str(a.dtype)], Device())


def values_of(address):
    s = shape_of(address)
    kind = {11: np.float32, 12: np.float64, 0: np.bool_, 8: np.int64, 7: np.int32}[dtype_of(address)]
    out = np.empty([s.dim[i] for i in range(s.ndim)], kind)
    assert read(address, out.ctypes.data) == 0, error()
    return out


def run(path, inputs, n_out, **opts):
    """The outputs of a file's network; None where it does not load or run, with the error."""
    clear()
    m = load(path.encode(), KerasOptions(**opts))
    if not m:
        return None, error().decode()
    evaluate(m)
    ins = (P * len(inputs))(*[tensor_of(x) for x in inputs])
    out = (P * n_out)()
    status = forward_all(m, List(len(inputs), ins), n_out, out)
    result = ([values_of(o) for o in out], "") if status == 0 else (None, error().decode())
    count = parameter_count(m), trainable_count(m)
    release(m)
    return result[0], result[1] or count


def dtype_of_input(t):
    return t.dtype if isinstance(t.dtype, str) else t.dtype.name


def path_of(w):
    return getattr(w, "path", w.name.split(":")[0])


def first(x):
    return np.moveaxis(x, -1, 1) if x.ndim in (4, 5) else x


def far(got, want):
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.size == 0:
        return 0
    return float(np.abs(got.astype(np.float64) - want).max() / max(np.abs(want).max(), 1e-6))


def randomize(model, seed):
    """Weights that no initializer would give, so that nothing is 0 or 1 by chance."""
    r = np.random.default_rng(seed)
    for w in model.weights:
        v = r.normal(size=w.shape).astype(np.float32) * (0.5 / max(1, np.prod(w.shape[:-1]) ** 0.5)) if len(w.shape) > 1 else \
            r.normal(size=w.shape).astype(np.float32) * 0.3
        if "variance" in path_of(w) or "gamma" in path_of(w):
            v = np.abs(v) + 0.5
        if path_of(w).split("/")[-1] in ("mean", "variance", "count"):
            continue  # Normalization computed others from them
        w.assign(v)


def sample(tensor, r, batch=2):
    s = [batch] + [d if d is not None else int(r.integers(5, 9)) for d in tensor.shape[1:]]
    if "int" in dtype_of_input(tensor):
        return r.integers(0, 6, s).astype(dtype_of_input(tensor).replace("int32", "int64"))
    return r.normal(size=s).astype(np.float32)


def compare(name, model, seed=0, inputs=None, formats=("keras", "h5"), keep=False, channels_first=False, tolerance=1e-4, batch=2):
    r = np.random.default_rng(seed)
    if not keep:
        randomize(model, seed)
    inputs = inputs or [sample(t, r, batch) for t in model.inputs]
    want = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    want = [np.asarray(w) for w in (want if isinstance(want, (list, tuple)) else [want])]
    bad = []
    for f in formats:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model." + f)
            model.save(path)
            for last in (True, False):
                turn = (lambda x: x) if last or channels_first else first
                got, why = run(path, [turn(x) for x in inputs], len(want), channels_last=last)
                if got is None:
                    bad.append(f"{f}: {why}")
                    break
                for i, (g, w) in enumerate(zip(got, want)):
                    d = far(g, turn(w))
                    if isinstance(d, str) or not d <= tolerance:
                        bad.append(f"{f}, channels_{'last' if last else 'first'}, output {i}: {d}")
                if why[0] != sum(int(np.prod(w.shape)) for w in model.weights if w.trainable or not any(n in path_of(w) for n in ("moving", "vector_u"))) and not any(
                        "count" in path_of(w) for w in model.weights):
                    bad.append(f"{f}: {why[0]} parameters")
            if bad:
                break
    if bad:
        failures.append(name)
        print(f"FAILED {name}: {'; '.join(bad)}")
        return False
    return True


# ---- random layers ------------------------------------------------------------------------------

ACTIVATIONS = ["relu", "relu6", "leaky_relu", "elu", "selu", "celu", "softplus", "softsign", "silu", "gelu", "tanh", "sigmoid", "exponential",
               "hard_sigmoid", "hard_silu", "mish", "log_sigmoid", "tanh_shrink", "hard_tanh", "soft_shrink", "hard_shrink", "squareplus",
               "sparse_plus", "softmax", "log_softmax", "linear", None]
pick, chance, between = random.choice, lambda p=0.5: random.random() < p, random.randint


def image(n, channels=None):
    sizes = {1: (9, 14), 2: (7, 12), 3: (5, 7)}[n]
    return keras.Input([between(*sizes) for _ in range(n)] + [channels or between(1, 5)])


def windows(n, stride="strides"):
    out = dict(kernel_size=[between(1, 4) for _ in range(n)], padding=pick(["same", "valid"]))
    if chance():
        out[stride] = [between(1, 3) for _ in range(n)]
    elif chance():
        out["dilation_rate"] = [between(1, 2) for _ in range(n)]
    return out


def conv(n):
    groups = pick([1, 1, 2])
    x = image(n, groups * between(1, 3))
    extra = dict(padding="causal") if n == 1 and chance(0.2) else {}
    return x, getattr(L, f"Conv{n}D")(filters=groups * between(1, 4), groups=groups, activation=pick(ACTIVATIONS), use_bias=chance(),
                                      **{**windows(n), **extra})(x)


def transpose(n):
    x = image(n)
    strides = [between(1, 3) for _ in range(n)]
    return x, getattr(L, f"Conv{n}DTranspose")(filters=between(1, 4), kernel_size=[between(1, 4) for _ in range(n)], strides=strides,
                                               padding=pick(["same", "valid"]), activation=pick(ACTIVATIONS), use_bias=chance())(x)


def equal_strides(w):
    if "strides" in w:
        w["strides"] = [w["strides"][0]] * len(w["strides"])
    return w


def depthwise(n):
    x = image(n)
    return x, getattr(L, f"DepthwiseConv{n}D")(depth_multiplier=between(1, 3), activation=pick(ACTIVATIONS), use_bias=chance(),
                                               **equal_strides(windows(n)))(x)


def separable(n):
    x = image(n)
    return x, getattr(L, f"SeparableConv{n}D")(filters=between(1, 5), depth_multiplier=between(1, 3), activation=pick(ACTIVATIONS),
                                               use_bias=chance(), **equal_strides(windows(n)))(x)


def pool(kind, n):
    x = image(n)
    strides = pick([None, [between(1, 3) for _ in range(n)]])
    return x, getattr(L, f"{kind}Pooling{n}D")([between(1, 4) for _ in range(n)], strides=strides, padding=pick(["same", "valid"]))(x)


def global_pool(kind, n):
    x = image(n)
    return x, getattr(L, f"Global{kind}Pooling{n}D")(keepdims=chance())(x)


def padding(kind, n):
    x = image(n)
    sides = [[between(0, 2), between(0, 2)] for _ in range(n)]
    how = pick([sides, [between(0, 2) for _ in range(n)], between(0, 2)])
    if n == 1:
        how = pick([sides[0], between(0, 2)])
    return x, getattr(L, f"{kind}{n}D")(how)(x)


def up(n):
    x = image(n)
    size = [between(1, 3) for _ in range(n)]
    return x, {1: lambda: L.UpSampling1D(size[0]), 2: lambda: L.UpSampling2D(size, interpolation=pick(["nearest", "bilinear"])),
               3: lambda: L.UpSampling3D(size)}[n]()(x)


def resizing():
    x = image(2)
    return x, L.Resizing(between(3, 15), between(3, 15), interpolation=pick(["nearest", "bilinear"]))(x)


def any_input(low=2, high=5):
    n = between(low, high)
    return keras.Input([between(2, 5) for _ in range(n - 1)])


def dense():
    x = any_input(2, 4)
    return x, L.Dense(between(1, 6), activation=pick(ACTIVATIONS), use_bias=chance())(x)


def flattened():
    """A dense layer after the flattened result of a convolution."""
    n = between(1, 3)
    x = image(n)
    y = getattr(L, f"Conv{n}D")(between(2, 4), 2)(x)
    y = L.Flatten()(y)
    for layer in random.sample([L.Dropout(0.5), L.ReLU(), L.Activation("tanh"), L.BatchNormalization(), L.LayerNormalization()], between(0, 2)):
        y = layer(y)
    return x, L.Dense(between(1, 6))(y) if chance(0.8) else y


def batch_norm():
    x = any_input()
    axis = pick([-1, -1, 1])
    return x, L.BatchNormalization(axis=axis, epsilon=10 ** -between(2, 5), center=chance(), scale=chance())(x)


def image_norm():
    """Normalization of an image between convolutions: the axis is turned."""
    x = image(2, 4)
    y = L.Conv2D(4, 2)(x)
    y = pick([lambda: L.BatchNormalization(), lambda: L.GroupNormalization(groups=pick([1, 2, 4, -1])), lambda: L.LayerNormalization(),
              lambda: L.LayerNormalization(axis=[1, 2, 3]), lambda: L.UnitNormalization(), lambda: L.Softmax(), lambda: L.Softmax(axis=1),
              lambda: L.PReLU(shared_axes=pick([None, [1, 2]])), lambda: L.Rescaling([1., 2., 3., 4.], [0.5, 0, 1, 2]),
              lambda: L.RMSNormalization(), lambda: L.SpatialDropout2D(0.5), lambda: L.Permute((2, 1, 3)), lambda: L.BatchNormalization(axis=1),
              lambda: L.Dense(3, activation="softmax"), lambda: L.Activation("softmax"), lambda: L.Reshape((-1, 2))])()(y)
    return x, L.Conv2D(2, 2)(y) if len(y.shape) == 4 and chance() else y


def layer_norm():
    x = any_input(2, 4)
    rank = len(x.shape)
    axis = pick([-1, list(range(1, rank)), 1, rank - 1])
    return x, pick([lambda: L.LayerNormalization(axis=axis, epsilon=10 ** -between(2, 5), center=chance(), scale=chance()),
                    lambda: L.RMSNormalization(axis=-1), lambda: L.UnitNormalization(axis=axis)])()(x)


def group_norm():
    x = keras.Input([between(3, 5) for _ in range(between(0, 2))] + [6])
    return x, L.GroupNormalization(groups=pick([1, 2, 3, 6, -1]), axis=-1, center=chance(), scale=chance())(x)


def adapted(layer):
    layer.adapt(np.random.default_rng(0).normal(2, 3, (5, 4, 4, 3)))
    return layer


def normalization():
    x = keras.Input((4, 4, 3))
    layer = pick([lambda: L.Normalization(mean=[1., 2., 3.], variance=[1., 4., 9.]), lambda: adapted(L.Normalization(axis=-1)),
                  lambda: L.Normalization(mean=1.5, variance=2., axis=None), lambda: L.Normalization(mean=[1., 2., 3.], variance=[1., 4., 9.], invert=True)])()
    return x, layer(x)


def rescaling():
    x = any_input()
    return x, L.Rescaling(random.random() * 3, pick([0, 1.5]))(x)


def activation():
    x = any_input()
    return x, pick([lambda: L.Activation(pick(ACTIVATIONS[:-1])), lambda: L.ReLU(max_value=pick([None, 6., 0.7]), negative_slope=pick([0., 0.1]),
                                                                                 threshold=pick([0., 0.3])),
                    lambda: L.LeakyReLU(random.random()), lambda: L.ELU(1 + random.random()), lambda: L.Softmax(pick([-1, 1])),
                    lambda: L.PReLU(shared_axes=pick([None, [1]])), lambda: L.Activation("gelu")])()(x)


def training_only():
    x = any_input()
    return x, pick([lambda: L.Dropout(0.4), lambda: L.GaussianNoise(1.), lambda: L.GaussianDropout(0.3), lambda: L.AlphaDropout(0.2),
                    lambda: L.ActivityRegularization(0.1), lambda: L.Identity()])()(x)


def merge():
    x = any_input()
    n = between(2, 4) if chance(0.7) else 2
    xs = [x] + [keras.Input(x.shape[1:]) for _ in range(n - 1)]
    kind = pick([L.Add, L.Multiply, L.Average, L.Maximum, L.Minimum])
    if n == 2 and chance(0.3):
        kind = L.Subtract
    return xs, kind()(xs)


def broadcast():
    """A gate [N,1,1,C], or [N,C], times an image."""
    x = image(2, 4)
    y = L.Conv2D(4, 1)(x)
    g = L.GlobalAveragePooling2D(keepdims=chance())(y)
    if len(g.shape) == 2:
        g = L.Reshape((1, 1, 4))(g) if chance() else L.Dense(4)(g)
    return x, pick([L.Multiply, L.Add])()([y, g])


def concatenate():
    x = any_input()
    axis = pick(list(range(1, len(x.shape))) + [-1])
    xs = [x] + [keras.Input([d if i + 1 != axis % len(x.shape) else between(1, 4) for i, d in enumerate(x.shape[1:])]) for _ in range(between(1, 2))]
    return xs, L.Concatenate(axis=axis)(xs)


def dot():
    a, b, c = between(1, 4), between(1, 4), between(1, 4)
    if chance():
        xs = [keras.Input((a,)), keras.Input((a,))]
        return xs, L.Dot(axes=1, normalize=chance())(xs)
    xs = [keras.Input((a, b)), keras.Input((b, c))]
    return xs, L.Dot(axes=(2, 1), normalize=chance())(xs)


def shapes():
    x = keras.Input((4, 6, 2))
    return x, pick([lambda: L.Reshape((12, 4)), lambda: L.Reshape((-1, 8)), lambda: L.Reshape((2, 2, 3, 4)), lambda: L.Permute((3, 1, 2)),
                    lambda: L.Flatten(), lambda: L.Reshape((48,)), lambda: L.Permute((2, 1, 3))])()(x)


def repeat():
    x = keras.Input((between(2, 5),))
    return x, L.RepeatVector(between(1, 4))(x)


def embedding():
    x = keras.Input((between(3, 7),), dtype=pick(["int32", "float32"]))
    return x, L.Embedding(7, between(2, 5))(x)


def recurrent(kind):
    x = keras.Input((pick([5, None]), between(2, 4)))
    units = between(2, 4)
    o = dict(return_sequences=chance(), return_state=chance(0.3), go_backwards=chance(0.3), use_bias=chance(0.8))
    if chance(0.3):
        o["activation"] = pick(["relu", "sigmoid", "softsign"])
    if kind != "SimpleRNN" and chance(0.3):
        o["recurrent_activation"] = pick(["hard_sigmoid", "relu6"])
    if kind == "GRU":
        o["reset_after"] = chance()
    xs = [x]
    states = 2 if kind == "LSTM" else 1
    first = None
    if chance(0.3):
        first = [keras.Input((units,)) for _ in range(states)]
        xs += first
    y = x
    if chance(0.3):
        y = L.Masking(0.)(y)
        o["zero_output_for_mask"] = chance()
    y = getattr(L, kind)(units, **o)(y, initial_state=first)
    return xs, y


def bidirectional():
    x = keras.Input((pick([5, None]), 3))
    layer = pick([L.LSTM, L.GRU, L.SimpleRNN])(between(2, 4), return_sequences=chance(), return_state=chance(0.2))
    y = L.Masking(0.)(x) if chance(0.2) else x
    return x, L.Bidirectional(layer, merge_mode=pick(["concat", "sum", "ave", "mul", None]))(y)


def masked_text():
    x = keras.Input((None,), dtype="int32")
    y = L.Embedding(7, 4, mask_zero=True)(x)
    y = pick([lambda y: L.LSTM(3, return_sequences=True)(y), lambda y: L.Bidirectional(L.GRU(3, return_sequences=True))(y), lambda y: y,
              lambda y: L.MultiHeadAttention(2, 3)(y, y), lambda y: L.Dropout(0.2)(L.Dense(5)(y)), lambda y: L.LayerNormalization()(y)])(y)
    y = pick([lambda y: L.GlobalAveragePooling1D()(y), lambda y: L.LSTM(3)(y), lambda y: L.GRU(3, return_sequences=True)(y), lambda y: y])(y)
    return x, y


def time_distributed():
    x = keras.Input((3, 6, 6, 2))
    inner = pick([lambda: L.Conv2D(3, 3, padding="same"), lambda: L.Dense(4), lambda: L.Flatten(), lambda: L.GlobalAveragePooling2D(),
                  lambda: L.BatchNormalization(), lambda: keras.Sequential([keras.Input((6, 6, 2)), L.Conv2D(2, 2), L.Flatten(), L.Dense(3)])])()
    y = L.TimeDistributed(inner)(x)
    if len(y.shape) == 3 and chance():
        y = L.LSTM(3)(y)
    return x, y


def attention():
    q, v = keras.Input((pick([4, None]), 3)), keras.Input((pick([5, None]), 3))
    keys = [keras.Input((v.shape[1], 3))] if chance(0.3) else []
    kind = pick([L.Attention, L.AdditiveAttention])
    o = dict(use_scale=chance())
    if kind is L.Attention and chance(0.3):
        o["score_mode"] = "concat"
    if keys and keys[0].shape[1] is None:
        keys = []
    return [q, v] + keys, kind(**o)([q, v] + keys, use_causal_mask=chance(0.3), return_attention_scores=chance(0.3))


def multi_head():
    e = between(3, 5)
    q, v = keras.Input((pick([4, None]), e)), keras.Input((5, between(3, 5)))
    xs = [q] if chance() else [q, v]
    o, call = dict(num_heads=between(1, 3), key_dim=between(2, 4), use_bias=chance()), {}
    if chance(0.3):
        o["value_dim"] = between(2, 4)
    if chance(0.3):
        o["output_shape"] = 7
    if chance(0.3):
        call["use_causal_mask"] = True
    if chance(0.2):
        call["return_attention_scores"] = True
    if len(xs) == 2 and chance(0.3):
        m = keras.Input((q.shape[1], 5), dtype="bool")
        y = L.MultiHeadAttention(**o)(q, v, attention_mask=m, **call)
        return xs + [m], y
    if chance(0.2):
        o = dict(head_dim=3, num_query_heads=4, num_key_value_heads=2)
        return xs, L.GroupQueryAttention(**o)(q, xs[-1])
    return xs, L.MultiHeadAttention(**o)(q, xs[-1], **call)


def einsum():
    x = keras.Input((4, 6))
    return x, pick([lambda: L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), lambda: L.EinsumDense("...x,xy->...y", 5, bias_axes="y"),
                    lambda: L.EinsumDense("abc,cde->abde", (None, 2, 3)), lambda: L.EinsumDense("abc,bd->adc", (7, None), bias_axes="dc")])()(x)


def operations():
    x = image(2, 3)
    a, b = L.Conv2D(3, 1)(x), L.Conv2D(3, 1)(x)
    y = pick([lambda: a + b * 2, lambda: (a - 1) / 2, lambda: 1 - a, lambda: 2 / (keras.ops.exp(b) + 1), lambda: keras.ops.mean(a, axis=[1, 2]),
              lambda: keras.ops.sum(a * b, axis=-1, keepdims=True), lambda: keras.ops.relu(a) * keras.ops.sigmoid(b), lambda: abs(a) ** 2,
              lambda: keras.ops.maximum(a, b), lambda: keras.ops.expand_dims(a, 1), lambda: keras.ops.transpose(a, (0, 2, 1, 3)),
              lambda: keras.ops.max(a, axis=3), lambda: -a])()
    return x, y


def functional_activation():
    """Each activation as a function of a value, and the operations with their options."""
    x = keras.Input((5, 4, 6))
    a, ops = keras.activations, keras.ops
    y = L.Conv2D(4, 1)(x) if chance() else x
    names = ("relu relu6 leaky_relu elu selu celu softplus softsign silu gelu tanh sigmoid exponential hard_sigmoid log_sigmoid tanh_shrink hard_tanh "
             "soft_shrink hard_shrink squareplus sparse_plus sparse_sigmoid softmax log_softmax glu linear").split()
    options = [lambda: ops.gelu(y), lambda: ops.gelu(y, approximate=True), lambda: ops.leaky_relu(y, negative_slope=0.1), lambda: ops.elu(y, alpha=0.5),
               lambda: ops.celu(y, alpha=2.0), lambda: ops.softmax(y, axis=1), lambda: ops.softmax(y, axis=-1), lambda: ops.log_softmax(y, axis=2),
               lambda: ops.soft_shrink(y, 0.2), lambda: ops.hard_shrink(y, 0.2), lambda: ops.squareplus(y, b=1), lambda: ops.glu(y, axis=-1),
               lambda: ops.threshold(y, 0.1, -3.0), lambda: a.relu(y, negative_slope=0.1, max_value=0.5, threshold=0.1)]
    return x, [getattr(a, random.choice(names))(y), getattr(a, random.choice(names))(y), random.choice(options)()]


def shaped_operations():
    """Operations with arguments of their own: slices, parts, padding, choices."""
    a, b = keras.Input((6, 4, 3)), keras.Input((6, 4, 3))
    x = [a, b]
    if chance():
        a = L.Conv2D(3, 1)(a)
    ops = keras.ops
    cases = [lambda: a[:, 0], lambda: a[:, 1:5:2, ..., -1], lambda: a[:, None, :, 0:2], lambda: a[..., ::2], lambda: a[:, -2:], lambda: a[:, :, 1],
             lambda: ops.clip(a, -0.5, 1), lambda: ops.split(a, 2, axis=1), lambda: ops.split(a, [1, 3], axis=2), lambda: ops.split(a, 3, axis=-1)[1],
             lambda: ops.stack([a, b], axis=1), lambda: ops.stack([a, b, a], axis=-1), lambda: ops.concatenate([a, b], axis=-1),
             lambda: ops.concatenate([a, b], axis=1), lambda: ops.where(a > 0, a, b), lambda: ops.where(a > b, a, 0.5), lambda: ops.where(a > 0, 1.0, b),
             lambda: ops.cast(a > 0, "float32"), lambda: ops.cast(a * 3, "int32"), lambda: ops.pad(a, [[0, 0], [1, 1], [2, 0], [0, 0]]),
             lambda: ops.pad(a, [[0, 0], [1, 2], [2, 0], [0, 0]], mode="reflect"), lambda: ops.pad(a, [[0, 0], [0, 1], [0, 0], [1, 0]], constant_values=2.0),
             lambda: ops.normalize(a, axis=-1), lambda: ops.normalize(a, axis=1, order=1), lambda: ops.normalize(a, axis=2, order=3),
             lambda: ops.average_pool(a, 2, strides=1, padding="same"), lambda: ops.max_pool(a, (2, 2)), lambda: ops.max_pool(a, 3, strides=2, padding="same"),
             lambda: ops.einsum("bijc,bikc->bijk", a, b), lambda: ops.einsum("bijc->bcj", a), lambda: ops.argmax(a, axis=-1), lambda: ops.argmin(a, axis=1),
             lambda: ops.std(a, axis=1), lambda: ops.var(a, axis=[1, 2]), lambda: ops.prod(a, axis=3, keepdims=True), lambda: ops.logsumexp(a, axis=-1),
             lambda: ops.floor(a), lambda: ops.ceil(a), lambda: ops.sign(a), lambda: ops.log1p(abs(a)), lambda: ops.expm1(a), lambda: a // 0.5,
             lambda: ops.mod(a, 0.75), lambda: L.CenterCrop(3, 2)(a), lambda: L.CenterCrop(6, 4)(a)]
    y = [random.choice(cases)(), random.choice(cases)()]
    return x, [t for p in y for t in (p if isinstance(p, (list, tuple)) else [p])] + [a + b]


def augmentation():
    """Layers that change images in training only, several of which Keras cannot save as .h5, and weights that training normalizes."""
    x = keras.Input((6, 6, 3))
    shapes = {"RandomRotation": (0.1,), "RandomZoom": (0.1,), "RandomTranslation": (0.1, 0.1), "RandomContrast": (0.1,), "RandomBrightness": (0.1,),
              "RandomHue": (0.1,), "RandomSaturation": (0.1,), "RandomColorDegeneration": (0.5,), "RandomGaussianBlur": (), "RandomSharpness": (0.2,),
              "RandomPosterization": (4,), "RandomShear": (0.1, 0.1), "RandomGrayscale": (), "RandomInvert": (), "RandomColorJitter": (),
              "RandomPerspective": (), "RandomErasing": (), "RandomElasticTransform": (), "RandomFlip": ()}
    name = random.choice(list(shapes))
    y = getattr(L, name)(*shapes[name])(x)
    return x, [y, L.SpectralNormalization(L.Conv2D(4, 3))(y), L.SpectralNormalization(L.Dense(5))(L.Flatten()(y))]


def shared():
    a, b = keras.Input((6, 6, 2)), keras.Input((6, 6, 2))
    body = keras.Sequential([keras.Input((6, 6, 2)), L.Conv2D(3, 3), L.BatchNormalization(), L.ReLU(), L.Flatten(), L.Dense(4)], name="body")
    d = L.Dense(3)
    return [a, b], [d(body(a)), d(body(b)), L.Dot(1)([body(a), body(b)])]


def called_twice():
    """Results of both calls of a network as arguments, as outputs, or as both; the network may give a result twice."""
    shape = pick([(4,), (5, 5, 2)])
    i, a, b, c = (keras.Input(shape) for _ in range(4))
    y = L.Dense(3)(i)
    twice = chance()
    if chance() and not twice:
        inner = keras.Sequential([keras.Input(shape), L.Dense(3), L.ReLU()], name="inner")
    else:
        inner = keras.Model(i, [y, y] if twice else y, name="inner")
    if chance():
        inner(c)  # a call that is not saved
    p, q = inner(a), inner(b)
    if twice:
        (p, r), (q, s) = p, q
    outputs = pick([[L.Concatenate()([p, q]), p], [p, q], [q, p], [L.Add()([p, q]), q], [p, L.ReLU()(q)], [L.ReLU()(p), q]])
    return [a, b], outputs + ([L.Add()([r, s]), r] if twice else [])


def nested():
    def block(x, n):
        y = L.Conv2D(n, 3, padding="same", use_bias=False)(x)
        y = L.BatchNormalization()(y)
        return L.ReLU()(y)
    i = keras.Input((8, 8, 3))
    inner_in = keras.Input((8, 8, 3))
    inner = keras.Model(inner_in, [block(inner_in, 4), L.GlobalMaxPooling2D()(inner_in)], name="backbone")
    inner.trainable = chance()
    outer_in = keras.Input((8, 8, 3))
    f, g = inner(outer_in)
    outer = keras.Model(outer_in, [f, L.Dense(3)(g)], name="outer")
    f, g = outer(block(i, 3) if chance() else i)
    return i, [L.Dense(2)(L.Flatten()(f)), g]


def channels_first():
    x = keras.Input((3, 8, 8))
    y = L.ZeroPadding2D(1, data_format="channels_first")(x)
    y = L.BatchNormalization(axis=1)(y)
    y = L.Cropping2D(1, data_format="channels_first")(y)
    return x, [y, L.Dense(2)(L.Flatten(data_format="channels_first")(y)), L.GlobalAveragePooling2D(data_format="channels_first")(y)]


CASES = {f"Conv{n}D": lambda n=n: conv(n) for n in (1, 2, 3)}
CASES.update({f"Conv{n}DTranspose": lambda n=n: transpose(n) for n in (1, 2, 3)})
CASES.update({f"{k.__name__}{n}": lambda n=n, k=k: k(n) for n in (1, 2) for k in (depthwise, separable)})
CASES.update({f"{k}Pooling{n}D": lambda n=n, k=k: pool(k, n) for n in (1, 2, 3) for k in ("Max", "Average")})
CASES.update({f"Global{k}Pooling{n}D": lambda n=n, k=k: global_pool(k, n) for n in (1, 2, 3) for k in ("Max", "Average")})
CASES.update({f"{k}{n}D": lambda n=n, k=k: padding(k, n) for n in (1, 2, 3) for k in ("ZeroPadding", "Cropping")})
CASES.update({f"UpSampling{n}D": lambda n=n: up(n) for n in (1, 2, 3)})
CASES.update({k: lambda k=k: recurrent(k) for k in ("LSTM", "GRU", "SimpleRNN")})
CASES.update({f.__name__: f for f in (resizing, dense, flattened, batch_norm, image_norm, layer_norm, group_norm, normalization, rescaling, activation,
                                      training_only, merge, broadcast, concatenate, dot, shapes, repeat, embedding, bidirectional, masked_text,
                                       time_distributed, attention, multi_head, einsum, operations, functional_activation, shaped_operations, augmentation, shared,
                                       called_twice, nested, channels_first)})


def random_cases(name, n):
    good = 0
    for i in range(n):
        random.seed(f"{name} {i}")
        keras.utils.set_random_seed(i)
        keras.backend.clear_session()
        try:
            x, y = CASES[name]()
        except (ValueError, AttributeError, TypeError, NotImplementedError) as e:
            if keras.__name__ == "keras" and not isinstance(e, ValueError):
                raise
            continue  # options that Keras does not accept together, or layers that Keras 2 lacks
        if isinstance(y, (list, tuple)) and isinstance(y[0], (list, tuple)):
            y = [z for part in y for z in part]
        model = keras.Model(x, y)
        try:
            model([np.zeros([2] + [d or 5 for d in t.shape[1:]], dtype_of_input(t)) for t in model.inputs])
        except Exception as e:  # kernels that TensorFlow lacks on CPUs
            if "UnimplementedError" in str(type(e)) or "InvalidArgumentError" in str(type(e)) or "only supports" in str(e):
                continue
            raise
        inputs = None
        r = np.random.default_rng(i)
        if name in ("LSTM", "GRU", "SimpleRNN", "bidirectional"):
            inputs = [sample(t, r) for t in model.inputs]
            inputs[0][0, -2:] = 0  # masked steps
            inputs[0][1, 1] = 0
        if name == "embedding":
            inputs = [np.abs(sample(model.inputs[0], r)).astype("int64" if i % 2 else "float32")]
        if name == "multi_head" and len(model.inputs) == 3:
            inputs = [sample(t, r) for t in model.inputs[:2]]
            inputs.append(np.random.default_rng(i).random((2, inputs[0].shape[1], 5)) < 0.7)
        good += compare(f"{name} {i}", model, seed=i, inputs=inputs, channels_first=name == "channels_first", formats=("keras",) if i % 3 or name == "augmentation" else ("keras", "h5"))
    return good


# ---- whole networks -----------------------------------------------------------------------------

def application(name):
    size = {"InceptionV3": 299}.get(name, 224)
    model = getattr(keras.applications, name)(weights=None)
    r = np.random.default_rng(0)
    x = [r.normal(size=(2, size, size, 3)).astype(np.float32)]
    for w in model.weights:  # statistics that no layer has at first
        if path_of(w).endswith(("moving_mean", "beta")):
            w.assign(r.normal(size=w.shape).astype(np.float32) * 0.1)
        elif path_of(w).endswith(("moving_variance", "gamma")):
            w.assign((r.random(w.shape) + 0.5).astype(np.float32))
    t = time.time()
    good = compare(name, model, inputs=x, keep=True)
    print(f"{name:16} {model.count_params():>10,} parameters  {'equal' if good else 'DIFFERENT'}  {time.time() - t:.0f} s", flush=True)


def command():
    """`aril predict`, `convert` and `time` of a whole network."""
    import json
    import subprocess
    aril = os.path.join(os.environ.get("ARIL_BUILD_DIR", os.path.join(sys.path[0], "..", "..", "build")), "bin", "aril")
    model = keras.Sequential([keras.Input((16, 16, 3)), L.Conv2D(4, 3, activation="relu"), L.Flatten(), L.Dense(5, activation="softmax")])
    with tempfile.TemporaryDirectory() as folder:
        pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
        keras.utils.save_img(f"{folder}/image.png", pixels, scale=False)
        want = np.asarray(model(pixels[None].astype("float32") / 255))[0]

        def gives(*arguments):
            done = subprocess.run([aril, *arguments], cwd=folder, capture_output=True, text=True)
            if done.returncode:
                failures.append(arguments)
                print("FAILED aril", *arguments, done.stderr)
            return done.stdout

        for path in ("m.keras", "m.h5"):
            model.save(f"{folder}/{path}")
            gives("convert", path, "m.onnx")
            for m in (path, "m.onnx"):
                got = json.loads(gives("predict", m, "image.png", "--top", "5", "--json") or "[]")
                got = {p["index"]: p["probability"] for p in got[0]["predictions"]} if got else {}
                if any(abs(got.get(i, 9) - p) > 1e-4 for i, p in enumerate(want)):
                    failures.append(m)
                    print("FAILED aril predict", m, got, want)
            gives("time", path, "--seconds", "0.01")
            gives("draw", path, "m.dot")
            gives("show", path, "--tree")


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    names = sys.argv[2:]
    scope = declare("aril_scope_begin", type(options("Guard", (C.c_uint32, "depth"))()))
    end = declare("aril_guard_end", None, P)
    for name in CASES:
        if not names or name in names:
            guard = scope()
            print(f"{name:24} {random_cases(name, n)} of {n}", flush=True)
            end(C.byref(guard))
    for name in ("VGG16", "ResNet50", "InceptionV3", "EfficientNetB0", "MobileNetV3Small", "ConvNeXtTiny", "DenseNet121"):
        if (not names and name[:9] not in ("MobileNet", "ConvNeXtT", "DenseNet1")) or name in names:
            guard = scope()
            application(name)
            end(C.byref(guard))
    if not names or "command" in names:
        command()
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
