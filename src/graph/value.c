#include "graph/value.h"

#include "aril/create.h"
#include "aril/dtype.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "graph/program.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- interned strings ---- */

/* A string that values refer to: equal ones are one object. */
typedef struct interned {
    struct interned *next;
    uint64_t hash;
    size_t refs, n;
    char text[];
} interned;

enum { FIRST_BUCKETS = 64 };
static struct {
    pthread_mutex_t lock;
    interned **bucket;
    size_t n_buckets, n;
} strings = { .lock = PTHREAD_MUTEX_INITIALIZER };

size_t aril__interned(void)
{
    pthread_mutex_lock(&strings.lock);
    size_t n = strings.n;
    pthread_mutex_unlock(&strings.lock);
    return n;
}

static uint64_t hash_of(aril__string s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.n; i++) h = (h ^ (unsigned char)s.at[i]) * 0x100000001b3u;
    return h;
}

/* Twice the buckets when they are full; the old ones do if there is no memory. With the lock
 * held. */
static bool grow_table(void)
{
    if (strings.n < strings.n_buckets) return true;
    size_t n = strings.n_buckets ? 2 * strings.n_buckets : FIRST_BUCKETS;
    interned **bucket = aril__calloc(n * sizeof *bucket);
    if (!bucket) return strings.n_buckets != 0;
    for (size_t b = 0; b < strings.n_buckets; b++)
        for (interned *s = strings.bucket[b], *next; s; s = next) {
            next = s->next;
            s->next = bucket[s->hash & (n - 1)];
            bucket[s->hash & (n - 1)] = s;
        }
    free(strings.bucket);
    strings.bucket = bucket;
    strings.n_buckets = n;
    return true;
}

/* A reference to the string; NULL when out of memory. */
static interned *intern(aril__string text)
{
    uint64_t hash = hash_of(text);
    interned *s = NULL;
    pthread_mutex_lock(&strings.lock);
    if (grow_table()) {
        interned **at = &strings.bucket[hash & (strings.n_buckets - 1)];
        for (s = *at; s; s = s->next)
            if (s->hash == hash && s->n == text.n && memcmp(s->text, text.at, text.n) == 0) break;
        if (!s && (s = aril__malloc(sizeof *s + text.n + 1))) {
            *s = (interned){ .next = *at, .hash = hash, .n = text.n };
            if (text.n) memcpy(s->text, text.at, text.n);
            s->text[text.n] = '\0';
            *at = s;
            strings.n++;
        }
        if (s) s->refs++;
    }
    pthread_mutex_unlock(&strings.lock);
    return s;
}

static void release_string(interned *s)
{
    pthread_mutex_lock(&strings.lock);
    if (--s->refs == 0) {
        interned **at = &strings.bucket[s->hash & (strings.n_buckets - 1)];
        while (*at != s) at = &(*at)->next;
        *at = s->next;
        strings.n--;
        free(s);
    }
    pthread_mutex_unlock(&strings.lock);
}

/* ---- lifetime ---- */

struct aril_value {
    atomic_int refs;
    aril_value_kind kind;
    aril_tensor *tensor; /* a reference */
    aril_shape shape;    /* of a text */
    int64_t n;
    interned **text;
    aril_value **item; /* of a sequence, map or optional: references */
    aril_value *keys;  /* of a map: a reference */
    aril_value *next;  /* in the list of values to be freed */
};

static aril__cold void no_memory(void)
{
    aril__fail(ARIL_ERR_MEMORY, "value: out of memory");
}

/* Sequences of sequences may be deep: what is to be freed is a list. */
static void drop(aril_value *v, aril_value **list)
{
    if (!v || atomic_fetch_sub(&v->refs, 1) != 1) return;
    v->next = *list;
    *list = v;
}

void aril_value_release(aril_value *v)
{
    aril_value *list = NULL;
    for (drop(v, &list); list;) {
        v = list;
        list = v->next;
        if (v->tensor) aril_release(v->tensor);
        for (int64_t i = 0; i < v->n && v->text; i++)
            if (v->text[i]) release_string(v->text[i]);
        for (int64_t i = 0; i < v->n && v->item; i++) drop(v->item[i], &list);
        drop(v->keys, &list);
        free(v->text);
        free(v->item);
        free(v);
    }
}

aril_value *aril_value_keep(aril_value *v)
{
    if (v) atomic_fetch_add(&v->refs, 1);
    return v;
}

static void release_with_scope(void *data, void *ctx)
{
    (void)data;
    aril_value_release(ctx);
}

