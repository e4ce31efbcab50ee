"""Makes hdf5.inc: in base64, an archive of small HDF5 files: two in the oldest format and in the newest, with what readers have to know, and two that
claim far more than they hold.

Element i of each array of numbers is i % 100. Needs h5py."""
import base64
import io
import os
import zipfile

import h5py
import numpy as np


def numbers(shape, dtype):
    return (np.arange(int(np.prod(shape)), dtype=np.int64) % 100).reshape(shape).astype(dtype)


def common(f):
    f.attrs["one"] = "a text"
    f.attrs["many"] = ["first", "", "größe"]
    f.attrs["fixed"] = np.array([b"ab  ", b"abcdef"], dtype="S6")
    f.attrs["number"] = 3
    f.attrs.create("none", np.array([], dtype=object), dtype=h5py.string_dtype())
    f["plain"] = numbers((3, 4), "<f4")
    f["big endian/f8"] = numbers((5,), ">f8")
    f["big endian/i2"] = numbers((2, 3), ">i2")
    f["half"] = numbers((7,), "<f2")
    f["scalar"] = np.int32(0)
    f["empty"] = numbers((0, 3), "f4")
    f["bool"] = np.array([False, True])
    f["text"] = ["hello", "world"]
    f["fixed text"] = np.array([b"x ", b"yz"])
    f["complex"] = np.zeros(2, "c8")
    f["link"] = h5py.SoftLink("big endian/i2")
    f["group/back"] = h5py.SoftLink("/plain")
    f["same"] = f["plain"]
    f["type"] = np.dtype("<i4")
    f.create_dataset("of type", data=numbers((4,), "<i4"), dtype=f["type"])
    space, plist = h5py.h5s.create_simple((2, 2)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, numbers((2, 2), "f4"))
    f.create_dataset("filters", data=numbers((9, 11), "<i4"), chunks=(4, 5), compression="gzip", shuffle=True, fletcher32=True)
    f.create_dataset("fill", (6,), "<i2", chunks=(4,), fillvalue=7)
    f.create_dataset("grown", data=numbers((9, 3), "u1"), chunks=(2, 2), maxshape=(None, None))  # B-tree
    f.create_dataset("rows", data=numbers((3, 700), "u1"), chunks=(3, 1), maxshape=(3, None))  # extensible array


def old(f):
    common(f)
    for i in range(40):
        f["many/x%d" % i] = numbers((1,), "u1")


def new(f):
    common(f)
    for i in range(12):
        f.attrs["a%d" % i] = "value %d" % i
    f.attrs["long"] = np.array([b"x" * 100] * 50)  # a huge object of a heap
    f.create_dataset("single", data=numbers((3, 3), "<f4"), chunks=(3, 3), compression="gzip")
    f.create_dataset("fixed array", data=numbers((7, 5), "<f4"), chunks=(2, 2))
    f.create_dataset("fixed array, filtered", data=numbers((7, 5), "<f4"), chunks=(2, 2), compression="gzip")
    f.create_dataset("pages", data=numbers((1100,), "u1"), chunks=(1,))
    f.create_dataset("extensible, filtered", data=numbers((5, 6), "<i4"), chunks=(2, 2), maxshape=(None, 6), compression="gzip")
    f.create_dataset("tree, filtered", data=numbers((5, 6), "<i4"), chunks=(1, 1), maxshape=(None, None), compression="gzip")
    space, plist = h5py.h5s.create_simple((4, 5)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((2, 2))
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    d = h5py.h5d.create(f.id, b"implicit", h5py.h5t.STD_U8LE, space, plist)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers((4, 5), "u1"))
    for i in range(300):
        f["many/x%d" % i] = h5py.SoftLink("/plain")


def large(f):
    f.create_dataset("never written", (300 << 20,), "u1")


def repeated(f):
    f.create_dataset("never written", (16 << 20,), "u1")
    for i in range(100):
        f["x%d" % i] = f["never written"]


out = io.BytesIO()
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for name, make, version in (("old.h5", old, "earliest"), ("new.h5", new, "latest"), ("large.h5", large, "latest"),
                                ("repeated.h5", repeated, "latest")):
        made = io.BytesIO()
        with h5py.File(made, "w", libver=version) as f:
            make(f)
        info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        z.writestr(info, made.getvalue())
        print(name, len(made.getvalue()))
text = base64.b64encode(out.getvalue()).decode()
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hdf5.inc"), "w") as f:
    for i in range(0, len(text), 88):
        f.write(f'{"    " if i else ""}"{text[i:i + 88]}",\n')
print(len(text), "characters")
