"""The file bench/cases, read: its language is described at its top, and cases.c reads the same."""
import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")

# layer: numbers, takes stride and pad, takes nobias
LAYERS = {
    "conv": (2, True, True),
    "linear": (1, False, True),
    "bn": (0, False, False),
    "relu": (0, False, False),
    "tanh": (0, False, False),
    "dropout": (1, False, False),
    "flatten": (0, False, False),
    "avgpool": (0, False, False),
    "maxpool": (1, True, False),
    "rnn": (1, False, False),
    "rnnloop": (1, False, False),
    "lstm": (2, False, False),
    "residual": (0, False, False),
    "shortcut": (0, False, False),
    "end": (0, False, False),
}

# operation: tensors, most numbers after them
OPS = {
    "add": (2, 0),
    "sub": (2, 0),
    "mul": (2, 0),
    "muladd": (3, 0),
    "relu": (1, 0),
    "exp": (1, 0),
    "tanh": (1, 0),
    "sigmoid": (1, 0),
    "gelu": (1, 0),
    "square": (1, 0),
    "sum": (1, 1),
    "mean": (1, 0),
    "softmax": (1, 0),
    "layer_norm": (3, 0),
    "dropout": (1, 1),
    "transpose": (1, 0),
    "cat": (2, 1),
    "matmul": (2, 0),
    "matmul_nt": (2, 0),
    "matmul_tn": (2, 0),
    "mse": (2, 0),
    "cross_entropy": (2, 0),
    "token_loss": (2, 0),
}


class Mistake(Exception):
    """What is wrong in the file, with its place."""


class Layer:
    def __init__(self, kind, numbers):
        self.kind, self.numbers = kind, numbers
        self.stride, self.pad, self.bias = None, 0, True


class Tensor:
    def __init__(self, name, role, shape, classes=0):
        self.name, self.role, self.shape, self.classes = name, role, shape, classes


class Call:
    def __init__(self, out, op, inputs, numbers, net=None, zoo=None):
        self.out, self.op, self.inputs, self.numbers, self.net, self.zoo = out, op, inputs, numbers, net, zoo
        self.dead = []  # results that nothing needs after this call


class Case:
    def __init__(self, name):
        self.name, self.about, self.priority, self.want = name, "", 9, None
        self.infer, self.modules, self.dtype = False, False, "f32"
        self.tensors, self.calls = [], []
        self.backward, self.sgd = None, None
        self.task = ""

    @property
    def nets(self):
        return [call for call in self.calls if call.net]

    @property
    def zoos(self):
        return [call for call in self.calls if call.zoo]

    def names(self):
        return [t.name for t in self.tensors] + [c.out for c in self.calls]


