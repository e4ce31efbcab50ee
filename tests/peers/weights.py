#!/usr/bin/env python3
"""Weights in files: what Aril lists and reads of files that PyTorch, safetensors and NumPy wrote, and they of Aril's.

A thousand random checkpoints in all variants: zip and legacy pickles of each protocol, tar archives, sharded files,
npz; random dtypes, shapes, strides, shared storages, nesting.  weights.py [COUNT [SEED]]

weights.py speed NETWORK: how long both sides take to load its checkpoint into a network that is there."""
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import collections  # noqa: E402
import ctypes as C  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import pickle  # noqa: E402
import random  # noqa: E402
import struct  # noqa: E402
import tarfile  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

from by_ctypes import B, I, I64, P, S, Named, declare, error, options  # noqa: E402

try:
    import numpy as np
    import torch
    import warnings
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Shape = options("Shape", (I, "ndim"), (I64 * 8, "dim"))
Guard = options("Guard", (C.c_uint32, "depth"))
OpenOptions = options("WeightsOptions", (S, "root"), (B, "unwrap copy"))
SaveOptions = options("WeightsSaveOptions", (S, "kind"), (P, "metadata"), (I64, "max_part"))
open_file, close_file = declare("aril_weights_open", P, S, OpenOptions), declare("aril_weights_close", None, P)
count, name_of = declare("aril_weights_count", I, P), declare("aril_weights_name", S, P, I)
dtype_of, shape_of = declare("aril_weights_dtype", I, P, I), declare("aril_weights_shape", Shape, P, I)
problem_of, shared_of = declare("aril_weights_problem", S, P, I), declare("aril_weights_shared", I, P, I)
tensor_of, read = declare("aril_weights_tensor", P, P, I), declare("aril_read", I, P, P)
save = declare("aril_weights_save", I, S, C.POINTER(Named), SaveOptions)
all_of = declare("aril_weights_all", C.POINTER(Named), P)
scope_begin, guard_end = declare("aril_scope_begin", Guard), declare("aril_guard_end", None, P)
clear = declare("aril_clear_error", None)

warnings.filterwarnings("ignore")
ARIL = "bool u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0".split()
TORCH = dict(zip(ARIL, (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16,
                        torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
                        torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
                        torch.float8_e8m0fnu)))
OF_TORCH = {v: k for k, v in TORCH.items()}
COMPLEX = (torch.complex64, torch.complex128)  # read as pairs of real numbers


def data_of(t):
    """The elements of a PyTorch tensor in row-major order."""
    t = t.detach().clone(memory_format=torch.contiguous_format).flatten()
    return bytes(torch.empty_like(t).copy_(t).view(torch.uint8).numpy().tobytes()) if t.numel() else b""


def random_tensor(draw, plain=False):
    names = ARIL[:13] if plain else ARIL
    dtype = TORCH[draw.choice(names + ["f32"] * 8)]
    sizes = [draw.choice((0, 1, 1, 2, 3, 4, 5, 7)) for _ in range(draw.randrange(0, 5))]
    n = int(np.prod(sizes)) if sizes else 1
    width = torch.empty(0, dtype=dtype).element_size()
    raw = torch.tensor(list(draw.randbytes(n * width)), dtype=torch.uint8)
    if dtype == torch.bool:
        raw &= 1
    t = raw.view(dtype).reshape(sizes) if n else torch.empty(sizes, dtype=dtype)
    return t


def strided(draw, t):
    """Another tensor over the memory of t: transposed, a part, every second, expanded."""
    for _ in range(draw.randrange(0, 4)):
        kind = draw.randrange(4)
        if kind == 0 and t.dim() > 1:
            t = t.transpose(*draw.sample(range(t.dim()), 2))
        elif kind == 1 and t.dim():
            axis = draw.randrange(t.dim())
            begin = draw.randrange(t.size(axis) + 1)
            t = t.narrow(axis, begin, draw.randrange(t.size(axis) - begin + 1))
        elif kind == 2 and t.dim():
            t = t[::2]
        elif kind == 3 and t.dim() < 6:
            t = t.unsqueeze(0).expand(draw.randrange(1, 4), *t.shape)
    return t


