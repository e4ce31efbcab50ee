#include "data/loader.h"

#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/transform.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots ---- */

aril__slot *aril__slots_new(const aril_loader *l, int n)
{
    aril__slot *slot = aril__calloc((size_t)n * sizeof *slot);
    bool ok = slot != NULL;
    size_t rows = (size_t)l->opts.batch;
    for (int k = 0; k < n && ok; k++) {
        if (l->opts.pad || l->opts.collate)
            ok = (slot[k].sample = aril__calloc(rows * sizeof *slot[k].sample)) != NULL;
        if (ok && l->stream) ok = (slot[k].index = aril__calloc(rows * sizeof(int64_t))) != NULL;
    }
    if (ok) return slot;
    aril__fail(ARIL_ERR_MEMORY, "loader: out of memory");
    aril__slots_free((aril_loader *)(uintptr_t)l, slot, n);
    return NULL;
}

static void drop_samples(aril__slot *s)
{
    for (int64_t i = 0; s->sample && i < s->n; i++)
        for (int k = 0; k < ARIL__PARTS; k++) {
            aril_tensor **t = aril__sample_part(&s->sample[i], k);
            aril_release(*t);
            *t = NULL;
        }
}

void aril__slots_free(aril_loader *l, aril__slot *s, int n)
{
    (void)l;
    for (int k = 0; s && k < n; k++) {
        aril__batch_clear(&s[k].batch);
        aril__batch_clear(&s[k].there);
        drop_samples(&s[k]);
        aril__error_release(s[k].error);
        free(s[k].sample);
        free(s[k].index);
    }
    free(s);
}

void aril__slot_begin(aril_loader *l, aril__slot *s, int64_t number)
{
    drop_samples(s);
    aril__batch_clear(&s->there);
    int64_t batch = l->opts.batch, left = l->samples - number * batch;
    s->number = number;
    s->n = !l->stream && left < batch ? left : batch;
    s->failed_row = s->n;
    s->failed = ARIL_OK;
    s->unlike = false;
    aril__error_release(s->error);
    s->error = NULL;
    s->handed = s->done = 0;
    s->ready = s->closed = false;
    atomic_store_explicit(&s->begun, false, memory_order_relaxed);
    s->batch.n = s->n;
    s->batch.index = l->stream ? s->index : l->order + number * batch;
}

static void hold(pthread_mutex_t *lock)
{
    if (lock) pthread_mutex_lock(lock);
}

static void let_go(pthread_mutex_t *lock)
{
    if (lock) pthread_mutex_unlock(lock);
}

/* Records that a row failed; the first failed row of a batch is reported. Takes over e. */
static void note(aril__slot *s, int64_t row, aril_status status, aril__error *e,
                 const aril_sample *sample, bool unlike, pthread_mutex_t *lock)
{
    hold(lock);
    s->unlike |= unlike;
    if (row < s->failed_row || s->failed >= 0) {
        aril__error *before = s->error;
        s->failed_row = row;
        s->failed = status;
        s->error = e;
        s->failed_index = sample ? sample->index : -1;
        s->failed_name = sample ? sample->name : NULL;
        e = before;
    }
    let_go(lock);
    aril__error_release(e);
}

/* Writes a sample to its row, or keeps it for collation. */
static aril_status store(aril_loader *l, aril__slot *s, int64_t row, aril_sample *sample,
                         pthread_mutex_t *lock)
{
    if (s->sample) {
        for (int k = 0; k < ARIL__PARTS; k++) {
            aril_tensor *t = *aril__sample_part(sample, k);
            if (t) aril_keep(t);
        }
        sample->random = NULL;
        s->sample[row] = *sample;
        return ARIL_OK;
    }
    if (!atomic_load_explicit(&s->begun, memory_order_acquire)) {
        aril_status status = ARIL_OK;
        hold(lock);
        if (!atomic_load_explicit(&s->begun, memory_order_relaxed)) {
            status = aril__stack_begin(&s->stack, sample, s->n, l->scale, &s->batch);
            if (status >= 0) atomic_store_explicit(&s->begun, true, memory_order_release);
        }
        let_go(lock);
        if (status < 0) return status;
    }
    return aril__stack_put(&s->stack, row, sample);
}

