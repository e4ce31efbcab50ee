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
END = os.environ.get("ARIL_EXPORT_END", "")  # of the names of the cases to run: "_18" is an operator set

# What the peers compute differently, or cannot: the op of the case, and why.
KNOWN = {
    "conv_9_grad": "a batch of 0 samples, which are channels in the gradient of the weight",
    "conv_add_4_grad": "a batch of 0 samples, too",
    "cross_entropy_7": "a batch of 0 samples, for which ONNX's reference writes to an array that is read-only",
    "cross_entropy_7_grad": "as cross_entropy_7",
}


def values(folder, kind):
    result = []
    while os.path.exists(path := os.path.join(folder, f"{kind}_{len(result)}.pb")):
        with open(path, "rb") as file:
            result.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read())))
    return result


def by_onnxruntime(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def by_older(path):
    """onnxruntime with a model of a newer operator set, if none of its operators has changed since."""
    model = onnx.load(path)
    graphs, newer = [model.graph], []
    while graphs:
        for node in graphs.pop().node:
            newer += [node.op_type] if onnx.defs.get_schema(node.op_type, model.opset_import[0].version).since_version > NEWEST else []
            graphs += [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    if newer:
        raise ValueError(f"{newer[0]} is newer than operator set {NEWEST}")
    model.opset_import[0].version, model.ir_version = NEWEST, min(model.ir_version, 13)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def by_reference(path):
    model = reference.ReferenceEvaluator(path)
    return lambda feeds: model.run(None, feeds)


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


def by_name(folder):
    result = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            result[name.removesuffix("_0.pb")] = numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
    return result


def train(path, folder, names, sets):
    """Steps of training in onnxruntime, each fed with the state that the last one left."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    results = [value.name for value in session.get_outputs()]
    state, found = {}, []
    for k, data in enumerate(sets):
        got = dict(zip(results, session.run(None, {**dict(zip(names, values(data, "input"))), **state})))
        state = {name.removesuffix(".next"): value for name, value in got.items() if name.endswith(".next")}
        if text := differ(got[results[0]], values(data, "output")[0]):
            found.append(f"loss of step {k}: {text}")
    final = by_name(os.path.join(folder, "final"))
    found += [f"{name} after {len(sets)} steps: {text}" for name, value in final.items() if (text := differ(state[name], value))]
    return found


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
    sets = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("test_data_set_"))
    opset = model.opset_import[0].version
    if os.path.isdir(os.path.join(folder, "final")):
        found = train(path, folder, names, sets)
        count["onnxruntime"] += not found
        problems += [(name, text) for text in found]
        return
    why = []
    for peer, start in (("onnxruntime", by_onnxruntime), ("reference", by_reference), ("older", by_older)):
        if (peer == "onnxruntime" and opset > NEWEST) or (peer == "older" and opset <= NEWEST):
            continue
        found = []
        try:
            run = start(path)
            for data in sets:
                got = run(dict(zip(names, values(data, "input"))))
                found += [f"{peer}: output {i}: {text}" for i, want in enumerate(values(data, "output")) if (text := differ(got[i], want))]
        except Exception as error:  # noqa: BLE001
            found = [f"{peer}: {str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__}"]
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
            for test in ("test_onnx_export", "test_onnx_export_ops", "test_onnx_rewrite"):
                subprocess.run([os.path.join(BUILD, "tests", test)], check=True, env={**os.environ, "ARIL_EXPORT_DIR": own})
        count, problems = collections.Counter(), []
        cases = sorted(name for name in os.listdir(folder) if os.path.exists(os.path.join(folder, name, "model.onnx")))
        cases = [name for name in cases if name.endswith(END)]
        for name in cases:
            before = len(problems)
            check(os.path.join(folder, name), count, problems)
            for _, text in problems[before:]:
                print("FAIL", name, text, flush=True)
    known = [p for p in problems if p[0].rsplit("_", 1)[0] in KNOWN]
    print(f"{len(cases)} models: {count['checked']} pass the checker, {count['onnxruntime']} equal in onnxruntime, "
          f"{count['reference']} in the reference, {count['older']} in onnxruntime as operator set {NEWEST}, {len(problems)} failed")
    return 1 if not cases or len(problems) > len(known) else 0


sys.exit(main())