def random_tensors(draw, plain=False):
    pool, out = [], collections.OrderedDict()
    for i in range(draw.randrange(0, 8)):
        if not pool or draw.random() < .7:
            pool.append(random_tensor(draw, plain))
        t = strided(draw, draw.choice(pool))
        name = draw.choice(("layer%d.weight", "weight%d", "a.b.c.%d", "größe.%d", "%d")) % i
        out[name] = torch.nn.Parameter(t) if t.dtype == torch.float32 and draw.random() < .3 else t
    if draw.random() < .2 and not plain:
        out["complex"] = strided(draw, torch.view_as_complex(torch.randn(2, 3, 2, dtype=torch.float64)).to(draw.choice(COMPLEX)))
    return out


def flattened(value, path=()):
    """What aril_weights_open(root "") lists: tensors of a nested value under dotted names."""
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        if not isinstance(value, torch.Tensor):
            value = torch.from_numpy(np.array(value).astype(value.dtype.newbyteorder("=")))
        yield ".".join(path) or "tensor", value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from flattened(v, path + (str(int(k)) if isinstance(k, (bool, int)) else str(k),))
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for i, v in enumerate(value):
            yield from flattened(v, path + (str(i),))


def compare(path, want, root=None):
    """The file holds the tensors of `want`, a list of (name, tensor), in that order (None: any order)."""
    w = open_file(os.fsencode(path), OpenOptions(root=root))
    assert w, error()
    try:
        got = [name_of(w, i).decode() for i in range(count(w))]
        assert sorted(got) == sorted(n for n, _ in want), (got, [n for n, _ in want])
        for name, t in want:
            i = got.index(name)
            if t.dtype in COMPLEX:
                t = torch.view_as_real(t.detach())
            assert list(shape_of(w, i).dim)[:shape_of(w, i).ndim] == list(t.shape), name
            assert problem_of(w, i) is None, problem_of(w, i)
            assert ARIL[dtype_of(w, i)] == OF_TORCH[t.dtype], name
            guard = scope_begin()
            buf = C.create_string_buffer(max(1, t.numel() * t.element_size()))
            assert read(tensor_of(w, i), buf) == 0, error()
            guard_end(C.byref(guard))
            assert buf.raw[:t.numel() * t.element_size()] == data_of(t), name
        # the same memory: the same storage in the file
        first = {}
        for i, (name, t) in enumerate(want):
            j = got.index(name)
            if t.numel() and path.endswith((".pt", ".pth")):
                k = first.setdefault(t.untyped_storage().data_ptr(), j)
                assert shared_of(w, j) == k, (name, got[k])
    finally:
        close_file(w)


def nested(draw, tensors):
    """The tensors within a checkpoint as trainers write it."""
    value = {"epoch": draw.randrange(100), "best": draw.random(), "arch": "net", "done": draw.random() < .5, "none": None}
    key = draw.choice(("state_dict", "model_state_dict", "model", "net"))
    value[key] = tensors
    if draw.random() < .5:
        value["optimizer"] = {"state": {0: {"step": torch.tensor(3.), "exp_avg": torch.ones(2, 2)}},
                              "param_groups": [{"lr": 1e-3, "betas": (.9, .999), "params": [0]}]}
    if draw.random() < .3:
        value["array"] = np.asfortranarray(np.arange(6.).reshape(2, 3)) if draw.random() < .5 else np.arange(3, dtype=">i4")
    if draw.random() < .3:
        value["number"] = np.float64(2.5)
    if draw.random() < .3:
        value.update(device=torch.device("cpu"), dtype=torch.float16, size=torch.Size([1, 2]), set={1, 2}, big=1 << 100,
                     counter=collections.Counter("hello"), default=collections.defaultdict(int, {"a": 1}))
    return value, key


