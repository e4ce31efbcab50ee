#!/usr/bin/env python3
"""Writes tests/text/tokens.inc: what the package tokenizers learns from a small text, and the tokens it gives to strings."""
import os

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = ("The quick brown fox jumps over the lazy dog. The dog doesn't mind; it'll sleep, they've said, for 100 days and 2000 nights.\n\n"
          "Les élèves étudient à l'école près du fleuve, où l'été dure 12 semaines.  Der Fluß überquert die Straße.\n"
          "Это короткий текст о том, что слова повторяются: слова, слова, слова.\t日本語の文章と中文句子。日本語の文章。 🙂🙂🙂 naïve café\n"
          "the then there these they thing think through throughout thought the then there these they\n") * 2
STRINGS = ["The fox", " the  fox\n", "they'll don't I'M I'm", "\n\n  x", "   ", "x   ", "\t\tthe", "l'école", "слова и слова", "日本語の文章", "🙂🙃", "e\u0301",
           "½ ² Ⅻ ٤٥ 12a", "\u00a0x\u2003y\u3000z", "\u200d\ufeff", "\u1c89\U00010d40\ua7cb\U00031350", "a\u0000b", "<|endoftext|>the<|end", "--...--!?",
           "_the_", "' s 's", "\x1c\x85\x1f", "\U0010ffff\ue000", "thoughtless thinkers", "क्ष", "\r\n\r\nthe", "'"]


WIDTH = 7  # characters of the corpus in a line, of up to 12 columns each


def c_string(s):
    """A C literal; a hex escape would take in the digits that follow it, so that those are octal."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}" for b in s.encode()) + '"'


def main():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator([CORPUS], trainers.BpeTrainer(vocab_size=420, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokens.inc"), "w") as f:
        f.write("/* Written by tests/text/tokens.py. */\n/* clang-format off */\nstatic const char corpus[] =\n")
        for line in CORPUS.splitlines(True):
            for i in range(0, len(line), WIDTH):
                f.write(f"    {c_string(line[i:i + WIDTH])}\n")
        f.write(f"    ;\n\nenum {{ TOKENS = {t.get_vocab_size()} }};\n\nstatic const struct tokens {{\n    const char *text;\n    size_t size;\n    int n;\n"
                "    int64_t id[64];\n} expected[] = {\n")
        for s in STRINGS:
            ids = t.encode(s).ids
            assert t.decode(ids, skip_special_tokens=False) == s
            text = "\n      ".join(c_string(s[i:i + WIDTH]) for i in range(0, len(s), WIDTH))
            f.write(f"    {{ {text}, {len(s.encode())}, {len(ids)},\n      {{ {', '.join(map(str, ids))} }} }},\n")
        f.write("};\n/* clang-format on */\n")


main()
