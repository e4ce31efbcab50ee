#!/usr/bin/env python3
"""HDF5 files: what Aril lists and reads of files that h5py wrote, which holds the HDF5 library.

Random files in all variants: old and new formats, symbol tables and links in heaps, contiguous, compact and chunked arrays with each index of
chunks, filters, fill values, arrays that grew and shrank, types of either byte order, user blocks.  hdf5_files.py [COUNT [SEED]]"""
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import random  # noqa: E402
import tempfile  # noqa: E402

from by_ctypes import B, I, I64, P, S, declare, error, options  # noqa: E402
import ctypes as C  # noqa: E402

try:
    import h5py
    import numpy as np
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Shape = options("Shape", (I, "ndim"), (I64 * 8, "dim"))
Guard = options("Guard", (C.c_uint32, "depth"))
OpenOptions = options("WeightsOptions", (S, "root"), (B, "unwrap copy"))
open_file, close_file = declare("aril_weights_open", P, S, OpenOptions), declare("aril_weights_close", None, P)
count, name_of = declare("aril_weights_count", I, P), declare("aril_weights_name", S, P, I)
shape_of, problem_of = declare("aril_weights_shape", Shape, P, I), declare("aril_weights_problem", S, P, I)
tensor_of, read = declare("aril_weights_tensor", P, P, I), declare("aril_read", I, P, P)
read_one = declare("aril_hdf5_read", P, S, S)
scope_begin, guard_end = declare("aril_scope_begin", Guard), declare("aril_guard_end", None, P)
clear = declare("aril_clear_error", None)

DTYPES = ["?", "u1", "i1", "<u2", ">u2", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
LIBVER = ["earliest", "v108", "v110", "v112", "latest"]


def as_read(a):
    """What Aril gives for an array: narrower floats become f32, bool u8."""
    if a.dtype == bool:
        return a.astype(np.uint8)
    if a.dtype.kind == "f" and a.dtype.itemsize < 4:
        return a.astype(np.float32)
    return a.astype(a.dtype.newbyteorder("="), order="C")


def values(draw, shape, dtype):
    n = int(np.prod(shape, dtype=np.int64))
    dt = np.dtype(dtype)
    if draw.random() < .3:  # compresses well
        return np.full(shape, draw.randrange(100)).astype(dt)
    if dt == bool:
        return np.array([draw.random() < .5 for _ in range(n)], dtype=bool).reshape(shape)
    raw = np.frombuffer(draw.randbytes(n * dt.itemsize), dtype=dt).reshape(shape).copy()
    if dt.kind == "f":
        raw[~np.isfinite(raw)] = 1
    return raw


def create(draw, at, name):
    dtype = draw.choice(DTYPES)
    shape = tuple(draw.choice((0, 1, 2, 3, 5, 8, 17, 40)) for _ in range(draw.randrange(0, 5)))
    if np.prod(shape, dtype=np.int64) > 60000:
        shape = shape[:2]
    a = values(draw, shape, dtype)
    kind, opts = draw.randrange(5), {}
    if kind == 0 and a.nbytes < 8000:  # in the header
        space, plist = h5py.h5s.create_simple(shape), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        d = h5py.h5d.create(at.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype), logical=True), space, plist)
        if a.size:
            d.write(h5py.h5s.ALL, h5py.h5s.ALL, a)
        return
    if kind >= 2 and shape:
        opts["chunks"] = tuple(draw.randrange(1, max(2, s + 1)) for s in shape)
        most = list(shape)
        for i in draw.sample(range(len(shape)), draw.choice((0, 0, 1, 1, len(shape)))):
            most[i] = None if draw.random() < .7 else shape[i] + draw.randrange(20)
        opts["chunks"] = tuple(min(c, m) if m else c for c, m in zip(opts["chunks"], most))
        if all(m != 0 for m in most):
            opts["maxshape"] = tuple(most)
        else:
            opts.pop("chunks")
    if "chunks" in opts:
        if draw.random() < .5:
            opts["compression"], opts["compression_opts"] = "gzip", draw.randrange(10)
        opts["shuffle"], opts["fletcher32"] = draw.random() < .3, draw.random() < .2
    if draw.random() < .3 and dtype != "?":
        opts["fillvalue"] = draw.randrange(100)
    if "chunks" not in opts or draw.random() < .6:
        at.create_dataset(name, data=a, **opts)
        return
    d = at.create_dataset(name, shape, dtype, **opts)  # written in part, and resized
    for _ in range(draw.randrange(3)):
        cut = tuple(slice(b, b + draw.randrange(1, 9)) for b in (draw.randrange(s) if s else 0 for s in shape))
        if a[cut].size:
            d[cut] = a[cut]
    for i, m in enumerate(d.maxshape):
        if m is None and draw.random() < .5:
            d.resize(draw.randrange(60), axis=i)
            if d.size > 60000:  # a file has to store 1/1032 of what it claims beyond a megabyte
                d.resize(1, axis=i)
            if d.shape[i] and all(d.shape):
                d[tuple(s - 1 for s in d.shape)] = 7 if dtype != "?" else True


