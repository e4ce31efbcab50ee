/* Text in HDF5 files: attributes, arrays of strings, and the names in groups. */
#include "core/error.h"
#include "core/memory.h"
#include "formats/array.h"
#include "formats/hdf5/inside.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 1 << 20, MAX_TEXT = 1 << 26 };

void aril__hdf5_texts_free(aril__hdf5_texts *t)
{
    for (int i = 0; i < t->n; i++) free(t->at[i]);
    free(t->at);
    *t = (aril__hdf5_texts){ 0 };
}

static h5_problem add_text(aril__hdf5_texts *out, const void *from, size_t n)
{
    char *copy = aril__malloc(n + 1);
    if (!copy) return H5_NO_MEMORY;
    if (n) memcpy(copy, from, n);
    copy[n] = 0;
    out->at[out->n++] = copy;
    return H5_FINE;
}

/* ---- strings ---- */

typedef struct strings {
    const aril__hdf5 *file;
    h5_type type;
    aril_shape shape;
    uint64_t most[ARIL_MAX_DIMS];
    uint64_t n, bytes;
} strings;

/* How many there are, and whether they are text. */
static h5_problem measure(strings *s, h5_cursor type, h5_cursor space)
{
    h5_problem p = aril__h5_space(s->file, space, &s->shape, s->most);
    if (p == H5_NO_VALUE) return H5_FINE;
    if (p == H5_FINE) p = aril__h5_type(type, &s->type);
    if (p != H5_FINE) return p;
    if (!aril__array_bytes(s->shape, 1, MAX_TEXTS, &s->n)) return H5_TEXTS;
    if (s->n == 0) return H5_FINE;
    bool varies = s->type.class == H5_VARYING && s->type.is_text;
    if (s->type.class != H5_STRING && !varies) return H5_NOT_TEXT;
    if (varies && s->type.size != 8 + (size_t)s->file->offset_size) return H5_TYPE;
    if (s->type.size > MAX_TEXT / s->n) return H5_TEXTS;
    s->bytes = s->n * s->type.size;
    return H5_FINE;
}

static h5_problem fixed(const strings *s, h5_cursor *from, aril__hdf5_texts *out)
{
    const char *at = (const char *)aril__h5_bytes(from, s->type.size);
    size_t n = at ? strnlen(at, s->type.size) : 0;
    while (n && at[n - 1] == ' ') n--; /* Fortran's padding */
    return at ? add_text(out, at, n) : H5_SHORT;
}

static h5_problem varying(const strings *s, h5_globals *heaps, h5_cursor *from, size_t *total,
                          aril__hdf5_texts *out)
{
    uint64_t n = aril__h5_number(from, 4), address = aril__h5_offset(s->file, from),
             index = aril__h5_number(from, 4);
    h5_cursor object;
    if (from->bad) return H5_SHORT;
    if (n == 0 || address == 0 || address == H5_NOWHERE) return add_text(out, NULL, 0);
    h5_problem p = aril__h5_global(heaps, address, index, &object);
    if (p != H5_FINE) return p;
    if (n > object.left) return H5_HEAP;
    *total += (size_t)n;
    if (*total > MAX_TEXT) return H5_TEXTS;
    return add_text(out, object.at, strnlen((const char *)object.at, (size_t)n));
}

static h5_problem read_strings(const strings *s, h5_cursor from, aril__hdf5_texts *out)
{
    h5_globals heaps = { .file = s->file };
    size_t total = 0;
    h5_problem p = H5_FINE;
    if (s->n == 0) return H5_FINE;
    out->at = aril__calloc((size_t)s->n * sizeof *out->at);
    if (!out->at) return H5_NO_MEMORY;
    for (uint64_t i = 0; i < s->n && p == H5_FINE; i++)
        p = s->type.class == H5_STRING ? fixed(s, &from, out)
                                       : varying(s, &heaps, &from, &total, out);
    aril__h5_globals_free(&heaps);
    return p;
}

/* ---- attributes ---- */

typedef struct search {
    const aril__hdf5 *file;
    const char *name;
    bool found;
    aril__hdf5_texts *out;
    h5_heap heap;
} search;

/* Attributes of version 1 pad their parts to 8 bytes. */
static h5_cursor part(h5_cursor *c, uint64_t size, uint64_t version)
{
    h5_cursor p = { .left = (size_t)size };
    p.at = aril__h5_bytes(c, version == 1 ? (size + 7) & ~UINT64_C(7) : size);
    p.bad = !p.at;
    return p;
}

static h5_problem attribute(search *s, h5_cursor c)
{
    uint64_t version = aril__h5_number(&c, 1), flags = aril__h5_number(&c, 1), size[3];
    for (int i = 0; i < 3; i++) size[i] = aril__h5_number(&c, 2);
    if (version == 3) aril__h5_bytes(&c, 1);
    if (c.bad || version < 1 || version > 3) return H5_HEADER;
    h5_cursor name = part(&c, size[0], version), type = part(&c, size[1], version),
              space = part(&c, size[2], version);
    if (c.bad) return H5_HEADER;
    size_t n = strnlen((const char *)name.at, name.left);
    if (s->found || strlen(s->name) != n || memcmp(s->name, name.at, n) != 0) return H5_FINE;
    s->found = true;
    strings t = { .file = s->file };
    h5_problem p = H5_FINE;
    if (version > 1 && flags & 1) p = aril__h5_shared(s->file, H5_M_TYPE, &type);
    if (version > 1 && flags & 2) p = H5_SHARED;
    if (p == H5_FINE) p = measure(&t, type, space);
    return p == H5_FINE ? read_strings(&t, c, s->out) : p;
}

