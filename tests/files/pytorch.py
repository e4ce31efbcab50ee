"""Makes pytorch.inc, small checkpoints of PyTorch in its formats, and, with the data of ARIL_TEST_DATA, cifar10_classes.inc: the
class that PyTorch's ResNet-20 predicts for each image of CIFAR-10 there.

Needs PyTorch."""
import collections
import io
import lzma
import os
import sys

import torch
import torch.nn.functional as F

here = os.path.dirname(os.path.abspath(__file__))


def tensors():
    """What tests/formats/test_pytorch.c expects."""
    base = torch.arange(24.)
    t = collections.OrderedDict()
    t["conv.weight"] = torch.nn.Parameter(torch.arange(12.).reshape(3, 4) / 4)
    t["part"] = base[2:14].view(3, 4).t()
    t["base"] = base
    t["i64"] = torch.arange(6).view(2, 3) - 3
    t["f16"] = torch.tensor([0.5, -2.]).half()
    t["bf16"] = torch.tensor([1.5, -3.]).bfloat16()
    t["bool"] = torch.tensor([True, False, True])
    t["u8"] = torch.tensor([0, 255], dtype=torch.uint8)
    t["i8"] = torch.tensor([-128, 127], dtype=torch.int8)
    t["i16"] = torch.tensor([-5, 500], dtype=torch.int16)
    t["i32"] = torch.tensor([7, -7], dtype=torch.int32)
    t["f64"] = torch.tensor(0.1, dtype=torch.float64)
    t["u16"] = torch.tensor([1, 65535], dtype=torch.uint16)
    t["f8"] = torch.tensor([1., -0.5]).to(torch.float8_e4m3fn)
    t["empty"] = torch.empty(0, 3)
    t["expanded"] = torch.tensor([[1., 2.]]).expand(3, 2)
    t["complex"] = torch.tensor([[1 + 2j, -3 + .5j], [0, 7j]], dtype=torch.complex64).t()
    t["tied"] = t["conv.weight"]
    return t


def saved(value, **how):
    out = io.BytesIO()
    torch.save(value, out, **how)
    return out.getvalue()


def bytes_text(name, data):
    lines = [", ".join("%d" % b for b in data[i:i + 40]) for i in range(0, len(data), 40)]
    return "static const unsigned char %s[] = {\n%s,\n};\n" % (name, ",\n".join(lines))


def checkpoints():
    state = tensors()
    whole = {"epoch": 7, "arch": "net", "state_dict": collections.OrderedDict(("module." + k, v) for k, v in state.items()),
             "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}}
    old = {"_use_new_zipfile_serialization": False}
    return {"zipped": saved(state), "legacy": saved(state, **old), "nested": saved(whole), "legacy_nested": saved(whole, **old),
            "protocol4": saved(whole, pickle_protocol=4)}


class Block(torch.nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(n_out)
        self.conv2 = torch.nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(n_out)
        self.pad = (n_out - n_in) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.pad:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(x + y)


class ResNet20(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(16)
        sizes = ((16, 16), (16, 32), (32, 64))
        for i, (a, b) in enumerate(sizes):
            blocks = [Block(a, b, 1 + (a != b)), Block(b, b, 1), Block(b, b, 1)]
            setattr(self, "layer%d" % (i + 1), torch.nn.Sequential(*blocks))
        self.linear = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


def classes(data):
    net = ResNet20().eval()
    state = torch.load(os.path.join(data, "pytorch-models/cifar10-resnet/resnet20-12fca82f.th"), map_location="cpu")["state_dict"]
    net.load_state_dict({k.removeprefix("module."): v for k, v in state.items()})
    raw = lzma.open(os.path.join(data, "cifar10/test_batch_first2000.bin.xz")).read()
    x = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 3073)
    labels, x = x[:, 0], x[:, 1:].reshape(-1, 3, 32, 32).float() / 255
    x = (x - torch.tensor([.485, .456, .406]).view(3, 1, 1)) / torch.tensor([.229, .224, .225]).view(3, 1, 1)
    with torch.no_grad():
        scores = torch.cat([net(part) for part in x.split(250)])
    top = scores.topk(2).values
    print("%d of %d correct; the closest two classes differ by %g" % ((scores.argmax(1) == labels).sum(), len(x), (top[:, 0] - top[:, 1]).min()))
    text = "".join(str(int(i)) for i in scores.argmax(1))
    return "\n".join('"%s"' % text[i:i + 100] for i in range(0, len(text), 100)) + "\n"


def main():
    with open(os.path.join(here, "pytorch.inc"), "w") as f:
        f.write("/* Made by pytorch.py. */\n" + "".join(bytes_text(k, v) for k, v in checkpoints().items()))
    data = os.environ.get("ARIL_TEST_DATA", os.path.join(here, "..", "..", "..", "shared", "data"))
    if os.path.isdir(data):
        with open(os.path.join(here, "cifar10_classes.inc"), "w") as f:
            f.write(classes(data))


if __name__ == "__main__":
    sys.exit(main())
