#include "core/sizes.h"

#include "core/memory.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Entry k of table t is the number -(BASE + (t * MAX_UNKNOWN + k) * STEP + TAG), which a double
 * holds exactly. Sums and products of such numbers, which code that knows nothing of unknown sizes
 * may compute, miss the tag, and read as anonymous. */
#define BASE ((int64_t)1 << 48)
enum { STEP_BITS = 20, TAG = 0x9e377, UNKNOWN_BITS = 16, MAX_UNKNOWN = 1 << UNKNOWN_BITS };
enum { MAX_OPEN = 1 << (48 - STEP_BITS - UNKNOWN_BITS) };

enum { MAX_FACTORS = 64 };

int64_t aril__size_number(const aril__sizes *s, size_t k)
{
    return -(BASE + ((((int64_t)s->id << UNKNOWN_BITS) + (int64_t)k) << STEP_BITS) + TAG);
}

static unsigned table_of(int64_t d)
{
    return (unsigned)((-d - BASE) >> (STEP_BITS + UNKNOWN_BITS));
}

bool aril__size_is_of(const aril__sizes *s, int64_t d)
{
    return s && aril__size_is_named(d) && table_of(d) == s->id && aril__size_index(d) < s->n;
}

static const aril__size_entry *entry_of(const aril__sizes *s, int64_t d)
{
    return aril__size_is_of(s, d) ? &s->entries[aril__size_index(d)] : NULL;
}

size_t aril__size_index(int64_t d)
{
    return (size_t)((-d - BASE) >> STEP_BITS) & (MAX_UNKNOWN - 1);
}

bool aril__size_is_named(int64_t d)
{
    return d <= -BASE && d > -2 * BASE && ((-d - BASE) & ((1 << STEP_BITS) - 1)) == TAG;
}

/* ---- open tables ---- */

static struct {
    pthread_mutex_t lock;
    aril__sizes *at[MAX_OPEN]; /* 0 is for tables that are not open */
} open_tables = { .lock = PTHREAD_MUTEX_INITIALIZER };

atomic_int aril__sizes_n_asked;

void aril__sizes_open(aril__sizes *s)
{
    pthread_mutex_lock(&open_tables.lock);
    for (unsigned i = 1; i < MAX_OPEN && !s->id; i++)
        if (!open_tables.at[i]) {
            open_tables.at[i] = s;
            s->id = (uint16_t)i;
        }
    pthread_mutex_unlock(&open_tables.lock);
}

static void close_table(const aril__sizes *s)
{
    if (!s->id) return;
    pthread_mutex_lock(&open_tables.lock);
    bool open = open_tables.at[s->id] == s; /* not a copy */
    if (open) open_tables.at[s->id] = NULL;
    pthread_mutex_unlock(&open_tables.lock);
    if (open && s->asked) atomic_fetch_sub(&aril__sizes_n_asked, 1);
}

/* The open table that a number names; NULL: none. */
static aril__sizes *open_table(int64_t d)
{
    if (!aril__size_is_named(d) || !table_of(d)) return NULL;
    pthread_mutex_lock(&open_tables.lock);
    aril__sizes *s = open_tables.at[table_of(d)];
    pthread_mutex_unlock(&open_tables.lock);
    return s;
}

aril__sizes *aril__sizes_of(int n, const int64_t *dim)
{
    aril__sizes *first = NULL;
    for (int i = 0; i < n; i++) {
        aril__sizes *s = dim[i] < 0 ? open_table(dim[i]) : NULL;
        if (s) aril__size_passed_on(s, dim[i]);
        if (!first) first = s;
    }
    return first;
}

void aril__size_passed_on(aril__sizes *s, int64_t d)
{
    if (aril__size_is_of(s, d)) s->entries[aril__size_index(d)].passed_on = true;
}

void aril__size_asked_by(int64_t d, void *caller)
{
    aril__sizes *s = open_table(d);
    if (!aril__size_is_of(s, d)) return;
    aril__size_asked(s, 1, &d);
    aril__size_entry *e = &s->entries[aril__size_index(d)];
    if (!e->asked_by) e->asked_by = caller;
}

void aril__size_asked(aril__sizes *s, int n, const int64_t *dim)
{
    for (int i = 0; i < n && !s; i++) s = open_table(dim[i]);
    for (int i = 0; i < n && s && !s->asked; i++) {
        if (!aril__size_is_named(dim[i])) continue;
        s->asked = dim[i];
        if (s->id) atomic_fetch_add(&aril__sizes_n_asked, 1);
    }
}

void aril__sizes_free(aril__sizes *s)
{
    close_table(s);
    free(s->entries);
    free(s->words);
    *s = (aril__sizes){ 0 };
}

/* ---- entries ---- */

