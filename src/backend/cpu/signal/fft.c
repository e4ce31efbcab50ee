#include "backend/cpu/signal/fft.h"

#include "core/memory.h"
#include "core/parallel.h"
#include "ops/signal/fft.h"
#include "core/vector/targets.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LARGEST = 31, /* largest factor with its own pass */
    LANES = 16,   /* transforms computed side by side */
    SHORT = 4096, /* up to this length, so that they stay in cache */
    GRAIN = 8 * 1024,
    AHEAD = 64 * 1024, /* bytes of rows, up to which the next ones are requested early */
};

#define APART(n)    ((n) + 48)
#define INDEPENDENT _Pragma("GCC ivdep") /* iterations of the following loop */

typedef enum kind { C2C, R2C, C2R } kind;

typedef struct fft_job {
    kind kind;
    const void *plan, *in;
    void *out;
    int64_t n;
    int inverse, norm, twice;
    bool halved;   /* a real signal of even length: the plan is for half of it */
    void *scratch; /* scratch_elements for each slot */
} fft_job;

/* Factors of n; -1 if one is larger than LARGEST. Twice four is faster than eight and two. Long
 * transforms are alone, and their first passes, which cannot use vectors, are of radix 4. */
static int factors_of(int64_t n, int *factor)
{
    int count = 0;
    bool alone = n > SHORT;
    for (; alone && count < 2 && n % 4 == 0; n /= 4) factor[count++] = 4;
    for (; n % 8 == 0 && (n / 8 % 4 == 0 || n / 8 % 2); n /= 8) factor[count++] = 8;
    for (; n % 4 == 0; n /= 4) factor[count++] = 4;
    for (int f = 2; f <= LARGEST; f++)
        for (; n % f == 0; n /= f) factor[count++] = f;
    return n == 1 ? count : -1;
}

/* The length of the convolution that computes a transform whose length has a large factor. */
static int64_t convolved(int64_t n)
{
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    return m;
}

/* Elements of scratch memory to transform rows, with buffers of that length. */
static int64_t scratch_elements(int64_t length)
{
    return (4 * APART((length <= SHORT ? LANES : 1) * length) + 15) / 16 * 16;
}

/* exp(-2 pi i k / n), 0 <= k < n, from angles of at most an eighth of a turn. */
static void root_of_unity(int64_t k, int64_t n, double *re, double *im)
{
    int64_t eighth = 8 * k / n, rest = 8 * k - eighth * n; /* in units of 1 / (8 n) of a turn */
    double unit = 2 * 3.14159265358979323846 / 8 / (double)n;
    double near = eighth % 2 ? (double)(n - rest) : (double)rest;
    double c = cos(near * unit), s = sin(near * unit), x, y;
    switch (eighth) {
    case 0: x = c, y = s; break;
    case 1: x = s, y = c; break;
    case 2: x = -s, y = c; break;
    case 3: x = -c, y = s; break;
    case 4: x = -c, y = -s; break;
    case 5: x = -s, y = -c; break;
    case 6: x = s, y = -c; break;
    default: x = c, y = -s; break;
    }
    *re = x;
    *im = -y;
}

#define TEMPLATE "backend/cpu/signal/fft.inc"
#include "core/vector/each_target.inc"

/* ---- plans ---- */

/* A cache of plans for recently used lengths. A plan in use is not evicted. */
typedef struct kept_plan {
    void *plan;
    int64_t n;
    bool wide;
    int level, users;
    unsigned long used; /* time of last use */
} kept_plan;

enum { KEPT = 16 };

static struct {
    pthread_mutex_t lock;
    kept_plan at[KEPT];
    unsigned long now;
} plans = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void free_plan(kept_plan *p)
{
    ARIL__PICK(plan_free, p->wide)(p->plan); /* the same for every target */
    *p = (kept_plan){ 0 };
}

static void *new_plan(int64_t n, bool wide)
{
    aril__allocations_allow(); /* a cache */
    void *plan = ARIL__PICK(plan_new, wide)(n);
    aril__allocations_allow_end();
    return plan;
}