static h5_problem heap_attribute(void *ctx, h5_cursor record)
{
    search *s = ctx;
    h5_cursor object, flags = record;
    aril__h5_bytes(&flags, (uint64_t)s->heap.id_size);
    if (aril__h5_number(&flags, 1) & 2) return H5_FINE; /* shared between objects */
    h5_problem p = aril__h5_heap_find(&s->heap, record, &object);
    return p == H5_FINE ? attribute(s, object) : p;
}

static h5_problem attribute_message(void *ctx, int type, h5_cursor c)
{
    search *s = ctx;
    if (type == H5_M_ATTRIBUTE) return attribute(s, c);
    if (type != H5_M_ATTRIBUTE_INFO) return H5_FINE;
    aril__h5_bytes(&c, 1);
    uint64_t flags = aril__h5_number(&c, 1);
    aril__h5_bytes(&c, flags & 1 ? 2 : 0);
    uint64_t heap = aril__h5_offset(s->file, &c), tree = aril__h5_offset(s->file, &c);
    if (c.bad) return H5_HEADER;
    if (heap == H5_NOWHERE) return H5_FINE;
    h5_problem p = aril__h5_heap_open(s->file, heap, &s->heap);
    return p == H5_FINE ? aril__h5_records(s->file, tree, 8, heap_attribute, s) : p;
}

static aril_status done(const aril__hdf5 *f, h5_problem p, const char *what, const char *name,
                        aril__hdf5_texts *out)
{
    if (p == H5_FINE && f->mapped && aril__mapped_check(f->mapped) != ARIL_OK) p = H5_REPORTED;
    if (p == H5_FINE) return ARIL_OK;
    aril__hdf5_texts_free(out);
    return aril__h5_fail(f, p, what, name);
}

aril_status aril__hdf5_attribute(const aril__hdf5 *f, const char *group, const char *name,
                                 aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    const h5_entry *e;
    h5_problem p = aril__h5_find(f, group, &e);
    if (!e) return done(f, p, "group", group, out);
    search s = { .file = f, .name = name, .out = out };
    p = aril__h5_messages(f, e->address, attribute_message, &s);
    return done(f, p, "attribute", name, out);
}

/* ---- arrays of strings ---- */

static h5_problem text_array(const aril__hdf5 *f, uint64_t address, aril__hdf5_texts *out)
{
    h5_object o;
    strings s = { .file = f };
    h5_problem p = aril__h5_object(f, address, &o);
    if (p == H5_FINE) p = measure(&s, o.type, o.space);
    if (p != H5_FINE || s.n == 0) return p;
    h5_data d = { .file = f, .object = &o, .shape = s.shape, .element = s.type.size };
    memcpy(d.most, s.most, sizeof d.most);
    d.bytes = (size_t)s.bytes;
    unsigned char *raw = aril__malloc(d.bytes);
    if (!raw) return H5_NO_MEMORY;
    p = aril__h5_data(&d, raw);
    if (p == H5_FINE) p = read_strings(&s, (h5_cursor){ .at = raw, .left = d.bytes }, out);
    free(raw);
    return p;
}

aril_status aril__hdf5_text_array(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    const h5_entry *e;
    h5_problem p = aril__h5_find(f, name, &e);
    if (!e || (e->kind != H5_ARRAY && e->kind != H5_REFUSED)) return done(f, p, "array", name, out);
    return done(f, text_array(f, e->address, out), "array", name, out);
}

/* ---- groups ---- */

int aril__hdf5_group(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out)
{
    *out = (aril__hdf5_texts){ 0 };
    const h5_entry *group;
    h5_problem p = aril__h5_find(f, name, &group);
    if (p != H5_FINE) return (int)done(f, p, "group", name, out);
    if (!group || group->kind != H5_GROUP) return 1;
    size_t n = strlen(group->name), skip = n ? n + 1 : 0;
    int capacity = 0;
    /* Sorted, they begin with "name/"; other names may come between the group and these. */
    for (const h5_entry *e = group + 1; e < f->entry + f->n_entries && p == H5_FINE; e++) {
        if (strncmp(e->name, group->name, n) != 0) break;
        if ((n && e->name[n] != '/') || strchr(e->name + skip, '/') || e->kind == H5_SOFT) continue;
        if (out->n == capacity) {
            capacity = 2 * capacity + 16;
            char **grown = aril__realloc(out->at, (size_t)capacity * sizeof *grown);
            if (!grown) p = H5_NO_MEMORY;
            if (!grown) break;
            out->at = grown;
        }
        p = add_text(out, e->name + skip, strlen(e->name + skip));
    }
    return (int)done(f, p, "group", name, out);
}
