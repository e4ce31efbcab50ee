/* Checkpoints of PyTorch before 0.1.10: tar archives of "storages" and "tensors", which have
 * numbers by which the "pickle" refers to them. */
#include "core/error.h"
#include "core/memory.h"
#include "formats/pytorch/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

/* ---- the archive ---- */

/* An octal number of n digits, which blanks or NULs may surround; -1 if it is none. */
static int64_t octal(const unsigned char *at, size_t n)
{
    int64_t value = 0;
    size_t i = 0, digits = 0;
    while (i < n && at[i] == ' ') i++;
    for (; i < n && at[i] >= '0' && at[i] <= '7'; i++, digits++) value = value * 8 + at[i] - '0';
    for (; i < n; i++)
        if (at[i] && at[i] != ' ') return -1;
    return digits ? value : -1;
}

static bool is_header(const unsigned char *at)
{
    int64_t sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : at[i];
    return octal(at + 148, 8) == sum;
}

/* Points the pickle at the member with a name. */
static bool enter_member(checkpoint *c, const char *name)
{
    const aril_weights *w = c->w;
    for (uint64_t at = 0; at <= w->size - BLOCK && is_header(w->data + at);) {
        int64_t size = octal(w->data + at + 124, 12);
        const char *member = (const char *)w->data + at;
        if (size < 0 || (uint64_t)size > w->size - at - BLOCK) return false;
        if (memcmp(member, "./", 2) == 0) member += 2;
        if (strncmp(member, name, strlen(name) + 1) == 0) {
            c->pickle.data = w->data + at + BLOCK;
            c->pickle.size = (size_t)size;
            c->pickle.at = 0;
            return true;
        }
        uint64_t next = BLOCK + ((uint64_t)size + BLOCK - 1) / BLOCK * BLOCK;
        if (next > w->size - BLOCK - at) return false;
        at += next;
    }
    return false;
}