static bool grow(void **at, size_t *cap, size_t needed, size_t size)
{
    if (needed <= *cap) return true;
    size_t to = *cap ? *cap * 2 : 64;
    while (to < needed) to *= 2;
    void *grown = aril__realloc(*at, to * size);
    if (!grown) return false;
    *at = grown;
    *cap = to;
    return true;
}

static int64_t add(aril__sizes *s, const char *name, uint64_t hash, int n, const int64_t *key)
{
    void *entries = s->entries, *words = s->words;
    bool fits = s->n < MAX_UNKNOWN && grow(&entries, &s->cap, s->n + 1, sizeof *s->entries);
    s->entries = entries;
    fits = fits && grow(&words, &s->cap_words, s->n_words + (size_t)n, sizeof *s->words);
    s->words = words;
    if (!fits) return -1;
    aril__size_entry *e = &s->entries[s->n];
    *e = (aril__size_entry){ .hash = hash, .at = s->n_words, .n_key = n, .traced = -1 };
    if (name) snprintf(e->name, sizeof e->name, "%s", name);
    if (n) memcpy(s->words + s->n_words, key, (size_t)n * sizeof *key);
    s->n_words += (size_t)n;
    return aril__size_number(s, s->n++);
}

int64_t aril__size_new(aril__sizes *s, const char *name)
{
    return s ? add(s, name, 0, 0, NULL) : -1;
}

int64_t aril__size_derived(aril__sizes *s, int n, const int64_t *key)
{
    if (!s) return -1;
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++) hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u;
    for (size_t k = 0; k < s->n; k++) {
        const aril__size_entry *e = &s->entries[k];
        if (e->hash == hash && e->n_key == n &&
            memcmp(s->words + e->at, key, (size_t)n * sizeof *key) == 0)
            return aril__size_number(s, k);
    }
    return add(s, NULL, hash, n, key);
}

void aril__size_set_traced(aril__sizes *s, int64_t d, int64_t traced)
{
    if (entry_of(s, d)) s->entries[aril__size_index(d)].traced = traced;
}

const char *aril__size_name(const aril__sizes *s, int64_t d)
{
    const aril__size_entry *e = entry_of(s ? s : open_table(d), d);
    return e && e->name[0] ? e->name : "?";
}

/* Sums, small multiples and parts of the numbers of unknowns. */
static bool is_computed(int64_t d)
{
    return d < -BASE / 8 && d > -8 * BASE;
}

