/* The schemas of protocol buffers that Aril reads and writes. A message M of a file
 * schema_PACKAGE.def is &aril__PACKAGE_M; a nested one is named Outer_Inner. */
#ifndef ARIL_FORMATS_SCHEMAS_H
#define ARIL_FORMATS_SCHEMAS_H

#include "formats/proto.h"

#define MESSAGE(name, ...) extern const aril__proto_type aril__onnx_##name;
#define ENUM(name, ...)    extern const aril__proto_enum aril__onnx_##name;
#include "formats/schema_onnx.def"
#undef MESSAGE
#undef ENUM

#define MESSAGE(name, ...) extern const aril__proto_type aril__caffe_##name;
#define ENUM(name, ...)    extern const aril__proto_enum aril__caffe_##name;
#include "formats/schema_caffe.def"
#undef MESSAGE
#undef ENUM

#define MESSAGE(name, ...) extern const aril__proto_type aril__tensorboard_##name;
#define ENUM(name, ...)    extern const aril__proto_enum aril__tensorboard_##name;
#include "formats/schema_tensorboard.def"
#undef MESSAGE
#undef ENUM

#define MESSAGE(name, ...) extern const aril__proto_type aril__tensorflow_##name;
#define ENUM(name, ...)    extern const aril__proto_enum aril__tensorflow_##name;
#include "formats/schema_tensorflow.def"
#undef MESSAGE
#undef ENUM

/* The messages of each schema, up to a NULL. */
extern const aril__proto_type *const aril__onnx_types[];
extern const aril__proto_type *const aril__caffe_types[];
extern const aril__proto_type *const aril__tensorboard_types[];
extern const aril__proto_type *const aril__tensorflow_types[];

#endif
