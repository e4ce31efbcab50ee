#include "ops/table/planned.h"

#include "core/environment.h"
#include "core/parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_WORDS = 512,    /* longer descriptions are not cached */
    SLOTS = 512,        /* choices that a thread finds without a lock */
    MAX_CHOICES = 1024, /* choices in the table of all threads */
    BUCKETS = 1024,
};

typedef struct entry {
    aril__choice choice; /* first: the caller's pointer is the entry's */
    atomic_int refs;
    atomic_bool used;   /* since the last search for a victim */
    struct entry *next; /* in its bucket */
    uint64_t hash;
    size_t words;
    uint64_t *key;
} entry;

/* A thread's cache: a reference to each entry. */
struct aril__thread_plans {
    unsigned depth; /* choices taken and not yet returned: their slots must stay */
    entry *slot[SLOTS];
};

static struct {
    pthread_mutex_t lock; /* guards all but `generation` */
    entry *bucket[BUCKETS];
    entry *all[MAX_CHOICES];
    int n, hand; /* hand: position of the CLOCK eviction */
    int64_t made;
    atomic_uint generation;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- descriptions ---- */

static uint64_t threads_now(void)
{
    return (uint64_t)aril__parallel_pieces(INT64_MAX, 1) |      /* how far work may be split, */
           (uint64_t)aril__parallel_slots(INT64_MAX, 1) << 32 | /* by how many threads */
           (uint64_t)aril_deterministic() << 60;
}

/* Everything that prepare may depend on, as words. Returns their number, or 0 if there is no
 * room. */
static size_t describe(const aril__run *r, uint64_t *key)
{
    size_t n = 0, attrs = r->attrs ? r->op->attr_size / sizeof *key : 0;
    if (4 + attrs > KEY_WORDS) return 0;
    key[n++] = (uint64_t)(uintptr_t)r->device;
    key[n++] = (uint64_t)aril__op_number(r->op) | (uint64_t)r->type << 16 |
               (uint64_t)(uint32_t)aril__force_row << 32;
    key[n++] = atomic_load_explicit(&table.generation, memory_order_acquire);
    key[n++] = threads_now();
    if (attrs) memcpy(key + n, r->attrs, attrs * sizeof *key);
    n += attrs;
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        const aril_tensor *t = i < r->n_in ? r->in[i] : r->out[i - r->n_in];
        if (aril__unlikely(n + 1 + 2 * ARIL_MAX_DIMS > KEY_WORDS)) return 0;
        if (!t) {
            key[n++] = 255;
            continue;
        }
        bool written = i >= r->n_in && r->n_in && t == r->in[0];
        bool placed = i >= r->n_in && t->storage; /* its order is not the row's to give */
        key[n++] = t->ndim | (uint64_t)t->dtype << 8 | (uint64_t)written << 16 |
                   (uint64_t)placed << 17 | (uint64_t)aril__is_number(t) << 18;
        for (int d = 0; d < t->ndim; d++) key[n++] = (uint64_t)t->dim[d];
        for (int d = 0; d < t->ndim; d++) key[n++] = (uint64_t)t->stride[d];
    }
    return n;
}

static inline uint64_t stir(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h << 29 | h >> 35;
}

/* Four independent chains of multiplications. */
static uint64_t hash_of(const uint64_t *key, size_t n)
{
    uint64_t h[4] = { n, 1, 2, 3 };
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) h[k] = stir(h[k], key[i + (size_t)k]);
    for (; i < n; i++) h[0] = stir(h[0], key[i]);
    return stir(stir(stir(h[0], h[1]), h[2]), h[3]);
}

static bool is_for(const entry *e, uint64_t hash, const uint64_t *key, size_t n)
{
    return e && e->hash == hash && e->words == n && memcmp(e->key, key, n * sizeof *key) == 0;
}

/* ---- entries ---- */

static void release(entry *e)
{
    if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1) return;
    aril__choice *c = &e->choice;
    if (c->row && c->row->destroy && c->plan.prepared) c->row->destroy(c->plan.prepared);
    free(e);
}

/* A row of a gradient reads only reserves of its own format. */
static const char *other_reserve(const aril__run *r, const aril__row *row)
{
    int i = r->op->reserve_in - 1;
    return i < 0 || !row->reserve || aril__reserve_is(r->in[i], row->reserve)
               ? NULL
               : "the reserve has another format, or is missing";
}

