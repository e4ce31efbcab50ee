"""Exported models: ONNX's checker with full shape inference takes them all, and onnxruntime, or ONNX's reference where onnxruntime
has no kernel, computes the same values.

    ARIL_EXPORT_DIR=DIR build/tests/test_onnx_export_ops && tests/peers/onnx_exports.py DIR

Without a folder, it runs that test itself."""
import collections
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import tempfile  # noqa: E402
import warnings  # noqa: E402

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import numpy_helper, reference
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

onnxruntime.set_default_logger_severity(4)
warnings.simplefilter("ignore")
BUILD = os.environ.get("ARIL_BUILD_DIR", "build")
NEWEST = 26  # the newest operator set that onnxruntime takes
RTOL, ATOL = 2e-3, 2e-4

# What the peers compute differently, or cannot: the op of the case, and why.
KNOWN = {
    "max_pool": "an index of a window that is all padding",
}


def values(folder, kind):
    result = []
    while os.path.exists(path := os.path.join(folder, "test_data_set_0", f"{kind}_{len(result)}.pb")):
        with open(path, "rb") as file:
            result.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return result


def by_onnxruntime(path, feeds):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def by_reference(path, feeds):
    return reference.ReferenceEvaluator(path).run(None, feeds)


def differ(got, want):
    if np.asarray(got).shape != want.shape:
        return f"shape {np.asarray(got).shape}, expected {want.shape}"
    if want.dtype.kind in "fc" or want.dtype.name == "bfloat16":
        got, want = np.asarray(got).astype(np.float64), want.astype(np.float64)
        scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0)))
        if not np.allclose(got, want, rtol=RTOL, atol=ATOL * scale, equal_nan=True):
            return f"values differ by {np.nanmax(np.abs(got - want)):.3g}"
        return None
    return None if np.array_equal(got, want) else "values differ"


def check(folder, count, problems):
    name = os.path.basename(folder)
    path = os.path.join(folder, "model.onnx")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(path, full_check=True)
        count["checked"] += 1
    except Exception as error:  # noqa: BLE001
        problems.append((name, f"checker: {str(error).strip().splitlines()[0][:200]}"))
        return
    names = [value.name for value in model.graph.input]
    feeds, wants = dict(zip(names, values(folder, "input"))), values(folder, "output")
    opset = model.opset_import[0].version
    why = []
    for peer, run in (("onnxruntime", by_onnxruntime), ("reference", by_reference)):
        if peer == "onnxruntime" and opset > NEWEST:
            continue
        try:
            got = run(path, feeds)
        except Exception as error:  # noqa: BLE001
            why.append(f"{peer}: {str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__}")
            continue
        found = [f"{peer}: output {i}: {text}" for i, want in enumerate(wants) if (text := differ(got[i], want))]
        if not found:
            count[peer] += 1
            return
        why += found
    problems.append((name, "; ".join(why)))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as own:
        if not folder:
            folder = own
            subprocess.run([os.path.join(BUILD, "tests", "test_onnx_export_ops")], check=True, env={**os.environ, "ARIL_EXPORT_DIR": own})
        count, problems = collections.Counter(), []
        cases = sorted(name for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, "model.onnx")))
        for name in cases:
            check(os.path.join(folder, name), count, problems)
    known = [p for p in problems if p[0].split("_")[0] in KNOWN]
    for name, text in problems:
        print("FAIL", name, text)
    print(f"{len(cases)} models: {count['checked']} pass the checker, {count['onnxruntime']} equal in onnxruntime, "
          f"{count['reference']} in the reference, {len(problems)} failed")
    return 1 if not cases or len(problems) > len(known) else 0


sys.exit(main())
