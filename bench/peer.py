"""What the peers share: the numbers that tensors are made of, steps timed as in measure.c, and the
requests that bench/compare sends (those of `aril bench --serve`):

    load CASE        {"peak_mb": ..., "setting": what was fastest}
    run SECONDS      {"ms": [samples], "faults": pages a step}
    check CASE       results and gradients for small batches
    drop             {}

A line a request on stdin, a line of JSON an answer; {"error": text} when it can't be done.
"""
import ctypes
import gc
import json
import resource
import sys
import time
import traceback

import numpy as np

import cases


def spread(x):
    """A hash of 32 bits ("lowbias32"), of an array in place."""
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


class Maker:
    """Tensors are numbered in the order in which they are made, and their elements follow from number
    and place, as in net.c."""

    def __init__(self):
        self.made = 0

    def fill(self, shape, center, scale):
        """center + scale * u, with u in [-1, 1), as f32."""
        self.made += 1
        first = spread(np.array([self.made], np.uint32))
        bits = spread(np.arange(np.prod(shape), dtype=np.uint32) + first) >> np.uint32(8)
        u = bits.astype(np.float32) * np.float32(2**-23) - np.float32(1)
        return (np.float32(center) + np.float32(scale) * u).reshape(shape)

    def labels(self, shape, classes):
        return np.floor(self.fill(shape, 1, 1).astype(np.float64) * (classes / 2)).astype(np.int64)

    def state(self, name, shape):
        """A tensor of a network of the zoo, by its name, as in net.c; None: as it is."""
        last = name.rsplit(".", 1)[-1]
        if last == "num_batches_tracked":
            return None
        if len(shape) > 1:
            return self.fill(shape, 0, (6.0 / (np.prod(shape) / shape[0])) ** 0.5)
        return self.fill(shape, *{"running_var": (1, 0.5), "weight": (1, 0.2)}.get(last, (0, 0.1)))

    def weights(self, layer, channels):
        """Those of a layer in order: its parameters, then its running statistics."""
        if layer.kind == "conv":
            out, k = layer.numbers
            made = [self.fill([out, channels, k, k], 0, (6.0 / (channels * k * k)) ** 0.5)]
            return made + ([self.fill([out], 0, 0.1)] if layer.bias else []), []
        if layer.kind == "linear":
            out = layer.numbers[0]
            made = [self.fill([out, channels], 0, (6.0 / channels) ** 0.5)]
            return made + ([self.fill([out], 0, 0.1)] if layer.bias else []), []
        if layer.kind == "bn":
            c = [channels]
            return [self.fill(c, 1, 0.2), self.fill(c, 0, 0.1)], [self.fill(c, 0, 0.1), self.fill(c, 1, 0.5)]
        if layer.kind in ("rnn", "rnnloop", "lstm"):
            h, gates = layer.numbers[0], 4 if layer.kind == "lstm" else 1
            made, scale = [], 1 / h**0.5
            for i in range(layer.numbers[1] if layer.kind == "lstm" else 1):
                for shape in ([gates * h, h if i else channels], [gates * h, h], [gates * h], [gates * h]):
                    made.append(self.fill(shape, 0, scale))
            return made, []
        return [], []


def shape_after(layer, shape, stack):
    """The shape of a layer's result; `stack` holds the shapes before open residuals."""
    shape = list(shape)
    if layer.kind in ("conv", "maxpool"):
        k = layer.numbers[-1]
        stride = layer.stride or (1 if layer.kind == "conv" else k)
        shape[2:] = [(n + 2 * layer.pad - k) // stride + 1 for n in shape[2:]]
        if layer.kind == "conv":
            shape[1] = layer.numbers[0]
    elif layer.kind in ("linear", "rnn", "rnnloop", "lstm"):
        shape[-1] = layer.numbers[0]
    elif layer.kind == "avgpool":
        shape[2:] = [1] * len(shape[2:])
    elif layer.kind == "flatten":
        shape = [shape[0], int(np.prod(shape[1:]))]
    elif layer.kind == "residual":
        stack.append(shape)
    elif layer.kind == "shortcut":
        shape = list(stack[-1])
    elif layer.kind == "end":
        stack.pop()
    return shape


def width(layer, shape):
    """How many numbers a layer takes of each place: channels of images, else the last size."""
    return shape[1] if layer.kind in ("conv", "bn") else shape[-1]


def summary(name, value):
    """What is compared of a tensor, as program.c prints it."""
    v = value.astype(np.float64).ravel()
    return {"name": name, "n": v.size, "sum": v.sum(), "norm": float(np.sqrt(v @ v)), "first": v[:8].tolist()}


# ---- measurements


def status_mb(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
    return 0.0


def reset_memory():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass
    return status_mb("VmRSS")


def time_steps(steps, n):
    start = time.perf_counter()
    steps(n)
    return time.perf_counter() - start


def warm_up(steps):
    """Runs until it is steady; how many short steps are timed as one, and what a step took at last."""
    group, long_enough, together = 2e-3, 0.1, 1
    took = spent = time_steps(steps, 1)
    while spent < long_enough:
        took = time_steps(steps, together)
        spent += took
        if took < group:
            together *= 4 if took < group / 8 else 2
    if took > long_enough:
        took = time_steps(steps, together)
    return together, took / together


class Peer:
    """A peer makes `steps(n)` of a case, done when it returns; subclasses say how, and how to end one."""

    def __init__(self, threads):
        self.threads, self.steps, self.together, self.read = threads, None, 1, None

    def load(self, name):
        raise NotImplementedError

    def drop(self):
        self.steps = None
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return {}

    def run(self, seconds):
        if not self.steps:
            return {"error": "no case is loaded"}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        end, ms = time.perf_counter() + seconds, []
        while not ms or time.perf_counter() < end:
            ms.append(time_steps(self.steps, self.together) / self.together * 1e3)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        return {"ms": ms, "faults": faults / (len(ms) * self.together)}

    def serve(self, path):
        self.read = cases.read(path)
        answers = sys.stdout
        sys.stdout = sys.stderr  # what a library prints is no answer
        for line in sys.stdin:
            words = line.split()
            try:
                if words[0] == "load":
                    answer = self.load(self.read.cases[words[1]])
                elif words[0] == "run":
                    answer = self.run(float(words[1]))
                elif words[0] == "check":
                    answer = self.check(self.read.cases[words[1]])
                else:
                    answer = self.drop()
            except Exception as error:  # whatever a peer can't do is said, and the next case goes on
                traceback.print_exc()
                self.drop()
                text = str(error).strip().splitlines() or [type(error).__name__]
                answer = {"error": text[0]}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
