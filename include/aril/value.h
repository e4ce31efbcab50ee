/* Values of programs: what models take and return besides tensors.
 *
 *     aril_value *out[2];
 *     aril_program_run_values(p, ARIL_VALUES(aril_value_of(x)), out);    // labels and their scores
 *     const char *label = aril_value_string(out[0], 0);
 *     aril_tensor *score = aril_value_tensor(aril_value_find(aril_value_at(out[1], 0), label));
 *
 * A value is a tensor, a tensor of strings, a sequence of values, a map from strings or integers to
 * values, or an optional, which has a value or none. Values never change. They belong to the
 * innermost scope, as tensors do, and hold references to the tensors and values in them. */
#ifndef ARIL_VALUE_H
#define ARIL_VALUE_H

#include "aril/graph.h"

ARIL_C_BEGIN

/* A value. Opaque. */
typedef struct aril_value aril_value;

/* The kinds of values. */
typedef enum aril_value_kind {
    ARIL_VALUE_TENSOR,
    ARIL_VALUE_TEXT, /* a tensor of strings */
    ARIL_VALUE_SEQUENCE,
    ARIL_VALUE_MAP,
    ARIL_VALUE_OPTIONAL,
} aril_value_kind;

/* A list of values. */
typedef struct aril_values {
    int n;
    aril_value *const *at;
} aril_values;

/* ARIL_VALUES(a, b): a list of values. */
#define ARIL_VALUES(...)                                                                   \
    ((aril_values){ (int)(sizeof((aril_value *[]){ __VA_ARGS__ }) / sizeof(aril_value *)), \
                    (aril_value *[]){ __VA_ARGS__ } })

/* ---- creating ----
 *
 * NULL, with an error, if an argument is wrong or memory runs out. */

/* A tensor as a value. */
ARIL_API aril_value *aril_value_of(aril_tensor *t);
/* Strings in a shape, in row-major order. They are copied; equal ones are stored once. */
ARIL_API aril_value *aril_value_text(aril_shape shape, const char *const *strings);
/* A sequence of values. */
ARIL_API aril_value *aril_value_sequence(aril_values items);
/* Keys are strings or i64, in one dimension, as many as items and none twice. */
ARIL_API aril_value *aril_value_map(aril_value *keys, aril_values items);
/* NULL: an optional without a value. */
ARIL_API aril_value *aril_value_optional(aril_value *item);

/* ---- reading ---- */

/* The kind of a value. */
ARIL_API aril_value_kind aril_value_kind_of(const aril_value *v);
/* The tensor of a value, or of what an optional has; borrowed. Poisoned, with an error, if it is
 * none. */
ARIL_API aril_tensor *aril_value_tensor(const aril_value *v);
/* The number of strings, of items of a sequence or map, of values in an optional (0 or 1); of a
 * tensor 1. */
ARIL_API int64_t aril_value_count(const aril_value *v);
/* Item i of a sequence or map, the value of an optional (i = 0); borrowed. NULL with an error if
 * there is none. */
ARIL_API aril_value *aril_value_at(const aril_value *v, int64_t i);
/* String i of a text. NULL with an error if there is none. Equal strings have the same address, as
 * long as values with them exist. */
ARIL_API const char *aril_value_string(const aril_value *v, int64_t i);
/* The shape of a text or tensor; no dimensions for others. */
ARIL_API aril_shape aril_value_shape(const aril_value *v);
/* The keys of a map, a text or an i64 tensor; borrowed. */
ARIL_API aril_value *aril_value_keys(const aril_value *map);
/* The item with a key; NULL, without an error, if there is none. */
ARIL_API aril_value *aril_value_find(const aril_value *map, const char *key);
ARIL_API aril_value *aril_value_find_number(const aril_value *map, int64_t key);

/* Writes a value as text: numbers as they are, other tensors by dtype and shape, strings in
 * quotes. */
ARIL_API void aril_value_print(const aril_value *v, FILE *to);

/* ---- lifetime ---- */

/* Takes a reference, which aril_value_release drops: the value outlives its scope. */
ARIL_API aril_value *aril_value_keep(aril_value *v);
ARIL_API void aril_value_release(aril_value *v);

/* ---- programs ---- */

/* aril_program_run for values: where all inputs and results are tensors it is the same. An optional
 * stands for what it has. Programs that take or return others are those of models that were loaded.
 * out[] gets a value for each result; NULL on failure. */
ARIL_API aril_status aril_program_run_values(aril_program *p, aril_values inputs, aril_value **out);

ARIL_C_END

#endif
