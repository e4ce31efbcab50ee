"""Random calls of Aril's tensor functions, compared with PyTorch: values, gradients and second derivatives.

    random.py [--seed N] [--seconds S | --cases N] [--only NAME,... | --networks | --optimizers] [--autocast] [--jobs N] [--list]

Shapes, memory order, dtypes, special values and attributes are random; one call in seven is made wrong on purpose. What decides is
PyTorch's result in f64 (random_cases/engine.py says how). Where one side gives an error and the other does not, that is a failure too,
unless random_cases/intended.py holds a reason. Each case has a seed of its own, and a failure comes with the command that repeats it.
With --autocast, calls are made in autocast regions of both, in bf16 or f16. With ARIL_TEST_DEVICE=strict, they are made on the device of
tests/plugin/strict.c, behind `ninja -C build tests/libaril_strict.so`.
With --networks, cases are random networks, each trained for 20 steps in both (random_cases/networks.py); with --optimizers, random
steps of optimizers on given gradients (random_cases/optimizers.py); without options, all of them run.
Cases run in a child process: one that ends it, or does not end in time, is reported and the rest goes on.

Under AddressSanitizer, with a library configured by -DARIL_SANITIZE=address,undefined in build-asan:

    export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 ARIL_PEERS_VENV=/path/to/an/environment/with/torch
    ARIL_BUILD_DIR=build-asan LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so.6)" \\
        python3 tests/peers/random.py --seconds 600
"""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[0] = os.path.join(here, "..", "support")  # and not this folder, in which `random` is this program
import by_ctypes  # noqa: E402,F401  (goes on in the environment that has PyTorch)

import argparse  # noqa: E402
import collections  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import select  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402

try:
    import torch
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)


def load():
    """random_cases, which lies in this folder."""
    folder = os.path.join(here, "random_cases")
    spec = importlib.util.spec_from_file_location("random_cases", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    sys.modules["random_cases"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


cases = load()
TIMEOUT = 30  # seconds for one case
BATCH = 2000  # cases of one child
NETWORK, OPTIMIZER = "a network", "an optimizer"
HOW = {NETWORK: "--networks", OPTIMIZER: "--optimizers"}


# ---- Coverage --------------------------------------------------------------------------------------------


def uncovered():
    """Tensor functions of the public headers that no row names, but for those that cases.EXCLUDED has a reason for."""
    functions = set()
    for header in cases.HEADERS:
        with open(os.path.join(by_ctypes.root, "include", "aril", header + ".h")) as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        functions |= set(re.findall(r"\b(?:aril_tensor \*|aril_status\s+)aril_([a-z0-9_]+)\(", text))
    excluded = {name for name in functions if any(re.fullmatch(p, name) for p in cases.EXCLUDED)}
    return sorted(functions - excluded - set(cases.rows)), len(functions), len(excluded)


def print_coverage():
    missing, total, excluded = uncovered()
    print(f"{len(cases.rows)} of {total} functions have a row, {excluded} are left out for a reason")
    if missing:
        print("without a row: " + ", ".join(missing))


# ---- A child that runs cases ---------------------------------------------------------------------------------


def name_of(seed, names):
    return names[(seed * 2654435761 + (seed >> 7)) % len(names)]


def work(seeds, names, autocast, to):
    """Runs cases; writes lines as each is begun, and one at its end."""
    os.environ["ARIL_THREADS"] = os.environ.get("ARIL_THREADS", "2")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    by_ctypes.use_device()
    for seed in seeds:
        name = name_of(seed, names)

        def progress(inputs):
            to.write(json.dumps([seed, name, "begun", inputs]) + "\n")
            to.flush()

        try:
            if name in HOW:
                failure = (cases.run_network if name == NETWORK else cases.run_optimizer)(seed, name, progress)
            else:
                failure = cases.run_case(seed, name, progress, autocast)
        except Exception:
            failure = ("this program", traceback.format_exc(limit=-4), "")
        to.write(json.dumps([seed, name, "failed" if failure else "passed", failure]) + "\n")
    to.flush()


class Child:
    """A process with a part of the cases: seeds first, first + jobs, ..."""

    def __init__(self, seed, arguments, names):
        self.next, self.jobs, self.buffer, self.at, self.since = seed, arguments.jobs, b"", None, time.time()
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            if arguments.quiet:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "w") as to:
                work(range(seed, min(seed + BATCH * self.jobs, arguments.end), self.jobs), names, arguments.autocast, to)
            os._exit(0)
        os.close(writer)
        self.fd = reader

    def lines(self):
        """What it has reported; None at its end."""
        data = os.read(self.fd, 1 << 16)
        *complete, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in complete], not data

    def end(self, kill=False):
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        return os.waitpid(self.pid, 0)[1]