/* Returns a plan and its cache slot, -1 if it is not cached. NULL when out of memory. */
static void *take_plan(int64_t n, bool wide, int *slot)
{
    int level = aril__cpu(), oldest = -1;
    void *plan = NULL;
    *slot = -1;
    pthread_mutex_lock(&plans.lock);
    for (int i = 0; i < KEPT && !plan; i++) {
        kept_plan *p = &plans.at[i];
        if (p->plan && p->n == n && p->wide == wide && p->level == level) {
            plan = p->plan;
            *slot = i;
        } else if (!p->users && (oldest < 0 || p->used < plans.at[oldest].used)) {
            oldest = i;
        }
    }
    if (!plan && (plan = new_plan(n, wide)) && oldest >= 0) {
        kept_plan *p = &plans.at[oldest];
        if (p->plan) free_plan(p);
        *p = (kept_plan){ .plan = plan, .n = n, .wide = wide, .level = level };
        *slot = oldest;
    }
    if (*slot >= 0) {
        plans.at[*slot].users++;
        plans.at[*slot].used = ++plans.now;
    }
    pthread_mutex_unlock(&plans.lock);
    return plan;
}

static void give_plan(void *plan, bool wide, int slot)
{
    if (slot < 0) {
        ARIL__PICK(plan_free, wide)(plan);
        return;
    }
    pthread_mutex_lock(&plans.lock);
    plans.at[slot].users--;
    pthread_mutex_unlock(&plans.lock);
}

void aril__cpu_fft_end(void)
{
    for (int i = 0; i < KEPT; i++)
        if (plans.at[i].plan) free_plan(&plans.at[i]);
}

/* The length of the transform. */
static int64_t size_of(const aril__run *r, kind which)
{
    const aril_tensor *t = which == C2R ? r->out[0] : r->in[0];
    return t->dim[t->ndim - (which == C2C ? 2 : 1)];
}

static int64_t rows_of(const aril__run *r, kind which, int64_t n)
{
    const aril_tensor *t = which == C2R ? r->out[0] : r->in[0];
    return t->numel / (which == C2C ? 2 * n : n);
}

static int64_t grain_of(int64_t n)
{
    return n * LANES < GRAIN ? GRAIN / n / LANES * LANES : LANES;
}

/* Whether real signals are transformed as complex ones of half the length. */
static bool is_halved(kind which, int64_t n)
{
    return which != C2C && n % 2 == 0;
}

/* Bytes of scratch memory for each thread, with a plan for length n. */
static size_t slot_bytes(const aril__run *r, int64_t n)
{
    int factor[64];
    int64_t length = factors_of(n, factor) < 0 ? convolved(n) : n;
    return (size_t)scratch_elements(length) *
           (r->type == ARIL_F64 ? sizeof(double) : sizeof(float));
}

static size_t scratch_for(const aril__run *r, kind which)
{
    if (r->out[0]->numel == 0) return 0;
    int64_t n = size_of(r, which);
    return (size_t)aril__parallel_slots(rows_of(r, which, n), grain_of(n)) *
           slot_bytes(r, is_halved(which, n) ? n / 2 : n);
}

static aril_status run(aril__run *r, kind which)
{
    const struct fft_attrs *a = r->attrs;
    bool wide = r->type == ARIL_F64;
    if (r->out[0]->numel == 0) return ARIL_OK;
    fft_job j = { .kind = which,
                  .in = aril__ptr(r->in[0]),
                  .out = aril__ptr(r->out[0]),
                  .n = size_of(r, which),
                  .inverse = (int)a->inverse[0],
                  .norm = (int)a->norm[0],
                  .twice = (int)a->twice[0],
                  .scratch = r->workspace };
    j.halved = is_halved(which, j.n);
    int slot;
    int64_t length = j.halved ? j.n / 2 : j.n;
    void *plan = take_plan(length, wide, &slot);
    if (!plan) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", r->op->name);
    j.plan = plan;
    aril__parallel_for_slots(rows_of(r, which, j.n), grain_of(j.n),
                             (int)(r->workspace_bytes / slot_bytes(r, length)),
                             ARIL__PICK(rows, wide), &j);
    give_plan(plan, wide, slot);
    return ARIL_OK;
}

#define KERNEL_OF(op_, kind_)                            \
    aril_status aril__cpu_##op_(aril__run *r)            \
    {                                                    \
        return run(r, kind_);                            \
    }                                                    \
    size_t aril__cpu_##op_##_scratch(const aril__run *r) \
    {                                                    \
        return scratch_for(r, kind_);                    \
    }
KERNEL_OF(fft_c2c, C2C)
KERNEL_OF(fft_r2c, R2C)
KERNEL_OF(fft_c2r, C2R)
