#include "plugin/strict_run.h"

#include <stdlib.h>
#include <string.h>

typedef struct place {
    const void *device;
    const char *forbidden;
    char *memory;
} place;

/* Where the memory of a device pointer is. */
static void *seen(const place *d, const void *p)
{
    return p ? d->memory + ((const char *)p - d->forbidden) : NULL;
}

/* The header that stands for `t`; the same for the same tensor, over the same storage for the same
 * memory. */
static aril_tensor *stand_in(strict_run *o, const place *d, aril_tensor *t,
                             aril_tensor *const *real)
{
    int k = o->n_headers;
    aril_tensor *h = &o->header[k];
    *h = *t;
    atomic_init(&h->refs, 1);
    h->node = NULL;
    h->view = NULL;
    o->n_headers++;
    if (!t->storage) return h;
    for (int i = 0; i < k; i++)
        if (real[i]->storage == t->storage) {
            h->storage = o->header[i].storage;
            return h;
        }
    aril__storage *s = &o->storage[k];
    memset(s, 0, sizeof *s);
    atomic_init(&s->refs, 1);
    s->device = aril__cpu_device;
    s->bytes = t->storage->bytes;
    s->deleter = aril__keep_memory;
    h->storage = s;
    if (t->storage->device->self == d->device) {
        s->data = seen(d, t->storage->data);
    } else { /* a number in host memory: taken now */
        size_t bytes = aril__dtype_bytes((aril_dtype)t->dtype, t->numel);
        ARIL_ASSERT(aril__is_number(t) && bytes <= sizeof s->small && aril__is_dense(t));
        memcpy(s->small, aril__ptr(t), bytes);
        s->data = s->small;
        h->offset = 0;
    }
    return h;
}

static aril_tensor *stand_in_of(strict_run *o, const place *d, aril_tensor *t, aril_tensor **real)
{
    if (!t) return NULL;
    for (int i = 0; i < o->n_headers; i++)
        if (real[i] == t) return &o->header[i];
    real[o->n_headers] = t;
    return stand_in(o, d, t, real);
}

strict_run *strict_run_new(const void *device, const char *forbidden, char *memory,
                           const aril__run *r)
{
    const place d = { device, forbidden, memory };
    size_t n = (size_t)(r->n_in + r->n_out), at = sizeof(strict_run);
    size_t attrs = r->attrs ? r->op->attr_size : 0;
    size_t to_in = at = (at + 15) / 16 * 16;
    size_t to_attrs = at += (size_t)r->n_in * sizeof(aril_tensor *);
    at = (at + attrs + 63) / 64 * 64;
    size_t to_storage = at, to_header = at + n * sizeof(aril__storage);
    size_t bytes = to_header + n * sizeof(aril_tensor);
    char *block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    aril_tensor **real = malloc((n + 1) * sizeof *real);
    strict_run *o = (strict_run *)(void *)block;
    memset(o, 0, sizeof *o);
    o->in = (aril_tensor **)(void *)(block + to_in);
    o->storage = (aril__storage *)(void *)(block + to_storage);
    o->header = (aril_tensor *)(void *)(block + to_header);
    o->run = *r;
    if (attrs) o->run.attrs = memcpy(block + to_attrs, r->attrs, attrs);
    for (int i = 0; i < r->n_in; i++) o->in[i] = stand_in_of(o, &d, r->in[i], real);
    for (int i = 0; i < r->n_out; i++) o->out[i] = stand_in_of(o, &d, r->out[i], real);
    o->run.in = o->in;
    o->run.out = o->out;
    o->run.device = aril__cpu_device;
    o->run.workspace = seen(&d, r->workspace);
    free(real);
    return o;
}
