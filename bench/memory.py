#!/usr/bin/env python3
"""Peak memory of the training steps of bench/memory.c, Aril beside PyTorch.

    python3 bench/memory.py [build/bench/memory]

Needs PyTorch. Each case runs in a process of its own, twice; the second step is measured by the
process's high-water mark above what was resident before it. The C library is told to give freed
blocks back to the system at once, so that the mark tells what is in use.
"""
import os
import subprocess
import sys


def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) / 1024


def run_case(name):
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    params = []

    def param(*shape):
        params.append((torch.randn(*shape) * 0.02).requires_grad_())
        return params[-1]

    if name == "mlp":
        x, y = torch.randn(4096, 1024), torch.randn(4096, 1024)
        for _ in range(8):
            param(1024, 1024), param(1024)

        def forward():
            h = x
            for i in range(0, 16, 2):
                h = F.linear(h, params[i], params[i + 1])
                if i + 2 < 16:
                    h = F.relu(h)
            return F.mse_loss(h, y)

    elif name == "elementwise":
        x, y = torch.randn(2048, 2048), torch.randn(2048, 2048)
        param(2048)

        def forward():
            h = x * params[0]
            for _ in range(4):
                h = torch.tanh(h * params[0] + torch.sigmoid(h))
            return ((h - y) ** 2).mean()

    else:
        x, y = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))
        for i in range(4):
            param(32, 32 if i else 3, 3, 3), param(32), param(32)
        param(10, 32 * 16 * 16), param(10)

        def forward():
            h = x
            for i in range(4):
                w, g, b = params[3 * i : 3 * i + 3]
                h = F.relu(F.batch_norm(F.conv2d(h, w, padding=1), None, None, g, b, training=True))
                if i % 2:
                    h = F.max_pool2d(h, 2)
            return F.cross_entropy(F.linear(h.flatten(1), params[12], params[13]), y)

    def step():
        forward().backward()
        with torch.no_grad():
            for p in params:
                p -= p.grad * 1e-3
                p.grad = None

    step()
    before = status("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    step()
    print(status("VmHWM") - before)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--case":
        run_case(sys.argv[2])
        return
    env = dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536")
    program = sys.argv[1] if len(sys.argv) > 1 else "build/bench/memory"
    out = subprocess.run([program], capture_output=True, text=True, check=True, env=env).stdout
    print(f"{'case':<14}{'Aril MB':>10}{'PyTorch MB':>12}{'ratio':>8}")
    for line in out.splitlines():
        name, mb = line.split()[:2]
        peer = subprocess.run(
            [sys.executable, __file__, "--case", name], capture_output=True, text=True, check=True, env=env
        )
        peer_mb = float(peer.stdout)
        print(f"{name:<14}{float(mb):>10.1f}{peer_mb:>12.1f}{peer_mb / float(mb):>8.2f}")


if __name__ == "__main__":
    main()