/* Hands the reference to the innermost scope, which owns tensors: one of a byte stands for it. NULL
 * on failure. */
static aril_value *give(aril_value *v)
{
    static char byte;
    aril_tensor *owner = aril_borrow(&byte, ARIL_SHAPE(1), ARIL_U8, release_with_scope, v);
    return aril_tensor_status(owner) < 0 ? NULL : v;
}

static aril_value *new_value(aril_value_kind kind, int64_t n)
{
    aril_value *v = aril__calloc(sizeof *v);
    if (!v) {
        no_memory();
        return NULL;
    }
    atomic_init(&v->refs, 1);
    v->kind = kind;
    v->n = n;
    return v;
}

/* ---- creating ---- */

aril_value *aril_value_of(aril_tensor *t)
{
    if (aril__check_value("value_of", t) < 0) return NULL;
    aril_value *v = new_value(ARIL_VALUE_TENSOR, 1);
    if (!v) return NULL;
    v->tensor = aril_keep(t);
    return give(v);
}

static bool count_elements(aril_shape shape, int64_t *n)
{
    *n = 1;
    if (shape.ndim < 0 || shape.ndim > ARIL_MAX_DIMS) return false;
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] < 0 || __builtin_mul_overflow(*n, shape.dim[d], n)) return false;
    return true;
}

aril_value *aril__value_strings(aril_shape shape, size_t n, const aril__string *text)
{
    aril_value *v = new_value(ARIL_VALUE_TEXT, (int64_t)n);
    if (!v) return NULL;
    v->shape = shape;
    v->text = aril__calloc((n + 1) * sizeof *v->text);
    bool fits = v->text != NULL;
    for (size_t i = 0; i < n && fits; i++) fits = (v->text[i] = intern(text[i])) != NULL;
    if (fits) return give(v);
    no_memory();
    aril_value_release(v);
    return NULL;
}

aril_value *aril_value_text(aril_shape shape, const char *const *text)
{
    int64_t n;
    if (!count_elements(shape, &n) || (n && !text)) {
        aril__fail(ARIL_ERR_ARG, "value_text: the %s", text ? "shape is wrong" : "list is NULL");
        return NULL;
    }
    aril__string *list = aril__malloc(((size_t)n + 1) * sizeof *list);
    aril_value *v = NULL;
    int64_t i = 0;
    for (; i < n && list && text[i]; i++) list[i] = (aril__string){ text[i], strlen(text[i]) };
    if (!list)
        no_memory();
    else if (i < n)
        aril__fail(ARIL_ERR_ARG, "value_text: string %" PRId64 " is NULL", i);
    else
        v = aril__value_strings(shape, (size_t)n, list);
    free(list);
    return v;
}

/* A value of items, with a reference that is the caller's. */
static aril_value *new_list(const char *what, aril_value_kind kind, aril_values items)
{
    bool valid = items.n >= 0 && (!items.n || items.at);
    for (int i = 0; i < items.n && valid; i++) valid = items.at[i] != NULL;
    if (!valid) {
        aril__fail(ARIL_ERR_ARG, "%s: an item is NULL", what);
        return NULL;
    }
    aril_value *v = new_value(kind, items.n);
    if (v && !(v->item = aril__calloc(((size_t)items.n + 1) * sizeof *v->item))) {
        no_memory();
        aril_value_release(v);
        return NULL;
    }
    for (int i = 0; v && i < items.n; i++) v->item[i] = aril_value_keep(items.at[i]);
    return v;
}

aril_value *aril_value_sequence(aril_values items)
{
    aril_value *v = new_list("value_sequence", ARIL_VALUE_SEQUENCE, items);
    return v ? give(v) : NULL;
}

aril_value *aril_value_optional(aril_value *item)
{
    aril_value *v =
        new_list("value_optional", ARIL_VALUE_OPTIONAL, (aril_values){ item != NULL, &item });
    return v ? give(v) : NULL;
}

static const int64_t *numbers_of(const aril_value *keys)
{
    return keys->kind == ARIL_VALUE_TENSOR ? aril__ptr(keys->tensor) : NULL;
}

/* Whether two keys are equal. */
static bool same_key(const aril_value *keys, int64_t a, int64_t b)
{
    const int64_t *number = numbers_of(keys);
    return number ? number[a] == number[b] : keys->text[a] == keys->text[b];
}

