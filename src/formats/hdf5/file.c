/* Open HDF5 files: the list of their objects, and reading of arrays. */
#include "aril/create.h"
#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/hdf5/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 1 << 22 }; /* bytes of an array after which the file's memory is given back */

/* Limits for hostile files, whose groups may contain each other, or have many names: a group with
 * two names is listed under both, and so are its members. A name takes more than 8 bytes. */
enum { MAX_DEPTH = 32, FREE_ENTRIES = 1000, MAX_ENTRIES = 1 << 20 };
enum { MAX_NAMES = 1 << 28, MAX_STEPS = 1 << 26, ENTRY_BYTES = 8 };

aril_status aril__h5_fail(const aril__hdf5 *f, h5_problem p, const char *what, const char *name)
{
    if (p == H5_REPORTED) return aril__latest_status();
    if (p == H5_NO_MEMORY) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", f->path);
    return aril__fail(aril__h5_status(p), "%s %s of %s cannot be read: %s", what, name, f->path,
                      aril__h5_text(p));
}

/* ---- listing ---- */

typedef struct lister {
    aril__hdf5 *file;
    const char *prefix; /* the name of the group */
    int depth;
} lister;

static h5_problem list_object(aril__hdf5 *f, char *name, uint64_t address, int depth);

static h5_problem add_entry(aril__hdf5 *f, h5_entry e)
{
    if (f->n_entries == f->capacity) {
        int capacity = 2 * f->capacity + 64;
        h5_entry *grown = aril__realloc(f->entry, (size_t)capacity * sizeof *grown);
        if (!grown) {
            free(e.name);
            free(e.target);
            return H5_NO_MEMORY;
        }
        f->entry = grown;
        f->capacity = capacity;
    }
    f->entry[f->n_entries++] = e;
    return H5_FINE;
}

static char *copy(const char *prefix, const char *text, size_t n)
{
    size_t a = strlen(prefix), slash = a ? 1 : 0;
    char *name = aril__malloc(a + slash + n + 1);
    if (!name) return NULL;
    memcpy(name, prefix, a);
    memcpy(name + a, "/", slash);
    if (n) memcpy(name + a + slash, text, n);
    name[a + slash + n] = 0;
    return name;
}

static h5_problem list_link(void *ctx, const h5_link *link)
{
    lister *l = ctx;
    aril__hdf5 *f = l->file;
    if (link->name_size == 0 || memchr(link->name, 0, link->name_size) ||
        memchr(link->name, '/', link->name_size))
        return H5_LINKS;
    f->name_bytes += strlen(l->prefix) + link->name_size + link->target_size;
    uint64_t most = FREE_ENTRIES + f->n / ENTRY_BYTES;
    if ((uint64_t)f->n_entries >= most || f->n_entries >= MAX_ENTRIES || f->name_bytes > MAX_NAMES)
        return H5_MANY;
    char *name = copy(l->prefix, link->name, link->name_size);
    if (!name) return H5_NO_MEMORY;
    if (!link->target) return list_object(f, name, link->address, l->depth + 1);
    h5_entry e = { .name = name, .kind = H5_SOFT };
    e.target = copy("", link->target, link->target_size);
    if (e.target) return add_entry(f, e);
    free(name);
    return H5_NO_MEMORY;
}

static h5_problem group_message(void *ctx, int type, h5_cursor body)
{
    lister *l = ctx;
    switch (type) {
    case H5_M_SYMBOLS: return aril__h5_symbols(l->file, body, list_link, l);
    case H5_M_LINK: return aril__h5_link(l->file, body, list_link, l);
    case H5_M_LINK_INFO: return aril__h5_link_info(l->file, body, list_link, l);
    default: return H5_FINE;
    }
}

/* What an array holds, and whether that can be read. */
static void describe(const aril__hdf5 *f, const h5_object *o, h5_entry *e)
{
    h5_type type;
    uint64_t most[ARIL_MAX_DIMS];
    h5_problem p = aril__h5_type(o->type, &type);
    if (p == H5_FINE) p = aril__h5_dtype(&type, &e->dtype);
    if (p == H5_FINE) p = aril__h5_space(f, o->space, &e->shape, most);
    if (p == H5_FINE && o->is_external) p = H5_OUTSIDE;
    e->problem = p;
    e->kind = p == H5_FINE ? H5_ARRAY : H5_REFUSED;
}