void aril__slot_finish_row(aril_loader *l, aril__slot *s, int64_t row, aril_sample *sample,
                           int status, pthread_mutex_t *lock)
{
    bool unlike = false;
    if (status >= 0) {
        status = store(l, s, row, sample, lock);
        unlike = status < 0;
    }
    if (status < 0) {
        /* Called between errors_begin and errors_end: the error is this thread's first. */
        aril__error *e = aril__error_keep(aril__self()->error);
        note(s, row, status, e, sample, unlike, lock);
    }
}

void aril__slot_load(aril_loader *l, aril__slot *s, int64_t begin, int64_t end,
                     pthread_mutex_t *lock, const atomic_bool *stop)
{
    aril_dataset *d = l->dataset;
    for (int64_t row = begin; row < end; row++) {
        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) return;
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        int64_t position = s->number * l->opts.batch + row, i = l->order[position];
        aril_generator g;
        aril_sample sample;
        aril__sample_begin(&sample, &g, l->at.seed, l->at.epoch, i,
                           aril__sampler_nth(l->sampler, position));
        aril__saved_errors before = aril__errors_begin();
        int status = d->type->get(d, i, &sample);
        aril__slot_finish_row(l, s, row, &sample, status, lock);
        aril__sample_end(&sample, &g);
        aril__error_release(aril__errors_end(&before));
        if (!lock && s->failed < 0) return;
    }
}

bool aril__slot_load_batch(aril_loader *l, aril__slot *s, pthread_mutex_t *lock)
{
    if (!l->by_batch) return false;
    aril_dataset *d = l->dataset;
    aril__saved_errors before = aril__errors_begin();
    aril_status status = d->type->get_batch(d, s->n, s->batch.index, &s->batch);
    s->batch.n = s->n;
    s->batch.index = l->order + s->number * l->opts.batch;
    aril__error *e = aril__errors_end(&before);
    if (status < 0) {
        note(s, 0, status, e, NULL, false, lock);
        return true;
    }
    aril__error_release(e);
    return status == ARIL_OK;
}

/* Trims a stream's last batch, which may have fewer rows than allocated. */
static aril_status cut(aril__slot *s)
{
    aril_batch *b = &s->batch;
    for (int k = 0; k < ARIL__PARTS; k++) {
        aril_tensor **slot = aril__batch_part(b, k), *full = *slot, *part = NULL;
        if (!full) continue;
        aril_shape shape = aril__shape(full);
        shape.dim[0] = s->n;
        if (!aril_batch_buffer(&part, (aril_dtype)full->dtype, shape)) return ARIL_ERR_MEMORY;
        if (part->numel)
            memcpy(aril__ptr(part), aril__ptr(full),
                   aril__dtype_bytes((aril_dtype)part->dtype, part->numel));
        *slot = part;
        aril_release(full);
    }
    return ARIL_OK;
}

/* Applies the batch transform, with its own random numbers. */
static aril_status change_batch(aril_loader *l, aril__slot *s)
{
    aril_generator g = { .seed = aril__sample_seed(l->at.seed, l->at.epoch, -2 - s->number, 0) };
    return aril_transform_batch(l->opts.batch_transform, &s->batch, &g);
}

/* Queues the copies of the batch to the loader's device, beside other work of it. */
static aril_status send_batch(aril_loader *l, aril__slot *s)
{
    if (!l->copies) return aril__batch_send(&s->batch, l->opts.device, &s->there);
    ARIL_STREAM(l->copies);
    return aril__batch_send(&s->batch, l->opts.device, &s->there);
}

void aril__slot_end(aril_loader *l, aril__slot *s, bool loaded, pthread_mutex_t *lock)
{
    bool stays = !l->opts.batch_transform && !l->pinned && !l->device;
    if (s->failed < 0 || !s->n || (loaded && stays)) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril__saved_errors before = aril__errors_begin();
    aril_status status = ARIL_OK;
    s->batch.n = s->n;
    if (loaded)
        status = ARIL_OK;
    else if (l->opts.collate)
        status = l->opts.collate(s->n, s->sample, &s->batch, l->opts.collate_ctx);
    else if (l->opts.pad)
        status =
            aril__stack_padded(s->n, s->sample, l->opts.pad_x, l->opts.pad_y, l->scale, &s->batch);
    else if (atomic_load_explicit(&s->begun, memory_order_acquire) && s->stack.n != s->n)
        status = cut(s);
    if (status >= 0 && l->opts.batch_transform) status = change_batch(l, s);
    if (status >= 0 && l->pinned) status = aril__batch_pin(&s->batch, l->pinned);
    if (status >= 0 && l->device) status = send_batch(l, s);
    s->batch.n = s->n;
    s->batch.index = l->stream ? s->index : l->order + s->number * l->opts.batch;
    drop_samples(s);
    aril__error *e = aril__errors_end(&before);
    if (status < 0)
        note(s, 0, status, e, NULL, false, lock);
    else
        aril__error_release(e);
}

