/* The parts of the reader of HDF5 files. Nothing in a file is trusted: all bytes are taken through
 * cursors that end with their block, and all walks are limited by the size of the file. */
#ifndef ARIL_FORMATS_HDF5_INSIDE_H
#define ARIL_FORMATS_HDF5_INSIDE_H

#include "formats/hdf5.h"
#include "formats/mapped_file.h"

#include <stdatomic.h>

typedef enum h5_problem {
    H5_FINE,
#define PROBLEM(id, status, text) H5_##id,
#include "formats/hdf5/problems.def"
#undef PROBLEM
} h5_problem;

const char *aril__h5_text(h5_problem p);
aril_status aril__h5_status(h5_problem p);

/* ---- the file ---- */

typedef enum h5_kind { H5_GROUP, H5_ARRAY, H5_REFUSED, H5_OTHER, H5_SOFT } h5_kind;

/* An object that a path leads to; "" is the first group. */
typedef struct h5_entry {
    char *name, *target; /* target: of a soft link */
    h5_kind kind;
    uint64_t address;
    aril_dtype dtype;
    aril_shape shape;
    h5_problem problem; /* of a refused array */
} h5_entry;

struct aril__hdf5 {
    aril__mapped *mapped; /* NULL: the image of a file in memory */
    char *path;
    const unsigned char *at; /* from the base address, to which all addresses are relative */
    size_t n;
    int offset_size, length_size;
    uint64_t root;
    atomic_llong *steps, steps_left; /* limits the time of walks; `steps` points to it */
    h5_entry *entry;                 /* sorted by name */
    int n_entries, capacity;
    size_t name_bytes;
    int *array, *refused, n_arrays, n_refused; /* entries */
};

/* Finds the object that a path leads to, through soft links; NULL if there is none. */
h5_problem aril__h5_find(const aril__hdf5 *f, const char *name, const h5_entry **found);

/* Sets the error of a part of the file: `what` and `name` say which. */
aril_status aril__h5_fail(const aril__hdf5 *f, h5_problem p, const char *what, const char *name);

/* Takes `n` steps; false when too many were taken. */
bool aril__h5_step(const aril__hdf5 *f, uint64_t n);

/* Finds the superblock and the first group. */
h5_problem aril__h5_superblock(aril__hdf5 *f, const unsigned char *at, size_t n);

/* ---- cursors ---- */

#define H5_NOWHERE UINT64_MAX /* an undefined address */

typedef struct h5_cursor {
    const unsigned char *at;
    size_t left;
    bool bad; /* more was asked for than there is */
} h5_cursor;

/* `size` bytes at an address; the rest of the file. */
h5_cursor aril__h5_at(const aril__hdf5 *f, uint64_t address, uint64_t size);
h5_cursor aril__h5_from(const aril__hdf5 *f, uint64_t address);

/* The next bytes; NULL if there are fewer. A little-endian number of 0 to 8 bytes. */
const unsigned char *aril__h5_bytes(h5_cursor *c, uint64_t n);
uint64_t aril__h5_number(h5_cursor *c, int size);
uint64_t aril__h5_offset(const aril__hdf5 *f, h5_cursor *c); /* an address */
uint64_t aril__h5_length(const aril__hdf5 *f, h5_cursor *c);

/* Are the next bytes this text? */
bool aril__h5_mark(h5_cursor *c, const char *text);

/* The smallest number of bytes that hold `limit`; floor(log2(n)), 0 for 0. */
int aril__h5_log2(uint64_t n);
int aril__h5_width(uint64_t limit);

/* For tests, which change what checksums protect. */
extern bool aril__h5_ignore_checksums;

/* A block of `size` bytes that begins with a mark and ends with its checksum; without both. */
h5_problem aril__h5_block(const aril__hdf5 *f, uint64_t address, uint64_t size, const char *mark,
                          h5_cursor *c);

/* ---- object headers ---- */

enum {
    H5_M_SPACE = 1,
    H5_M_LINK_INFO = 2,
    H5_M_TYPE = 3,
    H5_M_OLD_FILL = 4,
    H5_M_FILL = 5,
    H5_M_LINK = 6,
    H5_M_EXTERNAL = 7,
    H5_M_LAYOUT = 8,
    H5_M_FILTERS = 11,
    H5_M_ATTRIBUTE = 12,
    H5_M_CONTINUATION = 16,
    H5_M_SYMBOLS = 17,
    H5_M_ATTRIBUTE_INFO = 21,
};

typedef h5_problem h5_each_message(void *ctx, int type, h5_cursor body);

/* Calls `each` for the messages of an object header. */
h5_problem aril__h5_messages(const aril__hdf5 *f, uint64_t address, h5_each_message *each,
                             void *ctx);

/* Replaces the body of a shared message by the message that it refers to. */
h5_problem aril__h5_shared(const aril__hdf5 *f, int type, h5_cursor *body);

/* ---- groups ---- */

/* A link: to an object of the file, or with `target` a soft one. */
typedef struct h5_link {
    const char *name, *target; /* without NUL */
    size_t name_size, target_size;
    uint64_t address;
} h5_link;
typedef h5_problem h5_each_link(void *ctx, const h5_link *link);

/* Calls `each` for the links of a group in a symbol table, and in its link messages; those to other
 * files are left out. */