/* Takes over the name. */
static h5_problem list_object(aril__hdf5 *f, char *name, uint64_t address, int depth)
{
    h5_entry e = { .name = name, .kind = H5_OTHER, .address = address };
    h5_object o;
    h5_problem p = aril__h5_object(f, address, &o);
    bool is_array = o.type.at && o.space.at;
    if (p != H5_FINE && aril__h5_status(p) != ARIL_ERR_UNSUPPORTED) {
        free(name);
        return p;
    }
    if (p != H5_FINE) {
        e.kind = H5_REFUSED;
        e.problem = p;
    } else if (is_array) {
        describe(f, &o, &e);
    } else if (o.is_group) {
        e.kind = H5_GROUP;
    }
    int at = f->n_entries;
    p = add_entry(f, e);
    if (p != H5_FINE || e.kind != H5_GROUP) return p;
    if (depth > MAX_DEPTH) return H5_DEEP;
    lister l = { .file = f, .prefix = f->entry[at].name, .depth = depth };
    return aril__h5_messages(f, address, group_message, &l);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const h5_entry *)a)->name, ((const h5_entry *)b)->name);
}

/* The arrays among the entries. */
static h5_problem index_arrays(aril__hdf5 *f)
{
    qsort(f->entry, (size_t)f->n_entries, sizeof *f->entry, by_name);
    f->array = aril__malloc((size_t)f->n_entries * sizeof *f->array);
    f->refused = aril__malloc((size_t)f->n_entries * sizeof *f->refused);
    if (!f->array || !f->refused) return H5_NO_MEMORY;
    for (int i = 0; i < f->n_entries; i++) {
        if (f->entry[i].kind == H5_ARRAY) f->array[f->n_arrays++] = i;
        if (f->entry[i].kind == H5_REFUSED) f->refused[f->n_refused++] = i;
    }
    return H5_FINE;
}

static h5_problem list_all(aril__hdf5 *f, const void *data, size_t size)
{
    h5_problem p = aril__h5_superblock(f, data, size);
    if (p != H5_FINE) return p;
    long long steps = MAX_STEPS + (f->n < (UINT64_C(1) << 60) ? 4 * (long long)f->n : 0);
    atomic_init(&f->steps_left, steps);
    f->steps = &f->steps_left;
    char *name = aril__strdup("");
    if (!name) return H5_NO_MEMORY;
    p = list_object(f, name, f->root, 0);
    return p == H5_FINE ? index_arrays(f) : p;
}

/* ---- opening ---- */

void aril__hdf5_close(aril__hdf5 *f)
{
    if (!f) return;
    for (int i = 0; i < f->n_entries; i++) {
        free(f->entry[i].name);
        free(f->entry[i].target);
    }
    free(f->entry);
    free(f->array);
    free(f->refused);
    aril__mapped_close(f->mapped);
    free(f->path);
    free(f);
}

/* Takes over the mapped file. */
static aril__hdf5 *open_file(const char *path, aril__mapped *mapped, const void *data, size_t size)
{
    aril__hdf5 *f = aril__calloc(sizeof *f);
    char *name = aril__strdup(path);
    if (!f || !name) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
        aril__mapped_close(mapped);
        free(f);
        free(name);
        return NULL;
    }
    f->path = name;
    f->mapped = mapped;
    h5_problem p = list_all(f, data, size);
    if (mapped && aril__mapped_check(mapped) != ARIL_OK) p = H5_REPORTED;
    if (p == H5_FINE) return f;
    if (p == H5_NO_MEMORY)
        aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    else if (p != H5_REPORTED)
        aril__fail(aril__h5_status(p), "%s is not a valid HDF5 file: %s", path, aril__h5_text(p));
    aril__hdf5_close(f);
    return NULL;
}

aril__hdf5 *aril__hdf5_open(const char *path)
{
    aril__mapped *m = aril__mapped_open("HDF5", path);
    return m ? open_file(path, m, aril__mapped_data(m), aril__mapped_size(m)) : NULL;
}

aril__hdf5 *aril__hdf5_open_memory(const void *data, size_t size, const char *name)
{
    return open_file(name, NULL, data, size);
}

/* ---- finding ---- */

static const h5_entry *find(const aril__hdf5 *f, const char *name)
{
    h5_entry key = { .name = (char *)(uintptr_t)name };
    return f->n_entries ? bsearch(&key, f->entry, (size_t)f->n_entries, sizeof *f->entry, by_name)
                        : NULL;
}

/* Without slashes at the ends, without double ones, and without "." */
static void normalize(char *name)
{
    char *to = name;
    for (const char *from = name; *from;) {
        size_t n = strcspn(from, "/");
        if (n > 0 && !(n == 1 && *from == '.')) {
            if (to > name) *to++ = '/';
            memmove(to, from, n);
            to += n;
        }
        from += n + (from[n] == '/');
    }
    *to = 0;
}