/* The keys on the CPU and contiguous; NULL with an error. */
static aril_value *check_keys(aril_value *keys, int n)
{
    aril_shape shape = keys ? aril_value_shape(keys) : (aril_shape){ 0 };
    bool right = keys && shape.ndim == 1 && shape.dim[0] == n;
    if (right && keys->kind == ARIL_VALUE_TENSOR) {
        right = keys->tensor->dtype == ARIL_I64;
        if (right &&
            (keys->tensor->storage->device != aril__cpu_device || !aril__is_dense(keys->tensor)))
            keys = aril_value_of(aril_contiguous(aril_to(keys->tensor, aril_cpu())));
    } else {
        right &= keys && keys->kind == ARIL_VALUE_TEXT;
    }
    if (!right)
        aril__fail(ARIL_ERR_ARG, "value_map: expected %d keys, strings or i64 in one dimension", n);
    for (int64_t a = 0; a < n && right && keys; a++)
        for (int64_t b = 0; b < a && right; b++)
            if (same_key(keys, a, b)) {
                aril__fail(ARIL_ERR_ARG, "value_map: keys %" PRId64 " and %" PRId64 " are equal", b,
                           a);
                right = false;
            }
    return right ? keys : NULL;
}

aril_value *aril_value_map(aril_value *keys, aril_values items)
{
    if (!(keys = check_keys(keys, items.n))) return NULL;
    aril_value *v = new_list("value_map", ARIL_VALUE_MAP, items);
    if (!v) return NULL;
    v->keys = aril_value_keep(keys);
    return give(v);
}

/* ---- reading ---- */

static const char *const kind_name[] = { [ARIL_VALUE_TENSOR] = "a tensor",
                                         [ARIL_VALUE_TEXT] = "a text",
                                         [ARIL_VALUE_SEQUENCE] = "a sequence",
                                         [ARIL_VALUE_MAP] = "a map",
                                         [ARIL_VALUE_OPTIONAL] = "an optional" };

aril_value_kind aril_value_kind_of(const aril_value *v)
{
    if (!v) aril__fail(ARIL_ERR_ARG, "value_kind_of: the value is NULL");
    return v ? v->kind : ARIL_VALUE_OPTIONAL;
}

/* What an optional has, and so on. */
static const aril_value *inside(const aril_value *v)
{
    while (v && v->kind == ARIL_VALUE_OPTIONAL && v->n) v = v->item[0];
    return v;
}

aril_tensor *aril_value_tensor(const aril_value *v)
{
    const aril_value *of = inside(v);
    if (of && of->kind == ARIL_VALUE_TENSOR) return of->tensor;
    aril__fail(ARIL_ERR_ARG, "value_tensor: the value is %s, not a tensor",
               of ? kind_name[of->kind] : "NULL");
    return aril__poison();
}

int64_t aril_value_count(const aril_value *v)
{
    if (!v) aril__fail(ARIL_ERR_ARG, "value_count: the value is NULL");
    return v ? v->n : 0;
}

static bool check_index(const char *what, const aril_value *v, bool right, int64_t i)
{
    if (right && i >= 0 && i < v->n) return true;
    if (right)
        aril__fail(ARIL_ERR_ARG, "%s: there is no item %" PRId64 ", the value has %" PRId64, what,
                   i, v->n);
    else
        aril__fail(ARIL_ERR_ARG, "%s: the value is %s", what, v ? kind_name[v->kind] : "NULL");
    return false;
}

aril_value *aril_value_at(const aril_value *v, int64_t i)
{
    return check_index("value_at", v, v && v->item, i) ? v->item[i] : NULL;
}

const char *aril_value_string(const aril_value *v, int64_t i)
{
    return check_index("value_string", v, v && v->kind == ARIL_VALUE_TEXT, i) ? v->text[i]->text
                                                                              : NULL;
}

aril__string aril__value_string(const aril_value *v, int64_t i)
{
    return (aril__string){ v->text[i]->text, v->text[i]->n };
}

aril_shape aril_value_shape(const aril_value *v)
{
    if (v && v->kind == ARIL_VALUE_TENSOR) return aril_shape_of(v->tensor);
    return v && v->kind == ARIL_VALUE_TEXT ? v->shape : (aril_shape){ 0 };
}

static bool check_map(const char *what, const aril_value *v)
{
    if (v && v->kind == ARIL_VALUE_MAP) return true;
    aril__fail(ARIL_ERR_ARG, "%s: the value is %s, not a map", what,
               v ? kind_name[v->kind] : "NULL");
    return false;
}

aril_value *aril_value_keys(const aril_value *map)
{
    return check_map("value_keys", map) ? map->keys : NULL;
}

