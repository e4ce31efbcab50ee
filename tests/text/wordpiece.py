#!/usr/bin/env python3
"""Writes tests/text/wordpiece_tokens.inc: the tokens and the text that the package tokenizers gives to strings with a small vocabulary of BERT's kind,
in lower case without accents, and as they are."""
import os

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = ("[PAD] [UNK] [CLS] [SEP] [MASK] the play ##ing ##ed un ##aff ##able want want## don ' t it s . , ! ? - ( ) $ hello world resume cafe strasse stra ##ß "
         "##ss ##e Hello Caf ##é İ i ##̇ σ ##σ ##ς Σ 天 地 日 本 か ##た ##か ᄒ ##ᅡ ##ᆫ 한 ##국 ½ 1 2 ##3 ##45 ## ##s a b c ##a ##b ##c 🙂 ق ##ا 更 n't 's").split()
STRINGS = ["", "Hello, world!", "playing PLAYED", "unaffable", "Résumé café CAFÉ", "don't it's", "[CLS] hello [MASK][SEP]", "[mask] [ MASK]", "xyz unxyz",
           "天地日本かたか", "a天b", "\u8c48 \uf901", "한국", "İ ΣΑΣ σς", "Straße", "a\u0000b\ufffdc\u200dd", "a\tb\nc\u00a0a\u3000b", "½ 12345 2345",
           "e\u0301 cafe\u0301", "hello.world?-(a)$", "🙂a🙂", "قا", "a" * 100, "a" * 101, "  hello  ", "\u1680a\u2028b", "want##s", "a\x85b\x1cc"]


def c_string(s):
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in s.encode()) + '"'


def pieces(s):
    """A literal of several lines, cut between characters."""
    return "\n      ".join(c_string(s[i:i + 15]) for i in range(0, len(s), 15)) or '""'


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wordpiece_tokens.inc"), "w") as f:
        f.write("/* Written by tests/text/wordpiece.py. */\n/* clang-format off */\nstatic const char vocabulary[] =\n")
        for i in range(0, len(WORDS), 4):
            f.write("    " + c_string("".join(w + "\n" for w in WORDS[i:i + 4])) + "\n")
        f.write("    ;\n\nstatic const struct expected {\n    const char *text;\n    size_t size;\n    int n;\n    int64_t id[112];\n"
                "    const char *decoded;\n} expected[2][" + str(len(STRINGS)) + "] = {\n")
        for lower in (True, False):
            t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
            t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=lower), pre_tokenizers.BertPreTokenizer()
            t.decoder = decoders.WordPiece()
            t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
            t.add_special_tokens(WORDS[:5])
            f.write("  {\n")
            for s in STRINGS:
                ids = t.encode(s).ids
                rows = "\n        ".join(", ".join(map(str, ids[i:i + 16])) + "," for i in range(0, len(ids), 16))
                f.write(f"    {{ {pieces(s)}, {len(s.encode())}, {len(ids)},\n      {{ {rows} }},\n"
                        f"      {pieces(t.decode(ids, skip_special_tokens=False))} }},\n")
            f.write("  },\n")
        f.write("};\n/* clang-format on */\n")


main()
