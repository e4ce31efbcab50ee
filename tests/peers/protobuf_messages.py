"""Protocol buffers against Google's implementation: the schemas, and random messages in both directions, in wire and text form."""
import os
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")  # not this folder, whose random.py is not Python's
import random  # noqa: E402
import tempfile  # noqa: E402

import by_ctypes  # noqa: E402,F401  (runs this program again in the environment of peers)

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
    from google.protobuf.descriptor import FieldDescriptor as F
except ImportError as missing:
    print("SKIP:", missing)
    sys.exit(77)

program = os.path.join(os.environ.get("ARIL_BUILD_DIR", by_ctypes.build), "tests", "test_proto_random")
TYPES = {name[5:].lower(): number for name, number in vars(F).items() if name.startswith("TYPE_")}
ROUNDS = int(os.environ.get("ARIL_PROTO_ROUNDS", "20"))


# ---- Aril's schemas, as it prints them -----------------------------------------------------------


class Message:
    def __init__(self, package, name):
        self.package, self.name, self.fields = package, name, []


def read_schemas(path):
    messages, enums = [], {}
    for line in open(path):
        kind, *rest = line.split(" ", 6 if line.startswith("field") else -1)
        rest = [word.rstrip("\n") for word in rest]
        if kind == "message":
            messages.append(Message(*rest))
        elif kind == "field":
            number, name, of_kind, label, oneof, tail = rest
            of, initial = tail.split(" ", 1)
            messages[-1].fields.append((int(number), name, of_kind, label, int(oneof), of, None if initial == "-" else initial))
        else:
            enums.setdefault((messages[-1].package, rest[0]), {})[rest[1]] = int(rest[2])
    return messages, enums


