"""Operators of com.microsoft and ai.onnx.ml, products of integers, and what importers trip over: outputs equal onnxruntime's.

    tests/peers/onnx_cases.py [--write FILE]      --write: the cases as tests/onnx/cases.bin, for tests/onnx/test_onnx_cases.c"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402

try:
    import small_onnx
    import onnxruntime
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

TOOL = os.path.join(os.environ.get("ARIL_BUILD_DIR", "build"), "bin", "aril")


def run(folder, cases):
    """Runs `aril test-onnx` on cases of one tolerance."""
    for case in cases:
        case.write(folder)
    first = cases[0]
    command = [TOOL, "test-onnx", "--rtol", str(first.rtol), "--atol", str(first.atol), folder]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


if sys.argv[1:2] == ["--write"]:
    small_onnx.archive(sys.argv[2])
    sys.exit()
by_tolerance, without = {}, []
for case in small_onnx.cases():
    try:
        case.run()
        by_tolerance.setdefault((case.rtol, case.atol), []).append(case)
    except Exception as error:  # noqa: BLE001
        without.append((case.name, str(error).strip().splitlines()[0][:160]))
failed = False
for cases in by_tolerance.values():
    with tempfile.TemporaryDirectory() as work:
        code, text = run(work, cases)
        failed |= code != 0
        print(text, end="")
for name, why in without:
    print(f"not in onnxruntime: {name}: {why}")
print(f"{sum(map(len, by_tolerance.values()))} cases beside onnxruntime {onnxruntime.__version__}")
sys.exit(failed)
