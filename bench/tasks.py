"""The tasks of bench/cases (`task NAME`) for PyTorch: the same work as in tasks.c."""
import os

import numpy as np
import torch

import peer

IMAGES, BATCH = 16384, 64


def lenet5():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def images():
    make = peer.Maker()
    x = make.fill([IMAGES, 28, 28], 128, 127).astype(np.uint8)
    return x, np.floor(make.fill([IMAGES], 5, 5)).astype(np.int64)


class Images(torch.utils.data.Dataset):
    """A sample at a time, as most programs have it."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i].unsqueeze(0).float().div_(255), self.y[i]

    def __getitems__(self, indices):  # whole batches: several times as fast
        at = torch.tensor(indices)
        return list(zip(self.x[at].unsqueeze(1).float().div_(255), self.y[at]))


def whole_batches(samples):
    return samples


class Batches(Images):
    """Gives whole batches, which nothing has to put together again: the fastest form there is."""

    def __getitems__(self, indices):
        at = torch.tensor(indices)
        return self.x[at].unsqueeze(1).float().div_(255), self.y[at]


def lenet5_loop(workers=0, order=None, fused=False, batches=True):
    x, y = (torch.from_numpy(t) for t in images())
    data = Batches(x, y) if batches else Images(x, y)
    loader = torch.utils.data.DataLoader(
        data, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
        collate_fn=whole_batches if batches else None,
    )
    model = lenet5()
    if order:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), **({"fused": True} if fused else {}))
    loss_of = torch.nn.CrossEntropyLoss()

    def steps(n):
        for _ in range(n):
            for xs, ys in loader:
                if order:
                    xs = xs.to(memory_format=torch.channels_last)
                optimizer.zero_grad()
                loss_of(model(xs), ys).backward()
                optimizer.step()

    return steps


def image_folder():
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"aril-bench-images-{os.getuid()}")
    if not os.path.exists(os.path.join(folder, "done")):
        raise RuntimeError("Aril's side makes the images: run it first")
    return folder


def decoded(path):
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def image_files(decoder="PIL"):
    from torchvision import datasets
    from torchvision.transforms import v2

    change = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    change = ([v2.PILToTensor()] if decoder == "PIL late" else []) + change
    change += [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    options = {"loader": decoded} if decoder == "torchvision" else {}
    data = datasets.ImageFolder(image_folder(), v2.Compose(change), **options)
    loader = torch.utils.data.DataLoader(data, 32, shuffle=True, num_workers=2, persistent_workers=True)

    def steps(n):
        for _ in range(n):
            for _ in loader:
                pass

    return steps


def adam(kind="fused"):
    make = peer.Maker()
    params = []
    for i in range(161):
        shape = [1024, 1024] if i < 24 else [3140]
        p = torch.nn.Parameter(torch.from_numpy(make.fill(shape, 0, 1)))
        p.grad = torch.from_numpy(make.fill(shape, 0, 1))
        params.append(p)
    optimizer = torch.optim.Adam(params, **{kind: True})

    def steps(n):
        for _ in range(n):
            optimizer.step()

    return steps


# What is tried for each: the fastest counts.
class Encoder(torch.nn.Module):
    """The encoder of BERT-base after its embeddings, with attention as one operation."""

    def __init__(self, layers=12, width=768, heads=12):
        super().__init__()
        nn, self.heads = torch.nn, heads
        self.layers = nn.ModuleList()
        for _ in range(layers):
            linear = [nn.Linear(width, width) for _ in range(4)] + [nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]
            self.layers.append(nn.ModuleList(linear + [nn.LayerNorm(width, 1e-12) for _ in range(2)]))

    def forward(self, x):
        def split(t):
            return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        for q, k, v, out, up, down, first, second in self.layers:
            a = torch.nn.functional.scaled_dot_product_attention(split(q(x)), split(k(x)), split(v(x)))
            x = first(x + out(a.transpose(1, 2).flatten(2)))
            x = second(x + down(torch.nn.functional.gelu(up(x))))
        return x


def model(name, device, compiled=None, order=None):
    """The network of onnx:NAME, or of onnx:NAME*SAMPLES, as PyTorch has it."""
    name, _, samples = name.removeprefix("onnx:").partition("*")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    samples = int(samples or 1)
    if name == "bert":
        net, x = Encoder(), torch.from_numpy(peer.Maker().fill([samples, 128, 768], 0, 1))
    else:
        import torchvision

        net, x = torchvision.models.resnet50(), torch.from_numpy(peer.Maker().fill([samples, 3, 224, 224], 0, 1))
    net, x = net.eval().to(device), x.to(device)
    if order:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if compiled:
        torch._dynamo.reset()
        net = torch.compile(net, mode=compiled)

    def steps(n):
        with torch.no_grad():
            for _ in range(n):
                net(x)
        if device.type != "cpu":
            torch.cuda.synchronize(device)

    return steps


MODELS = {"onnx:resnet50": [{}, {"order": "channels-last"}], "onnx:bert": [{}]}  # and their settings
SETTINGS = {
    "lenet5-loop": (lenet5_loop, [{}, {"order": "channels-last"}, {"fused": True}, {"workers": 1}, {"workers": 2}, {"batches": False}]),
    "image-files": (image_files, [{}, {"decoder": "torchvision"}, {"decoder": "PIL late"}]),
    "adam": (adam, [{}, {"kind": "foreach"}]),
}
SETTINGS["lenet5-fit"] = SETTINGS["lenet5-loop"]