bool aril__pytorch_is_tar(const aril_weights *w)
{
    static const char *const names[] = { "storages", "tensors", "pickle", "sys_info" };
    if (w->size < 2 * BLOCK || !is_header(w->data)) return false;
    for (int i = 0; i < 4; i++) {
        const char *name = (const char *)w->data;
        if (memcmp(name, "./", 2) == 0) name += 2;
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

/* ---- numbered objects ---- */

typedef struct object {
    int64_t number;
    pickle_value *value;
} object;

typedef struct objects {
    object *at;
    size_t n, cap;
} objects;

static bool add(pickle *p, objects *o, int64_t number, pickle_value *v)
{
    if (o->n == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 64;
        object *grown = aril__pickle_alloc(p, cap * sizeof *grown);
        if (!grown) return false;
        if (o->n) memcpy(grown, o->at, o->n * sizeof *grown);
        o->at = grown;
        o->cap = cap;
    }
    o->at[o->n++] = (object){ number, v };
    return true;
}

static int by_number(const void *a, const void *b)
{
    const object *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static void sort(objects *o)
{
    if (o->n) qsort(o->at, o->n, sizeof *o->at, by_number);
}

static pickle_value *find(const objects *o, int64_t number)
{
    object key = { number, NULL };
    const object *found = o->n ? bsearch(&key, o->at, o->n, sizeof key, by_number) : NULL;
    return found ? found->value : NULL;
}

typedef struct tar {
    checkpoint *c;
    objects storages, tensors;
} tar;

/* A count that begins a member; -1, with an error. Each object takes bytes of the file. */
static int64_t read_count(checkpoint *c, const char *member)
{
    if (!enter_member(c, member)) {
        aril__weights_malformed(c->w, "its member %s is missing", member);
        return -1;
    }
    const pickle_value *n = aril__pickle_load(&c->pickle);
    if (n && n->kind == PICKLE_INT && n->u.i >= 0 && (uint64_t)n->u.i <= c->pickle.size)
        return n->u.i;
    if (n) aril__weights_malformed(c->w, "the count of its %s is malformed", member);
    return -1;
}

/* ---- storages ---- */

static aril_status truncated(const checkpoint *c)
{
    return aril__weights_malformed(c->w, "it is truncated");
}

static pickle_value *add_storage(tar *t, int64_t number, int place, pickle_dtype type, int64_t n)
{
    pickle *p = &t->c->pickle;
    pickle_value *v = aril__pickle_new(p, PICKLE_STORAGE);
    pickle_storage *s = v ? aril__pickle_alloc(p, sizeof *s) : NULL;
    if (!s) return NULL;
    *s = (pickle_storage){ .numel = n, .type = type, .number = place };
    v->u.storage = s;
    return add(p, &t->storages, number, v) ? v : NULL;
}

/* (key, location, class), then the number of elements and their bytes */
static aril_status read_storage(tar *t, int place)
{
    pickle *p = &t->c->pickle;
    const pickle_value *v = aril__pickle_load(p);
    pickle_dtype type;
    if (!v) return p->status;
    if (!pickle_is_sequence(v, 3) || v->u.items.at[0]->kind != PICKLE_INT ||
        !aril__pickle_is_storage(v->u.items.at[2], &type))
        return aril__weights_malformed(t->c->w, "a storage is malformed");
    if (p->size - p->at < 8) return truncated(t->c);
    uint64_t n = aril__le64(p->data + p->at), left = p->size - p->at - 8;
    if (n > left / type.size) return truncated(t->c);
    t->c->place[place] = (checkpoint_place){ .at = p->data + p->at + 8,
                                             .bytes = n * type.size,
                                             .element = type.size,
                                             .member = -1,
                                             .first = -1 };
    t->c->n_places = place + 1;
    p->at += 8 + (size_t)(n * type.size);
    return add_storage(t, v->u.items.at[0]->u.i, place, type, (int64_t)n) ? ARIL_OK : p->status;
}

/* A list of (number, number of the storage it is part of, offset, elements) */
static aril_status read_views(tar *t)
{
    const pickle_value *views = aril__pickle_load(&t->c->pickle);
    if (!views) return t->c->pickle.status;
    if (!pickle_is_sequence(views, 0)) return truncated(t->c);
    size_t before = t->storages.n;
    for (size_t i = 0; i < views->u.items.n; i++) {
        const pickle_value *view = views->u.items.at[i];
        int64_t number[4];
        bool good = pickle_is_sequence(view, 4);
        for (int k = 0; k < 4 && good; k++) {
            good = view->u.items.at[k]->kind == PICKLE_INT;
            if (good) number[k] = view->u.items.at[k]->u.i;
        }
        objects roots = { t->storages.at, before, before };
        const pickle_value *root = good ? find(&roots, number[1]) : NULL;
        if (!root || number[2] < 0 || number[3] < 0)
            return aril__weights_malformed(t->c->w, "a view of a storage is malformed");
        pickle_value *v =
            add_storage(t, number[0], root->u.storage->number, root->u.storage->type, number[3]);
        if (!v) return t->c->pickle.status;
        v->u.storage->begin = number[2];
    }
    sort(&t->storages);
    return ARIL_OK;
}

static aril_status read_storages(tar *t)
{
    int64_t n = read_count(t->c, "storages");
    if (n < 0) return aril__latest_status();
    t->c->place = aril__calloc(((size_t)n + 1) * sizeof *t->c->place);
    if (!t->c->place) return aril__weights_no_memory(t->c->w);
    aril_status s = ARIL_OK;
    for (int64_t i = 0; i < n && s == ARIL_OK; i++) s = read_storage(t, (int)i);
    sort(&t->storages);
    return s == ARIL_OK ? read_views(t) : s;
}

/* ---- tensors ---- */

static const pickle_value *read_numbers(pickle *p, size_t n)
{
    pickle_value *tuple = aril__pickle_new(p, PICKLE_TUPLE);
    for (size_t i = 0; tuple && i < n; i++, p->at += 8) {
        pickle_value *v = aril__pickle_new(p, PICKLE_INT);
        if (!v || !aril__pickle_append(p, tuple, v)) return NULL;
        v->u.i = (int64_t)aril__le64(p->data + p->at);
    }
    return tuple;
}

/* (key, number of the storage, class), then the number of dimensions, sizes, strides, offset */
static aril_status read_tensor(tar *t)
{
    pickle *p = &t->c->pickle;
    const pickle_value *v = aril__pickle_load(p);
    if (!v) return p->status;
    if (!pickle_is_sequence(v, 3) || v->u.items.at[0]->kind != PICKLE_INT ||
        v->u.items.at[1]->kind != PICKLE_INT)
        return aril__weights_malformed(t->c->w, "a tensor is malformed");
    const pickle_value *storage = find(&t->storages, v->u.items.at[1]->u.i);
    if (!storage) return aril__weights_malformed(t->c->w, "a tensor has no storage");
    if (p->size - p->at < 8) return truncated(t->c);
    size_t ndim = aril__le32(p->data + p->at), left = p->size - p->at - 8;
    if (left < 8 || ndim > (left - 8) / 16) return truncated(t->c);
    p->at += 8;
    pickle_value *made = aril__pickle_new(p, PICKLE_TENSOR);
    pickle_tensor *tensor = made ? aril__pickle_alloc(p, sizeof *tensor) : NULL;
    const pickle_value *size = tensor ? read_numbers(p, ndim) : NULL;
    const pickle_value *stride = size ? read_numbers(p, ndim) : NULL;
    if (!stride) return p->status;
    *tensor =
        (pickle_tensor){ .storage = storage->u.storage,
                         .type = storage->u.storage->type,
                         .offset = (int64_t)aril__le64(p->data + p->at),
                         .size = size,
                         .stride = stride,
                         .problem = storage->u.storage->type.is_complex
                                        ? "a complex dtype" /* which these versions did not have */
                                        : storage->u.storage->type.problem };
    p->at += 8;
    made->u.tensor = tensor;
    return add(p, &t->tensors, v->u.items.at[0]->u.i, made) ? ARIL_OK : p->status;
}

static aril_status read_tensors(tar *t)
{
    int64_t n = read_count(t->c, "tensors");
    aril_status s = n < 0 ? aril__latest_status() : ARIL_OK;
    for (int64_t i = 0; i < n && s == ARIL_OK; i++) s = read_tensor(t);
    sort(&t->tensors);
    return s;
}

/* ---- the value ---- */

/* The number of a tensor or a storage, as text or as an integer. */
static pickle_value *object_of(pickle *p, pickle_value *id)
{
    const tar *t = p->ctx;
    char digits[24] = "";
    int64_t number = id->kind == PICKLE_INT ? id->u.i : 0;
    if (pickle_is_sequence(id, 1))
        return aril__pickle_refuse(
            p, "it holds a whole module, which only its Python code can create");
    if (id->kind == PICKLE_TEXT && id->u.text.n < sizeof digits) {
        memcpy(digits, id->u.text.at, id->u.text.n);
        number = strtoll(digits, NULL, 10);
    }
    pickle_value *v = find(&t->tensors, number);
    if (!v) v = find(&t->storages, number);
    return v ? v : aril__pickle_wrong(p, "it refers to a tensor that is missing");
}

aril_status aril__pytorch_open_tar(checkpoint *c)
{
    tar t = { .c = c };
    c->pickle.persistent = NULL;
    aril_status s = read_storages(&t);
    if (s == ARIL_OK) s = read_tensors(&t);
    if (s == ARIL_OK && !enter_member(c, "pickle"))
        s = aril__weights_malformed(c->w, "its pickle is missing");
    if (s < 0) return s;
    c->pickle.persistent = object_of;
    c->pickle.ctx = &t;
    const pickle_value *v = aril__pickle_load(&c->pickle);
    c->pickle.ctx = NULL;
    return v ? aril__pytorch_list(c, v) : c->pickle.status;
}
