#!/usr/bin/env python3
"""Writes tests/models/bert.inc: results of a small BERT of transformers with the weights of a formula that test_bert.c has too, for
sequences with types and padding."""
import os

import numpy
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel


def scramble(x):
    x = x ^ (x >> 16)
    x = (x * numpy.uint32(0x7FEB352D)).astype(numpy.uint32)
    x = x ^ (x >> 15)
    x = (x * numpy.uint32(0x846CA68B)).astype(numpy.uint32)
    return x ^ (x >> 16)


def fill(state):
    """Numbers from -0.25 to 0.25, those of norms from 0.75 to 1.25."""
    for key, (name, t) in enumerate(state.items()):
        first = scramble(numpy.array([key], dtype=numpy.uint32))
        u = (scramble(numpy.arange(t.numel(), dtype=numpy.uint32) + first) >> 8).astype(numpy.float64) * 2.0**-23 - 1
        center = 1 if name.endswith("LayerNorm.weight") else 0
        t.copy_(torch.from_numpy((center + 0.25 * u).astype(numpy.float32).reshape(t.shape)))


def main():
    c = BertConfig(vocab_size=61, max_position_embeddings=12, type_vocab_size=3, hidden_size=24, num_attention_heads=3, num_hidden_layers=2,
                   intermediate_size=40)
    tokens = (torch.arange(14).reshape(2, 7) * 17 + 5) % 61
    types = torch.arange(14).reshape(2, 7) % 3
    mask = (torch.arange(7) < torch.tensor([[7], [4]])).long()
    base, masked = BertModel(c).eval(), BertForMaskedLM(c).eval()
    with torch.no_grad():
        fill(base.state_dict())
        fill({k: v for k, v in masked.state_dict().items() if ".decoder." not in k})
        y = base(tokens, token_type_ids=types, attention_mask=mask)
        z = masked(tokens, token_type_ids=types, attention_mask=mask)
    lists = {"plain_vectors": base(tokens).last_hidden_state[1], "vectors": y.last_hidden_state[1, :4], "pooled": y.pooler_output,
             "scores": z.logits[1, :4]}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "bert.inc"), "w") as f:
        f.write("/* Written by tests/models/bert.py. */\n")
        for name, t in lists.items():
            values = [f"{v:.7g}" for v in t.flatten().tolist()]
            values = [v if "." in v or "e" in v else v + ".0" for v in values]
            f.write(f"static const double {name}[] = {{\n")
            line = "   "
            for v in values:
                if len(line) + len(v) > 97:
                    f.write(line + "\n")
                    line = "   "
                line += f" {v},"
            f.write(line + "\n};\n")


main()
