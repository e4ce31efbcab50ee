/* How messages lie in memory: shared by the readers and writers of both forms. */
#ifndef ARIL_FORMATS_PROTO_MESSAGE_H
#define ARIL_FORMATS_PROTO_MESSAGE_H

#include "formats/proto.h"

/* Wire types. */
enum {
    ARIL__WIRE_VARINT,
    ARIL__WIRE_FIXED64,
    ARIL__WIRE_BYTES,
    ARIL__WIRE_GROUP,
    ARIL__WIRE_GROUP_END,
    ARIL__WIRE_FIXED32
};

/* A field that is set.
 *
 * A single number is in `bits`: an integer as 64 bits with its sign, a float or double as its
 * pattern. Strings and bytes are `at` and `n`. Repeated values are an array at `at`: numbers of
 * `width` bytes, little-endian, which may belong to the input (capacity 0); slices; or pointers to
 * messages. */
typedef struct aril__slot {
    const aril__proto_field *field;
    size_t n;
    union {
        size_t capacity;
        size_t line; /* of a single value that was read from text; 0: unknown */
    };
    union {
        uint64_t bits;
        void *at;
        aril__message *message;
    };
} aril__slot;

typedef struct aril__unknown {
    struct aril__unknown *next; /* a ring: the message points to the last */
    const uint8_t *at;
    size_t n;
} aril__unknown;

typedef struct aril__message_chunk {
    struct aril__message_chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char at[];
} aril__message_chunk;

typedef struct aril__message_owner {
    aril__message root;
    aril__message_chunk *chunk; /* the one that is being filled comes first */
    uint64_t taken, limit;      /* bytes given out */
    bool failed;                /* an allocation failed */
    bool text;                  /* read from text form */
    struct aril__mapped *file;  /* that fields refer to; NULL: none */
} aril__message_owner;

/* Limits the memory of a tree that is read from `size` bytes. */
void aril__message_limit(aril__message_owner *owner, size_t size, aril__message_opts opts);

/* Memory of the tree, in multiples of 8 bytes; NULL when out of memory or over the limit. */
void *aril__message_alloc(aril__message_owner *owner, size_t size);
/* A copy of n bytes and a NUL. */
char *aril__message_copy(aril__message_owner *owner, const void *data, size_t n);

static inline bool aril__proto_repeated(const aril__proto_field *f)
{
    return f->label >= ARIL__PROTO_REPEATED;
}

static inline bool aril__proto_is_integer(const aril__proto_field *f)
{
    return f->kind >= ARIL__PROTO_int32 && f->kind <= ARIL__PROTO_enum; /* bool and enum too */
}

static inline bool aril__proto_is_real(const aril__proto_field *f)
{
    return f->kind <= ARIL__PROTO_float;
}

static inline bool aril__proto_is_text(const aril__proto_field *f)
{
    return f->kind == ARIL__PROTO_string || f->kind == ARIL__PROTO_bytes;
}

size_t aril__proto_width(const aril__proto_field *f); /* bytes of an element of an array */
int aril__proto_wire(const aril__proto_field *f);     /* the wire type of one value */

/* The slot of a field; NULL if it is not set. */
aril__slot *aril__slot_find(const aril__message *m, const aril__proto_field *f);
/* The slot, added if missing, without the other fields of its oneof; NULL when out of memory. */
aril__slot *aril__slot_make(aril__message *m, const aril__proto_field *f);
void aril__slot_remove(aril__message *m, aril__slot *s);
/* Makes room for n more elements and returns the first, uninitialized; they are counted in. */
void *aril__slot_extend(aril__message *m, aril__slot *s, size_t n);

/* A message of the same tree. */
aril__message *aril__message_child(aril__message_owner *owner, const aril__proto_type *type);

/* Whether a field may have these bits: values of a closed enum are those that it lists. */
bool aril__proto_allows(const aril__proto_field *f, uint64_t bits);

/* One value, set or appended. Each returns false when out of memory. */
bool aril__message_put_bits(aril__message *m, const aril__proto_field *f, uint64_t bits);
bool aril__message_put_slice(aril__message *m, const aril__proto_field *f, aril__slice value);
aril__message *aril__message_put_sub(aril__message *m, const aril__proto_field *f);
bool aril__message_put_unknown(aril__message *m, const uint8_t *at, size_t n);

/* Element i of an array of numbers, as the bits of a single one, and the other way. */
uint64_t aril__proto_load(const aril__proto_field *f, const void *array, size_t i);
void aril__proto_store(const aril__proto_field *f, void *array, size_t i, uint64_t bits);

/* Bits from and to values. */
uint64_t aril__proto_bits_of_int(const aril__proto_field *f, int64_t value);
uint64_t aril__proto_bits_of_number(const aril__proto_field *f, double value);
double aril__proto_number_of(const aril__proto_field *f, uint64_t bits);

/* The bits of a field's default. */
uint64_t aril__proto_initial(const aril__proto_field *f);

/* Checks that all required fields are set, below m too. Writes the missing one's path to buf. */
bool aril__message_complete(const aril__message *m, char *buf, size_t size);

#endif
