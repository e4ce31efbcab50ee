"""The tokenizer of src/text beside the package tokenizers: a BPE learned from tiny Shakespeare by both has the same merges, 10,000 random
strings of all planes of Unicode have the same tokens and the same text, in each form of files, and each reads what the other wrote."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(here, "..", "support")  # not this folder, whose random.py is not Python's
import random  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

from by_ctypes import B, I, I64, P, S, declare, error, options  # noqa: E402

try:
    import tokenizers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

text_path = os.path.join(os.environ.get("ARIL_TEST_DATA", os.path.join(here, "..", "..", "..", "shared", "data")),
                         "text", "tinyshakespeare", "input.txt")
if not os.path.exists(text_path):
    print("SKIP: no", text_path)
    sys.exit(77)

Encode, Decode = options("Encode", (B, "plain framed"), (C.c_size_t, "size")), options("Decode", (B, "skip_special raw"), (P, "size"))
Train = options("Train", (I64, "size min_count"), (C.POINTER(S), "special"), (I, "n_special"))
load, save = declare("aril_tokenizer_load", P, S), declare("aril_tokenizer_save", I, P, S)
learn = declare("aril_tokenizer_train", P, S, C.c_size_t, Train)
encode_to, decode_from = declare("aril_tokenizer_encode", P, P, S, Encode), declare("aril_tokenizer_decode", P, P, P, Decode)
numel, read, drop = declare("aril_numel", I64, P), declare("aril_read", I, P, P), declare("aril_drop", None, P)
Shape, Device = options("Shape", (I, "ndim"), (I64 * 8, "dim")), options("Device", (C.c_int16, "kind index"))
from_memory = declare("aril_from", P, P, Shape, I, Device)
free = C.CDLL(None).free
free.argtypes = [P]
I64_DTYPE = 8


def encode(t, data, plain=False):
    if not data:
        return []
    ids = encode_to(t, data, Encode(plain=plain, size=len(data)))
    out = (I64 * max(1, numel(ids)))()
    assert read(ids, out) == 0, error()
    n = numel(ids)
    drop(ids)
    return out[:n]


def decode(t, ids, raw=False):
    x = from_memory((I64 * max(1, len(ids)))(*ids), Shape(ndim=1, dim=(len(ids),)), I64_DTYPE, Device())
    size = C.c_size_t()
    at = decode_from(t, x, Decode(raw=raw, size=C.cast(C.byref(size), P)))
    assert at, error()
    data = C.string_at(at, size.value)
    free(at)
    drop(x)
    return data


def trained(data, size, special):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([data], trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=special, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


PIECES = ["'s", "'t", "'re", "'ll", "'LL", "'d", "''", "don't", "  ", " \n", "\r\n", "\t\t", "\u00a0", "\u2003", "\u3000", "\u200d", "\ufeff",
          "e\u0301", "\u0915\u094d\u0937", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "12345", "\u00bd", "\u0664\u0665", "\u216b",
          "<|endoftext|>", "<|endoftext", "|>", "<|pad|>", "\x00", "\x1c", "\x85", "the ", " KING", "\u5929\u5730", "\ud55c\uad6d", "_a_", "--"]


def one(r):
    def code():
        while True:
            c = r.choice((r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000), r.randrange(0x110000), r.randrange(0x20000, 0x33480)))
            if not 0xd800 <= c < 0xe000:
                return chr(c)
    return "".join(r.choice((code, code, lambda: r.choice(PIECES), lambda: r.choice(WORDS)))() for _ in range(r.randrange(1, 24)))


def compare(theirs, ours, what, strings, exact=True):
    """exact: the tokens of a text are decoded as it, which is not so of white space that tokens took, or of letters that stand for bytes."""
    for s in strings:
        want = theirs.encode(s, add_special_tokens=False).ids
        got = encode(ours, s.encode())
        assert got == want, f"{what}: {s!r}: {got} instead of {want}"
        assert not exact or decode(ours, got, raw=True) == s.encode(), f"{what}: {s!r} is decoded as {decode(ours, got, raw=True)!r}"
        assert decode(ours, got).decode() == theirs.decode(got, skip_special_tokens=False), f"{what}: {s!r}"
        cut = got[1:-1]  # parts of characters
        assert decode(ours, cut).decode() == theirs.decode(cut, skip_special_tokens=False), f"{what}: a part of {s!r}"
    print(f"{what}: {len(strings)} strings have the same tokens")


def speed(theirs, ours, data):
    text, rates = data.decode(), []
    for _ in range(3):
        t0 = time.perf_counter()
        n = len(theirs.encode(text).ids)
        t1 = time.perf_counter()
        ids = encode_to(ours, data, Encode(size=len(data)))
        t2 = time.perf_counter()
        assert numel(ids) == n
        drop(ids)
        rates.append(((t1 - t0) / (t2 - t1), n / (t2 - t1)))
    rates.sort()
    print(f"encoding {len(data)} bytes: {rates[1][1] / 1e6:.2f} million tokens/s, {rates[1][0]:.1f} times as fast")


def long_words(ours):
    times = []
    for n in (1 << 17, 1 << 20):
        data = (b"ab" * n)[:n]
        t0 = time.perf_counter()
        encode(ours, data)
        times.append(time.perf_counter() - t0)
    print(f"a word of 128 KiB and one of 1 MiB: {times[0] * 1e3:.0f} and {times[1] * 1e3:.0f} ms")
    assert times[1] < 40 * times[0] + 1, "longer words take more than their length"


data = open(text_path, "rb").read()
WORDS = data.decode().split()[:5000]
special = ["<|endoftext|>", "<|pad|>"]
theirs = trained(data.decode(), 5000, special)
marks = (S * 2)(*[s.encode() for s in special])
ours = learn(data, len(data), Train(size=5000, min_count=2, special=marks, n_special=2))
assert ours, error()
r = random.Random(int(os.environ.get("ARIL_SEED", "1")))
strings = [one(r) for _ in range(10000)]

with tempfile.TemporaryDirectory() as folder:
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    compare(theirs, ours, "trained", strings[:2000])
    theirs.save(at("tokenizer.json"))
    compare(theirs, load(at("tokenizer.json").encode()), "tokenizer.json", strings)
    os.mkdir(at("files"))
    theirs.model.save(at("files"))
    pair = load(at("files").encode())
    assert pair, error()
    compare(trained(data.decode(), 5000, ["<|endoftext|>", "<|pad|>"]), pair, "vocab.json and merges.txt",
            [s for s in strings if "<|pad|>" not in s])
    assert save(ours, at("saved").encode()) == 0, error()
    again = Tokenizer.from_file(at("saved/tokenizer.json"))
    assert again.get_vocab() == theirs.get_vocab()
    compare(again, ours, "a file of this library", strings[:2000])
    theirs.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("<|im start|>", rstrip=True), "\u00e9\u00e8"])
    theirs.add_tokens(["   ", "KING OF"])
    theirs.save(at("added.json"))
    added = load(at("added.json").encode())
    assert added, error()
    mixed = [" ".join((s, r.choice(("<mask>", "  <mask>\n", "<|im start|> \n", "\u00e9\u00e8", "KING OF", "     ")), s)) for s in strings[:2000]]
    for s in mixed:
        want = theirs.encode(s, add_special_tokens=False).ids
        assert encode(added, s.encode()) == want, f"added tokens: {s!r}: {encode(added, s.encode())} instead of {want}"
    print(f"added tokens: {len(mixed)} strings have the same tokens")
    theirs.add_tokens([AddedToken(" K", rstrip=True), AddedToken("\n", rstrip=True), AddedToken("  ", rstrip=True), AddedToken("\t ", lstrip=False)])
    theirs.add_special_tokens(["\u00e9", "\u0120"])  # letters of the alphabet that spells bytes
    theirs.save(at("spaces.json"))
    spaces = load(at("spaces.json").encode())
    assert spaces, error()
    mixed = ["".join(r.choice((" K", "K", "\n", "  ", " ", "\t ", "a", "\u00e9", "\u0120", s[:2])) for _ in range(r.randrange(1, 16))) for s in strings[:5000]]
    compare(theirs, spaces, "white space between added tokens", mixed, exact=False)
marks = (S * 3)(*[s.encode() for s in ("\u00e9", "\u0120t", "<|endoftext|>")])
letters = learn(data, len(data), Train(size=1000, min_count=2, special=marks, n_special=3))
assert letters, error()
compare(trained(data.decode(), 1000, ["\u00e9", "\u0120t", "<|endoftext|>"]), letters, "special tokens of the alphabet of bytes",
        [s + r.choice(("\u00e9", "\u0120t", " t")) for s in strings[:1000]], exact=False)
speed(again, ours, data)
long_words(ours)