class Reader:
    def __init__(self, path):
        self.path, self.line = path, 0
        self.blocks, self.nets, self.cases = {}, {}, {}
        self.block = self.net = self.case = None

    def fail(self, text):
        raise Mistake(f"{self.path}:{self.line}: {text}")

    def number(self, words, i):
        if i >= len(words):
            self.fail(f"expected a number after '{words[-1]}'")
        try:
            return float(words[i])
        except ValueError:
            self.fail(f"'{words[i]}' is not a number")

    def whole(self, words, i, least):
        value = self.number(words, i)
        if value != int(value) or value < least:
            self.fail(f"'{words[i]}' is not an integer of at least {least}")
        return int(value)

    def no_more(self, words, n):
        if len(words) > n:
            self.fail(f"unexpected '{words[n]}' after '{words[n - 1]}'")

    # ---- nets

    def use(self, net, words, above):
        if len(words) < 2 or words[1] not in above:
            self.fail(f"unknown block '{words[1] if len(words) > 1 else ''}': define it first")
        parameters, lines, above = self.blocks[words[1]]
        times = 1
        if len(words) >= 4 and words[-2] == "times":
            times = self.whole(words, len(words) - 1, 1)
            words = words[:-2]
        given = words[2:]
        if len(given) != len(parameters):
            self.fail(f"block '{words[1]}' expects {len(parameters)} numbers, got {len(given)}")
        value = dict(zip(parameters, given))
        for _ in range(times):
            for line in lines:
                self.layer(net, line[:1] + [value.get(w, w) for w in line[1:]], above)

    def layer(self, net, words, above):
        if words[0] == "use":
            return self.use(net, words, above)
        if words[0] not in LAYERS:
            self.fail(f"unknown layer '{words[0]}'")
        count, window, bias = LAYERS[words[0]]
        read = self.number if words[0] == "dropout" else lambda w, k: self.whole(w, k, 1)
        layer = Layer(words[0], [read(words, k + 1) for k in range(count)])
        i = count + 1
        while i < len(words):
            if window and words[i] == "stride":
                i += 1
                layer.stride = self.whole(words, i, 1)
            elif window and words[i] == "pad":
                i += 1
                layer.pad = self.whole(words, i, 0)
            elif bias and words[i] == "nobias":
                layer.bias = False
            else:
                self.fail(f"unexpected '{words[i]}' after '{words[i - 1]}'")
            i += 1
        net.append(layer)

    def check_nesting(self, name, net):
        shortcuts = []
        for layer in net:
            if layer.kind == "residual":
                shortcuts.append(0)
            elif layer.kind == "shortcut":
                if not shortcuts or shortcuts[-1]:
                    self.fail(f"net '{name}' has a shortcut outside a residual")
                shortcuts[-1] = 1
            elif layer.kind == "end":
                if not shortcuts:
                    self.fail(f"net '{name}' has an end without a residual")
                shortcuts.pop()
        if shortcuts:
            self.fail(f"net '{name}' has a residual without an end")

    # ---- cases

    def tensor(self, words):
        role, case = words[0], self.case
        first = 3 if role == "labels" else 2
        if len(words) <= first:
            self.fail(f"'{words[1] if len(words) > 1 else role}' has no sizes")
        if words[1] in case.names():
            self.fail(f"'{words[1]}' is defined twice")
        classes = self.whole(words, 2, 1) if role == "labels" else 0
        shape = [self.whole(words, i, 1) for i in range(first, len(words))]
        case.tensors.append(Tensor(words[1], role, shape, classes))

    def call(self, words):
        case, net, zoo, i = self.case, None, None, 3
        if len(words) < 4:
            self.fail(f"unexpected '{words[0]}'")
        if words[2] == "net":
            if words[3] not in self.nets:
                self.fail(f"unknown net '{words[3]}': define it first")
            net, i, count, most = words[3], 4, 1, 0
        elif words[2] == "zoo":
            zoo, i, count, most = words[3], 4, 1, 0
        elif words[2] in OPS:
            count, most = OPS[words[2]]
        else:
            self.fail(f"unknown operation '{words[2]}'")
        inputs = words[i : i + count]
        if len(inputs) < count:
            self.fail(f"'{words[2]}' expects {count} tensors")
        for name in inputs:
            if name not in case.names():
                self.fail(f"unknown tensor '{name}': define it first")
        numbers = [self.number(words, k) for k in range(i + count, min(len(words), i + count + most))]
        if words[2] == "cat" and not numbers:
            self.fail("cat needs an axis")
        self.no_more(words, i + count + len(numbers))
        if words[0] in case.names():
            self.fail(f"'{words[0]}' is defined twice")
        case.calls.append(Call(words[0], words[2], inputs, numbers, net, zoo))

    def case_line(self, words, text):
        case = self.case
        if len(words) > 1 and words[1] == "=":
            self.call(words)
        elif words[0] in ("input", "param", "labels"):
            self.tensor(words)
        elif words[0] == "about":
            case.about = text.split(None, 1)[1] if len(words) > 1 else ""
        elif words[0] in ("infer", "modules"):
            setattr(case, words[0], True)
            self.no_more(words, 1)
        elif words[0] in ("want", "sgd"):
            setattr(case, words[0], self.number(words, 1))
            self.no_more(words, 2)
        elif words[0] == "priority":
            case.priority = self.whole(words, 1, 1)
            self.no_more(words, 2)
        elif words[0] == "task":
            if len(words) < 2:
                self.fail("task needs a name")
            self.no_more(words, 2)
            case.task = words[1]
        elif words[0] == "dtype":
            if words[1:] not in (["f32"], ["tf32"], ["bf16"]):
                self.fail("dtype must be f32, tf32 or bf16")
            case.dtype = words[1]
        elif words[0] == "backward":
            if len(words) != 2 or words[1] not in case.names():
                self.fail("backward needs the name of a result")
            case.backward = words[1]
        else:
            self.fail(f"unknown line '{words[0]}' in a case")

    def finish(self):
        case = self.case
        if self.net is not None:
            self.check_nesting(self.net, self.nets[self.net])
        if case:
            if not case.calls and not case.task:
                self.fail(f"case '{case.name}' does nothing")
            if case.task and (case.calls or case.tensors):
                self.fail(f"case '{case.name}': a task cannot be combined with other lines")
            if case.sgd and not case.backward:
                self.fail(f"case '{case.name}': sgd without backward")
            if case.infer and case.backward:
                self.fail(f"case '{case.name}': backward in inference mode")
            if case.modules and any(layer.kind in ("rnn", "rnnloop", "lstm", "residual", "shortcut", "end")
                                    for call in case.nets for layer in self.nets[call.net]):
                self.fail(f"case '{case.name}': modules support plain layers only")
            for result in [c.out for c in case.calls]:
                users = [c for c in case.calls if result in c.inputs]
                if users and result != case.backward:
                    users[-1].dead.append(result)
        self.block = self.net = self.case = None

    def begin(self, words):
        self.finish()
        kinds = {"block": self.blocks, "net": self.nets, "case": self.cases}
        if words[0] not in kinds:
            self.fail("a line that is not indented must start with block, net or case")
        if len(words) < 2:
            self.fail(f"'{words[0]}' has no name")
        name = words[1]
        if name in kinds[words[0]]:
            self.fail(f"{words[0]} '{name}' is defined twice")
        if words[0] == "block":
            self.blocks[name] = (words[2:], [], set(self.blocks))
            self.block = name
            return
        self.no_more(words, 2)
        if words[0] == "net":
            self.nets[name] = []
            self.net = name
        else:
            self.case = self.cases[name] = Case(name)

    def read(self):
        with open(self.path) as file:
            for line in file:
                self.line += 1
                text = line.split("#")[0].rstrip()
                words = text.split()
                if not words:
                    continue
                if not text[0].isspace():
                    self.begin(words)
                elif self.block:
                    self.blocks[self.block][1].append(words)
                elif self.net:
                    self.layer(self.nets[self.net], words, set(self.blocks))
                elif self.case:
                    self.case_line(words, text)
                else:
                    self.fail("an indented line must follow block, net or case")
        self.finish()
        return self


def read(path=PATH):
    """All of the file: .cases and .nets by name, in its order. Raises Mistake."""
    return Reader(path).read()