/* What is wrong with the answer for one operand: plans come from plug-ins too. */
static const char *wrong_operand(const aril_tensor *t, const aril_operand *o)
{
    if (o->dtype > ARIL__DTYPE_COUNT) return "names an unknown dtype";
    if (o->order > ARIL_ORDER_HEADS_INNER) return "names an unknown memory order";
    if (t && o->order >= ARIL_ORDER_CHANNELS_LAST && t->ndim < 3)
        return "asks for a memory order that an operand with fewer than 3 dimensions does not have";
    return NULL;
}

static const char *wrong_plan(const aril__run *r, const aril__plan *p)
{
    const char *wrong = NULL;
    if (p->reserve > (size_t)1 << 47) wrong = "asks for a reserve of more than 2^47 bytes";
    for (int i = 0; i < r->n_in && i < ARIL_PLAN_INPUTS && !wrong; i++)
        wrong = wrong_operand(r->in[i], &p->in[i]);
    for (int i = 0; i < r->n_out && i < ARIL_PLAN_OUTPUTS && !wrong; i++)
        wrong = wrong_operand(r->out[i], &p->out[i]);
    return wrong;
}

/* Tries the rows in order. */
static void choose(aril__choice *c, const aril__run *r, const aril__row_list *rows)
{
    c->rows = rows;
    int left = aril__force_row, n = left < 0 ? rows->n : rows->n_all;
    for (int i = 0; i < n && !c->row; i++) {
        const aril__row *row = rows->at[i];
        const char *why = row->dtypes >> r->type & 1 ? NULL : "dtype";
        aril__plan plan = { 0 };
        if (!why) why = other_reserve(r, row);
        if (!why && row->prepare) why = row->prepare(r, &plan);
        bool accepts = !why;
        if (!why && plan.reserve && !row->reserve) why = "its reserve has no format";
        c->n_asked = i + 1;
        c->declined[i] = why;
        if (why || left-- > 0) {
            if (accepts && row->destroy && plan.prepared) row->destroy(plan.prepared);
            continue;
        }
        c->row = row;
        c->plan = plan;
        c->wrong = row->prepare ? wrong_plan(r, &plan) : NULL;
        c->plan.reserve = (size_t)aril__reserve_size(row->reserve, plan.reserve);
    }
}

/* A new entry with one reference, owned by the caller. */
static entry *make(const aril__run *r, uint64_t hash, const uint64_t *key, size_t n)
{
    /* Read after the generation in the key: a choice is never older than its key says. */
    const aril__row_list *rows = aril__rows_for(r);
    size_t whys = (size_t)rows->n_all * sizeof(char *);
    entry *e = aril__malloc(sizeof *e + whys + n * sizeof *key);
    if (!e) return NULL;
    *e = (entry){ .refs = 1, .used = true, .hash = hash, .words = n };
    e->choice.declined = (const char **)(e + 1);
    e->key = (uint64_t *)(void *)((char *)(e + 1) + whys);
    if (n) memcpy(e->key, key, n * sizeof *key);
    choose(&e->choice, r, rows);
    return e;
}

/* ---- the table of all threads; called with its lock held ---- */

static entry *look_up(uint64_t hash, const uint64_t *key, size_t n)
{
    entry *e = table.bucket[hash % BUCKETS];
    while (e && !is_for(e, hash, key, n)) e = e->next;
    return e;
}

static void unlink_entry(entry *e)
{
    entry **at = &table.bucket[e->hash % BUCKETS];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
}

/* Evicts an entry of the full table that was not used since the hand last passed; returns its
 * index. The caller releases the entry in *dropped without the lock. */
static int evict(entry **dropped)
{
    for (;;) {
        int at = table.hand;
        entry *e = table.all[at];
        table.hand = (at + 1) % MAX_CHOICES;
        if (atomic_exchange_explicit(&e->used, false, memory_order_relaxed)) continue;
        unlink_entry(e);
        *dropped = e;
        return at;
    }
}

static void insert(entry *e, entry **dropped)
{
    int at = table.n < MAX_CHOICES ? table.n++ : evict(dropped);
    table.all[at] = e;
    e->next = table.bucket[e->hash % BUCKETS];
    table.bucket[e->hash % BUCKETS] = e;
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    table.made++;
}

/* Finds or creates the entry; the caller owns one reference. */
static entry *find_shared(const aril__run *r, uint64_t hash, const uint64_t *key, size_t n)
{
    pthread_mutex_lock(&table.lock);
    entry *e = look_up(hash, key, n);
    if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&table.lock);
    if (e) return e;

    entry *made = make(r, hash, key, n), *dropped = NULL;
    if (!made) return NULL;
    pthread_mutex_lock(&table.lock);
    e = look_up(hash, key, n); /* another thread may have been faster */
    if (e)
        atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    else
        insert(made, &dropped);
    pthread_mutex_unlock(&table.lock);
    if (dropped) release(dropped);
    if (!e) return made;
    release(made);
    return e;
}

