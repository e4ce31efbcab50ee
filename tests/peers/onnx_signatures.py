"""The signatures of ONNX's operators, from the schemas of onnx and onnxruntime.

    tests/peers/onnx_signatures.py [--write]      --write: as src/onnx/signatures.def and types.def; else compares these files"""
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(sys.path[0])  # not this folder, whose random.py is not Python's
try:
    import onnx.defs
    import onnxruntime.capi.onnxruntime_pybind11_state as ort
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FILE = os.path.join(ROOT, "src", "onnx", "signatures.def")
TYPES_FILE = os.path.join(ROOT, "src", "onnx", "types.def")
KINDS = {"INT": "i", "FLOAT": "f", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "p", "TYPE_PROTO": "y",
         "INTS": "I", "FLOATS": "F", "STRINGS": "S", "TENSORS": "T", "GRAPHS": "G", "SPARSE_TENSORS": "P", "TYPE_PROTOS": "Y"}

# What a text may say: schemas have this only in their documentation. onnxruntime also takes an empty auto_pad.
TREE_MODES = "BRANCH_LEQ|BRANCH_LT|BRANCH_GTE|BRANCH_GT|BRANCH_EQ|BRANCH_NEQ|LEAF"
WORDS = {
    "auto_pad": "NOTSET|SAME_UPPER|SAME_LOWER|VALID|",
    "post_transform": "NONE|SOFTMAX|LOGISTIC|SOFTMAX_ZERO|PROBIT",
    "kernel_type": "LINEAR|POLY|RBF|SIGMOID",
    "aggregate_function": "AVERAGE|SUM|MIN|MAX",
    "nodes_modes": TREE_MODES + "|BRANCH_MEMBER",
    "RNN.direction": "forward|reverse|bidirectional",
    "GRU.direction": "forward|reverse|bidirectional",
    "LSTM.direction": "forward|reverse|bidirectional",
    "BitShift.direction": "LEFT|RIGHT",
    "Cast.round_mode": "up|down|nearest",
    "CastLike.round_mode": "up|down|nearest",
    "CausalConvWithState.activation": "silu|swish|none",
    "DepthToSpace.mode": "DCR|CRD",
    "SpaceToDepth.mode": "DCR|CRD",
    "Gelu.approximate": "none|tanh",
    "GridSample.mode": "linear|nearest|cubic|bilinear|bicubic",
    "GridSample.padding_mode": "zeros|border|reflection",
    "ImageDecoder.pixel_format": "RGB|BGR|Grayscale",
    "LinearAttention.update_rule": "linear|gated|delta|gated_delta",
    "Momentum.mode": "standard|nesterov",
    "NegativeLogLikelihoodLoss.reduction": "none|sum|mean",
    "SoftmaxCrossEntropyLoss.reduction": "none|sum|mean",
    "Normalizer.norm": "MAX|L1|L2",
    "Pad.mode": "constant|reflect|edge|wrap",
    "Resize.mode": "nearest|linear|cubic",
    "Resize.coordinate_transformation_mode": "half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric|"
                                             "tf_half_pixel_for_nn|tf_crop_and_resize",
    "Resize.nearest_mode": "round_prefer_floor|round_prefer_ceil|floor|ceil|simple",
    "Resize.keep_aspect_ratio_policy": "stretch|not_larger|not_smaller",
    "RoiAlign.mode": "avg|max",
    "RoiAlign.coordinate_transformation_mode": "half_pixel|output_half_pixel",
    "ScatterElements.reduction": "none|add|mul|max|min",
    "ScatterND.reduction": "none|add|mul|max|min",
    "StringNormalizer.case_change_action": "LOWER|UPPER|NONE",
    "TensorScatter.mode": "linear|circular",
    "TfIdfVectorizer.mode": "TF|IDF|TFIDF",
    "Upsample.mode": "nearest|linear|bilinear|cubic",
}
# Required by a schema, and left out by exporters: attributes, and inputs of a version.
OPTIONAL = {("BatchNormalization", "consumed_inputs")}
INPUTS = {("Resize", 11): "rooo"}

HEADER = """/* What the operators of ONNX take, as `tests/peers/onnx_signatures.py --write` reads it from their
 * schemas: domain, name, the first version that it is for; inputs and outputs; attributes.
 *
 * A letter for each input or output: r required, o optional, + one or more, * any number. An
 * attribute is name:kind, with ! if it is required, then the words that a text may be. Kinds: f
 * float, i integer, s text, t tensor, g graph, p sparse tensor, y type, capitals for lists of them.
 *
 * Rows are sorted by domain, name and version. */
"""

TYPES_HEADER = """/* The types that the operators of ONNX's default domain take, as
 * `tests/peers/onnx_signatures.py --write` reads them from their schemas: name, the first version
 * that it is for; a letter for each input and output, of which those with the same letter have the
 * same type, the last one for all that follow (. for one of any type); for each letter from A on
 * the types: bit N is ONNX's number N of a dtype, bit 0 all that is not a tensor.
 *
 * Rows are sorted by name and version. */
"""


