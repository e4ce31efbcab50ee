#include "formats/pytorch/checkpoint.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- zip archives, since PyTorch 1.6: PREFIX/data.pkl, PREFIX/data/KEY, PREFIX/byteorder ---- */

static const char pickle_name[] = "data.pkl";

/* The member that holds the pickle, -1: none. */
static int find_pickle(const aril__zip *z)
{
    for (int i = 0; i < z->n; i++) {
        const char *name = z->member[i].name;
        size_t n = strlen(name), k = sizeof pickle_name - 1;
        if (aril__ends_with(name, pickle_name) && (n == k || name[n - k - 1] == '/')) return i;
    }
    return -1;
}

static int member_named(const aril__zip *z, const char *prefix, size_t n, const char *name)
{
    for (int i = 0; i < z->n; i++)
        if (strncmp(z->member[i].name, prefix, n) == 0 && strcmp(z->member[i].name + n, name) == 0)
            return i;
    return -1;
}

aril_status aril__pytorch_verify(const checkpoint *c, int member)
{
    const aril__zip_member *m = &c->w->zip->member[member];
    uint64_t at;
    aril_status s = aril__zip_data(c->w->zip, member, &at);
    /* 0: PyTorch was told not to compute it. */
    if (s < 0 || m->crc == 0 || aril__crc32(0, c->w->data + at, (size_t)m->size) == m->crc)
        return s;
    return aril__weights_malformed(c->w, "%s is corrupt: its checksum does not match", m->name);
}

/* The bytes of a stored member, NULL with an error; of a compressed one, unpacked into *to. */
static const unsigned char *member_bytes(const checkpoint *c, int i, aril__bytes *to)
{
    const aril_weights *w = c->w;
    uint64_t at;
    if (w->zip->member[i].method == 0)
        return aril__zip_data(w->zip, i, &at) == ARIL_OK && aril__pytorch_verify(c, i) == ARIL_OK
                   ? w->data + at
                   : NULL;
    return aril__zip_read(w->zip, i, to) == ARIL_OK ? to->at : NULL;
}

static aril_status read_byte_order(checkpoint *c, const char *prefix, size_t n)
{
    aril__bytes b = { 0 };
    int i = member_named(c->w->zip, prefix, n, "byteorder");
    const unsigned char *text = i >= 0 ? member_bytes(c, i, &b) : NULL;
    size_t size = i >= 0 ? (size_t)c->w->zip->member[i].size : 0;
    aril_status s = ARIL_OK;
    if (i >= 0 && !text)
        s = aril__latest_status();
    else if (text && size == 3 && memcmp(text, "big", 3) == 0)
        c->big = true;
    else if (text && (size != 6 || memcmp(text, "little", 6) != 0))
        s = aril__weights_malformed(c->w, "its byte order is neither little nor big");
    aril__bytes_free(&b);
    return s;
}

typedef struct range {
    uint64_t begin, end;
    const char *name;
} range;

