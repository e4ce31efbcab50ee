"""The WordPiece of src/text beside the package tokenizers, which BERT's tokenizers of transformers are: 10,000 random strings of all planes of
Unicode have the same tokens and the same text, in lower case or not, with and without accents; and each reads what the other wrote."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(here, "..", "support")  # not this folder, whose random.py is not Python's
import json  # noqa: E402
import random  # noqa: E402
import tempfile  # noqa: E402

from by_ctypes import B, I, I64, P, S, declare, error, options  # noqa: E402

try:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import BertTokenizerFast
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

Encode, Decode = options("Encode", (B, "plain framed"), (C.c_size_t, "size")), options("Decode", (B, "skip_special raw"), (P, "size"))
load, save = declare("aril_tokenizer_load", P, S), declare("aril_tokenizer_save", I, P, S)
encode_to, decode_from = declare("aril_tokenizer_encode", P, P, S, Encode), declare("aril_tokenizer_decode", P, P, P, Decode)
numel, read, drop = declare("aril_numel", I64, P), declare("aril_read", I, P, P), declare("aril_drop", None, P)
Shape, Device = options("Shape", (I, "ndim"), (I64 * 8, "dim")), options("Device", (C.c_int16, "kind index"))
from_memory = declare("aril_from", P, P, Shape, I, Device)
free = C.CDLL(None).free
free.argtypes = [P]
I64_DTYPE = 8
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["don't", "it's", " 's", "[MASK]", "[CLS]", "[mask]", "Ünïcödé", "ÄÖÜß", "İstanbul", "ΑΣ ΟΔΟΣ", "naïve", "天地玄黃", "豈更車", "한국어", "カタカナがな",
          "e\u0301\u0323", "\U0001d157\U0001d16d\U0001d165", "\u0915\u094d\u0937\u09cb", "\x00", "\x1c", "\x85", "\u00a0", "\u2003", "\u3000", "\u200d",
          "\ufffd", "...", "--", "$^`|~", "a" * 101, "b" * 100, "the ", "KING ", "playing", "unaffable", "½Ⅻ", "\u0130\u0307", "x ! , . ?", "Ǆ", "\ufb01"]


def encode(t, data, framed):
    if not data:
        return None
    ids = encode_to(t, data, Encode(framed=framed, size=len(data)))
    n = numel(ids)
    out = (I64 * max(1, n))()
    assert read(ids, out) == 0, error()
    drop(ids)
    return out[:n]


def decode(t, ids):
    x = from_memory((I64 * max(1, len(ids)))(*ids), Shape(ndim=1, dim=(len(ids),)), I64_DTYPE, Device())
    size = C.c_size_t()
    at = decode_from(t, x, Decode(size=C.cast(C.byref(size), P)))
    assert at, error()
    data = C.string_at(at, size.value)
    free(at)
    drop(x)
    return data.decode()


def one(r):
    def code():
        while True:
            c = r.choice((r.randrange(0x80), r.randrange(0x800), r.randrange(0x10000), r.randrange(0x110000), r.randrange(0x1d000, 0x33480)))
            if not 0xd800 <= c < 0xe000:
                return chr(c)
    parts = (code, code, lambda: r.choice(PIECES), lambda: chr(r.randrange(0x61, 0x7b)) * r.randrange(1, 5))
    return "".join(r.choice(parts)() for _ in range(r.randrange(1, 24)))


def vocabulary(strings):
    """All characters of the strings in all forms, and pieces of a few of them."""
    found = dict.fromkeys(SPECIAL)
    for n, (accents, lower) in enumerate(((True, True), (False, False), (False, True))):
        normalizer = normalizers.BertNormalizer(strip_accents=accents, lowercase=lower)
        for k, s in enumerate(strings):
            for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(s)):
                if k % 3 == 0:  # others have unknown characters
                    found.update(dict.fromkeys(f"##{c}" for c in word))
                    found.update(dict.fromkeys(word))
                    found.update(dict.fromkeys((word[:3], f"##{word[1:3]}")) if len(word) > 3 else ())
    found.pop("##", None)
    found.update(dict.fromkeys(("the", "play", "##ing", "un", "##aff", "##able", "'s", "n't")))
    return [w for w in found if w.strip() == w and w and "\n" not in w and "\r" not in w]


def compare(theirs, ours, what, strings):
    assert ours, error()
    for s in strings:
        for framed in (False, True):
            want = theirs.encode(s, add_special_tokens=framed).ids
            got = encode(ours, s.encode(), framed)
            assert got == want, f"{what}: {s!r}: {got} instead of {want}"
        assert decode(ours, got) == theirs.decode(got, skip_special_tokens=False), f"{what}: {s!r}: {decode(ours, got)!r}"
    print(f"{what}: {len(strings)} strings have the same tokens")


r = random.Random(int(os.environ.get("ARIL_SEED", "1")))
strings = [one(r) for _ in range(10000)]
words = vocabulary(strings[:3000])
with tempfile.TemporaryDirectory() as folder:
    at = lambda *name: os.path.join(folder, *name)  # noqa: E731
    for lower, accents, chinese, clean in ((True, None, True, True), (False, None, True, True), (True, False, True, True),
                                           (False, True, False, True), (True, None, True, False)):
        t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=accents, handle_chinese_chars=chinese, clean_text=clean)
        t.pre_tokenizer, t.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        t.post_processor = processors.BertProcessing(("[SEP]", words.index("[SEP]")), ("[CLS]", words.index("[CLS]")))
        t.add_special_tokens(SPECIAL)
        what = f"lowercase {lower}, strip_accents {accents}, handle_chinese_chars {chinese}, clean_text {clean}"
        t.save(at("tokenizer.json"))
        ours = load(at("tokenizer.json").encode())
        compare(t, ours, what, strings)
        assert save(ours, at("saved").encode()) == 0, error()
        compare(Tokenizer.from_file(at("saved", "tokenizer.json")), ours, "what Aril wrote", strings[:1000])
        if not clean:
            continue
        os.remove(at("saved", "tokenizer.json"))
        with open(at("saved", "tokenizer_config.json"), "w") as f:
            json.dump({"do_lower_case": lower, "strip_accents": accents, "tokenize_chinese_chars": chinese}, f)
        compare(t, load(at("saved").encode()), "vocab.txt", strings[:1000])
        if accents is None and chinese:
            bert = BertTokenizerFast(vocab_file=at("saved", "vocab.txt"), vocab=at("saved", "vocab.txt"), do_lower_case=lower)
            same = sum(bert(s)["input_ids"] == encode(ours, s.encode(), True) for s in strings[:1000])
            print(f"transformers' BertTokenizerFast: {same} of 1000 strings have the same tokens")
            assert same == 1000
