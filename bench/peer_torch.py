"""PyTorch's side of bench/cases, written as its users write it. Run by bench/compare:

    python peer_torch.py CASES THREADS [--compile | --reduce-overhead | --graph] [--device cuda:0]

--graph captures a whole step, as users do by hand, as a CUDA graph and replays it.
"""
import gc
import sys

import torch
import torch.nn.functional as F
from torch import nn

import peer

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}

# What each operation is in Python; {0} {1} {2} are its tensors, {n} its number.
SOURCE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "muladd": "torch.addcmul({2}, {0}, {1})",
    "relu": "torch.relu({0})",
    "exp": "torch.exp({0})",
    "tanh": "torch.tanh({0})",
    "sigmoid": "torch.sigmoid({0})",
    "gelu": "F.gelu({0})",
    "square": "torch.square({0})",
    "mean": "{0}.mean()",
    "softmax": "torch.softmax({0}, -1)",
    "layer_norm": "F.layer_norm({0}, {0}.shape[-1:], {1}, {2})",
    "dropout": "F.dropout({0}, {n}, True)",
    "transpose": "{0}.transpose(-2, -1).contiguous()",
    "cat": "torch.cat(({0}, {1}), {n})",
    "matmul": "{0} @ {1}",
    "matmul_nt": "{0} @ {1}.transpose(-2, -1)",
    "matmul_tn": "{0}.transpose(-2, -1) @ {1}",
    "mse": "F.mse_loss({0}, {1})",
    "cross_entropy": "F.cross_entropy({0}, {1})",
    "token_loss": "F.cross_entropy({0}.flatten(0, 1), {1}.flatten())",
}


# ---- networks


class Residual(nn.Module):
    def __init__(self, main, shortcut):
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x):
        y = self.main(x)
        y += self.shortcut(x) if self.shortcut else x
        return y


class Recurrent(nn.Module):
    """nn.RNN or nn.LSTM, of which the results are given on without the last state."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class LoopRNN(nn.Module):
    """nn.RNN written as a loop, with the product of all inputs taken out of it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        w_ih, w_hh, b_ih, b_hh = self.inner.parameters()
        inputs, turned = F.linear(x, w_ih, b_ih + b_hh), w_hh.t()
        h = torch.tanh(inputs[0])
        results = [h]
        for step in inputs[1:].unbind(0):
            h = torch.tanh(torch.addmm(step, h, turned))
            results.append(h)
        return torch.stack(results)


def layer_module(layer, channels, loop):
    n = layer.numbers
    if layer.kind == "conv":
        return nn.Conv2d(channels, n[0], n[1], layer.stride or 1, layer.pad, bias=layer.bias)
    if layer.kind == "maxpool":
        return nn.MaxPool2d(n[0], layer.stride, layer.pad)
    if layer.kind == "linear":
        return nn.Linear(channels, n[0], bias=layer.bias)
    if layer.kind == "rnn":
        inner = nn.RNN(channels, n[0])
        return LoopRNN(inner) if loop else Recurrent(inner)
    if layer.kind == "rnnloop":
        return LoopRNN(nn.RNN(channels, n[0]))
    if layer.kind == "lstm":
        return Recurrent(nn.LSTM(channels, n[0], n[1]))
    return {
        "bn": lambda: nn.BatchNorm2d(channels),
        "relu": lambda: nn.ReLU(inplace=True),
        "tanh": nn.Tanh,
        "dropout": lambda: nn.Dropout(n[0]),
        "flatten": nn.Flatten,
        "avgpool": lambda: nn.AdaptiveAvgPool2d(1),
    }[layer.kind]()


@torch.no_grad()
def build(net, shape, maker, loop):
    """nn.Sequential of a net, with the shared weights."""
    shapes, open_parts, parts = [], [], []
    for layer in net:
        if layer.kind == "residual":
            open_parts.append((parts, []))
            parts = []
        elif layer.kind == "shortcut":
            open_parts[-1][1].append(parts)
            parts = []
        elif layer.kind == "end":
            outer, first = open_parts.pop()
            main, shortcut = (first[0], parts) if first else (parts, None)
            outer.append(Residual(nn.Sequential(*main), nn.Sequential(*shortcut) if shortcut else None))
            parts = outer
        else:
            channels = peer.width(layer, shape)
            module = layer_module(layer, channels, loop)
            params, running = maker.weights(layer, channels)
            for to, value in zip(module.parameters(), params):
                to.copy_(torch.from_numpy(value))
            for to, value in zip(module.buffers(), running):
                to.copy_(torch.from_numpy(value))
            parts.append(module)
        shape = peer.shape_after(layer, shape, shapes)
    return nn.Sequential(*parts)


# ---- networks of the zoo


class Logits(nn.Module):
    """A language model of transformers, of which the logits are given on."""

    def __init__(self):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        # GELU by one kernel: GPT-2's usual "gelu_new" is the same formula as eight operations.
        config = GPT2Config(
            activation_function="gelu_pytorch_tanh", attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, use_cache=False
        )
        self.inner = GPT2LMHeadModel(config)

    def forward(self, x):
        return self.inner(x).logits


