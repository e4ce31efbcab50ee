#!/usr/bin/env python3
"""What one eager operation costs, Aril beside PyTorch in one run.

    python3 bench/overhead.py [build/bench/overhead]

Needs PyTorch. Both run alternately, three times each, on one thread; the table shows the best of
each and the ratio PyTorch / Aril.
"""
import json
import subprocess
import sys
import time


def best_ns(step, loops=20000):
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(loops):
            step()
        best = min(best, (time.perf_counter_ns() - start) / loops)
    return best


def torch_times():
    import torch

    torch.set_num_threads(1)
    x = torch.ones(1)
    w = torch.ones(1, requires_grad=True)

    def backward():
        (w + x).backward()
        w.grad = None

    return {
        "add of 1 element": best_ns(lambda: x + x),
        "add recorded": best_ns(lambda: w + x),
        "add recorded + backward": best_ns(backward, 5000),
    }


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/bench/overhead"
    aril, peer = {}, {}
    for _ in range(3):
        rows = json.loads(subprocess.run([program, "--json"], capture_output=True, text=True, check=True).stdout)
        for row in rows:
            aril[row["case"]] = min(aril.get(row["case"], float("inf")), row["aril_ns"])
        for case, ns in torch_times().items():
            peer[case] = min(peer.get(case, float("inf")), ns)
    print(f"{'case':<26}{'Aril ns':>10}{'PyTorch ns':>12}{'ratio':>8}")
    for case, ns in peer.items():
        print(f"{case:<26}{aril[case]:>10.1f}{ns:>12.1f}{ns / aril[case]:>8.1f}")
    print(f"{'start-up':<26}{aril['start-up']:>10.0f}")


if __name__ == "__main__":
    main()
