/* Python layers, computed by functions that a program has registered. */
#include "models/caffe/layer.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct entry {
    struct entry *next;
    aril_caffe_layer_fn *fn; /* NULL: removed */
    void *ctx;
    char name[];
} entry;

static entry *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static entry *entry_of(const char *name)
{
    entry *e = entries;
    while (e && strcmp(e->name, name) != 0) e = e->next;
    return e;
}

static entry *new_entry(const char *name)
{
    size_t n = strlen(name) + 1;
    entry *e = aril__malloc(sizeof *e + n);
    if (!e) return NULL;
    memcpy(e->name, name, n);
    e->next = entries;
    return entries = e;
}

/* Frees entries without a function. */
static void sweep(void)
{
    for (entry **at = &entries; *at;) {
        entry *e = *at;
        if (e->fn) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        free(e);
    }
}

aril_status aril_caffe_register(const char *name, aril_caffe_layer_fn *fn, void *ctx)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    if (!dot || dot == name || !dot[1])
        return aril__fail(ARIL_ERR_ARG, "caffe_register: expected a name \"module.layer\", got %s",
                          name ? name : "NULL");
    pthread_mutex_lock(&lock);
    entry *e = entry_of(name);
    if (!e && fn) e = new_entry(name);
    bool failed = !e && fn;
    if (e) {
        e->fn = fn;
        e->ctx = ctx;
    }
    sweep();
    pthread_mutex_unlock(&lock);
    return failed ? aril__fail(ARIL_ERR_MEMORY, "caffe_register: out of memory") : ARIL_OK;
}

typedef struct python {
    caffe_layer base;
    aril_caffe_layer_fn *fn;
    void *ctx;
} python;

static aril_status python_check(aril_module *m, caffe_layer *l)
{
    python *p = aril_module_data(m);
    char name[256];
    const char *module = aril__message_text(l->param, "module"),
               *layer = aril__message_text(l->param, "layer");
    int n = snprintf(name, sizeof name, "%s.%s", module, layer);
    pthread_mutex_lock(&lock);
    const entry *e = n > 0 && (size_t)n < sizeof name ? entry_of(name) : NULL;
    if (e) {
        p->fn = e->fn;
        p->ctx = e->ctx;
    }
    pthread_mutex_unlock(&lock);
    if (e) return ARIL_OK;
    return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED,
                           "no function computes the Python layer %.100s.%.100s: register one with "
                           "aril_caffe_register",
                           module, layer);
}

static void python_forward(aril_module *m, caffe_layer *l, aril_tensor *const *in,
                           aril_tensor **out)
{
    const python *p = aril_module_data(m);
    p->fn(aril__message_text(l->param, "param_str"), (aril_list){ l->n_bottoms, in }, l->n_tops,
          out, p->ctx);
    for (int i = 0; i < l->n_tops; i++)
        if (!out[i]) {
            aril__fail(ARIL_ERR_STATE, "the function of the Python layer did not set top %d", i);
            out[i] = aril__poison();
        }
}

const caffe_row aril__caffe_python_rows[] = {
    { CAFFE_ROW("Python", python),
      .layer.base.eager = "the function of a Python layer is called in each run",
      CAFFE_COUNTS(0, CAFFE_ANY, 0, CAFFE_ANY), .param = "python_param", .check = python_check,
      .forward = python_forward },
    { .param = NULL },
};
