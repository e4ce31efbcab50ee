"""Makes elsewhere.inc: checkpoints of TensorFlow, by objects and by variables, and MATLAB's matrices, for tests/formats/test_weights_elsewhere.c.

Needs TensorFlow, SciPy and h5py."""
import os
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import h5py  # noqa: E402
import numpy as np  # noqa: E402
import scipy.io  # noqa: E402
import tensorflow as tf  # noqa: E402

here = os.path.dirname(os.path.abspath(__file__))


def by_objects(path):
    m = tf.Module()
    m.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="dense/kernel")
    m.b = tf.Variable(np.array([1, -2, 3], np.float16), name="dense/bias")
    m.flag = tf.Variable(True, name="flag")
    m.h = tf.Variable(tf.cast(tf.range(4), tf.bfloat16), name="h")
    m.one, m.two = tf.Variable(np.int64([[5]]), name="same"), tf.Variable(np.int8([6]), name="same")
    tf.train.Checkpoint(net=m).write(path)


def by_variables(path):
    v1, g = tf.compat.v1, tf.Graph()
    with g.as_default(), v1.Session() as session:
        v1.get_variable("conv/weights", initializer=np.arange(8, dtype=np.float32).reshape(2, 4))
        v1.get_variable("conv/weights_long_name", initializer=np.float64([1, 2]))
        v1.get_variable("name", initializer="text")
        v1.get_variable("z", initializer=np.complex64([1 + 2j]))
        v1.get_variable("empty", initializer=np.zeros((0, 3)))
        v1.get_variable("part", shape=(4, 2), initializer=v1.ones_initializer(), partitioner=v1.fixed_size_partitioner(2))
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, path, write_meta_graph=False, write_state=False)


def matlab(path, **how):
    scipy.io.savemat(path, {
        "a": np.arange(6.0).reshape(2, 3), "single": np.float32([[1.5, 2.5]]), "i8": np.int8([[1], [-2]]), "u64": np.uint64([[2**63 + 2**20]]),
        "flag": np.array([[True, False]]), "t": np.arange(24, dtype=np.int16).reshape(2, 3, 4), "text": "hello", "c": np.array([[1 + 2j]]),
        "s": {"x": 1}, "cell": np.array([1, "a"], dtype=object), "empty": np.zeros((0, 3))}, **how)


def matlab_hdf5(path):
    with h5py.File(path, "w", userblock_size=512) as f:
        for name, class_, values in (("net/w", "double", np.arange(6.0).reshape(2, 3).T), ("text", "char", np.uint16([[104], [105]])),
                                     ("flag", "logical", np.uint8([[1], [0]])), ("empty", "double", np.uint64([0, 3]))):
            f.create_dataset(name, data=values).attrs["MATLAB_class"] = np.bytes_(class_)
        f.create_group("#refs#").create_dataset("a", data=np.ones(2))
    with open(path, "r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + b"\0" * 8 + b"\x00\x02IM")


def bytes_text(name, path):
    data = open(path, "rb").read()
    lines = [", ".join("%d" % b for b in data[i:i + 40]) for i in range(0, len(data), 40)]
    return "static const unsigned char %s[] = {\n%s,\n};\n" % (name, ",\n".join(lines))


def main():
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(here, "elsewhere.inc"), "w") as out:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        by_objects(at("objects"))
        by_variables(at("variables"))
        matlab(at("plain.mat"))
        matlab(at("packed.mat"), do_compression=True)
        matlab_hdf5(at("new.mat"))
        out.write("/* Made by make_elsewhere.py. */\n")
        for name in ("objects", "variables"):
            out.write(bytes_text(name + "_index", at(name + ".index")) + bytes_text(name + "_data", at(name + ".data-00000-of-00001")))
        for name in ("plain", "packed", "new"):
            out.write(bytes_text(name + "_mat", at(name + ".mat")))


if __name__ == "__main__":
    sys.exit(main())
