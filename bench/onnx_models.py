"""Models in ONNX for the tasks onnx:NAME of bench/cases, with random weights and the layers of the networks that they
are named after:

    python onnx_models.py FOLDER NAME...

Batch normalization is in nodes of its own, as exporters leave it in training mode. ultraface and silero are files of
the test data (ARIL_TEST_DATA, or ../shared/data), which are copied.
"""
import os
import sys

import numpy as np
from onnx import TensorProto, helper, load, numpy_helper, save


class Graph:
    """Nodes and weights of a model that takes `inputs`: (name, shape)."""

    def __init__(self, *inputs):
        self.inputs, self.nodes, self.weights = inputs, [], []
        self.channels = {name: shape[1] for name, shape in inputs if len(shape) > 1}
        self.random = np.random.default_rng(1)

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def draw(self, *shape, scale=1.0, center=0.0):
        value = self.random.random(shape, dtype=np.float32) * 2 - 1
        return self.weight((center + scale * value).astype(np.float32))

    def node(self, op, *inputs, channels=None, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        self.channels[name] = channels or self.channels.get(inputs[0])
        return name

    def conv(self, x, out, kernel, stride=1, pad=0, groups=1, bias=False):
        into = self.channels[x] // groups
        scale = (6.0 / (into * kernel * kernel)) ** 0.5
        given = [self.draw(out, into, kernel, kernel, scale=scale)]
        given += [self.draw(out, scale=0.1)] if bias else []
        return self.node("Conv", x, *given, channels=out, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                         pads=[pad] * 4, group=groups)

    def bn(self, x):
        c = self.channels[x]
        given = [self.draw(c, scale=0.2, center=1), self.draw(c, scale=0.1), self.draw(c, scale=0.1),
                 self.draw(c, scale=0.5, center=1)]
        return self.node("BatchNormalization", x, *given)

    def relu(self, x):
        return self.node("Relu", x)

    def pool(self, x, op="MaxPool", kernel=3, stride=2, pad=1, **more):
        return self.node(op, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, **more)

    def cat(self, *parts):
        return self.node("Concat", *parts, axis=1, channels=sum(self.channels[p] for p in parts))

    def gemm(self, x, into, out):
        given = [self.draw(out, into, scale=(3.0 / into) ** 0.5), self.draw(out, scale=0.1)]
        return self.node("Gemm", x, *given, transB=1)

    def average(self, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x))

    def save(self, path, result):
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs]
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", inputs, [output], self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


IMAGE = ("x", [1, 3, 224, 224])


def resnet50(path):
    g = Graph(IMAGE)
    x = g.pool(g.relu(g.bn(g.conv("x", 64, 7, 2, 3))))
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for k in range(blocks):
            stride = 2 if k == 0 and stage else 1
            y = g.relu(g.bn(g.conv(x, width, 1)))
            y = g.relu(g.bn(g.conv(y, width, 3, stride, 1)))
            y = g.bn(g.conv(y, 4 * width, 1))
            short = g.bn(g.conv(x, 4 * width, 1, stride)) if k == 0 else x
            x = g.relu(g.node("Add", y, short))
    g.save(path, g.gemm(g.average(x), 2048, 1000))


