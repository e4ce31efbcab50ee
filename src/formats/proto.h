/* Protocol buffers by schema tables: messages in memory, their wire form and their text form.
 *
 * A schema is data (formats/schemas.h): a type lists its fields, in ascending order of their
 * numbers. Messages of all types share one implementation, and fields are accessed by name:
 *
 *     aril__message *net = aril__message_read(&aril__caffe_NetParameter, data, size, opts);
 *     for (size_t i = 0; i < aril__message_count(net, "layer"); i++)
 *         puts(aril__message_text(aril__message_sub_at(net, "layer", i), "type"));
 *     aril__message_free(net);
 *
 * A name that the type does not have, or a field of another kind, is a bug of the caller and stops
 * at an assertion: names come from programs, never from files. */
#ifndef ARIL_FORMATS_PROTO_H
#define ARIL_FORMATS_PROTO_H

#include "aril/base.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"

/* ---- schemas ---- */

typedef enum aril__proto_kind {
    ARIL__PROTO_double,
    ARIL__PROTO_float,
    ARIL__PROTO_int32,
    ARIL__PROTO_int64,
    ARIL__PROTO_uint32,
    ARIL__PROTO_uint64,
    ARIL__PROTO_sint32,
    ARIL__PROTO_sint64,
    ARIL__PROTO_fixed32,
    ARIL__PROTO_fixed64,
    ARIL__PROTO_sfixed32,
    ARIL__PROTO_sfixed64,
    ARIL__PROTO_bool,
    ARIL__PROTO_enum,
    ARIL__PROTO_string,
    ARIL__PROTO_bytes,
    ARIL__PROTO_message,
} aril__proto_kind;

typedef enum aril__proto_label {
    ARIL__PROTO_OPTIONAL,
    ARIL__PROTO_REQUIRED,
    ARIL__PROTO_REPEATED,
    ARIL__PROTO_PACKED, /* repeated, and written packed; both forms are read */
} aril__proto_label;

typedef struct aril__proto_field {
    const char *name;
    uint32_t number;
    uint8_t kind, label; /* aril__proto_kind, aril__proto_label */
    uint8_t oneof;       /* fields with the same number other than 0 exclude each other */
    const void *of;      /* the aril__proto_type or aril__proto_enum of the values */
    const char *initial; /* the default, as text; NULL: 0, false, "" or the first of an enum */
} aril__proto_field;

typedef struct aril__proto_value {
    const char *name;
    int32_t number;
} aril__proto_value;

typedef struct aril__proto_enum {
    const char *name;
    const aril__proto_value *value;
    int n;
    /* Of a proto3 file: fields may have other numbers. Otherwise these are errors in text form, and
     * unknown fields in wire form. */
    bool open;
} aril__proto_enum;

/* A message in memory. The members are private to formats/proto_*.c. */
typedef struct aril__message {
    const struct aril__proto_type *type;
    struct aril__message_owner *owner; /* the memory of the whole tree */
    struct aril__slot *slot;           /* the fields that are set, by ascending number */
    uint32_t n, capacity;
    struct aril__unknown *unknown; /* fields that the schema does not have, as wire bytes */
    uint64_t where;                /* read from wire form: the offset; from text: the line */
    size_t size;                   /* in wire form, while it is being written */
} aril__message;

typedef struct aril__proto_type {
    const char *name;
    const aril__proto_field *field;
    int n;
    aril__message empty; /* stands for a message that is not set */
} aril__proto_type;

/* The field or value of that name or number; NULL if there is none. */
const aril__proto_field *aril__proto_field_named(const aril__proto_type *type, const char *name);
const aril__proto_field *aril__proto_field_numbered(const aril__proto_type *type, uint32_t number);
const aril__proto_value *aril__proto_value_named(const aril__proto_enum *e, const char *name);
const aril__proto_value *aril__proto_value_numbered(const aril__proto_enum *e, int32_t number);

/* ---- messages ---- */

/* A new, empty message: the root of a tree that shares its memory. NULL, with an error, when out of
 * memory. */
aril__message *aril__message_new(const aril__proto_type *type);

/* Frees a root and all below it. NULL is allowed. */
void aril__message_free(aril__message *root);

/* Removes everything from a root, whose memory is used again. */
void aril__message_reset(aril__message *root);

/* Whether both have the same type, fields and values, bit by bit, and the same unknown fields. */
bool aril__message_equal(const aril__message *a, const aril__message *b);

/* "line 12" or "byte 3456", where the message began in the file it was read from. Writes to buf. */
const char *aril__message_place(const aril__message *m, char *buf, size_t size);
/* The same of a single field, as far as it was read from text; otherwise of the message. */
const char *aril__message_field_place(const aril__message *m, const char *name, char *buf,
                                      size_t size);

/* ---- getting ---- */

typedef struct aril__slice {
    const void *at;
    size_t n;
} aril__slice;

/* Whether a field is set; how many values it has. */
bool aril__message_has(const aril__message *m, const char *name);
size_t aril__message_count(const aril__message *m, const char *name);

/* The value of a field, or its default if it is not set: of an integer, bool or enum; of any
 * number; of a string, which ends with NUL; of a string or bytes; of a message, whose defaults are
 * those of an empty one. */
int64_t aril__message_int(const aril__message *m, const char *name);
double aril__message_number(const aril__message *m, const char *name);
const char *aril__message_text(const aril__message *m, const char *name);
aril__slice aril__message_bytes(const aril__message *m, const char *name);
const aril__message *aril__message_sub(const aril__message *m, const char *name);

/* The name of an enum's value, or its default's; "?" if the schema does not have it. */
const char *aril__message_value(const aril__message *m, const char *name);

