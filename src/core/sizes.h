/* Unknown sizes of a trace.
 *
 * A size that is not known before the run is a negative number, whose value names the unknown: two
 * unknown sizes are equal if they are the same number, and may differ otherwise. Rules that check
 * sizes accept what may be equal; rules that skip work where sizes are equal rely on the number. A
 * table, which belongs to the tracer, says where each unknown comes from:
 *
 *   - a new one: the size of an input, with a name or without, or of a value-dependent result;
 *   - a derived one: a function of other sizes, the same unknown whenever it is derived again.
 *
 * -1 is the anonymous unknown, which equals nothing. A shape rule returns it for a size that it
 * cannot tell; apply then gives the result a derived unknown (aril__symbolic_sizes). So tensors of
 * a trace have no -1, and neither a rule nor a module has to know of the table.
 *
 * aril_size of a symbolic tensor is such a number too. It may be passed on wherever a size is
 * expected (aril_reshape, aril_zeros), and it arrives in attributes: a tracer that replays a call
 * replaces named unknowns in attributes by what they turned out to be (aril__size_is_named). Sums
 * and products of them have no meaning, and are read as anonymous.
 *
 * Calls on tensors of a defined graph come from code that runs outside of any trace, also calls
 * without a tensor, such as aril_zeros of a size. So the table of such a graph is open: its numbers
 * name it, and functions below that get no table find it. */
#ifndef ARIL_CORE_SIZES_H
#define ARIL_CORE_SIZES_H

#include "aril/base.h"

#include <stdatomic.h>

typedef struct aril__size_entry {
    uint64_t hash;
    size_t at;      /* of the key in `words` */
    int n_key;      /* 0: a new one */
    void *asked_by; /* of an open table: the first call of aril_size that gave it; NULL: none */
    bool passed_on; /* and whether a function of Aril took it since */
    int64_t traced; /* of a new one: what it was when it was traced; -1: not known */
    char name[24];
} aril__size_entry;

/* The table; all zeros is an empty one. */
typedef struct aril__sizes {
    aril__size_entry *entries;
    int64_t *words;
    size_t n, cap, n_words, cap_words;
    int64_t asked; /* the first one that C code has asked for (aril_size); 0: none */
    uint16_t id;   /* of an open table, and copies of it; 0: of others */
    /* What an error says whose message holds a number that was computed from one; NULL: the message
     * itself, with a hint. */
    const char *computed;
} aril__sizes;

/* What derived unknowns are; the first word of their key. */
enum aril__size_kind {
    ARIL__SIZE_PRODUCT = 1, /* factor, unknowns in order */
    ARIL__SIZE_BROADCAST,   /* two unknowns in order: their common size, if they broadcast */
    ARIL__SIZE_SLIDE,       /* windows on an unknown number of elements: ops/vision/slide.h */
    ARIL__SIZE_RESULT,      /* of an op: its attributes and the sizes of its inputs, in words */
};

void aril__sizes_free(aril__sizes *s);

/* Opens an empty table, which stays where it is until it is freed. If very many are open, it stays
 * closed: then only calls with a tensor of the graph know its sizes. */
void aril__sizes_open(aril__sizes *s);
/* The open table of the first of these sizes that one has; NULL: none. They count as passed on. */
aril__sizes *aril__sizes_of(int n, const int64_t *dim);
/* The code that `caller` returns to has asked for a size of an open table; and a size of this table
 * is passed on to an operation. */
void aril__size_asked_by(int64_t d, void *caller);
void aril__size_passed_on(aril__sizes *s, int64_t d);
/* How many open tables there are of which C code has asked for a size. */
extern atomic_int aril__sizes_n_asked;
/* Whether a number looks as if C code had computed it from the number of a size of an open table: a
 * multiple, a sum with a small number, a quotient. Never true before one was asked for. */
bool aril__size_is_computed(double v);

/* A new unknown, with a name for messages and files or NULL. -1 if there is no table, or no
 * memory. */
int64_t aril__size_new(aril__sizes *s, const char *name);

/* What an unknown was when it was traced, where that decides what a function does: -1 if it is not
 * known. */
void aril__size_set_traced(aril__sizes *s, int64_t d, int64_t traced);
int64_t aril__size_traced(const aril__sizes *s, int64_t d);

/* The unknown that is derived in this way. */
int64_t aril__size_derived(aril__sizes *s, int n, const int64_t *key);

/* Whether a number names an unknown. Never true for a size, an axis, a position or -1. And whether
 * it is one of this table. */
bool aril__size_is_named(int64_t d);
bool aril__size_is_of(const aril__sizes *s, int64_t d);

/* Notes that C code has asked for these sizes, if one is unknown. */
void aril__size_asked(aril__sizes *s, int n, const int64_t *dim);

/* The position of a named unknown in its table, and the number of the unknown there. */
size_t aril__size_index(int64_t d);
int64_t aril__size_number(const aril__sizes *s, size_t k);

/* The product of n sizes: exact, or a derived unknown. */
int64_t aril__size_product(aril__sizes *s, int n, const int64_t *dim);

/* The product of n sizes over that of m others, -1 if it cannot be told. False if there certainly
 * is none. */
bool aril__size_quotient(aril__sizes *s, int n, const int64_t *dim, int m, const int64_t *by,
                         int64_t *quotient);

/* What an unknown is in a run, where size(ctx, u) is what u is; a product is that of factors. */
int64_t aril__size_value(const aril__sizes *s, int64_t d,
                         int64_t (*size)(void *ctx, int64_t unknown), void *ctx);

/* What all unknowns of a table are: value[k], which holds those that are known and -1 for others,
 * gets those that follow. result(ctx, n, key, value) is called for sizes of results of ops. */
typedef int64_t aril__size_result(void *ctx, const aril__sizes *s, int n, const int64_t *key,
                                  const int64_t *value);
void aril__sizes_follow(const aril__sizes *s, int64_t *value, aril__size_result *result, void *ctx);
/* A size of which the unknown ones are value[k]; -1 if it is not known. */
int64_t aril__size_known(const aril__sizes *s, int64_t d, const int64_t *value);

/* Whether the products of two lists of sizes are certainly different. */
bool aril__size_differs(aril__sizes *s, int n, const int64_t *dim, int m, const int64_t *other);

/* Two sizes of which neither is 1 and one is unknown, as NumPy broadcasts them. */
int64_t aril__size_broadcast(aril__sizes *s, int64_t a, int64_t b);

/* A size that stands for an unknown one in strides, which then show the order of dimensions. */
enum { ARIL__NOMINAL_SIZE = 211 };
int64_t aril__size_nominal(const aril__sizes *s, int64_t d);

/* The name of an unknown, "?" if it has none. */
const char *aril__size_name(const aril__sizes *s, int64_t d);

/* Whether a number is that of an unknown size of the table, or was computed from one: a sum, a
 * multiple, a part or a reciprocal. Such a number has no meaning outside a trace. `narrow`: it may
 * have been rounded to 24 bits. */
bool aril__size_derives(const aril__sizes *s, double v, bool narrow);

/* Replaces numbers in a message that name unknowns by their names, and in a trace (s is not NULL)
 * or while a size of an open table is asked for, also what C code may have computed from such a
 * number by "?": then it returns true. */
bool aril__sizes_hide(const aril__sizes *s, char *text);

#endif
