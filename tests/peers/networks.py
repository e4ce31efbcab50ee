"""The networks of src/models beside torchvision's and transformers': the same names in the same order, and from the same weights the
same results and gradients, in f32 in evaluation and in f64 in training, where rounding grows from layer to layer; and the same running
statistics."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402

from by_ctypes import B, I, I64, Named, P, S, declare, error, options, shape  # noqa: E402

try:
    import torch
    from safetensors.torch import save_file
    from torchvision import models
    from torchvision.models import resnet
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Shape, Device = type(shape([1])), options("Device", (C.c_int16, "kind index"))
ZooOptions, LoadOptions = options("ZooOptions", (Shape, "input"), (I64, "classes")), options(
    "LoadOptions", (B, "partial other_shapes"), (P, "root rename report"))
make, release = declare("aril_zoo_make", P, S, ZooOptions), declare("aril_module_release", None, P)
load = declare("aril_load_weights", I, P, S, LoadOptions)
state_of, parameters_of = declare("aril_state", C.POINTER(Named), P), declare("aril_parameters", C.POINTER(Named), P)
train, evaluate = declare("aril_module_train", None, P), declare("aril_module_eval", None, P)
forward, backward_with = declare("aril_forward", P, P, P), declare("aril_backward", I, P)
from_memory, read = declare("aril_from", P, P, Shape, I, Device), declare("aril_read", I, P, P)
numel, grad = declare("aril_numel", I64, P), declare("aril_grad", P, P)
mul, mean = declare("aril_mul", P, P, P), declare("aril_mean", P, P, options("Axes", (I, "n"), (B, "keepdim"), (I * 8, "axis")))
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


def resnet200():
    return resnet.ResNet(resnet.Bottleneck, [3, 24, 36, 3])


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = GPT2LMHeadModel(GPT2Config(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))

        def forward(self, x):
            return self.inner(x).logits

        def state_dict(self):
            return self.inner.transformer.state_dict()

        def named_parameters(self):
            return self.inner.transformer.named_parameters()

    return Logits()


CASES = {name: getattr(models, name) for name in (
    "alexnet vgg11 vgg13 vgg13_bn vgg16 vgg19_bn resnet18 resnet34 resnet50 resnet101 resnet152 densenet121 densenet161 densenet169 "
    "densenet201 squeezenet1_0 squeezenet1_1 mobilenet_v2").split()}
CASES["googlenet"] = lambda: models.googlenet(aux_logits=False, init_weights=True)
CASES["resnet200"], CASES["gpt2"] = resnet200, gpt2


def compare(name, path):
    torch.manual_seed(0)
    theirs = CASES[name]()
    state = {k: v.contiguous() for k, v in theirs.state_dict().items() if not k.endswith((".attn.bias", ".masked_bias"))}
    for k, v in state.items():  # what is 0 or 1 at first hides mistakes
        if v.is_floating_point() and v.ndim == 1:
            v += 0.1 * torch.rand_like(v)
    save_file(state, path)
    ours = make(name.encode(), ZooOptions())
    assert ours, error()
    s = state_of(ours).contents
    names = [s.name[i].decode() for i in range(s.n)]
    assert names == list(state), f"{name}: {[p for p in zip(names, state) if p[0] != p[1]][:3]}, {len(names)}, {len(state)}"
    assert load(ours, path.encode(), LoadOptions()) == 0, error()
    tokens = name == "gpt2"
    x = torch.randint(50257, (2, 17)) if tokens else torch.randn(2, 3, 96, 96)
    dropout = any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in theirs.modules())
    for training in (False, True):
        if training and dropout:
            continue
        if training:
            theirs.double()
            assert cast(ours, DTYPES[torch.float64]) == 0, error()
            x = x if tokens else x.double()
        theirs.train(training)
        (train if training else evaluate)(ours)
        want = theirs(x)
        g = torch.randn_like(want)
        (want * g).mean().backward()
        got = forward(ours, tensor_of(x))
        loss = mean(mul(got, tensor_of(g)), mean.argtypes[1]())
        assert backward_with(loss) == 0, error()
        result = far(values_of(got, want), want.detach())
        # In f32, gradients jump where rounding turns a relu on or off, the more so the deeper a network is.
        p, worst = parameters_of(ours).contents, 0
        by_name = dict(theirs.named_parameters())
        for i in range(p.n):
            w = by_name[p.name[i].decode()]
            worst = max(worst, far(values_of(grad(p.at[i]), w), w.grad) if w.grad.norm() > 1e-12 else 0)
            w.grad = None
        zero_grad(ours)
        running = 0
        s = state_of(ours).contents
        for i, (k, v) in enumerate(theirs.state_dict().items() if not tokens else []):
            if "running" in k:
                running = max(running, far(values_of(s.at[i], v), v))
        print(f"{name}, {'training' if training else 'evaluation'}: result off by {result:.1e}, gradients {worst:.1e}, "
              f"running statistics {running:.1e}", flush=True)
        assert result < (1e-9 if training else 2e-4) and worst < (1e-6 if training else 0.05) and running < 1e-9, name
    release(ours)


with tempfile.TemporaryDirectory() as folder:
    for name in sys.argv[1:] or CASES:
        try:
            compare(name, os.path.join(folder, "weights.safetensors"))
        except ImportError as missing:
            print(f"{name} is left out: {missing}")
