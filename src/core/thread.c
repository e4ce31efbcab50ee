#include "core/thread.h"

#include "aril/stream.h"
#include "aril/autocast.h"
#include "aril/dtype.h"
#include "aril/memory.h"
#include "core/casts.h"
#include "core/cpu.h"
#include "core/device.h"
#include "core/ended.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/source_location.h"
#include "core/profile.h"
#include "core/replaced.h"
#include "core/tensor.h"

#include <pthread.h>
#include <stdlib.h>

_Thread_local aril__thread aril__tls __attribute__((tls_model("initial-exec")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;
static atomic_ullong base_seed;
static atomic_ullong threads_started;
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* threads that have begun to use Aril and have not ended */

static void close_guards(aril__thread *th, uint32_t depth);

static void add_users(int n)
{
    pthread_mutex_lock(&users_lock);
    users += n;
    pthread_mutex_unlock(&users_lock);
}

bool aril__alone_begin(void)
{
    aril__self(); /* counted, from now on */
    pthread_mutex_lock(&users_lock);
    if (users == 1) return true;
    pthread_mutex_unlock(&users_lock);
    return false;
}

void aril__alone_end(void)
{
    pthread_mutex_unlock(&users_lock);
}

static void thread_end(void *arg)
{
    aril__thread *th = arg;
    if (!th->ready || th->ended) return;
    close_guards(th, 0);
    while (th->n_owned) aril__tensor_release(th, th->owned[--th->n_owned]);
    free(th->owned);
    free(th->guards);
    th->owned = NULL;
    th->guards = NULL;
    th->cap_owned = th->cap_guards = 0;
    if (aril__hook.thread_end) aril__hook.thread_end(th);
    aril__error_release(th->error);
    aril__error_release(th->last_error);
    th->error = th->last_error = NULL;
    aril__slab_flush(&th->slab);
    th->ended = true;
    add_users(-1);
}

/* At process exit: releases what the main thread still owns, then the caches. */
static void process_end(void)
{
    aril__thread *th = &aril__tls;
    aril__profile_shutdown();
    thread_end(th);
    th->ended = false; /* the program may still release tensors it kept */
    aril__parallel_shutdown();
    aril__devices_shutdown();
    aril__location_shutdown();
    aril__library_end();
    aril__traced_shutdown(th);
    aril__slab_shutdown(&th->slab);
}

static void library_once(void)
{
    pthread_key_create(&at_thread_end, thread_end);
    aril__log_init();
    aril__debug_init();
    aril__cpu_read();
    aril__anomaly_default = aril__env_switch("ARIL_ANOMALY", 0);
    aril__library_start();
    atexit(process_end);
}

bool aril__anomaly_default;

void aril__thread_start(aril__thread *th)
{
    th->ready = true; /* set first, since starting the library uses this thread */
    pthread_once(&once, library_once);
    pthread_setspecific(at_thread_end, th);
    add_users(1);
    uint64_t ordinal = atomic_fetch_add(&threads_started, 1);
    th->generator = (aril_generator){ .seed = atomic_load(&base_seed) + ordinal };
    th->mode.anomaly = aril__anomaly_default;
}

void aril_seed(uint64_t seed)
{
    aril__thread *th = aril__self();
    atomic_store(&base_seed, seed);
    aril_generator_seed(&th->generator, seed);
}

aril_generator *aril_default_generator(void)
{
    return aril__default_generator();
}

/* Tensors outside any scope live until their thread ends. This many of them suggest a loop without
 * a scope, which grows until memory runs out. */
enum { ROOT_LIMIT = 10000 };

static aril__cold void warn_of_root(void)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&warned)) return;
    char location[256];
    size_t located = aril__location(location, sizeof location);
    fprintf(stderr,
            "aril: warning: more than %d tensors lie outside any scope and live until their thread "
            "ends; write ARIL_SCOPE; at the top of the loop that makes them%s%s\n",
            ROOT_LIMIT, located ? " at " : "", location);
}

bool aril__own_grow(aril__thread *th)
{
    uint32_t cap = th->cap_owned ? th->cap_owned * 2 : 256;
    /* A program without scopes is warned at the limit, not at the next power of two. */
    if (cap > ROOT_LIMIT && th->cap_owned < ROOT_LIMIT) cap = ROOT_LIMIT;
    if (th->n_scopes == 0 && th->n_owned >= ROOT_LIMIT) warn_of_root();
    aril_tensor **grown = aril__realloc(th->owned, cap * sizeof *grown);
    if (!grown) {
        aril__fail(ARIL_ERR_MEMORY, "scope: out of memory for the list of %u tensors", cap);
        return false;
    }
    th->owned = grown;
    th->cap_owned = cap;
    return true;
}

void aril__own(aril__thread *th, aril_tensor *t)
{
    t->slot = th->n_owned;
    th->owned[th->n_owned++] = t;
}