/* ---- loading in the calling thread ---- */

/* Loads the stream's next sample into a row, if there is one. */
static bool stream_row(aril_loader *l, aril__slot *s, int64_t row)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_generator g;
    aril_sample sample;
    aril__sample_begin(&sample, &g, l->at.seed, l->at.epoch, l->stream_next, 0);
    aril__saved_errors before = aril__errors_begin();
    int status = l->dataset->type->next(l->dataset, &sample);
    bool taken = status != 0;
    if (taken) {
        s->index[row] = l->stream_next++;
        if (status < 0)
            l->stream_ended = true; /* the stream's state is unknown after an error */
        else
            status = aril__stream_finish(l->dataset, &sample);
        aril__slot_finish_row(l, s, row, &sample, status, NULL);
    }
    aril__sample_end(&sample, &g);
    aril__error_release(aril__errors_end(&before));
    return taken;
}

/* Loads batch `number` in this thread. */
static void load_slot(aril_loader *l, aril__slot *s, int64_t number)
{
    aril__slot_begin(l, s, number);
    bool loaded = aril__slot_load_batch(l, s, NULL);
    if (!loaded) aril__slot_load(l, s, 0, s->n, NULL, NULL);
    aril__slot_end(l, s, loaded, NULL);
}

/* Whether the batch as a whole, such as its copy to a device, failed for lack of memory: it can
 * be loaded again. A stream has been read further. */
static bool lacks_memory(const aril_loader *l, const aril__slot *s)
{
    return l->device && s->failed < 0 && s->failed_index < 0 && !l->stream &&
           (s->error ? s->error->code : s->failed) == ARIL_ERR_MEMORY;
}

/* Loads a batch in this thread; NULL at the end of the stream. */
static aril__slot *load_now(aril_loader *l)
{
    aril__slot *s = &l->slot[0];
    if (l->stream) {
        aril__slot_begin(l, s, l->at.batch);
        int64_t row = 0;
        while (row < l->opts.batch && !l->stream_ended && stream_row(l, s, row)) row++;
        if (row < l->opts.batch) {
            l->stream_ended = true;
            if (s->failed >= 0 && (row == 0 || l->opts.drop_last)) return NULL;
        }
        s->n = row;
        aril__slot_end(l, s, false, NULL);
    } else {
        load_slot(l, s, l->at.batch);
    }
    return s;
}

/* Computes the epoch's order, or restarts its stream, and skips to the next batch. */
static aril_status order_epoch(aril_loader *l)
{
    aril_status status = ARIL_OK;
    if (l->stream) {
        l->stream_ended = false;
        status = aril__stream_restart(l->dataset, l->at.seed, l->at.epoch);
        int64_t skip = l->at.batch * l->opts.batch;
        for (l->stream_next = 0; l->stream_next < skip && status >= 0; l->stream_next++) {
            ARIL_SCOPE;
            aril_generator g;
            aril_sample sample;
            aril__sample_begin(&sample, &g, l->at.seed, l->at.epoch, l->stream_next, 0);
            status = l->dataset->type->next(l->dataset, &sample);
            aril__sample_end(&sample, &g);
            if (status == 0) {
                l->stream_ended = true;
                break;
            }
        }
        if (status > 0) status = ARIL_OK;
    } else {
        if (l->samples > l->order_capacity) {
            free(l->order);
            l->order_capacity = 0;
            l->order = aril__malloc((size_t)l->samples * sizeof *l->order);
            if (!l->order) return aril__fail(ARIL_ERR_MEMORY, "loader: out of memory");
            l->order_capacity = l->samples;
        }
        status =
            aril__sampler_fill(l->sampler, l->size, l->at.seed, l->at.epoch, l->samples, l->order);
    }
    return status < 0 ? status : ARIL_OK;
}

static aril_status begin_epoch(aril_loader *l)
{
    const aril__error *before = aril__self()->last_error;
    aril_status status = order_epoch(l);
    if (status < 0)
        return aril__self()->last_error != before
                   ? status
                   : aril__fail(status, "loader: %s could not start epoch %lld: %s",
                                l->stream ? aril_dataset_type(l->dataset) : "the sampler",
                                (long long)l->at.epoch, aril_status_text(status));
    if (l->pool && (status = aril__worker_pool_go(l->pool, l->at.batch)) < 0) return status;
    l->ordered = true;
    return ARIL_OK;
}