/* Value i of a repeated field; zero, empty or NULL beyond the last. */
int64_t aril__message_int_at(const aril__message *m, const char *name, size_t i);
double aril__message_number_at(const aril__message *m, const char *name, size_t i);
const char *aril__message_text_at(const aril__message *m, const char *name, size_t i);
aril__slice aril__message_bytes_at(const aril__message *m, const char *name, size_t i);
aril__message *aril__message_sub_at(const aril__message *m, const char *name, size_t i);

/* The values of a repeated number as they lie in memory: little-endian, `width` bytes each (1 for
 * bool, 4 or 8), in no particular alignment. They refer to the input if they lay there in that
 * form. */
typedef struct aril__proto_array {
    const void *at;
    size_t n, width;
} aril__proto_array;
aril__proto_array aril__message_array(const aril__message *m, const char *name);

/* Finds a number, in m or a message below it, that is NaN, or with `infinite` NaN or infinite:
 * writes its name, as "lrn_param.alpha", and its value. Packed arrays are left out: they are
 * data. */
bool aril__message_find_odd(const aril__message *m, bool infinite, char *name, size_t size,
                            double *value);

/* ---- changing ----
 *
 * A failure to allocate is remembered by the root and reported when the message is written; a NULL
 * message is ignored. So a tree can be built without a check after each call. */

void aril__message_set_int(aril__message *m, const char *name, int64_t value);
void aril__message_set_number(aril__message *m, const char *name, double value);
void aril__message_set_text(aril__message *m, const char *name, const char *text);
void aril__message_set_bytes(aril__message *m, const char *name, const void *data, size_t n);
/* The same without a copy: the data must outlive the message. */
void aril__message_refer_bytes(aril__message *m, const char *name, const void *data, size_t n);
/* The message of a field, added if it is not set. */
aril__message *aril__message_set_sub(aril__message *m, const char *name);

/* Appends to a repeated field. */
void aril__message_add_int(aril__message *m, const char *name, int64_t value);
void aril__message_add_number(aril__message *m, const char *name, double value);
void aril__message_add_text(aril__message *m, const char *name, const char *text);
void aril__message_add_bytes(aril__message *m, const char *name, const void *data, size_t n);
aril__message *aril__message_add_sub(aril__message *m, const char *name);

/* Replaces a repeated field by n values: of floats; of doubles; of int64. */
void aril__message_set_floats(aril__message *m, const char *name, const float *value, size_t n);
void aril__message_set_doubles(aril__message *m, const char *name, const double *value, size_t n);
void aril__message_set_ints(aril__message *m, const char *name, const int64_t *value, size_t n);

/* Removes a field; removes value i of a repeated field. */
void aril__message_clear(aril__message *m, const char *name);
void aril__message_remove(aril__message *m, const char *name, size_t i);

/* A root of its own with copies of all that m has. NULL, with an error, when out of memory. */
aril__message *aril__message_clone(const aril__message *m);

/* Sets a field to the values of a field of the same kind in a message of the same tree; both refer
 * to the same submessages from then on. Nothing if that is not set. */
void aril__message_share_field(aril__message *to, const char *name, const aril__message *from,
                               const char *from_name);

/* Moves message i of a repeated field to the front. */
void aril__message_to_front(aril__message *m, const char *name, size_t i);
/* Puts the messages of a repeated field in another order: first the one at order[0]. The order
 * lists each of them once. */
void aril__message_reorder(aril__message *m, const char *name, const size_t *order);

/* ---- reading and writing ---- */

enum { ARIL__PROTO_DEPTH = 100 }; /* of nested messages and groups, as in protobuf's own readers */

typedef struct aril__message_opts {
    const char *name;    /* of the file, for errors; default: the name of the type */
    int max_depth;       /* default ARIL__PROTO_DEPTH */
    uint64_t max_memory; /* for the tree; default: 128 times the size of the input, plus 1 MiB */
    bool partial;        /* required fields may be missing */
} aril__message_opts;

/* Reads the wire form. Strings are copied; bytes, packed numbers of a fixed size and unknown fields
 * refer to the data, which must outlive the message. NULL with an error that names the offset if
 * the data are malformed. */
aril__message *aril__message_read(const aril__proto_type *type, const void *data, size_t size,
                                  aril__message_opts opts);

/* Reads the text form, of which nothing is referred to. Errors name line and column. */
aril__message *aril__message_parse(const aril__proto_type *type, const char *text, size_t size,
                                   aril__message_opts opts);

/* Reads a file in wire form, which stays mapped until the root is freed, as fields refer to it;
 * reads a file in text form. */
aril__message *aril__message_load(const aril__proto_type *type, const char *path);
aril__message *aril__message_load_text(const aril__proto_type *type, const char *path);

/* To be called after bytes or arrays of a loaded message were used: ARIL_ERR_IO if its file has
 * changed in the meantime. */
aril_status aril__message_check(const aril__message *root);

/* To be called after large parts of a loaded message were read that are not needed again soon:
 * their memory is given back, and read from the file if they are. */
void aril__message_rest(const aril__message *root);

/* Appends the wire form: fields by ascending number, then the unknown ones. Sizes are computed
 * first, so that all is written once, in order. More than 2 GiB are an error, as no reader takes
 * them. */
aril_status aril__message_write(aril__message *m, aril__bytes *to);

/* Writes the wire form to a file, atomically; appends it to one that is being written, whose commit
 * reports errors of writing. */
aril_status aril__message_save(aril__message *m, const char *path);
aril_status aril__message_put(aril__message *m, aril__file *to);

/* Appends the text form, which reads back as the same message; unknown fields become comments. */
aril_status aril__message_print(const aril__message *m, aril__bytes *to);

#endif
