"""Makes keras.inc: in base64, an archive of small files of Keras 3 and Keras 2 (the package tf_keras) with inputs and the outputs that Keras
computes from them, "NAME.x0.npy" and "NAME.y0.npy".

Needs keras, tf_keras, TensorFlow, NumPy."""
import base64
import io
import os
import tempfile
import zipfile

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tf_keras  # noqa: E402

random = np.random.default_rng(0)


def sequential(keras):
    L = keras.layers
    return keras.Sequential([keras.Input((6, 7, 2)), L.Conv2D(4, 3, strides=2, padding="same", name="conv"), L.BatchNormalization(name="bn"),
                             L.ReLU(6.0), L.MaxPooling2D(2, padding="same"), L.Flatten(), L.Dropout(0.5), L.Dense(3, "softmax", name="head")])


def functional(keras):
    """Two inputs and outputs, a nested network that is called twice and has frozen layers, a shared layer."""
    L = keras.layers
    a, b, w = keras.Input((5, 5, 2), name="a"), keras.Input((5, 5, 2), name="b"), keras.Input((4, 3), name="w")
    i = keras.Input((5, 5, 2))
    y = L.DepthwiseConv2D(2, name="dw")(i)
    y = L.BatchNormalization(trainable=False)(y)
    y = L.Conv2D(3, 2, activation="relu")(y)
    body = keras.Model(i, L.BatchNormalization()(y), name="body")
    both = L.Add()([body(a), body(b)])
    gate = L.Reshape((1, 1, 3))(L.Dense(3, "sigmoid")(L.GlobalAveragePooling2D()(both)))
    s = L.Bidirectional(L.GRU(2, return_sequences=True), name="steps")(w)
    s = L.LSTM(3)(s)
    return keras.Model([a, b, w], [L.Multiply(name="gated")([both, gate]), L.Concatenate(name="joined")([s, L.Flatten()(both)])])


def text(keras):
    L = keras.layers
    return keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(7, 3, mask_zero=True, name="words"), L.LSTM(4, name="lstm"),
                             L.Dense(2, name="head")])


def randomize(model):
    for w in model.weights:
        v = random.normal(size=w.shape).astype(np.float32) * 0.4
        w.assign(np.abs(v) + 0.5 if "variance" in getattr(w, "path", w.name) else v)


def add(archive, folder, name, model, inputs, files):
    randomize(model)
    for file in files:
        path = os.path.join(folder, file)
        if file.endswith(".json"):
            open(path, "w").write(model.to_json())
        elif file.endswith(".weights.h5"):
            model.save_weights(path)
        else:
            model.save(path)
        if file.endswith(".keras"):  # the same archive, compressed
            packed = io.BytesIO()
            with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
                for member in old.infolist():
                    new.writestr(zipfile.ZipInfo(member.filename), old.read(member), zipfile.ZIP_DEFLATED, 9)
            open(path, "wb").write(packed.getvalue())
        archive.writestr(zipfile.ZipInfo(file), open(path, "rb").read(), zipfile.ZIP_DEFLATED, 9)
    y = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    for kind, values in ("x", inputs), ("y", y if isinstance(y, (list, tuple)) else [y]):
        for i, v in enumerate(values):
            data = io.BytesIO()
            np.save(data, np.asarray(v))
            archive.writestr(zipfile.ZipInfo(f"{name}.{kind}{i}.npy"), data.getvalue(), zipfile.ZIP_DEFLATED, 9)


def image(*shape):
    return random.normal(size=shape).astype(np.float32).round(2)


def main():
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive, tempfile.TemporaryDirectory() as folder:
        add(archive, folder, "sequential", sequential(keras), [image(2, 6, 7, 2)], ["sequential.keras"])
        xs = [image(2, 5, 5, 2), image(2, 5, 5, 2), image(2, 4, 3)]
        add(archive, folder, "functional", functional(keras), xs, ["functional.h5"])
        add(archive, folder, "keras2", functional(tf_keras), xs, ["keras2.h5"])
        add(archive, folder, "text", text(keras), [np.array([[3, 5, 1, 0, 0], [2, 6, 6, 4, 1]])], ["text.json", "text.weights.h5"])
    data = base64.b64encode(whole.getvalue()).decode()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras.inc"), "w") as f:
        for i in range(0, len(data), 88):
            f.write(f'{"    " if i else ""}"{data[i:i + 88]}",\n')
    print(len(data), "characters")


main()