def classes_of(messages, enums):
    """Python classes of messages with these schemas."""
    pool = descriptor_pool.DescriptorPool()
    for package in dict.fromkeys(m.package for m in messages):
        file = descriptor_pb2.FileDescriptorProto(name=package + ".proto", package=package, syntax="proto2")
        for (where, name), values in enums.items():
            if where == package:  # in a message of its own: values of enums are names of what is around them
                scope = file.message_type.add(name="Of_" + name)
                enum = scope.enum_type.add(name=name)
                for value, number in values.items():
                    enum.value.add(name=value, number=number)
        for m in (m for m in messages if m.package == package):
            to = file.message_type.add(name=m.name)
            groups = {}
            for number, name, kind, label, oneof, of, initial in m.fields:
                f = to.field.add(name=name, number=number, type=TYPES[kind])
                f.label = {"optional": 1, "required": 2, "repeated": 3, "packed": 3}[label]
                if label == "packed":
                    f.options.packed = True
                if kind in ("message", "enum"):
                    f.type_name = f".{package}.{'Of_' + of + '.' if kind == 'enum' else ''}{of}"
                if initial is not None:
                    f.default_value = initial
                if oneof:
                    if oneof not in groups:
                        groups[oneof] = len(to.oneof_decl)
                        to.oneof_decl.add(name=f"group_{oneof}")
                    f.oneof_index = groups[oneof]
        pool.Add(file)
    return {f"{m.package}.{m.name}": message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{m.package}.{m.name}")) for m in messages}


# ---- Schemas against those of the packages -------------------------------------------------------


def compare(message, enums, theirs, whole):
    """The fields of a schema with those of a descriptor: all of them, or those that Aril has."""
    known = {f.number: f for f in theirs.fields}
    for number, name, kind, label, oneof, of, _ in message.fields:
        where = f"{message.package}.{message.name}.{name}"
        f = known.pop(number, None)
        assert f is not None and f.name == name, (where, number, f and f.name)
        assert f.type == TYPES[kind], (where, f.type)
        assert f.is_repeated == (label in ("repeated", "packed")) and f.is_required == (label == "required"), where
        packed = label == "packed" or (not whole and f.is_packed and kind == "enum")
        assert f.is_packed == packed, (where, f.is_packed)
        assert (f.containing_oneof is not None) == bool(oneof), where
        if kind == "message":
            assert f.message_type.full_name.split(".", 1)[1].replace(".", "_").endswith(of), (where, of, f.message_type.full_name)
        if kind == "enum":
            values = {v.name: v.number for v in f.enum_type.values}
            mine = enums[message.package, of]
            assert mine == values if whole else mine.items() <= values.items(), (where, mine, values)
    assert not whole or not known, (message.name, sorted(known))


def official(name):
    """Descriptors of messages that an installed package defines, by Aril's names."""
    found = {}

    def add(d, prefix=""):
        found[prefix + d.name] = d
        for nested in d.nested_types:
            add(nested, prefix + d.name + "_")

    if name == "onnx":
        from onnx import onnx_data_pb2, onnx_ml_pb2
        files = [onnx_ml_pb2, onnx_data_pb2]
    else:
        from google.protobuf import struct_pb2
        from tensorboard.compat.proto import (attr_value_pb2, event_pb2, graph_pb2, histogram_pb2, node_def_pb2, summary_pb2, tensor_pb2,
                                              tensor_shape_pb2, versions_pb2)
        from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
        from tensorboard.plugins.pr_curve import plugin_data_pb2 as curve_pb2
        from tensorboard.plugins.projector import projector_config_pb2
        files = [struct_pb2, attr_value_pb2, event_pb2, graph_pb2, histogram_pb2, node_def_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2,
                 versions_pb2, api_pb2, plugin_data_pb2, curve_pb2, projector_config_pb2]
    for file in files:
        for d in file.DESCRIPTOR.message_types_by_name.values():
            add(d)
    return found


def compare_all(messages, enums):
    compared = 0
    for package, whole in (("onnx", True), ("tensorboard", False)):
        try:
            theirs = official(package)
        except ImportError as missing:
            print("not compared:", missing)
            continue
        mine = [m for m in messages if m.package == package]
        for m in mine:
            compare(m, enums, theirs[m.name], whole)
        assert not whole or {m.name for m in mine} == set(theirs), {m.name for m in mine} ^ set(theirs)
        compared += len(mine)
    return compared


# ---- Random messages -----------------------------------------------------------------------------

CORNERS = [0, 1, -1, 127, 128, 300, 2 ** 31 - 1, -2 ** 31, 2 ** 32 - 1, 2 ** 63 - 1, -2 ** 63, 2 ** 64 - 1]
NUMBERS = [0.0, -0.0, 1.0, 0.1, 1e-45, 3.4028234e38, 1e300, float("inf"), float("-inf"), float("nan"), 16777217.0, 1 / 3, 123456.789]
RANGES = {F.CPPTYPE_INT32: (-2 ** 31, 2 ** 31), F.CPPTYPE_INT64: (-2 ** 63, 2 ** 63), F.CPPTYPE_UINT32: (0, 2 ** 32), F.CPPTYPE_UINT64: (0, 2 ** 64)}


def random_value(f):
    if f.cpp_type in RANGES:
        low, high = RANGES[f.cpp_type]
        return random.choice([v for v in CORNERS if low <= v < high] + [random.randrange(low, high)])
    if f.cpp_type in (F.CPPTYPE_FLOAT, F.CPPTYPE_DOUBLE):
        value = random.choice(NUMBERS + [random.gauss(0, 100)])
        return value if f.cpp_type == F.CPPTYPE_DOUBLE or abs(value) < 3.4e38 else 2.5
    if f.cpp_type == F.CPPTYPE_BOOL:
        return random.random() < 0.5
    if f.cpp_type == F.CPPTYPE_ENUM:
        return random.choice(f.enum_type.values).number
    if f.type == F.TYPE_BYTES:
        return random.randbytes(random.randrange(12))
    return "".join(random.choice("ab \"'\\\n\t\r\0\x01\x7fé€😀#?") for _ in range(random.randrange(8)))


def fill(m, depth):
    for f in m.DESCRIPTOR.fields:
        if not f.is_required and (depth == 0 or random.random() > (0.12 if len(m.DESCRIPTOR.fields) > 20 else 0.35)):
            continue
        times = random.randrange(1, 5) if f.is_repeated else 1
        for _ in range(times):
            if f.message_type:
                sub = getattr(m, f.name)
                sub = sub.add() if f.is_repeated else sub
                sub.SetInParent()
                fill(sub, depth - 1)
            elif f.is_repeated:
                getattr(m, f.name).append(random_value(f))
            else:
                setattr(m, f.name, random_value(f))
    return m


def put(to, data):
    to.write(struct.pack("<I", len(data)) + data)


def records(path):
    with open(path, "rb") as f:
        while head := f.read(4):
            yield f.read(struct.unpack("<I", head)[0])


def wire_of(m):
    return m.SerializeToString(deterministic=True)


def parse_text(cls, text):
    return text_format.Parse(text.decode(), cls())


def run(**environment):
    subprocess.run([program, "for_peers"], check=True, env=dict(os.environ, **environment), stdout=subprocess.DEVNULL)


with tempfile.TemporaryDirectory() as folder:
    path = {name: os.path.join(folder, name) for name in ("schemas", "random", "cases", "answers")}
    run(ARIL_PROTO_SCHEMAS=path["schemas"], ARIL_PROTO_RANDOM=path["random"])
    messages, enums = read_schemas(path["schemas"])
    compared = compare_all(messages, enums)
    classes = classes_of(messages, enums)

    random.seed(1)
    asked = []
    with open(path["cases"], "wb") as f:
        for _ in range(ROUNDS):
            for name, cls in classes.items():
                m = fill(cls(), 4)
                asked.append((name, wire_of(m)))
                put(f, name.encode())
                put(f, asked[-1][1])
                put(f, text_format.MessageToString(m, as_one_line=random.random() < 0.3, as_utf8=random.random() < 0.5,
                                                   pointy_brackets=random.random() < 0.2, use_short_repeated_primitives=random.random() < 0.5).encode())
    run(ARIL_PROTO_CASES=path["cases"], ARIL_PROTO_ANSWERS=path["answers"])
    answers = list(records(path["answers"]))
    assert len(answers) == 3 * len(asked), (len(answers), len(asked))
    for i, (name, wire) in enumerate(asked):
        again, text, parsed = answers[3 * i: 3 * i + 3]
        assert again == wire, (name, wire.hex(), again.hex())
        assert parsed == wire, (name, wire.hex(), parsed.hex())
        assert wire_of(parse_text(classes[name], text)) == wire, (name, text.decode())

    made = list(records(path["random"]))
    for name, wire, text in zip(made[0::3], made[1::3], made[2::3]):
        cls = classes[name.decode()]
        assert wire_of(cls.FromString(wire)) == wire, (name, wire.hex())
        assert wire_of(parse_text(cls, text)) == wire, (name, text.decode())
print(f"{compared} messages have the schemas of onnx and tensorboard; {len(asked)} random messages of Python's and {len(made) // 3} of Aril's "
      "are the same for both")
