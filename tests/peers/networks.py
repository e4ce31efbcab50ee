"""The networks of src/models beside torchvision's and transformers': the same names in the same order, the same number of parameters, and
from the same weights, made by a formula, the same results and gradients: in f32 in evaluation and in f64 in training without dropout and
stochastic depth, where rounding grows from layer to layer; and the same running statistics.

    networks.py [NAME...]       compares
    networks.py --golden        writes tests/models/golden.inc, values that the tests in C compare
"""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
from by_ctypes import B, F64, I, I64, Named, P, S, declare, error, options, root, shape  # noqa: E402

try:
    import numpy
    import torch
    from torch import nn
    from torchvision import models, ops
    from torchvision.models import resnet
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Shape, Device = type(shape([1])), options("Device", (C.c_int16, "kind index"))
ZooOptions = options("ZooOptions", (Shape, "input"), (I64, "classes"), (S, "weights root"), (B, "aux no_dropout"))
make, release = declare("aril_zoo_make", P, S, ZooOptions), declare("aril_module_release", None, P)
state_of, parameters_of = declare("aril_state", C.POINTER(Named), P), declare("aril_parameters", C.POINTER(Named), P)
count_of = declare("aril_parameter_count", I64, P)
train, evaluate = declare("aril_module_train", None, P), declare("aril_module_eval", None, P)
List = options("List", (I, "n"), (C.POINTER(P), "at"))
forward_all, backward_with = declare("aril_forward_all", I, P, List, I, C.POINTER(P)), declare("aril_backward", I, P)
Guard = options("Guard", (C.c_uint32, "depth"))
scope_begin, guard_end = declare("aril_scope_begin", Guard), declare("aril_guard_end", None, C.POINTER(Guard))
no_grad = declare("aril_no_grad_begin", Guard)
from_memory, read = declare("aril_from", P, P, Shape, I, Device), declare("aril_read", I, P, P)
copy_into = declare("aril_copy_", P, P, P)
numel, grad = declare("aril_numel", I64, P), declare("aril_grad", P, P)
mul, mean = declare("aril_mul", P, P, P), declare("aril_mean", P, P, options("Axes", (I, "n"), (B, "keepdim"), (I * 8, "axis")))
add = declare("aril_add", P, P, P)
cast = declare("aril_module_cast", I, P, I)
zero_grad = declare("aril_module_zero_grad", None, P)
DTYPES = {torch.int64: 8, torch.float32: 11, torch.float64: 12}  # in the order of aril_dtype


def tensor_of(t):
    t = t.contiguous()
    return from_memory(t.data_ptr(), shape(list(t.shape)), DTYPES[t.dtype], Device())


def values_of(address, like):
    out = torch.empty(numel(address), dtype=like.dtype)
    assert read(address, out.data_ptr()) == 0, error()
    return out.reshape(like.shape)


def far(got, want):
    """The distance beside the size of what is wanted."""
    return ((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-30)).item()


# ---- the formula: as in tests/models/test_zoo_golden.c ------------------------------------------


def scramble(x):
    """A 32-bit hash."""
    x = x ^ (x >> 16)
    x = (x * numpy.uint32(0x7FEB352D)).astype(numpy.uint32)
    x = x ^ (x >> 15)
    x = (x * numpy.uint32(0x846CA68B)).astype(numpy.uint32)
    return x ^ (x >> 16)


def numbers(key, sizes, center=0.0, scale=1.0):
    """f32 numbers around `center`, at most `scale` away, that follow from the key."""
    n = int(numpy.prod(sizes))
    first = scramble(numpy.array([key], dtype=numpy.uint32))
    u = (scramble(numpy.arange(n, dtype=numpy.uint32) + first) >> 8).astype(numpy.float64) * 2.0**-23 - 1
    return torch.from_numpy((center + scale * u).astype(numpy.float32).reshape(sizes))


def weights(k, name, t):
    """Values of the k-th tensor of a network."""
    sizes, last = list(t.shape), name.rsplit(".", 1)[-1]
    if last == "num_batches_tracked":
        return torch.zeros_like(t)
    if last == "running_var":
        return numbers(k, sizes, 1, 0.5)
    if last == "running_mean" or last.endswith("bias"):
        return numbers(k, sizes, 0, 0.1)
    if last.endswith("weight") and len(sizes) > 1:
        fan = numpy.prod(sizes) / sizes[0]
        return numbers(k, sizes, 0, float(numpy.sqrt(6 / fan)))
    if last == "weight":
        return numbers(k, sizes, 0.7, 0.3)
    return numbers(k, sizes, 0, 0.5)