h5_problem aril__h5_symbols(const aril__hdf5 *f, h5_cursor message, h5_each_link *each, void *ctx);
h5_problem aril__h5_link(const aril__hdf5 *f, h5_cursor message, h5_each_link *each, void *ctx);
h5_problem aril__h5_link_info(const aril__hdf5 *f, h5_cursor message, h5_each_link *each,
                              void *ctx);

/* ---- B-trees and heaps ---- */

/* Calls `each` for the records of a version 2 B-tree of that type. */
typedef h5_problem h5_each_record(void *ctx, h5_cursor record);
h5_problem aril__h5_records(const aril__hdf5 *f, uint64_t address, int type, h5_each_record *each,
                            void *ctx);

/* Calls `each` for the leaves of a version 1 B-tree, with the key before each. Type 0: symbol
 * nodes of a group, 1: chunks of an array. */
typedef h5_problem h5_each_child(void *ctx, h5_cursor key, uint64_t child);
h5_problem aril__h5_leaves(const aril__hdf5 *f, uint64_t address, int type, size_t key_size,
                           h5_each_child *each, void *ctx);

/* Objects in a fractal heap. */
typedef struct h5_heap {
    const aril__hdf5 *file;
    int id_size, flags, offset_bits, offset_size, length_size, rows;
    uint64_t start, max_direct, width, huge_tree, root;
} h5_heap;
h5_problem aril__h5_heap_open(const aril__hdf5 *f, uint64_t address, h5_heap *heap);
h5_problem aril__h5_heap_find(const h5_heap *heap, h5_cursor id, h5_cursor *object);

/* Objects in global heaps: strings of variable length. */
typedef struct h5_collection {
    uint64_t address;
    int n;
    struct h5_heap_object {
        unsigned index;
        size_t size;
        const unsigned char *at;
    } * at;
} h5_collection;
typedef struct h5_globals {
    const aril__hdf5 *file;
    h5_collection *at;
    int n, capacity;
} h5_globals;
h5_problem aril__h5_global(h5_globals *g, uint64_t address, uint64_t index, h5_cursor *object);
void aril__h5_globals_free(h5_globals *g);

/* ---- types, shapes, data ---- */

enum { H5_INTEGER = 0, H5_FLOAT = 1, H5_STRING = 3, H5_COMPOUND = 6, H5_ENUM = 8, H5_VARYING = 9 };

typedef struct h5_type {
    int class;
    size_t size; /* of an element in the file */
    bool big_endian, is_signed, is_text;
    unsigned offset, precision; /* in bits */
    unsigned sign, exponent, exponent_bits, mantissa, mantissa_bits, normalization;
    uint32_t bias;
} h5_type;
h5_problem aril__h5_type(h5_cursor message, h5_type *type);

/* The dtype that numbers are read as: their own, or f32 for narrower floats. */
h5_problem aril__h5_dtype(const h5_type *type, aril_dtype *dtype);

/* A shape; `most` holds the largest sizes (UINT64_MAX: unlimited). */
h5_problem aril__h5_space(const aril__hdf5 *f, h5_cursor message, aril_shape *shape,
                          uint64_t *most);

/* The messages of an object that describe its data. A message that is missing has no bytes. */
typedef struct h5_object {
    h5_cursor type, space, layout, fill, old_fill, filters;
    bool is_group, is_external;
} h5_object;
h5_problem aril__h5_object(const aril__hdf5 *f, uint64_t address, h5_object *o);

/* What is known of the data of an array. */
typedef struct h5_data {
    const aril__hdf5 *file;
    const h5_object *object;
    aril_shape shape;
    uint64_t most[ARIL_MAX_DIMS];
    size_t element, bytes; /* of an element, of the array */
} h5_data;

/* Is what is stored of the array plausible for its size? Reads its elements as they are in the
 * file, in its byte order. */
h5_problem aril__h5_data(h5_data *d, void *to);

/* A chunk of an array, and a list of them. */
typedef struct h5_chunk {
    uint64_t address, size, at[ARIL_MAX_DIMS]; /* in the file; in the grid of chunks */
    uint32_t mask;                             /* filters that were skipped */
} h5_chunk;
typedef struct h5_chunks {
    const aril__hdf5 *file;
    const h5_data *data;
    h5_cursor index;                      /* what the layout says of the index of chunks */
    int kind;                             /* of the index, as in the file; 0: a version 1 B-tree */
    bool is_filtered;                     /* the index holds sizes and masks */
    bool whole_edges;                     /* chunks that the array's edge cuts are not filtered */
    uint64_t address;                     /* of the index */
    uint64_t dim[ARIL_MAX_DIMS], bytes;   /* of a chunk */
    uint64_t grid[ARIL_MAX_DIMS], n_grid; /* chunks of the array */
    uint64_t most[ARIL_MAX_DIMS];         /* largest sizes of the grid */
    h5_chunk *chunk;
    size_t n, capacity;
    uint64_t stored; /* bytes of all chunks */
} h5_chunks;

/* Lists the chunks that are stored. Free `chunk`. */
h5_problem aril__h5_chunk_list(h5_chunks *c);

/* Undoes the filters of a chunk of `element` bytes an element: `to` has room for `want` bytes. */
h5_problem aril__h5_unfilter(const aril__hdf5 *f, h5_cursor filters, uint32_t mask, size_t element,
                             h5_cursor stored, unsigned char *to, size_t want);

#endif
