#!/usr/bin/env python3
"""Writes caffe_hdf5.inc: a caffemodel.h5 and a solverstate.h5 made by the calls of HDF5's C library that Caffe makes.

Needs the shared libraries of libhdf5-dev. The net is "d", "ip" (weights [1,3], bias [1]), "shape", "loss"."""
import ctypes
import ctypes.util
import os
import re
import tempfile

for name in "hdf5_serial", "hdf5":
    found = ctypes.util.find_library(name), ctypes.util.find_library(name + "_hl")
    if all(found):
        break
h5, hl = (ctypes.CDLL(f, mode=ctypes.RTLD_GLOBAL) for f in found)
hid, size = ctypes.c_int64, ctypes.c_uint64
h5.H5Fcreate.restype = h5.H5Gcreate2.restype = hid
h5.H5Fcreate.argtypes = [ctypes.c_char_p, ctypes.c_uint, hid, hid]
h5.H5Gcreate2.argtypes = [hid, ctypes.c_char_p, hid, hid, hid]
h5.H5Gclose.argtypes = h5.H5Fclose.argtypes = [hid]
hl.H5LTmake_dataset_float.argtypes = [hid, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(size), ctypes.POINTER(ctypes.c_float)]
hl.H5LTmake_dataset_int.argtypes = [hid, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(size), ctypes.POINTER(ctypes.c_int)]
hl.H5LTmake_dataset_string.argtypes = [hid, ctypes.c_char_p, ctypes.c_char_p]


def check(status):
    assert status >= 0
    return status


def create(path):
    return check(h5.H5Fcreate(path.encode(), 2, 0, 0))


def group(at, name):
    return check(h5.H5Gcreate2(at, name, 0, 0, 0))


def floats(at, name, shape, values):
    check(hl.H5LTmake_dataset_float(at, name, len(shape), (size * len(shape))(*shape), (ctypes.c_float * len(values))(*values)))


def integer(at, name, value):
    check(hl.H5LTmake_dataset_int(at, name, 1, (size * 1)(1), (ctypes.c_int * 1)(value)))


def weights(path):
    file = create(path)
    data = group(file, b"data")
    for layer in b"d", b"ip", b"shape", b"loss":
        at = group(data, layer)
        if layer == b"ip":
            floats(at, b"0", (1, 3), (0.5, -1.25, 2))
            floats(at, b"1", (1,), (0.75,))
        h5.H5Gclose(at)
    h5.H5Gclose(data)
    check(h5.H5Fclose(file))


def state(path):
    file = create(path)
    integer(file, b"iter", 7)
    check(hl.H5LTmake_dataset_string(file, b"learned_net", b"models/linear_iter_7.caffemodel.h5"))
    integer(file, b"current_step", 1)
    history = group(file, b"history")
    floats(history, b"0", (1, 3), (0.01, 0.02, -0.03))
    floats(history, b"1", (1,), (0.04,))
    h5.H5Gclose(history)
    check(h5.H5Fclose(file))


with tempfile.TemporaryDirectory() as folder, open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "caffe_hdf5.inc"), "w") as out:
    for name, write in ("weights", weights), ("state", state):
        path = os.path.join(folder, name)
        write(path)
        data = open(path, "rb").read()
        out.write(f"/* Of {len(data)} bytes, those that are not zero. */\nenum {{ CAFFE_{name.upper()}_SIZE = {len(data)} }};\n")
        out.write(f"static const struct part caffe_{name}[] = {{\n")
        for run in re.finditer(rb"[^\0](?:\0{0,7}[^\0])*", data):
            for at in range(run.start(), run.end(), 20):
                part = data[at : min(at + 20, run.end())]
                out.write(f'    {{ {at}, {len(part)}, "{"".join(f"{chr(92)}{b:03o}" for b in part)}" }},\n')
        out.write("};\n")
        print(name, len(data), "bytes")