/* Replaces the first soft link in a path: *next is to be freed; NULL if there is none. */
static h5_problem follow(const aril__hdf5 *f, const char *name, char **next)
{
    size_t n = strlen(name), base = 0;
    char *part = aril__strdup(name);
    *next = NULL;
    if (!part) return H5_NO_MEMORY;
    h5_problem p = H5_FINE;
    for (size_t i = 1; i <= n && !*next && p == H5_FINE; i++) {
        if (name[i] && name[i] != '/') continue;
        part[i] = 0;
        const h5_entry *e = find(f, part);
        part[i] = name[i];
        if (e && e->kind == H5_SOFT) {
            /* A relative target begins in the link's own group. */
            aril__bytes b = { 0 };
            aril__bytes_print(&b, "%.*s/%s%s", *e->target == '/' ? 0 : (int)base, name, e->target,
                              name + i);
            if (b.failed) p = H5_NO_MEMORY;
            if (b.failed) aril__bytes_free(&b);
            *next = (char *)b.at;
        }
        base = i;
    }
    free(part);
    return p;
}

h5_problem aril__h5_find(const aril__hdf5 *f, const char *name, const h5_entry **found)
{
    char *path = aril__strdup(name);
    h5_problem p = path ? H5_FINE : H5_NO_MEMORY;
    *found = NULL;
    for (int links = 0; path && links < 16; links++) {
        normalize(path);
        const h5_entry *e = find(f, path);
        if (e && e->kind != H5_SOFT) {
            *found = e;
            break;
        }
        char *next;
        p = follow(f, path, &next);
        free(path);
        path = next;
    }
    free(path);
    return p;
}

/* ---- arrays ---- */

int aril__hdf5_count(const aril__hdf5 *f)
{
    return f->n_arrays;
}

const char *aril__hdf5_array_name(const aril__hdf5 *f, int i)
{
    return f->entry[f->array[i]].name;
}

int aril__hdf5_refused(const aril__hdf5 *f)
{
    return f->n_refused;
}

const char *aril__hdf5_refused_name(const aril__hdf5 *f, int i, const char **problem)
{
    const h5_entry *e = &f->entry[f->refused[i]];
    *problem = aril__h5_text(e->problem);
    return e->name;
}

aril_dtype aril__hdf5_array_dtype(const aril__hdf5 *f, int i)
{
    return f->entry[f->array[i]].dtype;
}

aril_shape aril__hdf5_array_shape(const aril__hdf5 *f, int i)
{
    return f->entry[f->array[i]].shape;
}

uint64_t aril__hdf5_array_address(const aril__hdf5 *f, int i)
{
    return f->entry[f->array[i]].address;
}

