"""Classes that PyTorch finds with Caffe's weights of CIFAR-10 quick, for the first 2,000 test images:
python tests/models/cifar10_quick.py DATA writes cifar10_quick.inc. DATA is the folder of
ARIL_TEST_DATA. Needs torch; the file is committed."""
import lzma
import os
import struct
import sys

import torch
import torch.nn.functional as F


def fields(data):
    """The fields of a protocol buffer: (number, value)."""
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
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            n = varint()
            yield key >> 3, data[at:at + n]
            at += n
        else:
            n = 4 if key & 7 == 5 else 8
            yield key >> 3, data[at:at + n]
            at += n


def blob(data):
    sizes = [1, 1, 1, 1]
    values = b""
    for number, value in fields(data):
        if number <= 4:
            sizes[number - 1] = value
        elif number == 5:
            values += value
    return torch.tensor(struct.unpack(f"<{len(values) // 4}f", values)).reshape(sizes)


def weights(path):
    """Of a net in the older form: layers (field 2) with name (4) and blobs (6)."""
    found = {}
    for number, layer in fields(open(path, "rb").read()):
        if number == 2:
            parts = list(fields(layer))
            name = next(v.decode() for n, v in parts if n == 4)
            found[name] = [blob(v) for n, v in parts if n == 6]
    return found


def main():
    data = sys.argv[1]
    w = weights(f"{data}/caffe-models/lenet-cifar10-trained/cifar10_quick_iter_5000.caffemodel")
    mean = blob(open(f"{data}/cifar10/mean.binaryproto", "rb").read())
    raw = lzma.open(f"{data}/cifar10/test_batch_first2000.bin.xz").read()
    records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 3073)
    x = records[:, 1:].reshape(-1, 3, 32, 32).float() - mean
    conv = {k: (w[k][0], w[k][1].flatten()) for k in ("conv1", "conv2", "conv3")}
    with torch.no_grad():
        x = F.relu(F.max_pool2d(F.conv2d(x, *conv["conv1"], padding=2), 3, 2, ceil_mode=True))
        x = F.avg_pool2d(F.relu(F.conv2d(x, *conv["conv2"], padding=2)), 3, 2, ceil_mode=True)
        x = F.avg_pool2d(F.relu(F.conv2d(x, *conv["conv3"], padding=2)), 3, 2, ceil_mode=True)
        for name in ("ip1", "ip2"):
            x = x.flatten(1) @ w[name][0].squeeze(0).squeeze(0).T + w[name][1].flatten()
    top = x.topk(2).values
    classes = "".join(str(int(c)) for c in x.argmax(1))
    right = (x.argmax(1) == records[:, 0]).float().mean()
    print(f"{100 * right:.2f} % right; the closest pair of scores: {(top[:, 0] - top[:, 1]).min():g}")
    lines = [f'    "{classes[i:i + 80]}"\n' for i in range(0, len(classes), 80)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cifar10_quick.inc")
    with open(path, "w") as f:
        f.write("/* Written by cifar10_quick.py: the class of each image. */\n")
        f.write("static const char cifar10_quick_classes[] =\n" + "".join(lines).rstrip("\n") + ";\n")


main()