@torch.no_grad()
def build_zoo(name, maker):
    from torchvision import models
    from torchvision.models import resnet

    special = {
        "googlenet": lambda: models.googlenet(aux_logits=False, init_weights=False),
        "inception_v3": lambda: models.inception_v3(aux_logits=False, init_weights=False),
        "resnet200": lambda: resnet.ResNet(resnet.Bottleneck, [3, 24, 36, 3]),
        "gpt2": Logits,
    }
    model = special[name]() if name in special else getattr(models, name)()
    state = (model.inner.transformer if name == "gpt2" else model).state_dict()
    for key, to in state.items():
        value = maker.state(key, list(to.shape))
        if value is not None:
            to.copy_(torch.from_numpy(value))
    return model


# ---- cases


def until_done(steps, device):
    def wait(n):
        steps(n)
        torch.cuda.synchronize(device)

    return wait


def reset_memory(device):
    """What is in use, in MB: resident, or, on a GPU, that of tensors."""
    if device.type == "cpu":
        return peer.reset_memory()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device) / 2**20


def peak_memory(device):
    return peer.status_mb("VmHWM") if device.type == "cpu" else torch.cuda.max_memory_allocated(device) / 2**20


def captured(steps, device):
    """A step captured as a CUDA graph, after runs on a stream of its own."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        steps(3)
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps(1)

    def replay(n):
        for _ in range(n):
            graph.replay()

    return replay


class Program:
    """A case as Python source, made for one setting."""

    def __init__(
        self, read, case, device, order="contiguous", optimizer="fused", loop=False, compiled=None, small=False
    ):
        self.case, self.device, maker = case, device, peer.Maker()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.dtype == "tf32"
        dtype, self.params = DTYPES[case.dtype], []
        scope = {"torch": torch, "F": F}
        last = {"channels-last": torch.channels_last, "contiguous": torch.contiguous_format}[order]
        shapes = {}
        for t in case.tensors:
            shape = list(t.shape)
            if small and (case.nets or case.zoos) and t.role != "param":
                shape[0] = min(shape[0], 2)
            shapes[t.name] = shape
            if t.role == "labels":
                value = torch.from_numpy(maker.labels(shape, t.classes))
            else:
                scale = (3.0 / shape[0]) ** 0.5 if t.role == "param" else 1
                value = torch.from_numpy(maker.fill(shape, 0, scale)).to(dtype)
            value = value.to(device)
            if len(shape) == 4 and value.is_floating_point():
                value = value.to(memory_format=last)
            if t.role == "param" and not case.infer:
                self.params.append(value.requires_grad_())
            scope["v_" + t.name] = value
        for i, call in enumerate(case.nets + case.zoos):
            if call.zoo:
                model = build_zoo(call.zoo, maker).to(dtype)
            else:
                model = build(read.nets[call.net], shapes[call.inputs[0]], maker, loop).to(dtype)
            model = model.to(device).to(memory_format=last)
            model.train(not case.infer)
            for module in model.modules():
                if small and type(module).__name__ in ("Dropout", "StochasticDepth"):
                    module.p = 0.0
            self.params += list(model.parameters())
            scope[f"net{i}"] = model
        self.scope = scope
        self.make(optimizer, compiled)

    def expressions(self):
        nets = 0
        for call in self.case.calls:
            names = ["v_" + name for name in call.inputs]
            if call.net or call.zoo:
                yield call, f"net{nets}({names[0]})"
                nets += 1
            elif call.op == "sum":
                yield call, f"{names[0]}.sum({', '.join(str(int(n)) for n in call.numbers)})"
            else:
                number = f"{call.numbers[0]:g}" if call.numbers else None
                yield call, SOURCE[call.op].format(*names, n=number)

    def make(self, optimizer, compiled):
        case, scope = self.case, self.scope
        forward = []
        for call, text in self.expressions():
            forward.append(f"v_{call.out} = {text}")
            forward += [f"del v_{name}" for name in call.dead if name != call.out]
        result = "v_" + (case.backward or case.calls[-1].out)
        self.result = "v_" + case.calls[-1].out
        if compiled in ("default", "reduce-overhead"):
            arguments = ", ".join("v_" + t.name for t in case.tensors)
            lines = [f"def forward({arguments}):"] + ["    " + line for line in forward] + [f"    return {result}"]
            exec("\n".join(lines), scope)
            scope["compiled"] = torch.compile(scope["forward"], mode=compiled)
            forward = [f"{result} = compiled({arguments})"]
        self.forward = forward
        step = list(forward)
        if case.backward:
            step.append(f"{result}.backward()")
            step += self.update(optimizer)
        used = sorted(name for name in scope if not name.startswith("__"))
        lines = [f"def steps(n, {', '.join(f'{name}={name}' for name in used)}):", "    for _ in range(n):"]
        lines += ["        " + line for line in step]
        exec("\n".join(lines), scope)
        steps = scope["steps"]
        if case.infer:
            steps = torch.inference_mode()(steps) if not compiled else torch.no_grad()(steps)
        if compiled == "graph":
            steps = captured(steps, self.device)
        self.steps = steps if self.device.type == "cpu" else until_done(steps, self.device)

    def update(self, optimizer):
        params, rate = self.params, self.case.sgd
        if not rate:
            if len(params) == 1:
                self.scope["param"] = params[0]
                return ["param.grad = None"]
            self.scope["params"] = params
            return ["for p in params: p.grad = None"]
        if optimizer == "by hand":

            @torch.no_grad()
            def update():
                for p in params:
                    p.sub_(p.grad, alpha=rate)
                    p.grad = None

            self.scope["update"] = update
            return ["update()"]
        kind = {"fused": {"fused": True}, "foreach": {"foreach": True}}[optimizer]
        self.scope["optimizer"] = torch.optim.SGD(params, lr=rate, **kind)
        return ["optimizer.step()", "optimizer.zero_grad()"]


def settings_of(read, case):
    """Settings tried in turn: each changes one thing of the best so far."""
    kinds = {layer.kind for call in case.nets for layer in read.nets[call.net]}
    yield {}
    if "conv" in kinds or any(call.zoo != "gpt2" for call in case.zoos):
        yield {"order": "channels-last"}
    if "rnn" in kinds:
        yield {"loop": True}
    if case.sgd:
        yield {"optimizer": "foreach"}
        if not case.modules:
            yield {"optimizer": "by hand"}


class Torch(peer.Peer):
    def __init__(self, threads, compiled, device):
        super().__init__(threads)
        self.compiled, self.device = compiled, torch.device(device)
        torch.set_num_threads(threads)
        if compiled in ("default", "reduce-overhead"):
            from torch._inductor import config

            config.freezing = True
        torch.zeros(1, device=self.device)  # memory statistics need a GPU that is in use
        # Libraries load and make their threads before memory is measured.
        with torch.no_grad():
            F.conv2d(torch.ones(1, 16, 8, 8), torch.ones(16, 16, 3, 3)) @ torch.ones(6, 64)

    def load(self, case):
        """Tries the settings; what is fastest stays. Those of the optimizer matter in short steps only."""
        self.drop()
        if case.task:
            return self.load_task(case.task)
        best, chosen, kept = None, {}, None
        for change in settings_of(self.read, case):
            if best and "optimizer" in change and (best > 0.3 or self.compiled):
                continue
            setting = {**chosen, **change}
            if self.compiled:
                torch._dynamo.reset()
            before = reset_memory(self.device)
            program = Program(self.read, case, self.device, compiled=self.compiled, **setting)
            reset_memory(self.device)  # what making the tensors took beside them does not count
            together, took = peer.warm_up(program.steps)
            peak = peak_memory(self.device) - before
            if took < 0.3:  # long steps tell enough at once
                took = min(peer.time_steps(program.steps, together) / together for _ in range(5))
            if best is None or took < best:
                best, chosen, kept = took, setting, (program, together, peak)
            del program
        program, self.together, peak = kept
        self.steps = program.steps
        words = [str(value) if not isinstance(value, bool) else key for key, value in chosen.items()]
        return {"peak_mb": peak, "setting": ", ".join(words) or "plain"}

    def load_task(self, name):
        """Tries every setting of a task; what is fastest stays."""
        import tasks

        is_model = name.startswith("onnx:")
        make, settings = (tasks.model, tasks.MODELS[name.partition("*")[0]]) if is_model else tasks.SETTINGS[name]
        given = {"name": name, "device": self.device, "compiled": self.compiled} if is_model else {}
        best, kept = None, None
        before = reset_memory(self.device)
        for setting in settings:
            steps = make(**given, **setting)
            steps(3 if is_model else 1)
            took = min(peer.time_steps(steps, 1) for _ in range(2))
            if best is None or took < best:
                best, kept = took, (steps, setting)
            del steps
        self.steps, setting = kept
        self.together = 1
        words = [str(value) if not isinstance(value, bool) else f"{key} {value}" for key, value in setting.items()]
        return {"peak_mb": peak_memory(self.device) - before, "setting": ", ".join(words) or "plain"}

    def check(self, case):
        program = Program(self.read, case, self.device, small=True)
        scope = program.scope
        with torch.set_grad_enabled(not case.infer):
            exec("\n".join(program.forward), scope)
        values = [peer.summary(case.calls[-1].out, scope[program.result].detach().double().cpu().numpy())]
        if case.backward:
            scope["v_" + case.backward].backward()
            for i, p in enumerate(program.params):
                values.append(peer.summary(f"gradient {i}", p.grad.double().cpu().numpy()))
        return {"case": case.name, "parameters": sum(p.numel() for p in program.params), "values": values}


if __name__ == "__main__":
    on = sys.argv[sys.argv.index("--device") + 1] if "--device" in sys.argv else "cpu"
    ways = {"--compile": "default", "--reduce-overhead": "reduce-overhead", "--graph": "graph"}
    way = next((ways[word] for word in sys.argv if word in ways), None)
    Torch(int(sys.argv[2]), way, on).serve(sys.argv[1])
