"""src/models beside transformers: a GPT-2 with random weights, saved by it, generates the same tokens here, greedily and by beam search, alone
and in batches; what is drawn at random is distributed as the probabilities say; and tokens per second of both (generate.py speed [TOKENS [ROUNDS]])."""
import ctypes as C
import os
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(here, "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402
import time  # noqa: E402

from by_ctypes import B, F64, I, I64, P, S, declare, error, lib, options, shape  # noqa: E402

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

List, Device = options("List", (I, "n"), (C.POINTER(P), "at")), options("Device", (C.c_int16, "kind index"))
Generate = options("Generate", (I64, "max_tokens"), (F64, "temperature"), (I64, "top_k"), (F64, "top_p repetition_penalty"), (I64, "beams"),
                   (F64, "length_penalty"), (B, "early_stopping"), (I64, "results"), (C.POINTER(I64), "stop"), (I, "n_stop"),
                   (P, "generator on_token ctx"), (C.POINTER(F64), "scores"))
load, decoder_of = declare("aril_gpt2_load", P, S), declare("aril_gpt2_decoder", P, P)
run, free_decoder = declare("aril_generate", I, P, List, Generate, C.POINTER(P)), declare("aril_decoder_free", None, P)
release = declare("aril_module_release", None, P)
from_memory, read, numel = declare("aril_from", P, P, type(shape([1])), I, Device), declare("aril_read", I, P, P), declare("aril_numel", I64, P)
seed, threads = declare("aril_seed", None, C.c_uint64), declare("aril_set_threads", None, I)
I64_DTYPE, ZERO = 8, -2.0 ** 31


def generate(decoder, prompts, **opts):
    stop = opts.pop("stop", [])
    n = len(prompts) * opts.get("results", 1)
    scores = (F64 * n)()
    o = Generate(stop=(I64 * max(1, len(stop)))(*stop), n_stop=len(stop), scores=scores, **opts)
    at = (P * len(prompts))(*[from_memory((I64 * len(p))(*p), shape([len(p)]), I64_DTYPE, Device()) for p in prompts])
    out = (P * n)()
    assert run(decoder, List(n=len(prompts), at=C.cast(at, C.POINTER(P))), o, out) == 0, error()
    results = []
    for t in out:
        ids = (I64 * max(1, numel(t)))()
        assert read(t, ids) == 0, error()
        results.append(list(ids[:numel(t)]))
    return results, list(scores)


def theirs(model, prompt, **opts):
    with torch.no_grad():
        out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), pad_token_id=0, use_cache=True, **opts)
    return [row[len(prompt):].tolist() for row in out]


def network(folder, **sizes):
    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, bos_token_id=0, eos_token_id=sizes["vocab_size"] - 1, **sizes)).eval()
    with torch.no_grad():
        for p in model.parameters():  # scores that differ clearly
            if p.ndim == 2:
                p *= 4
    model.generation_config.eos_token_id = model.generation_config.bos_token_id = None
    model.save_pretrained(folder)
    return model


def cut(row, stop):
    """What follows the first stop token is padding."""
    for i, t in enumerate(row):
        if t in stop:
            return row[:i + 1]
    return row


def compare(model, decoder, vocabulary):
    r = torch.Generator().manual_seed(5)
    prompts = [torch.randint(0, vocabulary, (n,), generator=r).tolist() for n in (1, 7, 3, 12, 7, 7)]
    few = list(range(1, vocabulary, 9))  # stop tokens that occur
    cases = 0
    for opts, ours in (({}, {}), ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}), ({"eos_token_id": few}, {"stop": few})):
        alone = [theirs(model, p, max_new_tokens=30, do_sample=False, **opts)[0] for p in prompts]
        alone = [cut(a, opts.get("eos_token_id", [])) for a in alone]
        batch, _ = generate(decoder, prompts, max_tokens=30, **ours)
        assert batch == alone, f"greedy {opts}: {batch} instead of {alone}"
        for p, a in zip(prompts, alone):
            assert generate(decoder, [p], max_tokens=30, **ours)[0] == [a]
            cases += 1
        assert generate(decoder, [prompts[1], prompts[4], prompts[5]], max_tokens=30, **ours)[0] == [alone[1], alone[4], alone[5]]
    print(f"greedy: {cases} prompts continue with the same tokens, alone and in batches")
    cases = 0
    for beams, n, opts, ours in (
            (4, 4, {}, {}), (3, 1, {"length_penalty": 2.0}, {"length_penalty": 2.0}), (5, 2, {"length_penalty": 0.0}, {"length_penalty": ZERO}),
            (4, 3, {"eos_token_id": few[:1]}, {"stop": few[:1]}), (4, 2, {"eos_token_id": few}, {"stop": few}),
            (3, 3, {"eos_token_id": few, "early_stopping": True}, {"stop": few, "early_stopping": True}),
            (3, 2, {"eos_token_id": few, "length_penalty": -1.0, "repetition_penalty": 1.5},
             {"stop": few, "length_penalty": -1.0, "repetition_penalty": 1.5})):
        want = []
        for p in prompts:
            with torch.no_grad():
                out = model.generate(torch.tensor([p]), attention_mask=torch.ones(1, len(p), dtype=torch.long), pad_token_id=0, max_new_tokens=16, do_sample=False,
                                     num_beams=beams, num_return_sequences=n, output_scores=True, return_dict_in_generate=True, **opts)
            want.append([(cut(row[len(p):].tolist(), opts.get("eos_token_id", [])), s) for row, s in zip(out.sequences, out.sequences_scores.tolist())])
        got, scores = generate(decoder, prompts, max_tokens=16, beams=beams, results=n, **ours)
        for i, p in enumerate(prompts):
            single, _ = generate(decoder, [p], max_tokens=16, beams=beams, results=n, **ours)
            for k in range(n):
                w, s = want[i][k]
                assert abs(scores[i * n + k] - s) < 1e-3 * abs(s) + 1e-4, f"beams {opts}: score {scores[i * n + k]} instead of {s}"
                assert got[i * n + k] == w and single[k] == w, f"beams {opts}, prompt {i}, result {k}: {got[i * n + k]} instead of {w}"
                cases += 1
    print(f"beam search: {cases} sequences have the same tokens and scores")