static aril_guard open_guard(bool is_scope)
{
    aril__thread *th = aril__self();
    aril_guard g = { th->n_guards };
    if (aril__unlikely(th->n_guards == th->cap_guards)) {
        uint32_t cap = th->cap_guards ? th->cap_guards * 2 : 64;
        aril__guard *grown = aril__realloc(th->guards, cap * sizeof *grown);
        if (!grown) {
            /* The block still runs; its tensors belong to the enclosing scope. */
            aril__fail(ARIL_ERR_MEMORY, "scope: out of memory for a guard");
            g.depth = UINT32_MAX;
            return g;
        }
        th->guards = grown;
        th->cap_guards = cap;
    }
    th->guards[th->n_guards++] =
        (aril__guard){ .scope_base = th->scope_base, .is_scope = is_scope, .mode = th->mode };
    if (is_scope) {
        if (aril__unlikely(th->n_owned > ROOT_LIMIT) && th->n_scopes == 0) warn_of_root();
        th->scope_base = th->n_owned;
        th->n_scopes++;
    }
    return g;
}

static void close_guards(aril__thread *th, uint32_t depth)
{
    while (th->n_guards > depth) {
        aril__guard g = th->guards[th->n_guards - 1];
        if (g.is_scope) {
            while (th->n_owned > th->scope_base) aril__tensor_release(th, th->owned[--th->n_owned]);
            th->scope_base = g.scope_base;
            th->n_scopes--;
        } else {
            th->mode = g.mode;
            if (aril__unlikely(th->casts != NULL) && !th->mode.region) aril__casts_drop(th);
        }
        th->n_guards--;
    }
}

aril_guard aril_scope_begin(void)
{
    return open_guard(true);
}

void aril_guard_end(aril_guard *g)
{
    if (!g) {
        aril__fail(ARIL_ERR_ARG, "guard_end: the guard is NULL");
        return;
    }
    close_guards(aril__self(), g->depth);
}

aril_guard aril_no_grad_begin(void)
{
    aril_guard g = open_guard(false);
    if (g.depth != UINT32_MAX) aril__tls.mode.no_grad = true;
    return g;
}

aril_guard aril_enable_grad_begin(void)
{
    aril_guard g = open_guard(false);
    if (g.depth != UINT32_MAX && !aril__tls.mode.inference) aril__tls.mode.no_grad = false;
    return g;
}

aril_guard aril_inference_begin(void)
{
    aril_guard g = open_guard(false);
    if (g.depth != UINT32_MAX) aril__tls.mode.no_grad = aril__tls.mode.inference = true;
    return g;
}

aril_guard aril_stream_begin(aril_stream *stream)
{
    aril_guard g = open_guard(false);
    if (!stream) aril__fail(ARIL_ERR_ARG, "stream_begin: the stream is NULL");
    if (g.depth != UINT32_MAX && stream) aril__tls.mode.stream = stream;
    return g;
}

/* ---- autocast ---- */

enum { ALL_KINDS = -1 };

_Static_assert(ARIL__MAX_KINDS *ARIL__CAST_BITS <= 16, "every kind has bits in aril__mode");

/* The bits for a dtype, or -1 with an error. */
static int cast_bits(aril_dtype dtype)
{
    switch (dtype) {
    case ARIL_BF16: return ARIL__CAST_BF16;
    case ARIL_F16: return ARIL__CAST_F16;
    case ARIL_F32: return ARIL__CAST_OFF;
    default: {
        const char *name = aril_dtype_name(dtype);
        aril__fail(ARIL_ERR_DTYPE,
                   "autocast: cannot cast to %s; expected bf16 or f16, or f32 to disable it", name);
        return -1;
    }
    }
}

static aril_guard autocast_begin(int kind, aril_dtype dtype)
{
    aril_guard g = open_guard(false);
    int bits = cast_bits(dtype);
    aril__mode *mode = &aril__tls.mode;
    if (g.depth == UINT32_MAX || bits < 0) return g;
    mode->region = true;
    for (int k = 0; k < ARIL__MAX_KINDS; k++) {
        if (kind != ALL_KINDS && kind != k) continue;
        int at = k * ARIL__CAST_BITS;
        unsigned others = mode->autocast & ~(3u << at);
        mode->autocast = (uint16_t)(others | (unsigned)bits << at);
    }
    return g;
}

aril_guard aril_autocast_begin(aril_dtype dtype)
{
    return autocast_begin(ALL_KINDS, dtype);
}

aril_guard aril_autocast_on_begin(aril_device device, aril_dtype dtype)
{
    if (device.kind >= 0 && device.kind < ARIL__MAX_KINDS)
        return autocast_begin(device.kind, dtype);
    aril__fail(ARIL_ERR_DEVICE, "autocast: the device is not valid");
    return open_guard(false);
}