/* ---- calls ---- */

/* Puts a reference into one of its two slots. The outermost call may evict; a nested call may only
 * use a free slot, since slots hold the choices of the enclosing calls. */
static void keep_in_slot(aril__thread_plans *own, entry *e)
{
    entry **slot = own->slot + e->hash % SLOTS, **other = own->slot + (e->hash % SLOTS ^ 1);
    if (*slot && *other && own->depth > 0) return;
    if (*slot && *other) release(*other);
    if (*slot) *other = *slot;
    *slot = e;
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
}

static aril__cold aril__taken take_slowly(aril__thread *th, const aril__run *r, uint64_t hash,
                                          const uint64_t *key, size_t n)
{
    entry *e = n ? find_shared(r, hash, key, n) : make(r, 0, NULL, 0);
    if (!e) return (aril__taken){ NULL, false };
    if (!th->plans && !th->ended) th->plans = aril__calloc(sizeof *th->plans);
    if (th->plans) {
        if (n) keep_in_slot(th->plans, e);
        th->plans->depth++;
    }
    return (aril__taken){ &e->choice, true };
}

aril__taken aril__choice_take(aril__thread *th, const aril__run *r)
{
    uint64_t key[KEY_WORDS];
    size_t n = describe(r, key);
    uint64_t hash = hash_of(key, n);
    aril__thread_plans *own = th->plans;
    if (aril__likely(own && n)) {
        for (size_t k = 0; k < 2; k++) {
            entry *e = own->slot[hash % SLOTS ^ k];
            if (!is_for(e, hash, key, n)) continue;
            if (!atomic_load_explicit(&e->used, memory_order_relaxed))
                atomic_store_explicit(&e->used, true, memory_order_relaxed);
            own->depth++;
            return (aril__taken){ &e->choice, false };
        }
    }
    return take_slowly(th, r, hash, key, n);
}

void aril__choice_give_back(aril__thread *th, aril__taken taken)
{
    if (th->plans) th->plans->depth--;
    if (taken.held) release((entry *)(uintptr_t)taken.choice);
}

/* ---- choices that a program holds ---- */

const aril__choice *aril__choice_hold(const aril__run *r)
{
    uint64_t key[KEY_WORDS];
    size_t n = describe(r, key);
    entry *e = n ? find_shared(r, hash_of(key, n), key, n) : make(r, 0, NULL, 0);
    if (e) return &e->choice;
    aril__fail(ARIL_ERR_MEMORY, "%s: out of memory while choosing a kernel", r->op->name);
    return NULL;
}

void aril__choice_release(const aril__choice *c)
{
    if (c) release((entry *)(uintptr_t)c);
}

aril__surroundings aril__surroundings_now(void)
{
    return (aril__surroundings){ { atomic_load_explicit(&table.generation, memory_order_acquire) |
                                       (uint64_t)(uint32_t)aril__force_row << 32,
                                   threads_now() } };
}

/* ---- lifetime ---- */

void aril__plans_outdate(void)
{
    atomic_fetch_add(&table.generation, 1);
}

/* ---- TF32 ---- */

static atomic_int tf32 = -1; /* -1: not asked for yet */

bool aril_tf32_allowed(void)
{
    int allowed = atomic_load_explicit(&tf32, memory_order_relaxed);
    if (aril__likely(allowed >= 0)) return allowed;
    int from_environment = aril__env_switch("ARIL_TF32", 0);
    if (atomic_compare_exchange_strong(&tf32, &allowed, from_environment)) return from_environment;
    return allowed; /* another thread has set it */
}

void aril_allow_tf32(bool allow)
{
    atomic_store(&tf32, allow);
    aril__plans_outdate();
}

void aril__plans_thread_end(aril__thread *th)
{
    if (!th->plans) return;
    for (int i = 0; i < SLOTS; i++)
        if (th->plans->slot[i]) release(th->plans->slot[i]);
    free(th->plans);
    th->plans = NULL;
}

void aril__plans_shutdown(void)
{
    pthread_mutex_lock(&table.lock);
    int n = table.n;
    table.n = table.hand = 0;
    memset(table.bucket, 0, sizeof table.bucket);
    pthread_mutex_unlock(&table.lock);
    for (int i = 0; i < n; i++) release(table.all[i]);
}

aril__plan_stats aril__plans_stats(void)
{
    pthread_mutex_lock(&table.lock);
    aril__plan_stats s = { .kept = table.n, .max = MAX_CHOICES, .made = table.made };
    pthread_mutex_unlock(&table.lock);
    return s;
}
