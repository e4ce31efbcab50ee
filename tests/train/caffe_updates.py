#!/usr/bin/env python3
"""Three updates of CIFAR-10 quick from Caffe's own solverstate, by PyTorch: writes caffe_updates.inc.

    tests/train/caffe_updates.py SHARED_DATA

The weights and the history are those of cifar10_quick_iter_5000, the batches are the first 300 of the 2,000 images,
the rule is Caffe's: v = 0.9 v + lr (g + 0.004 w), w -= v, with lr 0.001, doubled for biases."""
import lzma, os, struct, sys
import numpy as np
import torch
import torch.nn.functional as F


def fields(data):
    """The fields of a message in wire form: (number, value)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 2:
            n = varint()
            yield tag >> 3, data[at:at + n]
            at += n
        else:
            yield tag >> 3, data[at:at + (4 if tag & 7 == 5 else 8)]
            at += 4 if tag & 7 == 5 else 8


def blob(data):
    size, values = [1, 1, 1, 1], []
    for number, value in fields(data):
        if number <= 4:
            size[number - 1] = value
        elif number == 5:
            values.append(np.frombuffer(value, "<f4"))
    return np.concatenate(values).reshape(size)


def main(folder):
    models = os.path.join(folder, "caffe-models/lenet-cifar10-trained")
    read = lambda path: open(path, "rb").read()
    layers = [list(fields(v)) for n, v in fields(read(models + "/cifar10_quick_iter_5000.caffemodel")) if n == 2]
    weights = [blob(v) for layer in layers for n, v in layer if n == 6]
    history = [blob(v) for n, v in fields(read(models + "/cifar10_quick_iter_5000.solverstate")) if n == 3]
    mean = blob(read(folder + "/cifar10/mean.binaryproto"))
    records = np.frombuffer(lzma.decompress(read(folder + "/cifar10/test_batch_first2000.bin.xz")), np.uint8)
    records = records.reshape(-1, 3073)
    shapes = [(32, 3, 5, 5), (32,), (32, 32, 5, 5), (32,), (64, 32, 5, 5), (64,), (64, 1024), (64,), (10, 64), (10,)]
    w = [torch.tensor(v.reshape(s).astype(np.float64), requires_grad=True) for v, s in zip(weights, shapes)]
    v = [torch.tensor(h.reshape(s).astype(np.float64)) for h, s in zip(history, shapes)]
    lines = []
    for step in range(3):
        part = records[100 * step:100 * step + 100]
        x = torch.tensor(part[:, 1:].reshape(-1, 3, 32, 32).astype(np.float64) - mean)
        h = F.relu(F.max_pool2d(F.conv2d(x, w[0], w[1], padding=2), 3, 2, ceil_mode=True))
        h = F.avg_pool2d(F.relu(F.conv2d(h, w[2], w[3], padding=2)), 3, 2, ceil_mode=True)
        h = F.avg_pool2d(F.relu(F.conv2d(h, w[4], w[5], padding=2)), 3, 2, ceil_mode=True)
        y = F.linear(F.linear(h.flatten(1), w[6], w[7]), w[8], w[9])
        loss = F.cross_entropy(y, torch.tensor(part[:, 0].astype(np.int64)))
        grads = torch.autograd.grad(loss, w)
        lines.append("{ %.9g, {" % loss.item())
        with torch.no_grad():
            for k in range(10):
                v[k] = 0.9 * v[k] + 0.001 * (1 + k % 2) * (grads[k] + 0.004 * w[k])
                w[k] -= v[k]
                flat, change = w[k].flatten(), v[k].flatten()
                at = [0, flat.numel() // 3, flat.numel() - 1]
                lines.append("    { %.9g, { %s }, { %s } }," % (
                    change.norm().item(), ", ".join("%.9g" % flat[i].item() for i in at),
                    ", ".join("%.9g" % change[i].item() for i in at)))
        lines.append("} },")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "caffe_updates.inc")
    with open(path, "w") as f:
        f.write("/* clang-format off */\n/* Written by caffe_updates.py: for each update the loss, then for each blob the "
                "norm of its change,\n * and its first value, that at a third and the last one, with their changes. */\n"
                + "\n".join(lines) + "\n/* clang-format on */\n")


main(sys.argv[1])
