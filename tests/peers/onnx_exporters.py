"""Models that other programs export: outputs equal onnxruntime's. Both exporters of PyTorch, skl2onnx and tf2onnx, as far as they are
installed.

    tests/peers/onnx_exporters.py [sklearn | tf | torch] [NAME...]       NAME, a part of a case's name: only those"""
import io
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402
import warnings  # noqa: E402

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.simplefilter("ignore")
try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

onnxruntime.set_default_logger_severity(4)
TOOL = os.path.join(os.environ.get("ARIL_BUILD_DIR", "build"), "bin", "aril")
random = np.random.default_rng(3)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


# ---- PyTorch ----

def torch_models():
    import torch
    from torch import nn

    torch.manual_seed(1)

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, ids):
            return self.body(self.table(ids)).mean(1)

    class Recur(nn.Module):
        def __init__(self, kind, **more):
            super().__init__()
            self.net = kind(8, 16, num_layers=2, batch_first=True, **more)

        def forward(self, x):
            return self.net(x)[0]

    class Shapes(nn.Module):
        """Sizes that are computed, masks, indices."""

        def forward(self, x):
            n, t, d = x.shape
            y = x.reshape(n, t * d // 4, 4).transpose(1, 2)
            mask = torch.arange(y.shape[-1]) < y.shape[-1] // 2
            return torch.where(mask, y, torch.zeros_like(y)).flatten(1), y[:, 1:3, ::2], torch.topk(y, 2, dim=-1)[0]

    class Resize(nn.Module):
        def forward(self, x):
            up = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            return nn.functional.pad(up, (1, 2, 0, 1), mode="reflect"), nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=True)

    conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True),
                         nn.Conv2d(8, 16, 3, stride=2, groups=4), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    norms = nn.Sequential(nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.InstanceNorm1d(8, affine=True), nn.ConvTranspose1d(8, 4, 4, 2, 1), nn.PReLU(4))
    yield "conv", conv, [normal(2, 3, 15, 14)]
    yield "norms", norms, [normal(2, 4, 12)]
    yield "transformer", Attend(), [random.integers(0, 50, (2, 7))]
    yield "lstm", Recur(nn.LSTM, bidirectional=True), [normal(2, 9, 8)]
    yield "gru", Recur(nn.GRU), [normal(2, 9, 8)]
    yield "rnn", Recur(nn.RNN), [normal(2, 9, 8)]
    yield "shapes", Shapes(), [normal(2, 6, 8)]
    yield "resize", Resize(), [normal(1, 3, 6, 5)]
    try:
        from torchvision import models
        for name in ("squeezenet1_1", "mobilenet_v3_small", "shufflenet_v2_x0_5"):
            yield name, getattr(models, name)(weights=None, num_classes=10), [normal(1, 3, 64, 64)]
    except ImportError:
        pass
    try:
        from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

        class First(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, ids):
                return self.net(input_ids=ids, use_cache=False)[0] if isinstance(self.net, GPT2Model) else self.net(input_ids=ids)[0]

        small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=60)
        yield "bert", First(BertModel(BertConfig(**small))), [random.integers(0, 60, (2, 7))]
        yield "gpt2", First(GPT2Model(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=16))), [random.integers(0, 60, (2, 7))]
    except ImportError:
        pass


def from_torch():
    import torch
    for name, net, inputs in torch_models():
        tensors = tuple(torch.from_numpy(value) for value in inputs)
        for way in ("script", "dynamo"):
            def export(net=net, tensors=tensors, way=way):
                to = io.BytesIO()
                with torch.no_grad():
                    if way == "script":
                        torch.onnx.export(net.eval(), tensors, to, dynamo=False, opset_version=17)
                    else:
                        program = torch.onnx.export(net.eval(), tensors, dynamo=True, verbose=False)
                        program.save(to)
                return to.getvalue()

            yield f"torch_{way}_{name}", export, inputs


# ---- scikit-learn ----