static int by_begin(const void *a, const void *b)
{
    const range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Members lie apart: storages that overlap would make a small file a large one. */
static aril_status check_apart(aril_weights *w)
{
    aril_status s = ARIL_OK;
    range *r = aril__malloc(((size_t)w->zip->n + 1) * sizeof *r);
    if (!r) return aril__weights_no_memory(w);
    for (int i = 0; i < w->zip->n && s == ARIL_OK; i++) {
        r[i].name = w->zip->member[i].name;
        s = aril__zip_data(w->zip, i, &r[i].begin);
        r[i].end = r[i].begin + w->zip->member[i].packed;
    }
    if (s == ARIL_OK) qsort(r, (size_t)w->zip->n, sizeof *r, by_begin);
    for (int i = 1; i < w->zip->n && s == ARIL_OK; i++)
        if (r[i].begin < r[i - 1].end)
            s = aril__weights_malformed(w, "%s and %s overlap", r[i - 1].name, r[i].name);
    free(r);
    return s;
}

/* Finds the storages among the members. */
static aril_status place_members(checkpoint *c, const char *prefix, size_t n)
{
    const aril__zip *z = c->w->zip;
    aril_status s = ARIL_OK;
    for (int i = 0; i < z->n && s == ARIL_OK; i++) {
        const char *name = z->member[i].name, *key = name + n + 5;
        if (strncmp(name, prefix, n) != 0 || strncmp(name + n, "data/", 5) != 0) continue;
        checkpoint_place *place = aril__pytorch_find(c, key, strlen(key));
        uint64_t at;
        if (!place) continue;
        if (place->member >= 0)
            return aril__weights_malformed(c->w, "storage %s stands twice in it", key);
        s = aril__zip_data(z, i, &at);
        place->member = i;
        place->bytes = z->member[i].size;
        if (s == ARIL_OK && z->member[i].method == 0) place->at = c->w->data + at;
    }
    return s;
}

static aril_status open_zip(checkpoint *c)
{
    aril_weights *w = c->w;
    int i = find_pickle(w->zip);
    const char *name = w->zip->member[i].name;
    size_t n = strlen(name) - (sizeof pickle_name - 1);
    aril_status s = check_apart(w);
    if (s == ARIL_OK) s = read_byte_order(c, name, n);
    if (s < 0) return s;
    c->pickle.data = member_bytes(c, i, &c->unpacked);
    c->pickle.size = (size_t)w->zip->member[i].size;
    if (!c->pickle.data) return aril__latest_status();
    const pickle_value *v = aril__pickle_load(&c->pickle);
    if (!v) return c->pickle.status;
    s = aril__pytorch_number(c);
    if (s == ARIL_OK) s = place_members(c, name, n);
    return s == ARIL_OK ? aril__pytorch_list(c, v) : s;
}

/* ---- plain pickles, such as of dicts of NumPy arrays ---- */

static bool is_pickle(const aril_weights *w)
{
    return w->size > 2 && w->data[0] == 0x80 && w->data[1] >= 2 && w->data[1] <= 5;
}

static aril_status open_pickle(checkpoint *c)
{
    c->pickle.persistent = NULL;
    const pickle_value *v = aril__pickle_load(&c->pickle);
    if (!v) return c->pickle.status;
    aril_status s = aril__pytorch_number(c);
    return s == ARIL_OK ? aril__pytorch_list(c, v) : s;
}

/* ---- the kind ---- */

static int probe(aril_weights *w)
{
    aril_status s;
    const aril__zip *z = aril__weights_zip(w, &s);
    if (!z && s < 0) return s;
    return z ? find_pickle(z) >= 0
             : aril__pytorch_is_legacy(w) || aril__pytorch_is_tar(w) || is_pickle(w);
}

static aril_status open_file(aril_weights *w)
{
    enum { FREE = 1 << 24, TIMES = 64, MOST = 1 << 30 };
    checkpoint *c = aril__calloc(sizeof *c);
    if (!c) return aril__weights_no_memory(w);
    w->reader = c;
    c->w = w;
    c->pickle =
        (pickle){ .name = w->path,
                  .data = w->data,
                  .size = w->size,
                  .persistent = aril__pytorch_storage,
                  .ctx = c,
                  .limit = w->size < (MOST - FREE) / TIMES ? FREE + TIMES * w->size : MOST };
    aril_status s = w->zip                       ? open_zip(c)
                    : aril__pytorch_is_legacy(w) ? aril__pytorch_open_legacy(c)
                    : aril__pytorch_is_tar(w)    ? aril__pytorch_open_tar(c)
                                                 : open_pickle(c);
    return s == ARIL_OK ? aril__pytorch_check(c) : s;
}

static aril_tensor *tensor(aril_weights *w, int i)
{
    checkpoint *c = w->reader;
    return aril__pytorch_read(c, c->tensor[w->entry[i].at]);
}

static void close_file(aril_weights *w)
{
    checkpoint *c = w->reader;
    if (!c) return;
    aril__pytorch_free_places(c);
    aril__pickle_free(&c->pickle);
    aril__bytes_free(&c->unpacked);
    free(c->tensor);
    free(c);
}

const aril__weights_kind aril__pytorch_weights = { .name = "PyTorch",
                                                   .id = "pytorch",
                                                   .extensions = ".pt .pth .bin .th .ckpt",
                                                   .probe = probe,
                                                   .open = open_file,
                                                   .tensor = tensor,
                                                   .close = close_file,
                                                   .save = aril__pytorch_save,
                                                   .save_part = aril__pytorch_save_part };
