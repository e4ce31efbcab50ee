"""Keras (on TensorFlow) as a peer of bench/compare: its fit of LeNet-5."""
import os
import sys

sys.dont_write_bytecode = True
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import peer  # noqa: E402

IMAGES, BATCH = 16384, 64


def fit():
    make = peer.Maker()
    x = make.fill([IMAGES, 28, 28], 128, 127).astype(np.uint8)
    y = np.floor(make.fill([IMAGES], 5, 5)).astype(np.int64)
    x = x[..., None].astype(np.float32) / 255
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((28, 28, 1)), layers.Conv2D(6, 5, padding="same", activation="relu"), layers.MaxPooling2D(2),
        layers.Conv2D(16, 5, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(),
        layers.Dense(120, activation="relu"), layers.Dense(84, activation="relu"), layers.Dense(10),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(), loss=loss, metrics=["accuracy"])

    def steps(n):
        model.fit(x, y, batch_size=BATCH, epochs=n, verbose=0)

    return steps


class Keras(peer.Peer):
    def __init__(self, threads):
        super().__init__(threads)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)

    def load(self, case):
        self.drop()
        if case.task not in ("lenet5-loop", "lenet5-fit"):
            return {"error": "Keras has no part in this case"}
        before = peer.reset_memory()
        self.steps, self.together = fit(), 1
        self.steps(1)
        return {"peak_mb": peer.status_mb("VmHWM") - before, "setting": "fit"}


if __name__ == "__main__":
    Keras(int(sys.argv[2])).serve(sys.argv[1])