int aril__hdf5_find(const aril__hdf5 *f, const char *name)
{
    const h5_entry *e;
    h5_problem p = aril__h5_find(f, name, &e);
    if (p != H5_FINE) return aril__h5_fail(f, p, "array", name);
    if (!e || e->kind != H5_ARRAY) return -1;
    int at = (int)(e - f->entry), low = 0, high = f->n_arrays;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (f->array[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- numbers ---- */

static uint64_t bits_of(uint64_t word, unsigned at, unsigned n)
{
    return n >= 64 ? word >> at : word >> at & ((UINT64_C(1) << n) - 1);
}

static uint64_t word_at(const unsigned char *p, const h5_type *t)
{
    uint64_t word = 0;
    for (size_t i = 0; i < t->size; i++)
        word |= (uint64_t)p[t->big_endian ? t->size - 1 - i : i] << 8 * i;
    return word;
}

static double real(uint64_t word, const h5_type *t)
{
    uint64_t exponent = bits_of(word, t->exponent, t->exponent_bits),
             mantissa = bits_of(word, t->mantissa, t->mantissa_bits);
    double fraction = ldexp((double)mantissa, -(int)t->mantissa_bits), x;
    int64_t unclamped = (int64_t)exponent - (int64_t)t->bias;
    int e = unclamped < -4096 ? -4096 : unclamped > 4096 ? 4096 : (int)unclamped; /* 0, infinity */
    if (exponent == (UINT64_C(1) << t->exponent_bits) - 1)
        x = mantissa ? (double)NAN : (double)INFINITY;
    else if (t->normalization == 2)
        x = exponent ? ldexp(1 + fraction, e) : ldexp(fraction, e + 1);
    else
        x = ldexp(fraction, e);
    return word >> t->sign & 1 ? -x : x;
}

static bool is_ieee(const h5_type *t)
{
    bool narrow = t->size == 4;
    return (narrow || t->size == 8) && t->normalization == 2 && t->sign == 8 * t->size - 1 &&
           t->mantissa == 0 && t->mantissa_bits == (narrow ? 23 : 52) &&
           t->exponent == t->mantissa_bits && t->exponent_bits == (narrow ? 8 : 11) &&
           t->bias == (narrow ? 127 : 1023);
}

/* Elements that are the dtype's own, but perhaps in the other byte order. */
static bool is_own(const h5_type *t)
{
    return t->class == H5_FLOAT ? is_ieee(t) : t->offset == 0 && t->precision == 8 * t->size;
}

static void convert(const unsigned char *from, const h5_type *t, aril_dtype dtype, void *to,
                    int64_t n)
{
    for (int64_t i = 0; i < n; i++, from += t->size) {
        uint64_t word = word_at(from, t);
        if (dtype == ARIL_F32) {
            ((float *)to)[i] = (float)real(word, t);
        } else if (dtype == ARIL_F64) {
            ((double *)to)[i] = real(word, t);
        } else {
            word = bits_of(word, t->offset, t->precision);
            if (t->is_signed && t->precision < 64 && word >> (t->precision - 1) & 1)
                word |= UINT64_MAX << t->precision;
            unsigned char *p = (unsigned char *)to + (size_t)i * t->size;
            for (size_t k = 0; k < t->size; k++) p[k] = (unsigned char)(word >> 8 * k);
            aril__to_host_order(p, t->size, 1, false);
        }
    }
}

static h5_problem read_numbers(h5_data *d, const h5_type *t, aril_tensor *to)
{
    int64_t n = aril_numel(to);
    void *at = aril__ptr(to);
    if (n == 0) return H5_FINE;
    if (is_own(t)) {
        h5_problem p = aril__h5_data(d, at);
        if (p == H5_FINE) aril__to_host_order(at, t->size, n, t->big_endian);
        return p;
    }
    void *raw = aril__malloc(d->bytes);
    if (!raw) return H5_NO_MEMORY;
    h5_problem p = aril__h5_data(d, raw);
    if (p == H5_FINE) convert(raw, t, aril_dtype_of(to), at, n);
    free(raw);
    return p;
}

static h5_problem read_entry(const aril__hdf5 *f, const h5_entry *e, aril_tensor **to)
{
    h5_object o;
    h5_type type;
    h5_data d = { .file = f, .object = &o };
    aril_dtype dtype;
    uint64_t bytes;
    h5_problem p = aril__h5_object(f, e->address, &o);
    if (p == H5_FINE) p = aril__h5_type(o.type, &type);
    if (p == H5_FINE) p = aril__h5_dtype(&type, &dtype);
    if (p == H5_FINE) p = aril__h5_space(f, o.space, &d.shape, d.most);
    if (p != H5_FINE) return p;
    d.element = type.size;
    if (!aril__array_bytes(d.shape, type.size, SIZE_MAX / 2, &bytes)) return H5_CLAIMED;
    d.bytes = (size_t)bytes;
    p = aril__h5_data(&d, NULL);
    if (p != H5_FINE) return p;
    aril_tensor *t = aril_empty(d.shape, dtype, aril_cpu());
    if (aril_tensor_status(t) != ARIL_OK) return H5_REPORTED;
    p = read_numbers(&d, &type, t);
    if (p == H5_FINE && f->mapped && aril__mapped_check(f->mapped) != ARIL_OK) p = H5_REPORTED;
    if (f->mapped && d.bytes >= LARGE) aril__mapped_rest(f->mapped);
    if (p != H5_FINE)
        aril_drop(t);
    else
        *to = t;
    return p;
}

static aril_tensor *read_array(const aril__hdf5 *f, const h5_entry *e)
{
    aril_tensor *t = NULL;
    h5_problem p = e->kind == H5_REFUSED ? e->problem : read_entry(f, e, &t);
    if (p == H5_FINE) return t;
    aril__h5_fail(f, p, "array", e->name);
    return aril__poison();
}

aril_tensor *aril__hdf5_array(const aril__hdf5 *f, int i)
{
    return read_array(f, &f->entry[f->array[i]]);
}

aril_tensor *aril_hdf5_read(const char *path, const char *name)
{
    aril__hdf5 *f = aril__hdf5_open(path);
    if (!f) return aril__poison();
    const h5_entry *e = NULL;
    h5_problem p = name ? aril__h5_find(f, name, &e) : H5_FINE;
    bool is_array = e && (e->kind == H5_ARRAY || e->kind == H5_REFUSED);
    aril_tensor *t = NULL;
    if (p != H5_FINE)
        aril__h5_fail(f, p, "array", name);
    else if (is_array)
        t = read_array(f, e);
    else
        aril__fail(ARIL_ERR_ARG,
                   "%s has no array %s of its own (links to other files are not followed)", path,
                   name ? name : "without a name");
    aril__hdf5_close(f);
    return t ? t : aril__poison();
}