def from_sklearn():
    from skl2onnx import to_onnx
    from sklearn import cluster, decomposition, ensemble, feature_extraction, impute, linear_model, naive_bayes, neighbors, neural_network
    from sklearn import pipeline, preprocessing, svm, tree

    x = normal(60, 4)
    two, three = (x[:, 0] + x[:, 1] > 0).astype(np.int64), (np.digitize(x[:, 0] - x[:, 2], [-0.7, 0.7])).astype(np.int64)
    words = np.array(["red", "green", "blue"])[three]
    y = (x @ np.array([1, -2, 0.5, 0.1]) + 0.1 * normal(60)).astype(np.float32)
    holes = x.copy()
    holes[::5, 1] = np.nan
    test = normal(7, 4)

    def model(name, net, target, given=x, at=test):
        def export():
            net.fit(given, target) if target is not None else net.fit(given)
            arrays = hasattr(net, "predict_proba") or isinstance(net, (svm.SVC, linear_model.RidgeClassifier))
            options = {id(net): {"zipmap": False}} if arrays else None
            opsets = {"": 18, "ai.onnx.ml": 3}
            return to_onnx(net, given[:1], options=options, target_opset=opsets).SerializeToString()

        return "sklearn_" + name, export, [at]

    yield model("linear_regression", linear_model.LinearRegression(), y)
    yield model("ridge_two_targets", linear_model.Ridge(), np.stack([y, -y], 1))
    for name, target in (("binary", two), ("classes", three), ("words", words)):
        yield model("logistic_" + name, linear_model.LogisticRegression(), target)
        yield model("ridge_classifier_" + name, linear_model.RidgeClassifier(), target)
        yield model("forest_" + name, ensemble.RandomForestClassifier(n_estimators=7, random_state=1), target)
        yield model("boosting_" + name, ensemble.GradientBoostingClassifier(n_estimators=7, random_state=1), target)
        yield model("histogram_boosting_" + name, ensemble.HistGradientBoostingClassifier(max_iter=7, min_samples_leaf=3), target)
        yield model("tree_" + name, tree.DecisionTreeClassifier(max_depth=4), target)
        yield model("svc_" + name, svm.SVC(), target)
        yield model("svc_linear_" + name, svm.SVC(kernel="linear"), target)
        yield model("linear_svc_" + name, svm.LinearSVC(), target)
        yield model("mlp_" + name, neural_network.MLPClassifier((8,), max_iter=30), target)
        yield model("bayes_" + name, naive_bayes.GaussianNB(), target)
        yield model("neighbors_" + name, neighbors.KNeighborsClassifier(3), target)
    yield model("svc_poly", svm.SVC(kernel="poly", degree=2, coef0=0.5), three)
    yield model("svr", svm.SVR(), y)
    yield model("one_class_svm", svm.OneClassSVM(), None)
    yield model("forest_numbers", ensemble.RandomForestRegressor(n_estimators=7, random_state=1), y)
    yield model("extra_trees", ensemble.ExtraTreesRegressor(n_estimators=7, random_state=1), y)
    yield model("boosting_numbers", ensemble.GradientBoostingRegressor(n_estimators=7), y)
    yield model("histogram_boosting_numbers", ensemble.HistGradientBoostingRegressor(max_iter=7, min_samples_leaf=3), y)
    yield model("forest_two_targets", ensemble.RandomForestRegressor(n_estimators=5, random_state=1), np.stack([y, -y], 1))
    yield model("isolation", ensemble.IsolationForest(n_estimators=5, random_state=1), None)
    yield model("pipeline", pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LinearRegression()), y)
    yield model("scaler", preprocessing.StandardScaler(), None)
    yield model("min_max", preprocessing.MinMaxScaler(), None)
    yield model("robust", preprocessing.RobustScaler(), None)
    for norm in ("l1", "l2", "max"):
        yield model("normalizer_" + norm, preprocessing.Normalizer(norm), None)
    yield model("binarizer", preprocessing.Binarizer(threshold=0.3), None)
    yield model("polynomial", preprocessing.PolynomialFeatures(2), None)
    yield model("discretizer", preprocessing.KBinsDiscretizer(3, encode="ordinal"), None)
    yield model("imputer", impute.SimpleImputer(), None, holes, holes[:7])
    yield model("pca", decomposition.PCA(2), None)
    yield model("kmeans", cluster.KMeans(3, n_init=2, random_state=1), None)
    categories = random.integers(0, 3, (40, 2)).astype(np.int64)
    yield model("one_hot", preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), None, categories, random.integers(0, 4, (6, 2)))
    yield model("ordinal", preprocessing.OrdinalEncoder(), None, categories, categories[:6])
    text = np.array([["red"], ["blue"], ["red"], ["green"]])
    yield model("one_hot_text", preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), None, text, np.array([["green"], ["violet"]]))

    def words_of(kind, name):
        lines = np.array(["a red car", "the blue car is fast", "a fast red bird", "no car"])

        def export():
            from skl2onnx import convert_sklearn
            from skl2onnx.common.data_types import StringTensorType
            return convert_sklearn(kind.fit(lines), initial_types=[("x", StringTensorType([None, 1]))]).SerializeToString()

        return "sklearn_" + name, export, [lines[:3].reshape(-1, 1)]

    yield words_of(feature_extraction.text.CountVectorizer(token_pattern="[a-z]+"), "count_words")
    yield words_of(feature_extraction.text.TfidfVectorizer(token_pattern="[a-z]+"), "tfidf")