def attributes(draw, at):
    for i in range(draw.choice((0, 1, 3, 12, 40))):
        at.attrs["a%d" % i] = draw.choice((1.5, "text", [b"x", b"longer"], np.arange(draw.choice((3, 900)))))


def fill(draw, at, depth):
    for i in range(draw.choice((1, 3, 9, 60 if depth == 0 else 12, 400 if draw.random() < .05 else 5))):
        create(draw, at, "%s%d" % (draw.choice(("x", "weight", "größe", "a" * 60)), i))
    attributes(draw, at)
    for i in range(draw.randrange(3) if depth < 3 else 0):
        fill(draw, at.create_group("group%d" % i, track_order=draw.random() < .3), depth + 1)


def write(draw, path):
    block = draw.choice((0, 0, 0, 512, 2048))
    with h5py.File(path, "w", libver=draw.choice(LIBVER), userblock_size=block, track_order=draw.random() < .2) as f:
        fill(draw, f, 0)
        if draw.random() < .5:
            f["soft"] = h5py.SoftLink("/" + next(iter(f)))
        if draw.random() < .5:
            f["text"] = draw.choice(("hello", [b"a", b"bc"]))
        if draw.random() < .3:
            f["common"] = np.dtype(">f4")
            f.create_dataset("of common", (2,), dtype=f["common"])[...] = 1, 2


def check(path):
    expected = {}
    with h5py.File(path) as f:
        f.visititems(lambda name, o: expected.update({name: o[()]}) if isinstance(o, h5py.Dataset) else None)
        target = f.get("soft", getlink=True)
        target = target.path if isinstance(target, h5py.SoftLink) else None
        soft = f["soft"][()] if target and isinstance(f["soft"], h5py.Dataset) else None
    w = open_file(path.encode(), OpenOptions())
    if not w:
        return error().decode()
    names = [name_of(w, i).decode() for i in range(count(w))]
    if sorted(names) != sorted(expected):
        return "lists %s, expected %s" % (sorted(names)[:5], sorted(expected)[:5])
    for i, name in enumerate(names):
        e = expected[name]
        if problem_of(w, i):
            if isinstance(e, np.ndarray) and e.dtype.kind in "biuf":
                return "%s: %s" % (name, problem_of(w, i).decode())
            continue
        what = same(tensor_of(w, i), as_read(np.asarray(e)), shape_of(w, i))
        if what:
            return "%s: %s" % (name, what)
    close_file(w)
    if soft is not None and np.asarray(soft).dtype.kind in "biuf":
        what = same(read_one(path.encode(), b"soft"), as_read(np.asarray(soft)), None)
        if what:
            return "soft link: " + what
    return None


def same(t, e, shape):
    if error():
        return error().decode()
    if shape is not None and tuple(shape.dim[:shape.ndim]) != e.shape:
        return "shape %s, expected %s" % (tuple(shape.dim[:shape.ndim]), e.shape)
    got = np.empty(e.shape, e.dtype)
    if e.size:
        read(t, got.ctypes.data)
    if error():
        return error().decode()
    return None if got.tobytes() == e.tobytes() else "values differ (%s, %s)" % (e.dtype, e.shape)


def main():
    n, seed = (int(x) for x in (sys.argv[1:] + ["300", "1"][len(sys.argv) - 1:])[:2])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.h5")
        for i in range(n):
            draw = random.Random(seed * 1000003 + i)
            write(draw, path)
            guard = scope_begin()
            what = check(path)
            guard_end(C.byref(guard))
            clear()
            if what:
                wrong += 1
                print("file %d (seed %d): %s" % (i, seed, what))
    print("%d files of h5py, %d differ" % (n, wrong))
    sys.exit(wrong > 0)


main()