/* In a forked child, restarts the loader with new threads. */
static aril_status after_fork(aril_loader *l)
{
    aril__worker_pool_free(l->pool);
    l->pool = aril__worker_pool_new(l);
    if (!l->pool) return ARIL_ERR_MEMORY;
    l->ordered = false;
    return ARIL_OK;
}

bool aril_loader_next(aril_loader *l, aril_batch *b)
{
    if (!l || !b) {
        /* If creating the loader failed, its error is already set. */
        if (l || aril_ok())
            aril__fail(ARIL_ERR_ARG, "loader_next: the %s is NULL", l ? "batch" : "loader");
        return false;
    }
    memset(b, 0, sizeof *b);
    if (l->pool && aril__worker_pool_is_gone(l->pool) && after_fork(l) < 0) return false;
    if (!l->pool && l->opts.workers && !(l->pool = aril__worker_pool_new(l))) return false;
    if (!l->ordered && begin_epoch(l) < 0) return false;
    aril__slot *s = NULL;
    bool over = l->stream ? !l->pool && l->stream_ended : l->at.batch >= l->length;
    if (!over) s = l->pool ? aril__worker_pool_take(l->pool, l->at.batch) : load_now(l);
    if (!s) {
        if (l->pool) aril__worker_pool_rest(l->pool);
        l->at.epoch++;
        l->at.batch = 0;
        l->ordered = false;
        return false;
    }
    if (s->failed < 0 && s->unlike && l->pool && !l->stream) {
        /* Which of two sizes came first depends on thread timing; reload the batch in order so that
         * the message does not. */
        int64_t number = s->number;
        aril__slot_begin(l, s, number);
        aril__slot_load(l, s, 0, s->n, NULL, NULL);
        aril__slot_end(l, s, false, NULL);
    }
    if (l->pool && lacks_memory(l, s)) { /* when a worker loaded it; there may be some now */
        load_slot(l, s, s->number);
        s->ready = true; /* if it fails again, the next call takes it again */
    }
    bool again = lacks_memory(l, s);
    if (!again) l->at.batch++;
    if (s->failed < 0) {
        aril__error *e = s->error;
        s->error = NULL;
        aril_sample failed = { .index = s->failed_index, .name = s->failed_name };
        if (s->failed_index >= 0) {
            aril__sample_failed(e, s->failed, aril__dataset_label(l->dataset), &failed);
        } else {
            aril__fail(e ? e->code : s->failed, "%s: batch %lld: %s", aril_dataset_type(l->dataset),
                       (long long)s->number, e ? e->message : aril_status_text(s->failed));
            aril__error_release(e);
        }
        s->failed = again ? ARIL_ERR_MEMORY : ARIL_OK;
        return false;
    }
    *b = l->device ? s->there : s->batch;
    b->n = s->batch.n;
    b->index = s->batch.index;
    return true;
}

/* ---- creation and position ---- */

static aril_status check(const aril_dataset *d, const aril_loader_opts *o)
{
    if (o->batch < 0 || o->batch > INT32_MAX || o->workers < 0 || o->workers > 256 ||
        o->prefetch < 0 || o->prefetch > 4096)
        return aril__fail(ARIL_ERR_ARG,
                          "loader: expected batch >= 1, 0 to 256 workers and a prefetch of 0 to "
                          "4096, got %lld, %d and %d",
                          (long long)o->batch, o->workers, o->prefetch);
    if (o->sampler && o->shuffle)
        return aril__fail(ARIL_ERR_ARG,
                          "loader: .shuffle has no effect with a .sampler: leave it unset");
    if (o->pad && o->collate)
        return aril__fail(ARIL_ERR_ARG, "loader: .pad cannot be combined with a custom .collate");
    if (!d->type->get && (o->sampler || o->shuffle))
        return aril__fail(ARIL_ERR_ARG,
                          "loader: %s is a stream, which is read in order: use "
                          "aril_dataset_shuffle instead of .%s",
                          d->type->type, o->sampler ? "sampler" : "shuffle");
    return ARIL_OK;
}

