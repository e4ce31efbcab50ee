#!/usr/bin/env python3
"""`aril predict NAME --weights FILE IMAGE` beside torchvision with its transforms of the same weights.

Weights are random, scaled so that probabilities differ; files are those that torch.save writes. Published
URLs, hashes and preprocessing of every network that torchvision has too are compared as well.
"""
import json
import os
import subprocess
import sys

del sys.path[0]  # this folder, whose random.py is not Python's
import tempfile

SKIP = 77
try:
    import torch
    import torchvision
    from PIL import Image
except ImportError as error:
    print("SKIP:", error)
    sys.exit(SKIP)

SOURCE = os.environ.get("ARIL_SOURCE_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
ARIL = os.path.join(os.environ.get("ARIL_BUILD_DIR") or os.path.join(SOURCE, "build"), "bin/aril")
DATA = os.environ.get("ARIL_TEST_DATA") or os.path.join(SOURCE, "../shared/data")
IMAGES = [os.path.join(DATA, "images", name) for name in
          ("pytorch-hub/dog.jpg", "scikit-image/coffee.png", "scikit-image/camera.png", "caffe-examples/cat.jpg")]
NETWORKS = ["resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "googlenet", "densenet121"]
bad = 0


def complain(text):
    global bad
    print(text)
    bad += 1


def aril(*arguments):
    run = subprocess.run([ARIL, *arguments], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        complain("aril %s: %s" % (" ".join(arguments), run.stderr))
        return None
    return run.stdout


def published():
    """The URL of each network's weights is torchvision's default."""
    known = set(torchvision.models.list_models(module=torchvision.models))
    listing = json.loads(aril("zoo", "--json") or "[]")
    compared = 0
    for row in listing:
        if row["name"] not in known or not row["weights"]:
            continue
        weights = torchvision.models.get_model_weights(row["name"]).DEFAULT
        compared += 1
        if row["weights"] != weights.url:
            complain("%s: %s, torchvision has %s" % (row["name"], row["weights"], weights.url))
    print("published weights of %d networks" % compared)
    if compared < 20:
        complain("too few networks of torchvision have weights")


def compare(name, images, folder):
    torch.manual_seed(1)
    weights = torchvision.models.get_model_weights(name).DEFAULT
    options = {"transform_input": True, "init_weights": False} if name == "googlenet" else {}
    net = torchvision.models.get_model(name, **options)
    with torch.no_grad():  # some input makes batch norms see what they will see: then classes differ
        prepare = weights.transforms()
        x = torch.stack([prepare(Image.open(path).convert("RGB")) for path in images])
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None
        net.train()
        net(x)
        net.eval()
        scores = net(x)
        head = [m for m in net.modules() if isinstance(m, torch.nn.Linear)][-1]
        head.weight *= 6 / scores.std()
        probabilities = net(x).softmax(1)
    path = os.path.join(folder, name + ".pth")
    torch.save(net.state_dict(), path)
    out = aril("predict", name, "--weights", path, "--json", *images)
    if out is None:
        return
    categories, worst = weights.meta["categories"], 0
    for image, want, got in zip(images, probabilities, json.loads(out)):
        top = want.topk(5)
        for index, value, row in zip(top.indices.tolist(), top.values.tolist(), got["predictions"]):
            worst = max(worst, abs(row["probability"] - float(want[row["index"]])))
            if abs(row["probability"] - value) > 2e-3 * value + 1e-4:
                complain("%s, %s: class %d of %g, torchvision has %d of %g" %
                         (name, image, row["index"], row["probability"], index, value))
            if name == "resnet18" and row["class"] != categories[row["index"]]:
                print("%s is called %s by torchvision" % (row["class"], categories[row["index"]]))
    print("%s: probabilities differ by up to %.1e" % (name, worst))


images = [path for path in IMAGES if os.path.exists(path)]
published()
if not images:
    print("SKIP: the rest, since there are no images in", DATA)
    sys.exit(1 if bad else SKIP)
with tempfile.TemporaryDirectory() as folder:
    for name in NETWORKS:
        compare(name, images, folder)
sys.exit(1 if bad else 0)