def mobilenet2(path):
    g = Graph(IMAGE)
    low, high = g.weight(np.float32(0)), g.weight(np.float32(6))

    def step(x, out, kernel, stride=1, groups=1):
        return g.node("Clip", g.bn(g.conv(x, out, kernel, stride, kernel // 2, groups)), low, high)

    x = step("x", 32, 3, 2)
    for grow, out, blocks, first in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                     (6, 160, 3, 2), (6, 320, 1, 1)]:
        for k in range(blocks):
            into, stride = g.channels[x], first if k == 0 else 1
            y = step(x, into * grow, 1) if grow > 1 else x
            y = step(y, into * grow, 3, stride, into * grow)
            y = g.bn(g.conv(y, out, 1))
            x = g.node("Add", x, y) if stride == 1 and into == out else y
    g.save(path, g.gemm(g.average(step(x, 1280, 1)), 1280, 1000))


def squeezenet(path):
    g = Graph(IMAGE)
    x = g.pool(g.relu(g.conv("x", 64, 3, 2, bias=True)), pad=0)
    for k, (squeeze, out) in enumerate([(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256),
                                        (64, 256)]):
        if k in (2, 4):
            x = g.pool(x, pad=0)
        s = g.relu(g.conv(x, squeeze, 1, bias=True))
        x = g.cat(g.relu(g.conv(s, out, 1, bias=True)), g.relu(g.conv(s, out, 3, 1, 1, bias=True)))
    g.save(path, g.average(g.relu(g.conv(x, 1000, 1, bias=True))))


def densenet121(path):
    g = Graph(IMAGE)
    x = g.pool(g.relu(g.bn(g.conv("x", 64, 7, 2, 3))))
    for stage, layers in enumerate([6, 12, 24, 16]):
        for _ in range(layers):
            y = g.conv(g.relu(g.bn(x)), 128, 1)
            x = g.cat(x, g.conv(g.relu(g.bn(y)), 32, 3, 1, 1))
        if stage < 3:
            y = g.conv(g.relu(g.bn(x)), g.channels[x] // 2, 1)
            x = g.pool(y, "AveragePool", 2, 2, 0)
    g.save(path, g.gemm(g.average(g.relu(g.bn(x))), 1024, 1000))


def vgg16(path):
    g, x = Graph(IMAGE), "x"
    for width, convs in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(convs):
            x = g.relu(g.conv(x, width, 3, 1, 1, bias=True))
        x = g.pool(x, kernel=2, pad=0)
    x = g.relu(g.gemm(g.node("Flatten", x), 25088, 4096))
    g.save(path, g.gemm(g.relu(g.gemm(x, 4096, 4096)), 4096, 1000))


def bert(path, layers=12, width=768, heads=12, tokens=128):
    """The encoder of BERT-base after its embeddings."""
    g, each = Graph(("x", [1, tokens, width])), width // heads
    shape = g.weight(np.array([1, tokens, heads, each], np.int64))
    back = g.weight(np.array([1, tokens, width], np.int64))

    def linear(x, into, out):
        y = g.node("MatMul", x, g.draw(into, out, scale=(3.0 / into) ** 0.5))
        return g.node("Add", g.draw(out, scale=0.1), y)

    def norm(x):
        return g.node("LayerNormalization", x, g.draw(width, scale=0.2, center=1), g.draw(width, scale=0.1),
                      axis=-1, epsilon=1e-12)

    def gelu(x):
        e = g.node("Erf", g.node("Div", x, g.weight(np.float32(2**0.5))))
        return g.node("Mul", g.node("Mul", x, g.node("Add", e, g.weight(np.float32(1)))), g.weight(np.float32(0.5)))

    x = "x"
    for _ in range(layers):
        q, k, v = (g.node("Reshape", linear(x, width, width), shape) for _ in range(3))
        q, v = (g.node("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        s = g.node("Div", g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 3, 1])),
                   g.weight(np.float32(each**0.5)))
        a = g.node("Transpose", g.node("MatMul", g.node("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
        x = norm(g.node("Add", linear(g.node("Reshape", a, back), width, width), x))
        x = norm(g.node("Add", linear(gelu(linear(x, width, 4 * width)), 4 * width, width), x))
    g.save(path, x)


def given(name):
    def copy(path):
        here = os.path.dirname(os.path.abspath(__file__))
        data = os.environ.get("ARIL_TEST_DATA") or os.path.join(here, "..", "..", "shared", "data")
        model = load(os.path.join(data, "onnx-models", name))
        weights = {w.name for w in model.graph.initializer}
        inputs = [i for i in model.graph.input if i.name not in weights]  # else weights may not be folded
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        save(model, path)

    return copy


MODELS = {
    "resnet50": resnet50, "mobilenet2": mobilenet2, "squeezenet": squeezenet, "densenet121": densenet121,
    "vgg16": vgg16, "bert": bert, "ultraface": given("ultraface/version-RFB-320.onnx"),
    "silero": given("silero-vad/silero_vad.onnx"),
}


def folder():
    """Where the models are: tasks.c looks there, too."""
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"aril-bench-models-{os.getuid()}")


def make(name, where):
    path = os.path.join(where, name + ".onnx")
    if not os.path.exists(path):
        os.makedirs(where, exist_ok=True)
        MODELS[name](path + ".new")
        os.replace(path + ".new", path)
    return path


if __name__ == "__main__":
    for each in sys.argv[2:]:
        print(make(each, sys.argv[1]))