aril_value *aril_value_find(const aril_value *map, const char *key)
{
    if (!key) aril__fail(ARIL_ERR_ARG, "value_find: the key is NULL");
    if (!key || !check_map("value_find", map)) return NULL;
    for (int64_t i = 0; i < map->n && map->keys->kind == ARIL_VALUE_TEXT; i++)
        if (strcmp(map->keys->text[i]->text, key) == 0) return map->item[i];
    return NULL;
}

aril_value *aril_value_find_number(const aril_value *map, int64_t key)
{
    if (!check_map("value_find_number", map)) return NULL;
    const int64_t *number = numbers_of(map->keys);
    for (int64_t i = 0; i < map->n && number; i++)
        if (number[i] == key) return map->item[i];
    return NULL;
}

/* A number as itself, other tensors by dtype and shape. */
static void print_tensor(aril_tensor *t, FILE *to)
{
    char text[ARIL__SHAPE_TEXT];
    aril_dtype dtype = aril_dtype_of(t);
    bool number = aril_numel(t) == 1 && aril_ndim(t) == 0 && aril_tensor_status(t) == ARIL_OK;
    if (number && dtype == ARIL_BOOL)
        fputs(aril_item(t) != 0 ? "true" : "false", to);
    else if (number && aril_dtype_is_float(dtype))
        fprintf(to, "%.6g", aril_item(t));
    else if (number)
        fprintf(to, "%" PRId64, aril_item_int(t));
    else
        fprintf(to, "%s%s", aril_dtype_name(dtype), aril__text(text, t));
}

static void print_value(const aril_value *v, int depth, FILE *to)
{
    if (depth > 64) {
        fputs("...", to);
        return;
    }
    switch (v->kind) {
    case ARIL_VALUE_TENSOR: print_tensor(v->tensor, to); return;
    case ARIL_VALUE_OPTIONAL:
        fputs(v->n ? "optional " : "nothing", to);
        if (v->n) print_value(v->item[0], depth + 1, to);
        return;
    default: break;
    }
    fputc(v->kind == ARIL_VALUE_MAP ? '{' : '[', to);
    for (int64_t i = 0; i < v->n; i++) {
        if (i) fputs(", ", to);
        const aril_value *keys = v->keys ? v->keys : v;
        if (keys->text) fprintf(to, "\"%s\"", keys->text[i]->text);
        if (v->keys && !keys->text) fprintf(to, "%" PRId64, numbers_of(keys)[i]);
        if (v->keys) fputs(": ", to);
        if (v->item) print_value(v->item[i], depth + 1, to);
    }
    fputc(v->kind == ARIL_VALUE_MAP ? '}' : ']', to);
}

void aril_value_print(const aril_value *v, FILE *to)
{
    if (!v || !to) return;
    print_value(v, 0, to);
    fputc('\n', to);
}

/* ---- programs ---- */

static aril_status run_tensors(aril_program *p, aril_values in, aril_value **out)
{
    size_t room = (size_t)in.n + (size_t)aril__program_max_results(p) + 1;
    aril_tensor **t = aril__calloc(room * sizeof *t);
    if (!t) return aril__fail(ARIL_ERR_MEMORY, "program_run_values: out of memory");
    aril_status s = ARIL_OK;
    for (int i = 0; i < in.n && s == ARIL_OK; i++) {
        t[i] = aril_value_tensor(in.at[i]);
        s = aril_tensor_status(t[i]);
    }
    if (s == ARIL_OK) s = aril_program_run(p, (aril_list){ in.n, t }, t + in.n);
    for (int i = 0; i < aril_program_results(p) && s == ARIL_OK; i++)
        if (!(out[i] = aril_value_of(t[in.n + i]))) s = aril__latest_status();
    free(t);
    return s;
}

aril_status aril_program_run_values(aril_program *p, aril_values in, aril_value **out)
{
    if (out) out[0] = NULL;
    if (!p || !out || in.n < 0 || (in.n && !in.at))
        return aril__fail(ARIL_ERR_ARG, "program_run_values: the %s is NULL",
                          !p    ? "program"
                          : out ? "list of inputs"
                                : "room for results");
    for (int i = 0; i < in.n; i++)
        if (!in.at[i]) return aril__fail(ARIL_ERR_ARG, "program_run_values: input %d is NULL", i);
    aril_status s;
    if (!aril__program_takes_values(p, in, out, &s)) s = run_tensors(p, in, out);
    for (int i = 0; s < 0 && i < (aril_program_results(p) > 0 ? aril_program_results(p) : 1); i++)
        out[i] = NULL;
    return s;
}