def distributions(model, decoder, vocabulary):
    """Chi square of many first tokens drawn, beside the probabilities that transformers' processors leave."""
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper
    prompt, n = [5, 9, 2], 40000
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[:, -1]
    for opts, warpers in (({"temperature": 1.0}, []), ({"temperature": 0.6}, [TemperatureLogitsWarper(0.6)]),
                          ({"temperature": 1.5, "top_k": 5}, [TemperatureLogitsWarper(1.5), TopKLogitsWarper(5)]),
                          ({"temperature": 1.0, "top_p": 0.7}, [TopPLogitsWarper(0.7)]),
                          ({"temperature": 2.0, "top_k": 40, "top_p": 0.5}, [TemperatureLogitsWarper(2.0), TopKLogitsWarper(40), TopPLogitsWarper(0.5)])):
        p = LogitsProcessorList(warpers)(None, logits.clone()).softmax(-1)[0].double()
        seed(1)
        out, _ = generate(decoder, [prompt], max_tokens=1, results=n, **opts)
        counts = torch.bincount(torch.tensor([o[0] for o in out]), minlength=vocabulary).double()
        assert counts[p == 0].sum() == 0, f"{opts}: tokens that were ruled out"
        often = p * n >= 5
        chi = ((counts[often] - n * p[often]) ** 2 / (n * p[often])).sum().item()
        freedom = max(1, int(often.sum()) - 1)
        assert chi < freedom + 5 * (2 * freedom) ** 0.5 + 5, f"{opts}: chi square {chi} with {freedom} degrees of freedom"
        print(f"drawn with {opts}: chi square {chi:.0f} of {int(often.sum())} tokens")
        seed(1)
        assert generate(decoder, [prompt], max_tokens=5, results=50, **opts)[0] == (seed(1), generate(decoder, [prompt], max_tokens=5, results=50, **opts)[0])[1]


def speed(tokens=48, rounds=5):
    torch.set_num_threads(2)
    threads(2)
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config()).eval()
        model.generation_config.eos_token_id = None
        model.save_pretrained(folder)
        net = load(folder.encode())
    assert net, error()
    decoder, prompt, rates = decoder_of(net), list(range(100, 116)), []
    for beams in (0, 4):
        rates = []
        for i in range(rounds + 1):
            t0 = time.perf_counter()
            want = theirs(model, prompt, max_new_tokens=tokens, do_sample=False, **({"num_beams": beams} if beams else {}))[0]
            t1 = time.perf_counter()
            got = generate(decoder, [prompt], max_tokens=tokens, beams=beams)[0][0]
            t2 = time.perf_counter()
            assert len(got) == len(want) == tokens
            if i:
                rates.append(((t1 - t0) / (t2 - t1), tokens / (t1 - t0), tokens / (t2 - t1)))
        rates.sort()
        ratio, slow, fast = rates[len(rates) // 2]
        print(f"GPT-2 124M, 2 threads, batch 1, {'greedy' if not beams else f'{beams} beams'}: transformers {slow:.1f} tokens/s, here {fast:.1f}, "
              f"median ratio {ratio:.2f} of {', '.join(f'{r[0]:.2f}' for r in rates)}", flush=True)
    free_decoder(decoder)
    release(net)


if sys.argv[1:2] == ["speed"]:
    speed(*map(int, sys.argv[2:]))
    sys.exit()
with tempfile.TemporaryDirectory() as folder:
    sizes = dict(vocab_size=199, n_positions=64, n_embd=48, n_layer=3, n_head=4)
    model = network(folder, **sizes)
    net = load(folder.encode())
    assert net, error()
    decoder = decoder_of(net)
    compare(model, decoder, 199)
    distributions(model, decoder, 199)
    free_decoder(decoder)
    release(net)
