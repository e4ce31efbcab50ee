"""NumPy's files: what Aril writes NumPy reads, and the other way round."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402

from by_ctypes import I, Named, P, S, declare, error  # noqa: E402

try:
    import numpy as np
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

npy_read, npy_write = declare("aril_npy_read", P, S), declare("aril_npy_write", I, S, P)
npz_open, npz_close = declare("aril_npz_open", P, S), declare("aril_npz_close", None, P)
npz_find, npz_tensor = declare("aril_npz_find", I, P, S), declare("aril_npz_tensor", P, P, I)
npz_write = declare("aril_npz_write", I, S, C.POINTER(Named))

TYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"]
arrays = {}
for kind in TYPES:
    for order in "<>":
        base = (np.arange(24) - 5).reshape(2, 3, 4).astype(order + kind)
        arrays[f"{kind}{order}c"] = base
        arrays[f"{kind}{order}f"] = np.asfortranarray(base)
        arrays[f"{kind}{order}0"] = np.array(3).astype(order + kind)
        arrays[f"{kind}{order}empty"] = np.zeros((0, 3), order + kind)
with tempfile.TemporaryDirectory() as folder:
    path = lambda name: os.path.join(folder, name)
    theirs, ours = path("theirs.npy").encode(), path("ours.npy").encode()
    at, names = (P * len(arrays))(), (S * len(arrays))()
    for i, (name, array) in enumerate(arrays.items()):
        np.save(theirs.decode(), array)
        at[i], names[i] = npy_read(theirs), name.encode()
        assert npy_write(ours, at[i]) == 0, error()
        back = np.load(ours.decode())
        assert back.dtype == array.dtype.newbyteorder("=") and back.shape == array.shape, (name, back.dtype, back.shape)
        assert np.array_equal(back, array), name
    assert npz_write(path("ours.npz").encode(), Named(len(arrays), at, names)) == 0, error()
    with np.load(path("ours.npz")) as back:
        assert set(back) == set(arrays)
        for name, array in arrays.items():
            assert np.array_equal(back[name], array), name
    for save in (np.savez, np.savez_compressed):
        save(path("theirs.npz"), **arrays)
        f = npz_open(path("theirs.npz").encode())
        assert f, error()
        for name, array in arrays.items():
            assert npy_write(ours, npz_tensor(f, npz_find(f, name.encode()))) == 0, error()
            assert np.array_equal(np.load(ours.decode()), array), name
        npz_close(f)
print(f"{len(arrays)} arrays went both ways, alone and in archives")