def supported():
    """Domain and name -> the first version, as the documentation lists them."""
    found = {}
    with open(os.path.join(ROOT, "docs", "onnx-operators.md"), encoding="utf-8") as f:
        for line in f:
            row = re.match(r"\| (\w+) \| ([\w.]+) \| (\d+) to (\d+) \|", line)
            if row:
                domain = "" if row[2] == "ai.onnx" else row[2]
                key = (domain, row[1])
                found[key] = (min(int(row[3]), found.get(key, (99, 0))[0]), max(int(row[4]), found.get(key, (0, 0))[1]))
    return found


def option(formal):
    return str(formal.option).split(".")[-1].split(":")[0].strip("<> ")


def letters(formals, least):
    """One letter for each; a variadic one, which is the last, as many required ones as it needs."""
    text = ""
    for formal in formals:
        kind = option(formal)
        text += {"Single": "r", "Optional": "o"}.get(kind) or ("+" if least > len(text) else "*")
    return text


def kind_of(attribute):
    value = getattr(attribute, "type", None)
    return KINDS[str(value).split(".")[-1]]


def attributes(op, schema):
    words = []
    for name in sorted(schema.attributes):
        a = schema.attributes[name]
        kind = kind_of(a)
        text = f"{name}:{kind}" + ("!" if a.required and (op, name) not in OPTIONAL else "")
        allowed = WORDS.get(f"{op}.{name}") or WORDS.get(name)
        if allowed and kind in "sS":
            text += "=" + allowed
        words.append(text)
    assert len(words) <= 64
    return words


def row(domain, op, version, schema):
    inputs = INPUTS.get((op, schema.since_version)) or letters(schema.inputs, schema.min_input)
    start = f'SIG("{domain}", "{op}", {version}, "{inputs}", ' \
            f'"{letters(schema.outputs, schema.min_output)}",'
    lines, line = [start], '    "'
    for i, word in enumerate(attributes(op, schema)):
        part = (" " if i else "") + word
        if len(line) + len(part) > 96 and len(line) > 5:
            lines.append(line + '"')
            line = '    "'
        while len(line) + len(part) > 98:  # a list of words that is longer than a line
            cut = part.rindex("|", 0, 97 - len(line)) + 1
            lines.append(line + part[:cut] + '"')
            line, part = '    "', part[cut:]
        line += part
    lines.append(line + '")')
    if len(lines) == 2 and len(lines[0]) + len(lines[1]) - 3 <= 100:
        return [lines[0] + " " + lines[1].strip()]
    return lines


def table():
    schemas = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        schemas.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    for schema in ort.get_all_operator_schema():  # those that only onnxruntime has
        key = ("" if schema.domain == "ai.onnx" else schema.domain, schema.name)
        if key not in schemas or key[0] == "com.microsoft":
            schemas.setdefault(key, {})[schema.since_version] = schema
    text = HEADER
    for key, (first, last) in sorted(supported().items()):
        if key not in schemas:
            print("no schema:", *key)
            continue
        before = None
        versions = sorted(schemas[key])
        for i, version in enumerate(versions):
            if schemas[key][version].deprecated or version > last:
                continue
            if i + 1 < len(versions) and versions[i + 1] <= first and not schemas[key][versions[i + 1]].deprecated:
                continue
            now = row(*key, "@", schemas[key][version])
            if now == before:
                continue
            before = now
            text += "\n".join(row(*key, version, schemas[key][version])) + "\n"
    return text


def type_mask(allowed):
    numbers = {f"tensor({name.lower()})": number for name, number in onnx.TensorProto.DataType.items()}
    mask = 0
    for name in allowed:
        mask |= 1 << numbers.get(name, 0)
    return mask


def types_row(name, schema, version):
    """The row of a version, or None for an operator without inputs and outputs of a type."""
    constraints = {c.type_param_str: type_mask(c.allowed_type_strs) for c in schema.type_constraints}
    letter, masks = {}, []

    def letter_of(formal):
        if option(formal) == "Variadic" and not formal.is_homogeneous:
            return "."
        if formal.type_str not in letter:
            letter[formal.type_str] = chr(ord("A") + len(masks))
            masks.append(constraints.get(formal.type_str, type_mask([formal.type_str])))
        return letter[formal.type_str]

    ins = "".join(letter_of(f) for f in schema.inputs)
    outs = "".join(letter_of(f) for f in schema.outputs)
    return f'TYPES("{name}", {version}, "{ins}", "{outs}", ' + ", ".join(f"0x{m:x}" for m in masks or [0]) + ")"


def types_table():
    schemas = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas.setdefault(schema.name, {})[schema.since_version] = schema
    text = TYPES_HEADER
    for domain, name in sorted(supported()):
        before = None
        for version in sorted(schemas.get(name, {}) if domain == "" else {}):
            if schemas[name][version].deprecated:
                continue
            now = types_row(name, schemas[name][version], "@")
            if now != before:
                text += types_row(name, schemas[name][version], version) + "\n"
            before = now
    return text


if __name__ == "__main__":
    differs = False
    for path, made in ((FILE, table()), (TYPES_FILE, types_table())):
        if sys.argv[1:] == ["--write"]:
            with open(path, "w", encoding="utf-8") as f:
                f.write(made)
            continue
        with open(path, encoding="utf-8") as f:
            same = f.read() == made
        print(f"{os.path.basename(path)}: as the schemas" if same else f"{path} differs: --write makes it again")
        differs |= not same
    sys.exit(differs)