aril_guard aril_no_autocast_begin(void)
{
    return autocast_begin(ALL_KINDS, ARIL_F32);
}

aril_dtype aril_autocast_dtype(aril_device device)
{
    if (device.kind < 0 || device.kind >= ARIL__MAX_KINDS) return ARIL_F32;
    return aril__autocast_dtype(&aril__self()->mode, device.kind);
}

bool aril_grad_enabled(void)
{
    return !aril__self()->mode.no_grad;
}

/* The index of `t` in the innermost scope, or UINT32_MAX. */
static uint32_t find_owned(const aril__thread *th, const aril_tensor *t)
{
    uint32_t at = t->slot;
    if (at >= th->scope_base && at < th->n_owned && th->owned[at] == t) return at;
    for (at = th->n_owned; at-- > th->scope_base;)
        if (th->owned[at] == t) return at;
    return UINT32_MAX;
}

/* What the functions below return in place of a tensor that has ended. */
static aril__cold aril_tensor *ended(const char *what, const aril_tensor *t)
{
    aril__fail_ended(what, -1, t);
    return aril__poison();
}

static inline bool has_ended(const aril_tensor *t)
{
    return aril__unlikely(t->flags & ARIL__ENDED);
}

aril_tensor *aril_escape(aril_tensor *t)
{
    aril__thread *th = aril__self();
    if (!t) return aril__null_tensor("escape");
    if (has_ended(t)) t = ended("escape", t);
    uint32_t at = find_owned(th, t);
    if (at == UINT32_MAX || th->n_scopes == 0) return t;
    /* Move it to the scope's first slot, and let the scope begin one later. */
    aril_tensor *first = th->owned[th->scope_base];
    th->owned[at] = first;
    first->slot = at;
    th->owned[th->scope_base] = t;
    t->slot = th->scope_base++;
    return t;
}

aril_tensor *aril_keep(aril_tensor *t)
{
    if (!t) return aril__tensor_keep(aril__null_tensor("keep"));
    return aril__tensor_keep(has_ended(t) ? ended("keep", t) : t);
}

/* Whether all references are held by a scope of this thread, or by the graph that it belongs to. */
static bool is_not_kept(const aril__thread *th, const aril_tensor *t)
{
    int held = t->flags & ARIL__HELD ? 1 : 0;
    if (t->slot < th->n_owned && th->owned[t->slot] == t) held++;
    return held && atomic_load_explicit(&t->refs, memory_order_relaxed) <= held &&
           !(t->flags & ARIL__IMMORTAL);
}

static aril__cold const char *owner_of(const aril_tensor *t)
{
    return t->flags & ARIL__HELD ? "graph" : "scope";
}

void aril_release(aril_tensor *t)
{
    if (!t) return;
    aril__thread *th = aril__self();
    if (has_ended(t))
        aril__fail_ended("release", -1, t);
    else if (aril__unlikely(is_not_kept(th, t)))
        aril__fail(ARIL_ERR_STATE,
                   "release: the tensor belongs to its %s, which will release it; only what "
                   "aril_keep returned is released, once",
                   owner_of(t));
    else
        aril__tensor_release(th, t);
}

void (*aril__replaced_hook)(aril_tensor *before, aril_tensor *now);

void aril_set(aril_tensor **handle, aril_tensor *t)
{
    if (!handle) {
        aril__fail(ARIL_ERR_ARG, "set: the pointer is NULL");
        return;
    }
    aril_tensor *old = *handle;
    *handle = aril_keep(t);
    if (aril__unlikely(aril__self()->tracer != NULL) && old && (*handle)->flags & ARIL__SYMBOLIC &&
        !has_ended(old) && aril__replaced_hook)
        aril__replaced_hook(old, *handle);
    aril_release(old);
}

aril_tensor *aril_adopt(aril_tensor *t)
{
    aril__thread *th = aril__self();
    if (!t) return aril__null_tensor("adopt");
    if (has_ended(t)) return ended("adopt", t);
    if (aril__unlikely(is_not_kept(th, t))) {
        aril__fail(ARIL_ERR_STATE,
                   "adopt: the tensor belongs to its %s already, which will release it; only what "
                   "aril_keep returned is adopted, once",
                   owner_of(t));
        return t;
    }
    if (aril__own_reserve(th, 1)) aril__own(th, t);
    return t;
}

void aril_drop(aril_tensor *t)
{
    if (!t) return;
    aril__thread *th = aril__self();
    if (has_ended(t)) {
        aril__fail_ended("drop", -1, t);
        return;
    }
    uint32_t at = find_owned(th, t);
    if (at == UINT32_MAX) return;
    aril_tensor *last = th->owned[--th->n_owned];
    th->owned[at] = last;
    last->slot = at;
    aril__tensor_release(th, t);
}