/* Where batches go: pinned memory, and from there to a device. */
static bool open_device(aril_loader *l)
{
    bool host = aril_device_equal(l->opts.device, aril_cpu());
    if (host) {
        l->pinned = l->opts.pinned ? aril__pinned_device() : NULL;
        return true;
    }
    l->device = aril__device_find(l->opts.device);
    if (!l->device) return false;
    if (l->device->ops.pinned_alloc && l->device->ops.event_new) l->pinned = l->device;
    return !l->pinned || (l->copies = aril_stream_new(l->opts.device)) != NULL;
}

aril_loader *aril_loader_new(aril_dataset *d, aril_loader_opts opts)
{
    aril_loader *l = NULL;
    if (d && check(d, &opts) >= 0 && !(l = aril__calloc(sizeof *l)))
        aril__fail(ARIL_ERR_MEMORY, "loader: out of memory");
    if (!l) {
        aril_dataset_release(d);
        aril_sampler_free(opts.sampler);
        aril_transform_free(opts.batch_transform);
        return NULL;
    }
    l->dataset = d;
    l->sampler = opts.sampler;
    if (!opts.batch) opts.batch = 1;
    if (!opts.prefetch) opts.prefetch = opts.workers > 2 ? opts.workers : 2;
    l->opts = opts;
    if (opts.batch_transform)
        aril__transform_set_classes(opts.batch_transform, aril_dataset_classes(d, NULL));
    l->at.seed = opts.seed;
    l->stream = !d->type->get;
    l->scale = aril_dataset_has_images(d) && !opts.raw;
    l->by_batch = !l->stream && d->type->get_batch && !opts.pad && !opts.collate &&
                  (!opts.raw || !aril_dataset_has_images(d));
    l->n_slots = opts.workers ? opts.prefetch + 1 : 1;
    l->size = l->samples = aril_dataset_size(d);
    bool ok = open_device(l);
    if (ok && !l->stream) {
        if (!l->sampler)
            l->sampler = opts.shuffle ? aril_sampler_random() : aril_sampler_sequential();
        ok = l->sampler != NULL && l->size >= 0;
        if (l->size < 0)
            aril__fail(ARIL_ERR_ARG, "loader: %s has an invalid size of %lld samples",
                       d->type->type, (long long)l->size);
        if (ok) l->samples = aril__sampler_count(l->sampler, l->size);
        ok = ok && l->samples >= 0;
    }
    l->length = l->samples < 0   ? -1
                : opts.drop_last ? l->samples / opts.batch
                                 : l->samples / opts.batch + (l->samples % opts.batch != 0);
    ok = ok && (l->slot = aril__slots_new(l, l->n_slots));
    ok = ok && (!opts.workers || (l->pool = aril__worker_pool_new(l)));
    if (!ok) {
        aril_loader_free(l);
        return NULL;
    }
    return l;
}

void aril_loader_free(aril_loader *l)
{
    if (!l) return;
    aril__worker_pool_free(l->pool);
    aril__slots_free(l, l->slot, l->n_slots);
    aril_stream_free(l->copies);
    aril_sampler_free(l->sampler);
    aril_transform_free(l->opts.batch_transform);
    aril_dataset_release(l->dataset);
    free(l->order);
    free(l);
}

int64_t aril_loader_length(const aril_loader *l)
{
    return l ? l->length : -1;
}

int64_t aril_loader_samples(const aril_loader *l)
{
    return l ? l->samples : -1;
}

aril_dataset *aril_loader_dataset(const aril_loader *l)
{
    return l ? l->dataset : NULL;
}

int64_t aril_loader_batch_size(const aril_loader *l)
{
    return l ? l->opts.batch : 0;
}

aril_loader_position aril_loader_tell(const aril_loader *l)
{
    return l ? l->at : (aril_loader_position){ 0 };
}

aril_status aril_loader_seek(aril_loader *l, aril_loader_position p)
{
    if (!l) return aril__fail(ARIL_ERR_ARG, "loader_seek: the loader is NULL");
    if (p.epoch < 0 || p.batch < 0 || (l->length >= 0 && p.batch > l->length))
        return aril__fail(
            ARIL_ERR_INDEX,
            "loader_seek: batch %lld of epoch %lld is out of range: an epoch has %lld batches",
            (long long)p.batch, (long long)p.epoch, (long long)l->length);
    if (l->pool && !aril__worker_pool_is_gone(l->pool)) aril__worker_pool_rest(l->pool);
    l->at = p;
    l->ordered = false;
    return ARIL_OK;
}