def wrapped(draw, tensors):
    prefix = draw.choice(("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."))
    return collections.OrderedDict((prefix + k, v) for k, v in tensors.items()), prefix


def test_checkpoint(draw, folder):
    tensors = random_tensors(draw)
    path = os.path.join(folder, "net.pt")
    zipped = draw.random() < .5
    how = dict(_use_new_zipfile_serialization=zipped, pickle_protocol=draw.choice((1, 2, 2, 2, 3, 4, 5)))
    kind = draw.randrange(3)
    if kind == 0:
        torch.save(tensors, path, **how)
        compare(path, list(flattened(tensors)))
    elif kind == 1:
        value, key = nested(draw, tensors)
        torch.save(value, path, **how)
        compare(path, list(flattened(value)), b"")
        if tensors:
            compare(path, list(flattened(tensors)))
        compare(path, list(flattened(tensors)), key.encode())
    else:
        named, _ = wrapped(draw, tensors)
        torch.save(named, path, **how)
        w = open_file(path.encode(), OpenOptions(unwrap=True))
        assert w, error()
        assert [name_of(w, i).decode() for i in range(count(w))] == list(tensors)
        close_file(w)


def test_tar(draw, folder):
    """The format before 0.1.10, which nothing writes any more: as torch.serialization._legacy_load reads it."""
    tensors = {k: v for k, v in random_tensors(draw, True).items() if OF_TORCH[v.dtype] not in ("u16", "u32", "u64")}
    classes = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.uint8: "Byte", torch.int8: "Char",
               torch.int16: "Short", torch.int32: "Int", torch.int64: "Long", torch.bool: "Bool", torch.bfloat16: "BFloat16"}
    storages, at = {}, {}
    out = io.BytesIO()

    def dump(value, to):
        pickle.dump(value, to, protocol=2)
    for t in tensors.values():
        storages.setdefault(t.untyped_storage()._cdata, t)
    dump(len(storages), out)
    for key, t in storages.items():
        dump((key, "cpu", getattr(torch, classes[t.dtype] + "Storage")), out)
        raw = bytes(t.untyped_storage().tolist())
        out.write(struct.pack("<q", len(raw) // t.element_size()) + raw)
    dump([], out)
    listed = io.BytesIO()
    dump(len(tensors), listed)
    for i, t in enumerate(tensors.values()):
        dump((1000 + i, t.untyped_storage()._cdata, torch.FloatTensor), listed)
        listed.write(struct.pack("<ii", t.dim(), 0) + struct.pack("<%dq" % t.dim(), *t.shape) +
                     struct.pack("<%dq" % t.dim(), *t.stride()) + struct.pack("<q", t.storage_offset()))
        at[i] = 1000 + i

    class Ref:
        def __init__(self, number):
            self.number = number

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return str(value.number) if isinstance(value, Ref) else None
    body = io.BytesIO()
    Pickler(body, protocol=2).dump(collections.OrderedDict((k, Ref(at[i])) for i, k in enumerate(tensors)))
    path = os.path.join(folder, "net.pt")
    with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("sys_info", b""), ("pickle", body.getvalue()), ("storages", out.getvalue()), ("tensors", listed.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    compare(path, list(flattened(tensors)))


def test_arrays(draw, folder):
    arrays = {}
    for i in range(draw.randrange(1, 6)):
        t = strided(draw, random_tensor(draw, True))
        if t.dtype != torch.bfloat16:
            a = t.numpy()
            if draw.random() < .3:
                a = np.asfortranarray(a)
            if draw.random() < .3:
                a = a.astype(a.dtype.newbyteorder(">"))
            arrays["x%d" % i] = a
    if not arrays:
        return
    path = os.path.join(folder, "net.npz")
    (np.savez if draw.random() < .5 else np.savez_compressed)(path, **arrays)
    want = [(k, torch.from_numpy(np.ascontiguousarray(a.astype(a.dtype.newbyteorder("="))).reshape(a.shape))) for k, a in arrays.items()]
    compare(path, want)
    path = os.path.join(folder, "arrays.pkl")
    with open(path, "wb") as f:
        pickle.dump({"weights": arrays}, f, protocol=draw.choice((2, 3, 4, 5)))
    compare(path, want)


def shards(draw, tensors):
    parts = [{} for _ in range(draw.randrange(1, 4))]
    for k, t in tensors.items():
        draw.choice(parts)[k] = t.detach().clone().contiguous()
    return parts


def test_parts(draw, folder):
    tensors = {k: t for k, t in random_tensors(draw).items() if t.dtype not in COMPLEX}
    parts, where = shards(draw, tensors), {}
    torch_kind = draw.random() < .5
    stem, end = ("pytorch_model", "bin") if torch_kind else ("model", "safetensors")
    for i, part in enumerate(parts):
        name = "%s-%05d-of-%05d.%s" % (stem, i + 1, len(parts), end)
        (torch.save if torch_kind else save_file)(part, os.path.join(folder, name))
        where.update({k: name for k in part})
    index = os.path.join(folder, "%s.%s.index.json" % (stem, end))
    with open(index, "w") as f:
        json.dump({"metadata": {"total_size": 5}, "weight_map": where}, f)
    compare(index, list(tensors.items()))
    compare(folder, list(tensors.items()))
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


def torch_order(path):
    return torch.load(path, weights_only=True)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and data_of(a) == data_of(b)


def test_writing(draw, folder):
    """Aril writes what it read: PyTorch, safetensors and NumPy read it."""
    tensors = {k: t for k, t in random_tensors(draw).items() if t.dtype not in COMPLEX}
    path = os.path.join(folder, "net.pt")
    torch.save(tensors, path)
    w = open_file(path.encode(), OpenOptions())
    assert w, error()
    named = all_of(w)
    assert named, error()
    out = os.path.join(folder, "out.pth")
    assert save(out.encode(), named, SaveOptions()) == 0, error()
    back = torch_order(out)
    assert list(back) == list(tensors)
    for k, t in tensors.items():
        assert same(back[k], t), k
    for a in tensors:
        for b in tensors:
            x, y = tensors[a], tensors[b]
            if x.numel() and y.numel() and x.dtype == y.dtype:
                shares = x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
                if shares and not any(s == 0 and n > 1 for t in (x, y) for s, n in zip(t.stride(), t.shape)):
                    assert back[a].untyped_storage().data_ptr() == back[b].untyped_storage().data_ptr(), (a, b)
    torch.load(out, mmap=True, weights_only=True)
    out = os.path.join(folder, "out.safetensors")
    assert save(out.encode(), named, SaveOptions()) == 0, error()
    back = load_file(out)
    assert all(same(back[k], t) for k, t in tensors.items()) and len(back) == len(tensors)
    size = draw.choice((1, 64, 1000))
    for name in ("parts.safetensors", "parts.bin"):
        out = os.path.join(folder, name)
        assert save(out.encode(), named, SaveOptions(max_part=size)) == 0, error()
        index = out + ".index.json"
        back = {}
        with open(index) as f:
            where = json.load(f)["weight_map"]
        assert set(where) == set(tensors)
        for part in set(where.values()):
            loaded = load_file(os.path.join(folder, part)) if part.endswith("safetensors") else torch_order(os.path.join(folder, part))
            assert all(where[k] == part for k in loaded)
            back.update(loaded)
        assert all(same(back[k], t) for k, t in tensors.items())
        compare(index, list(tensors.items()))
    if all(OF_TORCH[t.dtype] in ARIL[:10] + ["f32", "f64"] for t in tensors.values()):
        out = os.path.join(folder, "out.npz")
        assert save(out.encode(), named, SaveOptions()) == 0, error()
        with np.load(out) as f:
            assert all(same(torch.from_numpy(f[k]), t) for k, t in tensors.items())
    close_file(w)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


def test_refused(folder):
    """What PyTorch refuses under weights_only=True is refused here, and nothing of it runs."""
    class Attack:
        def __reduce__(self):
            return (os.system, ("touch %s/ran" % folder,))
    path = os.path.join(folder, "net.pt")
    import argparse
    for value in (Attack(), {"state_dict": {"a": torch.ones(2)}, "x": Attack()}, {"args": argparse.Namespace(lr=1)},
                  torch.nn.Linear(2, 2), {"f": torch.nn.functional.relu}, {"p": print}):
        for zipped in (True, False):
            torch.save(value, path, _use_new_zipfile_serialization=zipped)
            assert not open_file(path.encode(), OpenOptions()), value
            message = error().decode()
            assert "names" in message or "whole module" in message, message
            clear()
            assert not os.path.exists(os.path.join(folder, "ran"))
    os.unlink(path)


def test_special(folder):
    """Quantized, sparse and meta tensors are listed, and say why they cannot be read."""
    path = os.path.join(folder, "net.pt")
    torch.save({"q": torch.quantize_per_tensor(torch.ones(2, 2), .1, 0, torch.qint8), "s": torch.eye(3).to_sparse(),
                "m": torch.empty(2, 5, device="meta"), "f": torch.ones(2)}, path)
    w = open_file(path.encode(), OpenOptions())
    assert w, error()
    want = {"q": ([2, 2], b"quantized"), "s": ([3, 3], b"sparse"), "m": ([2, 5], b"meta"), "f": ([2], None)}
    assert count(w) == 4
    for i in range(4):
        sizes, text = want[name_of(w, i).decode()]
        assert list(shape_of(w, i).dim)[:shape_of(w, i).ndim] == sizes
        assert problem_of(w, i) is None if text is None else text in problem_of(w, i), problem_of(w, i)
    close_file(w)
    os.unlink(path)


def speed(name, rounds=9):
    """torch.load and load_state_dict beside aril_load_weights, alternately."""
    import torchvision
    make = declare("aril_zoo_make", P, S, options("ZooOptions", (Shape, "input"), (I64, "classes"), (S, "weights root"), (B, "aux no_dropout")))
    load = declare("aril_load_weights", I, P, S, options("LoadWeightsOptions", (B, "partial other_shapes"), (S, "root"), (P, "rename"), (I, "order"), (P, "report")))
    ours, theirs, times = make(name.encode(), make.argtypes[1]()), torchvision.models.get_model(name), []
    assert ours, error()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name + ".pth")
        torch.save(theirs.state_dict(), path)
        for _ in range(rounds):
            t0 = time.perf_counter()
            theirs.load_state_dict(torch.load(path))
            t1 = time.perf_counter()
            assert load(ours, path.encode(), load.argtypes[2]()) == 0, error()
            times.append((t1 - t0, time.perf_counter() - t1))
    for what, (a, b) in (("first", times[0]), ("median", sorted(times[1:], key=lambda t: t[0] / t[1])[rounds // 2 - 1])):
        print(f"{name}, {what}: torch {1e3 * a:.0f} ms, here {1e3 * b:.0f} ms, ratio {a / b:.2f}")


def main(arguments):
    if arguments and arguments[0] == "speed":
        return speed(*arguments[1:])
    n = int(arguments[0]) if arguments else 1000
    seed = int(arguments[1]) if len(arguments) > 1 else 0
    cases = (test_checkpoint, test_checkpoint, test_checkpoint, test_tar, test_arrays, test_parts, test_writing)
    with tempfile.TemporaryDirectory() as folder:
        test_refused(folder)
        test_special(folder)
        for i in range(seed, seed + n):
            draw = random.Random(i)
            case = draw.choice(cases)
            try:
                case(draw, folder)
            except Exception:
                print("case %d (%s): %s" % (i, case.__name__, error()))
                raise
    print("%d random files: what Aril lists and reads is what PyTorch, safetensors and NumPy wrote" % n)


if __name__ == "__main__":
    main(sys.argv[1:])
