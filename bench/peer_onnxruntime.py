"""onnxruntime's side of bench/cases: inference of nets, as ONNX graphs made from their layers. Run by
bench/compare:

    python peer_onnxruntime.py CASES THREADS
"""
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnx_models
import peer


class Graph:
    """A net as an ONNX graph with the shared weights."""

    def __init__(self, net, shape, maker):
        self.nodes, self.weights, self.made = [], [], 0
        shapes, opened, value = [], [], "x"
        for layer in net:
            if layer.kind == "residual":
                opened.append([value, None])
            elif layer.kind == "shortcut":
                opened[-1][1], value = value, opened[-1][0]
            elif layer.kind == "end":
                before, main = opened.pop()
                value = self.node("Add", [main or before, value])
            else:
                params, running = maker.weights(layer, peer.width(layer, shape))
                value = self.layer(layer, value, [self.weight(w) for w in params + running])
            shape = peer.shape_after(layer, shape, shapes)
        self.result, self.shape = value, shape

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op, inputs, **attributes):
        self.made += 1
        self.nodes.append(helper.make_node(op, inputs, [f"v{self.made}"], **attributes))
        return f"v{self.made}"

    def layer(self, layer, x, weights):
        def window(kernel, stride):
            return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [layer.pad] * 4}

        n = layer.numbers
        if layer.kind == "conv":
            return self.node("Conv", [x] + weights, **window(n[1], layer.stride or 1))
        if layer.kind == "maxpool":
            return self.node("MaxPool", [x], **window(n[0], layer.stride or n[0]))
        if layer.kind == "linear":
            return self.node("Gemm", [x] + weights, transB=1)
        if layer.kind == "bn":
            return self.node("BatchNormalization", [x] + weights)
        if layer.kind == "dropout":
            return x  # nothing in inference
        ops = {"relu": "Relu", "tanh": "Tanh", "flatten": "Flatten", "avgpool": "GlobalAveragePool"}
        if layer.kind not in ops:
            raise ValueError(f"no ONNX graph for the layer '{layer.kind}'")
        return self.node(ops[layer.kind], [x])


class OnnxRuntime(peer.Peer):
    def options(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        return options

    def file_session(self, name):
        """A model of onnx_models.py, with inputs as in tasks.c."""
        path = onnx_models.make(name, onnx_models.folder())
        session = onnxruntime.InferenceSession(path, self.options(), providers=["CPUExecutionProvider"])
        feed, maker = {}, peer.Maker()
        for given in session.get_inputs():
            shape, last = given.shape, len(given.shape) - 1
            shape = [n if isinstance(n, int) else 576 if d and d == last else 1 for d, n in enumerate(shape)]
            if given.type == "tensor(int64)":
                feed[given.name] = np.full(shape, 16000, np.int64)
            elif given.name == "state":
                feed[given.name] = np.zeros(shape, np.float32)
            else:
                feed[given.name] = maker.fill(shape, 0, 1)
        return session, feed

    def session(self, case, small=False):
        if case.task.startswith("onnx:"):
            return self.file_session(case.task[5:])
        if not case.infer or len(case.calls) != 1 or not case.nets:
            raise ValueError("inference of one net only")
        if case.dtype != "f32":
            raise ValueError("the CPU provider computes networks in f32 only")
        maker, tensor = peer.Maker(), case.tensors[0]
        shape = list(tensor.shape)
        if small:
            shape[0] = min(shape[0], 2)
        x = maker.fill(shape, 0, 1)
        graph = Graph(self.read.nets[case.calls[0].net], shape, maker)
        model = helper.make_model(
            helper.make_graph(
                graph.nodes,
                case.name,
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                [helper.make_tensor_value_info(graph.result, TensorProto.FLOAT, graph.shape)],
                graph.weights,
            ),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=9,
        )
        return onnxruntime.InferenceSession(
            model.SerializeToString(), self.options(), providers=["CPUExecutionProvider"]
        ), {"x": x}

    def load(self, case):
        self.drop()
        before = peer.reset_memory()
        session, feed = self.session(case)
        if not case.task:
            peer.reset_memory()  # what making the graph took does not count; loading a file does

        def steps(n):
            for _ in range(n):
                session.run(None, feed)

        self.steps, (self.together, _) = steps, peer.warm_up(steps)
        return {"peak_mb": peer.status_mb("VmHWM") - before, "setting": "plain"}

    def check(self, case):
        session, feed = self.session(case, small=True)
        values = [peer.summary(case.calls[-1].out, session.run(None, feed)[0])]
        return {"case": case.name, "values": values}


if __name__ == "__main__":
    OnnxRuntime(int(sys.argv[2])).serve(sys.argv[1])
