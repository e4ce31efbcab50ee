/* A reader of Python's pickles, protocols 0 to 5, that runs nothing. Values are built in an arena;
 * text and bytes stay where they lie in the pickle. */
#ifndef ARIL_FORMATS_PYTORCH_PICKLE_H
#define ARIL_FORMATS_PYTORCH_PICKLE_H

#include "formats/weights/weights.h"

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_BIG, /* an integer of more than 64 bits: its bytes, little-endian */
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_BYTES,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_SET,
    PICKLE_DICT,  /* items: key, value, key, value ... */
    PICKLE_CLASS, /* of the list in classes.c */
    PICKLE_OTHER, /* a value that weights do not need, such as a device */
    PICKLE_DTYPE, /* NumPy's */
    PICKLE_ARRAY, /* NumPy's */
    PICKLE_STORAGE,
    PICKLE_TENSOR,
} pickle_kind;

typedef struct pickle_value pickle_value;
typedef struct pickle_class pickle_class;

/* An element type. */
typedef struct pickle_dtype {
    aril_dtype dtype;
    size_t size;         /* bytes of an element; 0: not known */
    const char *problem; /* why Aril has no such dtype: "dtype complex64"; NULL: it has */
    bool big;            /* big-endian; NumPy only */
    bool is_complex;     /* a pair of `dtype`, which tensors have as a last dimension of 2 */
} pickle_dtype;

/* Elements in the file, shared by tensors. */
typedef struct pickle_storage {
    struct pickle_storage *next;
    const pickle_value *key;
    int64_t begin, numel; /* in elements of `type`; a view may begin behind the first */
    pickle_dtype type;
    int number; /* counted from 0; later: of those with different keys */
} pickle_storage;

/* A tensor over a storage, or a NumPy array over bytes of the pickle. */
typedef struct pickle_tensor {
    pickle_storage *storage;   /* NULL: `bytes`, or nothing to read */
    const pickle_value *bytes; /* of an array */
    pickle_dtype type;
    int64_t offset;                    /* in elements */
    const pickle_value *size, *stride; /* tuples of integers; stride NULL: contiguous */
    bool fortran;                      /* an array in Fortran's order */
    const pickle_value *axes; /* an array: where its axes are in memory; NULL: as they come */
    const char *problem;      /* why it cannot be read; NULL: nothing is known */
} pickle_tensor;

struct pickle_value {
    pickle_kind kind;
    union {
        int64_t i;
        double f;
        struct {
            const char *at;
            size_t n;
        } text; /* TEXT, BYTES, BIG */
        struct {
            pickle_value **at;
            size_t n, cap;
        } items; /* TUPLE, LIST, SET, DICT */
        const pickle_class *type;
        pickle_dtype dtype;
        pickle_storage *storage;
        pickle_tensor *tensor; /* TENSOR, ARRAY */
        const char *other;
    } u;
};

/* The machine. Initialize data, size, name and the three below; free with aril__pickle_free. */
typedef struct pickle {
    const char *name; /* of the file, for messages */
    const unsigned char *data;
    size_t size, at; /* `at`: where the next pickle begins */
    /* What a persistent id means; NULL, with an error, if nothing. */
    pickle_value *(*persistent)(struct pickle *p, pickle_value *id);
    void *ctx; /* of the caller */
    aril_status status;

    pickle_storage *storages; /* all that were named, the latest first */
    int n_storages;
    struct pickle_chunk *chunks; /* of the arena */
    size_t used, limit;
    pickle_value **stack, **memo;
    size_t *mark;
    size_t n_stack, cap_stack, n_memo, cap_memo, n_mark, cap_mark;
} pickle;

void aril__pickle_free(pickle *p);

/* Interprets one pickle from p->at on. NULL, with an error, on failure. */
pickle_value *aril__pickle_load(pickle *p);

/* ---- for the other files ---- */

/* Sets an error that says where the pickle is wrong; NULL. */
void *aril__pickle_wrong(pickle *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *aril__pickle_refuse(pickle *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Memory that lives as long as p, cleared; NULL, with an error. */
void *aril__pickle_alloc(pickle *p, size_t size);
pickle_value *aril__pickle_new(pickle *p, pickle_kind kind);
pickle_value *aril__pickle_text(pickle *p, pickle_kind kind, const char *at, size_t n);
bool aril__pickle_append(pickle *p, pickle_value *list, pickle_value *v);

/* The class or function with that name; NULL, with an error, if it is not in the list. */
const pickle_class *aril__pickle_find_class(pickle *p, const char *module, size_t n_module,
                                            const char *name, size_t n_name);
/* What calling it with a tuple of arguments gives, and what restoring a state does. */
pickle_value *aril__pickle_call(pickle *p, const pickle_value *callee, pickle_value *args);
bool aril__pickle_build(pickle *p, pickle_value *v, const pickle_value *state);

/* Of a PICKLE_CLASS that is a storage: its element type. */
bool aril__pickle_is_storage(const pickle_value *v, pickle_dtype *type);

static inline bool pickle_is_text(const pickle_value *v, const char *text)
{
    size_t n = __builtin_strlen(text);
    return v->kind == PICKLE_TEXT && v->u.text.n == n &&
           __builtin_memcmp(v->u.text.at, text, n) == 0;
}

/* Whether it is a tuple or list of at least n items. */
static inline bool pickle_is_sequence(const pickle_value *v, size_t n)
{
    return v && (v->kind == PICKLE_TUPLE || v->kind == PICKLE_LIST) && v->u.items.n >= n;
}

#endif