# ---- Keras and TensorFlow ----

def from_tensorflow():
    import tensorflow as tf
    import tf2onnx
    from keras import layers

    def model(name, parts, x, opset=15):
        def export():
            net = tf.keras.Sequential([tf.keras.Input(x.shape[1:], dtype=x.dtype), *parts()])
            call = tf.function(lambda v: net(v, training=False), input_signature=[tf.TensorSpec((None, *x.shape[1:]), x.dtype, name="x")])
            return tf2onnx.convert.from_function(call, call.input_signature, opset=opset)[0].SerializeToString()

        return "tf_" + name, export, [x]

    image = normal(2, 12, 10, 3)
    yield model("dense", lambda: [layers.Dense(8, activation="elu"), layers.LayerNormalization(), layers.Dense(3, activation="softmax")], normal(4, 6))
    yield model("conv", lambda: [layers.Conv2D(8, 3, padding="same", activation="relu"), layers.BatchNormalization(), layers.MaxPooling2D(padding="same"),
                                 layers.DepthwiseConv2D(3, strides=2, padding="same"), layers.GlobalAveragePooling2D(), layers.Dense(4)], image)
    yield model("transposed", lambda: [layers.Conv2DTranspose(4, 3, strides=2, padding="same"), layers.LeakyReLU(), layers.UpSampling2D()], image)
    yield model("pad", lambda: [layers.ZeroPadding2D(1), layers.SeparableConv2D(6, 3), layers.AveragePooling2D(2, padding="same"), layers.Flatten()], image)
    for kind in ("LSTM", "GRU", "SimpleRNN"):
        yield model(kind.lower(), lambda kind=kind: [getattr(layers, kind)(8, return_sequences=True), layers.Dense(2)], normal(3, 7, 5))
    yield model("both_ways", lambda: [layers.Bidirectional(layers.LSTM(6))], normal(3, 7, 5))
    yield model("embedding", lambda: [layers.Embedding(20, 6), layers.Conv1D(4, 3, padding="causal"), layers.GlobalMaxPooling1D()], random.integers(0, 20, (3, 9)).astype(np.int32))


# ---- runs ----

def write(path, name, value):
    value = np.asarray(value)
    if value.dtype.kind in "UO":
        value = value.astype(object)
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(value, name).SerializeToString())


def case(folder, name, export, inputs):
    """Writes a case for `aril test-onnx`; a reason why there is none."""
    try:
        data = export()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        feeds = dict(zip([value.name for value in session.get_inputs()], inputs))
        results = session.run(None, feeds)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"
    at = os.path.join(folder, name, "test_data_set_0")
    os.makedirs(at)
    with open(os.path.join(folder, name, "model.onnx"), "wb") as file:
        file.write(data)
    for kind, values in (("input", inputs), ("output", results)):
        for i, value in enumerate(values):
            write(os.path.join(at, f"{kind}_{i}.pb"), kind, value)
    return None


def run(exporter, wanted):
    """Exports and compares; the number of models, and whether one failed."""
    try:
        cases = list(exporter())
    except ImportError as missing:
        print(f"SKIP {exporter.__name__}: {missing}")
        return 0, False
    count = 0
    with tempfile.TemporaryDirectory() as work:
        for name, export, inputs in cases:
            if wanted and not any(part in name for part in wanted):
                continue
            sys.stdout.flush()
            quiet, null = (os.dup(1), os.dup(2)), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1), os.dup2(null, 2)
            why = case(work, name, export, inputs)
            os.dup2(quiet[0], 1), os.dup2(quiet[1], 2)
            for each in (*quiet, null):
                os.close(each)
            if why:
                print(f"not exported: {name}: {why}")
            count += not why
        if not count:
            return 0, False
        test = subprocess.run([TOOL, "test-onnx", "--rtol", "1e-3", "--atol", "1e-4", work], capture_output=True, text=True)
        print(f"{exporter.__name__}: {test.stdout}{test.stderr}", end="")
    return count, test.returncode != 0


EXPORTERS = {"sklearn": from_sklearn, "tf": from_tensorflow, "torch": from_torch}
if len(sys.argv) > 1 and sys.argv[1] in EXPORTERS:
    done, failed = run(EXPORTERS[sys.argv[1]], sys.argv[2:])
    print(f"{done} exported models beside onnxruntime {onnxruntime.__version__}")
    sys.exit(failed)
# Each in a process of its own: TensorFlow and PyTorch do not go together.
codes = [subprocess.run([sys.executable, os.path.abspath(__file__), name, *sys.argv[1:]]).returncode for name in EXPORTERS]
sys.exit(max(codes, key=abs))
