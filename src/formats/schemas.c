#include "formats/schemas.h"

/* The rows of a schema. In text a default is written as in a .proto file, without quotes. */
#define ROW(row_number, row_name, row_label, ...) \
    { .name = #row_name, .number = row_number, .label = ARIL__PROTO_##row_label, __VA_ARGS__ },
#define OPTIONAL(number, name, kind)     ROW(number, name, OPTIONAL, KIND_##kind)
#define REQUIRED(number, name, kind)     ROW(number, name, REQUIRED, KIND_##kind)
#define REPEATED(number, name, kind)     ROW(number, name, REPEATED, KIND_##kind)
#define PACKED(number, name, kind)       ROW(number, name, PACKED, KIND_##kind)
#define ONEOF(number, name, kind, group) ROW(number, name, OPTIONAL, KIND_##kind, .oneof = group)
#define DEFAULT(number, name, kind, value) \
    ROW(number, name, OPTIONAL, KIND_##kind, .initial = #value)

#define KIND_double     .kind = ARIL__PROTO_double
#define KIND_float      .kind = ARIL__PROTO_float
#define KIND_int32      .kind = ARIL__PROTO_int32
#define KIND_int64      .kind = ARIL__PROTO_int64
#define KIND_uint32     .kind = ARIL__PROTO_uint32
#define KIND_uint64     .kind = ARIL__PROTO_uint64
#define KIND_fixed32    .kind = ARIL__PROTO_fixed32
#define KIND_bool       .kind = ARIL__PROTO_bool
#define KIND_string     .kind = ARIL__PROTO_string
#define KIND_bytes      .kind = ARIL__PROTO_bytes
#define KIND_enum(e)    .kind = ARIL__PROTO_enum, .of = &NAME(e)
#define KIND_message(m) .kind = ARIL__PROTO_message, .of = &NAME(m)

#define COUNT(array)        (int)(sizeof(array) / sizeof *(array))
#define VALUE(name, number) { #name, number },
#define ENUM(name, ...)                                                                        \
    const aril__proto_enum NAME(name) = { #name, (const aril__proto_value[]){ __VA_ARGS__ },   \
                                          COUNT(((const aril__proto_value[]){ __VA_ARGS__ })), \
                                          PROTO3 };
#define MESSAGE(type_name, ...)                                               \
    static const aril__proto_field FIELDS(type_name)[] = { __VA_ARGS__ };     \
    const aril__proto_type NAME(type_name) = { .name = #type_name,            \
                                               .field = FIELDS(type_name),    \
                                               .n = COUNT(FIELDS(type_name)), \
                                               .empty = { .type = &NAME(type_name) } };

#define NAME(name)   aril__onnx_##name
#define FIELDS(name) onnx_##name
#define PROTO3       false
#include "formats/schema_onnx.def"
#undef NAME
#undef FIELDS
#undef PROTO3

#define NAME(name)   aril__caffe_##name
#define FIELDS(name) caffe_##name
#define PROTO3       false
#include "formats/schema_caffe.def"
#undef NAME
#undef FIELDS
#undef PROTO3

#define NAME(name)   aril__tensorboard_##name
#define FIELDS(name) tensorboard_##name
#define PROTO3       true
#include "formats/schema_tensorboard.def"
#undef NAME
#undef FIELDS
#undef PROTO3

#define NAME(name)   aril__tensorflow_##name
#define FIELDS(name) tensorflow_##name
#define PROTO3       true
#include "formats/schema_tensorflow.def"
#undef NAME
#undef FIELDS
#undef PROTO3

#undef ENUM
#undef MESSAGE
#define ENUM(name, ...)

#define MESSAGE(name, ...) &aril__onnx_##name,
const aril__proto_type *const aril__onnx_types[] = {
#include "formats/schema_onnx.def"
    NULL
};
#undef MESSAGE

#define MESSAGE(name, ...) &aril__caffe_##name,
const aril__proto_type *const aril__caffe_types[] = {
#include "formats/schema_caffe.def"
    NULL
};
#undef MESSAGE

#define MESSAGE(name, ...) &aril__tensorboard_##name,
const aril__proto_type *const aril__tensorboard_types[] = {
#include "formats/schema_tensorboard.def"
    NULL
};
#undef MESSAGE

#define MESSAGE(name, ...) &aril__tensorflow_##name,
const aril__proto_type *const aril__tensorflow_types[] = {
#include "formats/schema_tensorflow.def"
    NULL
};
