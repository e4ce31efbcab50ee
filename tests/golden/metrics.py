#!/usr/bin/env python3
"""Writes metrics.h: what scikit-learn says of the scores and targets that tests/train/test_metrics.c makes the same way.

    python3 tests/golden/metrics.py > tests/golden/metrics.h
"""
import numpy as np
from sklearn import metrics as sk

seed = 1


def numbers(n):
    """The next n numbers of -1 .. 1 from the generator that the test has too."""
    global seed
    out = []
    for _ in range(n):
        seed = (seed * 1664525 + 1013904223) % 2**32
        out.append((seed >> 8) / 2**23 - 1)
    return np.array(out, dtype=np.float32)


def say(name, value):
    print(f"#define GOLDEN_{name:<28} {float(value):.15g}")


print("/* Written by metrics.py: metrics of scikit-learn for the numbers that test_metrics.c makes. */")

# 500 samples of 7 classes, of which the last is neither there nor ever the answer
N, C = 500, 7
scores = numbers(N * C).reshape(N, C)
truth = np.floor((numbers(N) + 1) / 2 * 6).astype(np.int64)
scores[np.arange(N), truth] += 0.6
scores[:, 6] -= 3
weight = numbers(N) + 1.5
pred = scores.argmax(1)
labels = sorted(set(truth) | set(pred))
say("ACCURACY", sk.accuracy_score(truth, pred))
say("ACCURACY_WEIGHTED", sk.accuracy_score(truth, pred, sample_weight=weight))
say("TOP3", sk.top_k_accuracy_score(truth, scores, k=3, labels=range(C)))
for name, fn in ("PRECISION", sk.precision_score), ("RECALL", sk.recall_score), ("F1", sk.f1_score):
    for average in "macro", "micro", "weighted":
        say(f"{name}_{average.upper()}", fn(truth, pred, average=average, zero_division=0))
    say(f"{name}_SAMPLES", fn(truth, pred, average="macro", sample_weight=weight, zero_division=0))
table = sk.confusion_matrix(truth, pred, labels=range(C))
print(f"#define GOLDEN_TABLE {{ {', '.join(str(v) for v in table.ravel())} }}")

# yes and no: scores rounded so that many are equal
score = np.round(numbers(400) * 20) / 20
yes = (numbers(400) + score * 0.5 > 0).astype(np.int64)
w = numbers(400) + 1.5
say("AUC", sk.roc_auc_score(yes, score))
say("AUC_WEIGHTED", sk.roc_auc_score(yes, score, sample_weight=w))
say("YES_ACCURACY", sk.accuracy_score(yes, score > 0))
say("YES_PRECISION", sk.precision_score(yes, score > 0))
say("YES_RECALL", sk.recall_score(yes, score > 0))
say("YES_F1", sk.f1_score(yes, score > 0))

# several labels a sample
logits = numbers(200 * 4).reshape(200, 4)
many = (numbers(200 * 4).reshape(200, 4) + logits > 0.3).astype(np.float32)
many[:, 3] = 0
for average in "macro", "micro", "weighted":
    say(f"LABELS_F1_{average.upper()}", sk.f1_score(many, logits > 0, average=average, zero_division=0))
say("LABELS_ACCURACY", ((logits > 0) == many).mean())

# values
out = numbers(300 * 3).reshape(300, 3)
y = (out + 0.3 * numbers(300 * 3).reshape(300, 3)).astype(np.float32)
v = numbers(300) + 1.5
d, e = out.astype(np.float64), y.astype(np.float64)
say("MAE", sk.mean_absolute_error(e, d))
say("MSE", sk.mean_squared_error(e, d))
say("RMSE", sk.mean_squared_error(e, d) ** 0.5)
say("R2", sk.r2_score(e, d))
say("MAE_WEIGHTED", sk.mean_absolute_error(e, d, sample_weight=v))
say("R2_WEIGHTED", sk.r2_score(e, d, sample_weight=v))
