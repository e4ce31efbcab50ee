"""Real models in ONNX: outputs equal onnxruntime's, for a speech detector over its states, too."""
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402
import wave  # noqa: E402

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

MODELS = os.path.join(os.environ.get("ARIL_TEST_DATA", ""), "onnx-models")
TOOL = os.path.join(os.environ.get("ARIL_BUILD_DIR", "build"), "bin", "aril")
if not os.path.isdir(MODELS):
    print("SKIP: no", MODELS, "(set ARIL_TEST_DATA)")
    sys.exit(77)
onnxruntime.set_default_logger_severity(3)
random = np.random.default_rng(0)


def write(path, name, value):
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(np.asarray(value), name).SerializeToString())


def case(folder, path, inputs):
    """Writes a folder for `aril test-onnx`: the model, and for each set of inputs what onnxruntime computes."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    order = [value.name for value in onnx.load(path).graph.input]
    os.makedirs(folder)
    shutil.copyfile(path, os.path.join(folder, "model.onnx"))
    results, sets = None, 0
    while (feeds := inputs(sets, results)) is not None:
        results = session.run(None, feeds)
        data = os.path.join(folder, f"test_data_set_{sets}")
        os.makedirs(data)
        for name, value in feeds.items():
            write(os.path.join(data, f"input_{order.index(name)}.pb"), name, value)
        for i, value in enumerate(results):
            write(os.path.join(data, f"output_{i}.pb"), str(i), value)
        sets += 1
    return sets


def images(name, shape, n):
    return lambda i, _: {name: random.standard_normal(shape).astype(np.float32)} if i < n else None


def speech(path, n):
    """Windows of 512 samples, each after 64 of the one before, with the state that the last one left."""
    with wave.open(path) as file:
        signal = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
    signal = np.concatenate([np.zeros(64, np.float32), signal])

    def inputs(i, results):
        window = signal[None, 512 * i : 512 * i + 576]
        if i >= n or window.shape[1] < 576:
            return None
        state = results[1] if results else np.zeros((2, 1, 128), np.float32)
        return {"input": window, "state": state, "sr": np.array(16000, np.int64)}

    return inputs


with tempfile.TemporaryDirectory() as work:
    at = lambda *parts: os.path.join(MODELS, *parts)
    sets = case(os.path.join(work, "cnn_mnist"), at("ort-java", "cnn_mnist_pytorch.onnx"), images("0", (1, 1, 28, 28), 3))
    sets += case(os.path.join(work, "mnist_8"), at("mnist_8", "model.onnx"), images("Input3", (1, 1, 28, 28), 3))
    sets += case(os.path.join(work, "ultraface"), at("ultraface", "version-RFB-320.onnx"), images("input", (1, 3, 240, 320), 3))
    sets += case(os.path.join(work, "silero"), at("silero-vad", "silero_vad.onnx"), speech(at("silero-vad", "test.wav"), 1875))
    run = subprocess.run([TOOL, "test-onnx", "--rtol", "1e-4", "--atol", "1e-5", work], capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.endswith("4 passed, 0 failed, 0 skipped\n"), run.stdout + run.stderr
print(f"4 models, {sets} sets of inputs: as onnxruntime {onnxruntime.__version__}")