/* x with so many decimal digits. */
static double rounded(double x, int digits)
{
    char text[40];
    snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/* A number as one writes it in a program, also in f32: a few digits, or a power of two. */
static bool is_written(double v)
{
    double few = rounded(v, 6);
    return v == few || v == (double)(float)few || fabs(frexp(v, &(int){ 0 })) == 0.5;
}

/* Whether v is size * n, size / n, either plus a small number, or a number of a few digits over the
 * size; in f32, of a small n and of one digit. Other numbers happen to be so less than once in a
 * million. */
static bool is_from(double v, double size)
{
    enum { TIMES = 64, PARTS = 4096, FEW = 16, APART = 4096 };
    double n = round(v / size), part = round(size / v), over = v * size;
    if (n != 0 && fabs(n) <= TIMES)
        return fabs(v - size * n) <= APART || (fabs(n) <= FEW && v == (double)(float)(size * n));
    if (part != 0 && fabs(part) <= PARTS)
        return fabs(v * part - size) <= APART ||
               (fabs(part) <= FEW && v == (double)(float)(size / part));
    if (fabs(over) < 1e-3 || fabs(over) > 1e6) return false;
    return v == rounded(over, 6) / size || v == (double)(float)(rounded(over, 1) / size);
}

static bool is_from_one_of(const aril__sizes *s, double v)
{
    for (size_t k = 0; k < s->n; k++)
        if (is_from(v, (double)aril__size_number(s, k))) return true;
    return false;
}

/* The tag keeps powers of two, which are common, out of the ranges of multiples and parts. */
bool aril__size_derives(const aril__sizes *s, double v, bool narrow)
{
    enum { MULTIPLES = 4096, PARTS = 64, APART = 4096 };
    if (!s || !s->n || !isfinite(v) || v == 0) return false;
    double x = fabs(v) < 1 ? 1 / fabs(v) : fabs(v), first = -(double)aril__size_number(s, 0);
    double last = first + (double)(s->n << STEP_BITS), round = narrow ? 0x1p-24 : 0;
    if (narrow && x == (double)BASE) return true;
    for (int part = 1; part <= PARTS; part++) {
        double y = x * part, p = floor((y + part * APART) / (first * (1 - round)));
        bool few = p >= 1 && p <= (part == 1 ? MULTIPLES : PARTS);
        if (few && y <= (p * last + part * APART) * (1 + round))
            return frexp(x, &(int){ 0 }) != 0.5;
    }
    return false;
}

bool aril__size_is_computed(double v)
{
    if (!atomic_load_explicit(&aril__sizes_n_asked, memory_order_relaxed)) return false;
    double size = fabs(v);
    /* Quotients of sizes and numbers below 10^6, and products. */
    bool near = (size > 0 && size < 1e-8) || (size > 0x1p28 && size < 0x1p56);
    if (!near || aril__size_is_named((int64_t)v) || is_written(v)) return false;
    bool is = false;
    pthread_mutex_lock(&open_tables.lock);
    for (unsigned i = 1; i < MAX_OPEN && !is; i++)
        is = open_tables.at[i] && open_tables.at[i]->asked && is_from_one_of(open_tables.at[i], v);
    pthread_mutex_unlock(&open_tables.lock);
    return is;
}

bool aril__sizes_hide(const aril__sizes *s, char *text)
{
    bool computed = false, open = s || atomic_load(&aril__sizes_n_asked);
    for (char *at = strchr(text, '-'), *end; at; at = strchr(at + 1, '-')) {
        int64_t d = strtoll(at, &end, 10);
        if (end > at + 1 && *end == '.') d = (int64_t)fmax(strtod(at, &end), -0x1p62);
        bool named = aril__size_is_named(d);
        if (!named && !(open && is_computed(d))) continue;
        computed |= !named;
        const char *name = named ? aril__size_name(s, d) : "?";
        size_t n = strlen(name);
        if (n > (size_t)(end - at)) n = strlen(name = "?");
        memcpy(at, name, n);
        memmove(at + n, end, strlen(end) + 1);
    }
    return computed;
}

/* ---- products ---- */

/* A product: a known factor and unknown ones in ascending order. */
typedef struct product {
    int64_t factor;
    int n;
    bool anonymous; /* more factors, of which nothing is known */
    int64_t unknown[MAX_FACTORS];
} product;

static void multiply(product *p, int64_t d)
{
    if (d >= 0) {
        if (__builtin_mul_overflow(p->factor, d, &p->factor)) p->anonymous = true;
        return;
    }
    if (!aril__size_is_named(d) || p->n == MAX_FACTORS) {
        p->anonymous = true;
        return;
    }
    int at = p->n++;
    for (; at > 0 && p->unknown[at - 1] > d; at--) p->unknown[at] = p->unknown[at - 1];
    p->unknown[at] = d;
}

static product product_of(const aril__sizes *s, int n, const int64_t *dim)
{
    product p = { .factor = 1 };
    for (int i = 0; i < n; i++) {
        const aril__size_entry *e = entry_of(s, dim[i]);
        const int64_t *key = e && e->n_key ? s->words + e->at : NULL;
        if (key && key[0] == ARIL__SIZE_PRODUCT)
            for (int k = 1; k < e->n_key; k++) multiply(&p, key[k]);
        else
            multiply(&p, dim[i]);
    }
    return p;
}

/* The size for a product; -1 if that is unknown without a table. */
static int64_t size_of(aril__sizes *s, const product *p)
{
    if (p->anonymous) return -1;
    if (p->factor == 0 || p->n == 0) return p->factor;
    if (p->factor == 1 && p->n == 1) return p->unknown[0];
    int64_t key[2 + MAX_FACTORS] = { ARIL__SIZE_PRODUCT, p->factor };
    memcpy(key + 2, p->unknown, (size_t)p->n * sizeof *key);
    return aril__size_derived(s, 2 + p->n, key);
}

int64_t aril__size_product(aril__sizes *s, int n, const int64_t *dim)
{
    if (!s) s = aril__sizes_of(n, dim);
    product p = product_of(s, n, dim);
    return size_of(s, &p);
}

int64_t aril__size_value(const aril__sizes *s, int64_t d,
                         int64_t (*size)(void *ctx, int64_t unknown), void *ctx)
{
    product p = product_of(s, 1, &d);
    int64_t value = p.factor;
    for (int i = 0; i < p.n; i++) value *= size(ctx, p.unknown[i]);
    return value;
}

/* ---- what follows from sizes that are known ---- */

int64_t aril__size_known(const aril__sizes *s, int64_t d, const int64_t *value)
{
    if (d >= 0) return d;
    return entry_of(s, d) ? value[aril__size_index(d)] : -1;
}

static int64_t product_known(const aril__sizes *s, int n, const int64_t *key, const int64_t *value)
{
    int64_t count = 1;
    for (int i = 0; i < n; i++) {
        int64_t d = aril__size_known(s, key[i], value);
        if (d < 0 || __builtin_mul_overflow(count, d, &count)) return -1;
    }
    return count;
}

static int64_t broadcast_known(const aril__sizes *s, const int64_t *key, const int64_t *value)
{
    int64_t a = aril__size_known(s, key[0], value), b = aril__size_known(s, key[1], value);
    if (a < 0 || b < 0) return -1;
    return a == b || b == 1 ? a : a == 1 ? b : -1;
}

/* Derived unknowns come after those that they are derived from. */
void aril__sizes_follow(const aril__sizes *s, int64_t *value, aril__size_result *result, void *ctx)
{
    for (size_t k = 0; k < s->n; k++) {
        const aril__size_entry *e = &s->entries[k];
        const int64_t *key = s->words + e->at;
        if (value[k] >= 0 || !e->n_key) continue;
        if (key[0] == ARIL__SIZE_PRODUCT)
            value[k] = product_known(s, e->n_key - 1, key + 1, value);
        else if (key[0] == ARIL__SIZE_BROADCAST)
            value[k] = broadcast_known(s, key + 1, value);
        else if (result)
            value[k] = result(ctx, s, e->n_key, key, value);
    }
}

/* Of derived sizes, those that are often asked for. */
int64_t aril__size_traced(const aril__sizes *s, int64_t d)
{
    product p = product_of(s, 1, &d);
    int64_t size = p.factor;
    for (int i = 0; i < p.n; i++) {
        const aril__size_entry *e = entry_of(s, p.unknown[i]);
        if (!e || e->traced < 0 || __builtin_mul_overflow(size, e->traced, &size)) return -1;
    }
    return p.anonymous ? -1 : size;
}

/* Removes the unknown factors that both have. */
static void cancel(product *a, product *b)
{
    int i = 0, k = 0, m = 0, n = 0;
    while (i < a->n || k < b->n) {
        if (i < a->n && k < b->n && a->unknown[i] == b->unknown[k]) {
            i++;
            k++;
        } else if (k == b->n || (i < a->n && a->unknown[i] < b->unknown[k])) {
            a->unknown[m++] = a->unknown[i++];
        } else {
            b->unknown[n++] = b->unknown[k++];
        }
    }
    a->n = m;
    b->n = n;
}

bool aril__size_quotient(aril__sizes *s, int n, const int64_t *dim, int m, const int64_t *by,
                         int64_t *quotient)
{
    if (!s) s = aril__sizes_of(n, dim);
    if (!s) s = aril__sizes_of(m, by);
    product p = product_of(s, n, dim), q = product_of(s, m, by);
    cancel(&p, &q);
    *quotient = -1;
    if (p.anonymous || q.anonymous || q.n) return true;
    if (q.factor == 0) return false;
    if (p.factor % q.factor != 0) return p.n > 0; /* an unknown may hold the missing factor */
    p.factor /= q.factor;
    *quotient = size_of(s, &p);
    return true;
}

bool aril__size_differs(aril__sizes *s, int n, const int64_t *dim, int m, const int64_t *other)
{
    if (!s) s = aril__sizes_of(n, dim);
    if (!s) s = aril__sizes_of(m, other);
    product p = product_of(s, n, dim), q = product_of(s, m, other);
    if (p.anonymous || q.anonymous) return false;
    cancel(&p, &q);
    if (p.n || q.n) return false;
    /* Equal unknowns may be 0, and then both products are; but a shape that is right for empty
     * tensors only is wrong. */
    return p.factor != q.factor;
}

int64_t aril__size_nominal(const aril__sizes *s, int64_t d)
{
    if (d >= 0) return d;
    product p = product_of(s ? s : open_table(d), 1, &d);
    int64_t size = p.factor;
    for (int i = 0; i < p.n && !p.anonymous; i++)
        if (__builtin_mul_overflow(size, (int64_t)ARIL__NOMINAL_SIZE, &size))
            return ARIL__NOMINAL_SIZE;
    return p.anonymous ? ARIL__NOMINAL_SIZE : size;
}

/* ---- broadcasting ---- */

int64_t aril__size_broadcast(aril__sizes *s, int64_t a, int64_t b)
{
    if (a >= 0 || b >= 0) return a >= 0 ? a : b; /* the unknown one is 1, or equal to it */
    const int64_t of[2] = { a, b };
    if (!s) s = aril__sizes_of(2, of);
    for (int i = 0; i < 2; i++) { /* one may be the common size of the other and a third */
        const aril__size_entry *e = entry_of(s, of[i]);
        const int64_t *key = e && e->n_key ? s->words + e->at : NULL;
        if (key && key[0] == ARIL__SIZE_BROADCAST && (key[1] == of[1 - i] || key[2] == of[1 - i]))
            return of[i];
    }
    if (!aril__size_is_named(a) || !aril__size_is_named(b)) return -1;
    int64_t key[3] = { ARIL__SIZE_BROADCAST, a < b ? a : b, a < b ? b : a };
    return aril__size_derived(s, 3, key);
}