class Tally:
    def __init__(self, autocast):
        self.autocast, self.passed, self.failures, self.per_function = autocast, 0, collections.defaultdict(list), collections.Counter()

    def add(self, seed, name, failure):
        self.per_function[name] += 1
        if not failure:
            self.passed += 1
            return
        kind, text, inputs = failure
        reason = cases.intended(name, kind, text, inputs)
        if reason:
            self.passed += 1
            return
        known = self.failures[(name, kind)]
        known.append(seed)
        if len(known) <= 1:
            how = HOW.get(name, f"--only {name}")
            how += " --autocast" if self.autocast else ""
            print(f"FAIL {name}: {kind}: {text}\n     {inputs}\n     python3 tests/peers/random.py --seed {seed} --cases 1 {how}", flush=True)

    def report(self):
        if self.failures:
            print("\nfailures, by function:")
        for (name, kind), seeds in sorted(self.failures.items()):
            print(f"  {name}: {kind}: {len(seeds)} of {self.per_function[name]} cases, such as seeds {', '.join(map(str, seeds[:4]))}")
        failed = sum(map(len, self.failures.values()))
        print(f"{self.passed} passed, {failed} failed")
        return failed


def follow(child, tally):
    """Takes what a child reports. Gives the seed that goes on after it, or None while it runs."""
    lines, ended = child.lines()
    for seed, name, state, what in lines:
        child.since = time.time()
        child.at = (seed, name, what) if state == "begun" else None
        if state != "begun":
            tally.add(seed, name, what)
            child.next = seed + child.jobs
    if not ended:
        return None
    status = child.end()
    if child.at:
        give_up(child, "crash", describe_end(status), tally)
    return child.next


def give_up(child, kind, text, tally):
    """The case that a child was at ended it. Where it was PyTorch's turn, that is not held against Aril."""
    seed, name, inputs = child.at
    tally.add(seed, name, (kind, text, inputs) if inputs is not None else None)
    child.next = seed + child.jobs


def describe_end(status):
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"the process ended with status {os.WEXITSTATUS(status)}"


def run(arguments, names):
    tally, deadline = Tally(arguments.autocast), time.time() + arguments.seconds if arguments.seconds else None
    children = [Child(arguments.seed + i, arguments, names) for i in range(arguments.jobs)]
    while children:
        ready = select.select([c.fd for c in children], [], [], 1)[0]
        late = deadline is not None and time.time() > deadline
        for child in list(children):
            after = follow(child, tally) if child.fd in ready else None
            if after is None and time.time() - child.since > arguments.timeout and child.at:
                child.end(kill=True)
                give_up(child, "hang", f"no end after {arguments.timeout:g} seconds", tally)
                after = child.next
            elif after is None and late:
                child.end(kill=True)
                after = arguments.end
            if after is not None:
                children.remove(child)
                if after < arguments.end and not late:
                    children.append(Child(after, arguments, names))
    return tally.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="run so long")
    parser.add_argument("--cases", type=int, default=0, help="run so many; default, without --seconds: 12000, 40 networks and 400 optimizers")
    parser.add_argument("--only", default="", help="functions, without aril_, separated by commas")
    parser.add_argument("--networks", action="store_true", help="train random networks")
    parser.add_argument("--optimizers", action="store_true", help="take steps of optimizers")
    parser.add_argument("--autocast", action="store_true", help="make calls in autocast regions")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds for one case")
    parser.add_argument("--quiet", action="store_true", help="drop what the library and PyTorch write to stderr")
    parser.add_argument("--list", action="store_true", help="print the functions that have a row, and those that have none")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(sorted(cases.rows)))
        print_coverage()
        return 0
    special = [NETWORK] if arguments.networks else [OPTIMIZER] if arguments.optimizers else None
    names = special or sorted(arguments.only.split(",") if arguments.only else cases.rows)
    for name in names:
        if name not in cases.rows and not special:
            parser.error(f"no row for {name}; --list names them")
    short = not (arguments.cases or arguments.seconds or arguments.only or special)
    count = arguments.cases or (1 << 62 if arguments.seconds else 12000)
    arguments.end = arguments.seed + count
    print_coverage()
    failed = run(arguments, names)
    if short:
        for name, count in ((NETWORK, 40), (OPTIMIZER, 400)):
            arguments.end = arguments.seed + count
            failed += run(arguments, [name])
    return 1 if failed else 0


sys.exit(main())