INPUT, TARGET = 100000, 100001  # keys

# ---- networks ----------------------------------------------------------------------------------


class Pad(nn.Module):
    """Every second pixel, and zeros for the channels that are new."""

    def forward(self, x):
        planes = x.shape[1] // 2
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes, planes))


class CifarResNet(nn.Module):
    """6n + 2 layers with shortcuts of option A."""

    class Block(nn.Module):
        def __init__(self, before, width):
            super().__init__()
            self.conv1 = nn.Conv2d(before, width, 3, 1 if before == width else 2, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.shortcut = nn.Sequential() if before == width else Pad()

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            before = self.shortcut(x)
            if y.shape[1] != before.shape[1]:
                before = before[:, : y.shape[1]]
            return torch.relu(y + before)

    def __init__(self, n):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        before = 16
        for k in range(3):
            width = 16 << k
            blocks = [self.Block(before if i == 0 else width, width) for i in range(n)]
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
            before = width
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def as_published(layers):
    """Strides in the first convolutions of bottlenecks."""

    def build(num_classes=1000):
        m = resnet.ResNet(resnet.Bottleneck, layers, num_classes=num_classes)
        for block in m.modules():
            if isinstance(block, resnet.Bottleneck):
                block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
        return m

    return build


def vgg(layers, response=False):
    def build(num_classes=1000):
        features, before = [], 3
        for row in layers:
            for width, kernel in row:
                features += [nn.Conv2d(before, width, kernel, padding=kernel // 2), nn.ReLU()]
                if response and before == 3:
                    features.append(nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2))
                before = width
            features.append(nn.MaxPool2d(2, 2))
        return models.VGG(nn.Sequential(*features), num_classes=num_classes, init_weights=False)

    return build


def gpt2(width=768, layers=12, heads=12):
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(nn.Module):
        def __init__(self, num_classes=50257, length=1024):
            super().__init__()
            self.inner = GPT2LMHeadModel(GPT2Config(vocab_size=num_classes, n_positions=length, n_embd=width, n_layer=layers, n_head=heads,
                                                    attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))

        def forward(self, x):
            return self.inner(x).logits

        def state_dict(self):
            return self.inner.transformer.state_dict()

        def named_parameters(self):
            return self.inner.transformer.named_parameters()

    return Logits


def bert():
    from transformers import BertConfig, BertModel

    class Vectors(nn.Module):
        def __init__(self, num_classes=30522, length=512):
            super().__init__()
            self.inner = BertModel(BertConfig(vocab_size=num_classes, max_position_embeddings=length, hidden_dropout_prob=0,
                                              attention_probs_dropout_prob=0))

        def forward(self, x):
            y = self.inner(x)
            return y.last_hidden_state, y.pooler_output

        def state_dict(self):
            return self.inner.state_dict()

        def named_parameters(self):
            return self.inner.named_parameters()

    return Vectors


CASES = {name: getattr(models, name) for name in (
    "alexnet vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d "
    "wide_resnet50_2 densenet121 densenet161 densenet169 densenet201 squeezenet1_0 squeezenet1_1 mobilenet_v2 mobilenet_v3_small "
    "mobilenet_v3_large shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 efficientnet_b0 efficientnet_b1 "
    "efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_s vit_b_16 "
    "convnext_tiny").split()}
CASES["googlenet"] = lambda **o: models.googlenet(aux_logits=True, init_weights=False, **o)
CASES["inception_v3"] = lambda **o: models.inception_v3(aux_logits=True, init_weights=False, **o)
CASES["resnet200"] = lambda **o: resnet.ResNet(resnet.Bottleneck, [3, 24, 36, 3], **o)
for depth, layers in (("50", [3, 4, 6, 3]), ("101", [3, 4, 23, 3]), ("152", [3, 8, 36, 3]), ("200", [3, 24, 36, 3])):
    CASES[f"resnet{depth}-v1"] = as_published(layers)
for depth in (20, 32, 44, 56, 110):
    CASES[f"resnet{depth}"] = lambda depth=depth, **o: CifarResNet((depth - 2) // 6)
CASES["vgg11_lrn"] = vgg([[(64, 3)], [(128, 3)], [(256, 3)] * 2, [(512, 3)] * 2, [(512, 3)] * 2], True)
CASES["vgg16c"] = vgg([[(64, 3)] * 2, [(128, 3)] * 2] + [[(w, 3), (w, 3), (w, 1)] for w in (256, 512, 512)])
CASES["gpt2"], CASES["gpt2-medium"] = gpt2(), gpt2(1024, 24, 16)
CASES["bert-base-uncased"] = bert()
CASES["gpt2-large"], CASES["gpt2-xl"] = gpt2(1280, 36, 20), gpt2(1600, 48, 25)

AUX = ("googlenet", "inception_v3")
VOCABULARY = {"bert-base-uncased": 30522}
LARGE = ("gpt2-large", "gpt2-xl")  # when they are named, as they need 20 GB
SIDE = {"inception_v3": 299, "vit_b_16": 224, "efficientnet_b6": 64, "efficientnet_b7": 64}


def is_tokens(name):
    return name.startswith(("gpt2", "bert"))


def peer_of(name, **arguments):
    """The peer without dropout and stochastic depth, with the formula's weights."""
    m = CASES[name](**arguments)
    for part in m.modules():
        if isinstance(part, (nn.Dropout, ops.StochasticDepth)):
            part.p = 0.0
    state = {k: v for k, v in m.state_dict().items() if not k.endswith((".attn.bias", ".masked_bias"))}
    with torch.no_grad():
        for k, (n, t) in enumerate(state.items()):
            t.copy_(weights(k, n, t))
    return m, state


def input_of(name, side, classes):
    if is_tokens(name):
        return ((numbers(INPUT, [2, side]).double() + 1) / 2 * classes).long()
    return numbers(INPUT, [2, 3, side, side])


def results_of(m, x):
    y = m(x)
    if not isinstance(y, tuple):
        return [y]
    return [y[0], *reversed(y[1:])]  # the first auxiliary classifier first


def run(ours, x, n):
    out, at = (P * n)(), (P * 1)(tensor_of(x))
    assert forward_all(ours, List(n=1, at=C.cast(at, C.POINTER(P))), n, out) == 0, error()
    return list(out)


def set_weights(ours, names, state):
    s = state_of(ours).contents
    guard = no_grad()
    for i, t in enumerate(state.values()):
        copy_into(s.at[i], tensor_of(t))
    guard_end(guard)
    assert not error(), error()


def compare(name):
    guard = scope_begin()
    theirs, state = peer_of(name)
    ours = make(name.encode(), ZooOptions(aux=name in AUX, no_dropout=True))
    assert ours, error()
    s = state_of(ours).contents
    names = [s.name[i].decode() for i in range(s.n)]
    assert names == list(state), f"{name}: {[p for p in zip(names, state) if p[0] != p[1]][:3]}, {len(names)}, {len(state)}"
    assert count_of(ours) == sum(p.numel() for _, p in theirs.named_parameters()), name
    set_weights(ours, names, state)
    tokens = is_tokens(name)
    x = input_of(name, 17 if tokens else SIDE.get(name, 32 if name[6:] in ("20", "32", "44", "56", "110") else 96),
                 VOCABULARY.get(name, 50257))
    for training in (False, True):
        inner = scope_begin()
        if training:
            theirs.double()
            assert cast(ours, DTYPES[torch.float64]) == 0, error()
            x = x if tokens else x.double()
        theirs.train(training)
        (train if training else evaluate)(ours)
        wants = results_of(theirs, x)
        gots, ours_loss, theirs_loss, result = run(ours, x, len(wants)), None, 0, 0
        for k, (want, got) in enumerate(zip(wants, gots)):
            g = numbers(TARGET + k, list(want.shape)).to(want.dtype)
            theirs_loss = theirs_loss + (want * g).mean()
            part = mean(mul(got, tensor_of(g)), mean.argtypes[1]())
            ours_loss = add(ours_loss, part) if ours_loss else part
            result = max(result, far(values_of(got, want), want.detach()))
        theirs_loss.backward()
        assert backward_with(ours_loss) == 0, error()
        # In f32, gradients jump where rounding turns a relu on or off, the more so the deeper a network is.
        p, worst, n = parameters_of(ours).contents, 0, 0
        by_name = dict(theirs.named_parameters())
        # A bias of keys changes no softmax: its gradient is rounding.
        least = 1e-12 if training else 1e-6 * max(w.grad.norm().item() for w in by_name.values() if w.grad is not None)
        for i in range(p.n):
            w = by_name[p.name[i].decode()]
            if w.grad is None:
                continue
            worst, n = max(worst, far(values_of(grad(p.at[i]), w), w.grad) if w.grad.norm() > least else 0), n + 1
            w.grad = None
        zero_grad(ours)
        running = 0
        s = state_of(ours).contents
        for i, (k, v) in enumerate(theirs.state_dict().items() if not tokens else []):
            if "running" in k:
                running = max(running, far(values_of(s.at[i], v), v))
        print(f"{name}, {'training' if training else 'evaluation'}: result off by {result:.1e}, {n} gradients {worst:.1e}, "
              f"running statistics {running:.1e}", flush=True)
        assert result < (1e-9 if training else 1e-4) and worst < (1e-6 if training else 0.1) and running < 1e-9, name
        guard_end(inner)
    release(ours)
    guard_end(guard)


# ---- golden values -----------------------------------------------------------------------------

# One network or more of each family, on inputs that are small: the side, or the number of tokens.
GOLDEN = {"alexnet": 64, "vgg11_lrn": 32, "vgg11_bn": 32, "googlenet": 64, "inception_v3": 80, "resnet18": 40, "resnet50-v1": 40,
          "resnext50_32x4d": 40, "resnet20": 32, "densenet121": 40, "squeezenet1_1": 48, "mobilenet_v2": 40, "mobilenet_v3_small": 40,
          "shufflenet_v2_x0_5": 40, "efficientnet_b0": 40, "efficientnet_v2_s": 40, "vit_b_16": 32, "convnext_tiny": 32, "gpt2": 8, "bert-base-uncased": 8}
GOLDEN_CLASSES = 10
GOLDEN_RESULTS = ("inception_v3",)  # only those, for the time that gradients take


def golden(name, side, to):
    arguments = {"num_classes": GOLDEN_CLASSES}
    if name == "vit_b_16":
        arguments["image_size"] = side
    if is_tokens(name):
        arguments["length"] = side
    if name[6:] == "20":
        arguments = {}
    aux = name == "googlenet"  # Inception v3 with its classifier needs large images
    if name == "inception_v3":
        CASES[name] = lambda **o: models.inception_v3(aux_logits=False, init_weights=False, **o)
    m, _ = peer_of(name, **arguments)
    x = input_of(name, side, GOLDEN_CLASSES)
    m.eval()
    with torch.no_grad():
        y = results_of(m, x)[0].flatten()[:GOLDEN_CLASSES]
    to.write(f'    {{ "{name}", {side}, {int(aux)},\n      {{ ' + ", ".join(f"{v:.7g}" for v in y.tolist()) + " },\n      {")
    if name in GOLDEN_RESULTS:
        to.write(" { 0 } } },\n")
        return
    m.double().train()
    results = results_of(m, x if is_tokens(name) else x.double())[:3 if aux else 1]
    sum((r * numbers(TARGET + k, list(r.shape)).double()).mean() for k, r in enumerate(results)).backward()
    p = [(n, w) for n, w in m.named_parameters() if w.grad is not None]
    which = [p[0], p[len(p) // 2], p[-1]]
    to.write(",\n        ".join(f' {{ "{n}", {w.grad.norm().item():.9g}, {w.grad.flatten()[0].item():.9g} }}' for n, w in which) + " } },\n")


def write_golden():
    with open(os.path.join(root, "tests", "models", "golden.inc"), "w") as f:
        f.write("/* Written by tests/peers/networks.py --golden: a network, the side of its images or the number of its\n"
                " * tokens, whether it has auxiliary classifiers; the first results in evaluation; the norm and the first\n"
                " * element of the gradients of three parameters in training. */\n")
        for name, side in GOLDEN.items():
            golden(name, side, f)


if "--golden" in sys.argv:
    write_golden()
else:
    for name in sys.argv[1:] or [n for n in CASES if n not in LARGE]:
        try:
            compare(name)
        except ImportError as missing:
            print(f"{name} is left out: {missing}")
