/* Modules: creation, composition, forward. */
#include "nn/module.h"

#include "aril/dtype.h"
#include "aril/create.h"
#include "aril/math.h"
#include "ops/table/apply.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern _Thread_local bool aril__building __attribute__((tls_model("initial-exec")));
_Thread_local bool aril__building __attribute__((tls_model("initial-exec")));

aril_device aril__new_modules_on; /* all zero: the CPU */

/* ---- creation ---- */

aril_guard aril__plain_begin(void)
{
    aril_guard g = aril_no_grad_begin();
    if (g.depth != UINT32_MAX) aril__tls.mode.inference = false;
    return g;
}

aril_module *aril_module_make(const aril_module_class *type)
{
    aril__self();
    if (!type || !type->forward || !type->type) {
        aril__fail(ARIL_ERR_ARG, "module_make: a class needs a type name and a forward function");
        return NULL;
    }
    aril_module *m = aril__calloc(sizeof *m + type->size);
    if (!m) {
        aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for a module", type->type);
        return NULL;
    }
    atomic_init(&m->refs, 1);
    m->type = type;
    m->training = true;
    atomic_init(&m->ready, !type->build);
    m->dtype = ARIL_F32;
    m->device = aril__new_modules_on;
    return m;
}

aril_module *aril__layer_make(const aril__layer *layer)
{
    aril_module *m = aril_module_make(&layer->base);
    if (m) m->layer = layer;
    return m;
}

aril_module *aril__layer_made(aril_module *m, aril_status s)
{
    if (s == ARIL_OK) return m;
    aril_module_release(m);
    return NULL;
}

static void forward_one(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                        aril_tensor **out)
{
    (void)n_in;
    if (n_out > 0) out[0] = self->fn.one(self, in[0]);
}

static void forward_several(aril_module *self, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out)
{
    if (n_out > 0) out[0] = self->fn.several(self, (aril_list){ n_in, in });
}

/* Creates a module that owns its class. */
static aril_module *make_own(const char *type, aril_module_class class, bool complete)
{
    if (!type || !complete) {
        aril__fail(ARIL_ERR_ARG, "module_new: expected a type name and a forward function");
        return NULL;
    }
    class.type = type;
    aril_module *m = aril_module_make(&class);
    char *name = m ? aril__strdup(type) : NULL;
    if (!name) {
        if (m) aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for a module", type);
        free(m);
        return NULL;
    }
    m->made = class;
    m->made.type = name;
    m->type = &m->made;
    return m;
}

aril_module *aril_module_new(const char *type, size_t size,
                             aril_tensor *(*forward)(aril_module *self, aril_tensor *x))
{
    aril_module *m = make_own(type, (aril_module_class){ .size = size, .forward = forward_one },
                              forward != NULL);
    if (m) m->fn.one = forward;
    return m;
}

aril_module *aril_module_new_n(const char *type, size_t size,
                               aril_tensor *(*forward)(aril_module *self, aril_list in))
{
    aril_module *m =
        make_own(type,
                 (aril_module_class){ .size = size, .forward = forward_several, .inputs = -1 },
                 forward != NULL);
    if (m) m->fn.several = forward;
    return m;
}

aril_module *aril_module_keep(aril_module *m)
{
    if (m)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    else
        aril__fail(ARIL_ERR_ARG, "module_keep: the module is NULL");
    return m;
}

void aril_module_release(aril_module *m)
{
    if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1) return;
    aril__lifetime_end(&m->life);
    aril__module_program_free(m);
    if (m->type->destroy) m->type->destroy(m);
    aril__hooks_free(m);
    aril__lists_free(m);
    for (int i = 0; i < m->n_own; i++) {
        aril_release(m->own[i].tensor);
        free(m->own[i].name);
    }
    for (int i = 0; i < m->n_children; i++) {
        aril_module_release(m->child[i].module);
        free(m->child[i].name);
    }
    free(m->own);
    free(m->child);
    if (m->type == &m->made) free((char *)(uintptr_t)m->made.type);
    free(m);
}

void *aril_module_data(const aril_module *m)
{
    return m ? (void *)(uintptr_t)m->data : NULL;
}

const char *aril_module_type(const aril_module *m)
{
    return m ? m->type->type : "?";
}

void aril_module_ready(aril_module *m)
{
    if (m) aril__set_ready(m);
}

/* ---- composition ---- */

/* Makes room for one more element of `size` bytes in an array. */
static aril_status grow(const aril_module *m, void *array, int n, int *cap, size_t size)
{
    void **at = array, *grown;
    if (n < *cap) return ARIL_OK;
    int next = *cap ? *cap * 2 : 4;
    grown = aril__realloc(*at, (size_t)next * size);
    if (!grown) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", m->type->type);
    *at = grown;
    *cap = next;
    return ARIL_OK;
}

static aril_status check_name(const aril_module *m, const char *what, const char *name)
{
    if (!name || !*name || strchr(name, '.'))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: \"%s\" cannot name a %s; a name must not be empty or contain a dot",
                          m->type->type, name ? name : "NULL", what);
    return ARIL_OK;
}

static int find_child(const aril_module *m, const char *name, size_t length)
{
    for (int i = 0; i < m->n_children; i++)
        if (strncmp(m->child[i].name, name, length) == 0 && !m->child[i].name[length]) return i;
    return -1;
}

static int find_own(const aril_module *m, const char *name)
{
    for (int i = 0; i < m->n_own; i++)
        if (strcmp(m->own[i].name, name) == 0) return i;
    return -1;
}

/* Number of module levels below m. */
static int height(const aril_module *m)
{
    int max = 0;
    for (int i = 0; i < m->n_children; i++) {
        int below = 1 + height(m->child[i].module);
        if (below > max) max = below;
    }
    return max;
}

/* Records that m is at least `depth` levels deep, and its descendants deeper. */
static void sink(aril_module *m, int depth)
{
    if (m->depth >= depth) return;
    m->depth = depth;
    for (int i = 0; i < m->n_children; i++) sink(m->child[i].module, depth + 1);
}

/* Tree walks recurse once per level: the limit keeps them within a thread's stack. */
static aril_status check_depth(const aril_module *m, const char *name, const aril_module *child)
{
    int levels = m->depth + 1 + height(child);
    if (levels <= ARIL_MODULE_DEPTH) return ARIL_OK;
    return aril__fail(ARIL_ERR_ARG,
                      "%s: \"%s\" would create a module tree %d levels deep; at most %d are "
                      "allowed: put layers into one Sequential or ModuleList",
                      m->type->type, name, levels, ARIL_MODULE_DEPTH);
}

static aril_status add_child(aril_module *m, const char *name, aril_module *child)
{
    aril_status s = check_name(m, "child", name);
    if (s < 0) return s;
    if (find_child(m, name, strlen(name)) >= 0 || find_own(m, name) >= 0)
        return aril__fail(ARIL_ERR_ARG, "%s: \"%s\" already exists", m->type->type, name);
    if (aril__contains(child, m))
        return aril__fail(ARIL_ERR_ARG, "%s: \"%s\" contains the module it is added to",
                          m->type->type, name);
    if ((s = check_depth(m, name, child)) < 0) return s;
    s = grow(m, &m->child, m->n_children, &m->cap_children, sizeof *m->child);
    if (s < 0) return s;
    char *copy = aril__strdup(name);
    if (!copy) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", m->type->type);
    m->child[m->n_children++] = (aril__child){ copy, child };
    sink(child, m->depth + 1);
    return ARIL_OK;
}

aril_module *aril_module_add(aril_module *m, const char *name, aril_module *child)
{
    aril__self();
    if (!m || !child) {
        if (!m || aril_ok())
            aril__fail(ARIL_ERR_ARG, "module_add: the %s is NULL", m ? "child" : "module");
    } else if (add_child(m, name, child) == ARIL_OK) {
        return child;
    }
    aril_module_release(child);
    return NULL;
}

/* Registers t (or NULL), of which the module already holds a reference. */
static aril_status add_own(aril_module *m, const char *name, aril_tensor *t, int kind)
{
    int at = find_own(m, name);
    if (at < 0) {
        aril_status s = grow(m, &m->own, m->n_own, &m->cap_own, sizeof *m->own);
        char *copy = s == ARIL_OK ? aril__strdup(name) : NULL;
        if (!copy)
            return s < 0 ? s : aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", m->type->type);
        at = m->n_own++;
        m->own[at] = (aril__own_tensor){ .name = copy };
    }
    aril_release(m->own[at].tensor);
    m->own[at].tensor = t;
    m->own[at].kind = kind;
    return ARIL_OK;
}

static aril_tensor *register_tensor(aril_module *m, const char *name, aril_tensor *t, int kind)
{
    const char *what = kind == ARIL__PARAMETER ? "parameter" : "buffer";
    aril__self();
    if (!m) {
        aril__fail(ARIL_ERR_ARG, "module_%s: the module is NULL", what);
        return aril__poison();
    }
    if (check_name(m, what, name) < 0) return aril__poison();
    if (find_child(m, name, strlen(name)) >= 0) {
        aril__fail(ARIL_ERR_ARG, "%s: the child \"%s\" already exists", m->type->type, name);
        return aril__poison();
    }
    aril_tensor *kept = NULL;
    ARIL__PLAIN;
    if (t) {
        if (aril__check_value(m->type->type, t) < 0) return aril__poison();
        kept = kind == ARIL__PARAMETER ? aril_parameter(t)
                                       : aril_keep(t->view || t->node ? aril_detach(t) : t);
    }
    if ((kept && aril__is_poison(kept)) || add_own(m, name, kept, kind) < 0) {
        aril_release(kept);
        return aril__poison();
    }
    if (kept) {
        /* The module owns it now: remove it from the scope. */
        if (kept != t) aril_drop(kept);
        aril_drop(t);
    }
    return kept;
}

aril_tensor *aril_module_parameter(aril_module *m, const char *name, aril_tensor *t)
{
    return register_tensor(m, name, t, ARIL__PARAMETER);
}

aril_tensor *aril_module_buffer(aril_module *m, const char *name, aril_tensor *t)
{
    return register_tensor(m, name, t, ARIL__BUFFER);
}

aril_tensor *aril_module_scratch(aril_module *m, const char *name, aril_tensor *t)
{
    return register_tensor(m, name, t, ARIL__SCRATCH);
}

aril_tensor *aril_module_own(const aril_module *m, int i)
{
    return m && i >= 0 && i < m->n_own ? m->own[i].tensor : NULL;
}

aril_status aril_module_share(aril_module *m, const char *name, aril_tensor *t)
{
    aril__own_tensor *own = m ? aril__find_own(m, name) : NULL;
    char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
    if (!own || !own->tensor)
        return aril__fail(ARIL_ERR_ARG, "module_share: no tensor \"%s\" in %s",
                          name ? name : "NULL", aril_module_type(m));
    aril_status s = aril__check_value("module_share", t);
    if (s < 0) return s;
    if (!aril__same_dims(t->ndim, t->dim, own->tensor->ndim, own->tensor->dim))
        return aril__fail(ARIL_ERR_SHAPE, "module_share: \"%s\" is %s, the tensor %s", name,
                          aril__text(a, own->tensor), aril__text(b, t));
    if (aril_dtype_is_float(aril_dtype_of(t)) != aril_dtype_is_float(aril_dtype_of(own->tensor)))
        return aril__fail(ARIL_ERR_DTYPE, "module_share: \"%s\" is %s, the tensor %s", name,
                          aril_dtype_name(aril_dtype_of(own->tensor)),
                          aril_dtype_name(aril_dtype_of(t)));
    if (t->view || !aril_is_leaf(t))
        return aril__fail(ARIL_ERR_ARG,
                          "module_share: \"%s\" needs a leaf tensor that is not a view", name);
    aril_set(&own->tensor, t);
    return ARIL_OK;
}

/* ---- parameters and buffers of layers ---- */

static aril_status add_made(aril_module *m, const char *name, aril_tensor *t, int kind)
{
    return aril_tensor_status(register_tensor(m, name, t, kind));
}

aril_status aril__add_parameter(aril_module *m, const char *name, aril_shape shape)
{
    ARIL_SCOPE;
    ARIL__PLAIN;
    aril_tensor *t = aril__sketching() ? aril__sketched(shape, m->dtype, m->device)
                                       : aril_empty(shape, m->dtype, m->device);
    return add_made(m, name, t, ARIL__PARAMETER);
}

aril_status aril__add_optional(aril_module *m, const char *name, aril_shape shape, bool absent)
{
    if (!absent) return aril__add_parameter(m, name, shape);
    return add_own(m, name, NULL, ARIL__PARAMETER);
}

aril_status aril__add_absent(aril_module *m, const char *name)
{
    return add_own(m, name, NULL, ARIL__BUFFER);
}

aril_status aril__add_buffer(aril_module *m, const char *name, aril_shape shape, double value)
{
    ARIL_SCOPE;
    ARIL__PLAIN;
    return add_made(m, name, aril_full(shape, value, m->dtype, m->device), ARIL__BUFFER);
}

void aril__fill_fan(aril_tensor *t, int64_t fan)
{
    if (!t || aril__sketching()) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    double bound = fan > 0 ? 1 / sqrt((double)fan) : 0;
    aril_uniform_(t, -bound, bound);
}

void aril__fill_number(aril_tensor *t, double value)
{
    if (!t || aril__sketching()) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_fill_(t, value);
}

aril_status aril__input_size(const aril_tensor *x, int axis, int64_t *size)
{
    int at = axis < 0 ? axis + x->ndim : axis;
    char text[ARIL__SHAPE_TEXT];
    if (at < 0 || at >= x->ndim || x->dim[at] < 1)
        return aril__fail(ARIL_ERR_SHAPE,
                          "the size of axis %d is inferred from the first input, which is %s", axis,
                          aril__text(text, x));
    *size = x->dim[at];
    return ARIL_OK;
}

/* ---- forward ---- */

/* Path of a frame's module within the enclosing one: "0", or "block.0" for a grandchild. */
static bool write_path(const aril_module *m, const aril_module *what, char *text, size_t size)
{
    for (int i = 0; i < m->n_children; i++) {
        int n = snprintf(text, size, "%s", m->child[i].name);
        if (m->child[i].module == what) return true;
        if (n < 0 || (size_t)n + 2 > size) continue;
        text[n] = '.';
        if (write_path(m->child[i].module, what, text + n + 1, size - (size_t)n - 1)) return true;
    }
    *text = 0;
    return false;
}

static void write_frames(const aril__frame *f, char *text, size_t size)
{
    if (!f->up || f->up->text) return;
    write_frames(f->up, text, size);
    size_t n = strlen(text);
    if (n && n + 2 < size) {
        text[n] = '.';
        text[++n] = 0;
    }
    if (!write_path(f->up->what, f->what, text + n, size - n) && n) text[n - 1] = 0;
}

/* The path of the running module from the outermost one. */
static void write_module_path(const aril__frame *frame, char *text, size_t size)
{
    text[0] = 0;
    write_frames(frame, text, size);
}

void aril__module_where(const aril__frame *frame, char *text, size_t size)
{
    const aril_module *m = frame->what;
    if (m->layer && m->layer->where) {
        m->layer->where(m, text, size);
        return;
    }
    write_module_path(frame, text, size);
    size_t n = strlen(text);
    const char *type = aril_module_type(frame->what);
    snprintf(text + n, size - n, n ? " (%s): " : "%s: ", type);
}

static aril__cold aril_status no_result(aril_module *m, int n_out, aril_tensor **out)
{
    aril__fail(ARIL_ERR_STATE, "forward returned no result");
    out[0] = aril__poison();
    (void)m;
    (void)n_out;
    return ARIL_ERR_STATE;
}

aril_status aril__run_class(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                            aril_tensor **out)
{
    m->type->forward(m, n_in, in, n_out, out);
    if (aril__unlikely(n_out > 0 && !out[0])) return no_result(m, n_out, out);
    return ARIL_OK;
}

static aril__cold aril_status poison_results(int n_out, aril_tensor **out, aril_status s)
{
    aril__poison_all(n_out, out);
    return s;
}

/* One lock for all builds, since a build may run other modules that are not built yet. */
static pthread_mutex_t build_lock;

static void make_build_lock(void)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&build_lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static aril_status run_build(aril_module *m, int n_in, aril_tensor *const *in)
{
    aril__thread *th = aril__self();
    if (!m->placed && n_in && aril__tensor_device(in[0])) m->device = aril_device_of(in[0]);
    ARIL_SCOPE;
    ARIL__PLAIN;
    const aril__error *before = th->last_error;
    aril__pause pause = aril__trace_pause(); /* parameters are created once, not by each run */
    aril_status s = m->type->build(m, n_in, in);
    aril__trace_resume(pause);
    if (s < 0)
        return th->last_error != before
                   ? s
                   : aril__fail(s, "the function build failed: %s", aril_status_text(s));
    aril__set_ready(m);
    return ARIL_OK;
}

/* Before the first forward: lets the class create its parameters from the inputs. Concurrent
 * threads wait for the first of them. */
static aril__cold aril_status build(aril_module *m, int n_in, aril_tensor *const *in)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_build_lock);
    pthread_mutex_lock(&build_lock);
    aril_status s = aril__is_ready(m) ? ARIL_OK : run_build(m, n_in, in);
    pthread_mutex_unlock(&build_lock);
    return s;
}

static aril__cold aril_status wrong_count(const aril_module *m, int n_in)
{
    int takes = m->type->inputs ? m->type->inputs : 1;
    if (takes < 0) return aril__fail(ARIL_ERR_ARG, "expected at least 1 input, got %d", n_in);
    return aril__fail(ARIL_ERR_ARG, "expected at most %d input%s, got %d", takes,
                      takes == 1 ? "" : "s", n_in);
}

/* NULL inputs are omitted ones; the first is required. */
static aril_status check_inputs(const aril_module *m, int n_in, aril_tensor *const *in)
{
    int takes = m->type->inputs ? m->type->inputs : 1;
    if (aril__unlikely(n_in < 1 || (takes > 0 && n_in > takes)))
        return n_in == 0 && m->type->inputless ? ARIL_OK : wrong_count(m, n_in);
    if (aril__unlikely(!in[0])) return aril__fail(ARIL_ERR_ARG, "the input is NULL");
    for (int i = 0; i < n_in; i++) {
        if (aril__unlikely(in[i] && in[i]->flags & ARIL__POISON))
            return aril__refuse_poison("forward", i, in[i]);
    }
    return ARIL_OK;
}

/* The start of every forward: a frame for errors, checks, a scope. */
typedef struct run {
    aril__thread *th;
    aril__frame frame;
    aril_guard scope;
} run;

/* In a trace: a program is for the mode, the tensors and the data that the module has now. */
static aril__cold aril_status note_in_trace(aril_module *m)
{
    char path[256], name[320];
    write_module_path(aril__self()->frame, path, sizeof path);
    for (int i = 0; i < m->n_own; i++) {
        if (!m->own[i].tensor) continue;
        snprintf(name, sizeof name, "%s%s%s", path, *path ? "." : "", m->own[i].name);
        aril__trace_name(m->own[i].tensor, name);
    }
    snprintf(name, sizeof name, "module %s", m->type->type);
    aril_status s = aril__trace_reads(&m->life, name);
    if (s == ARIL_OK) s = aril__trace_depend(&m->training, sizeof m->training);
    if (s == ARIL_OK) s = aril__trace_depend(&m->own, sizeof m->own); /* before what it points to */
    if (s == ARIL_OK && m->n_own) s = aril__trace_depend(m->own, (size_t)m->n_own * sizeof *m->own);
    if (s == ARIL_OK && !m->layer && m->type->size) s = aril__trace_depend(m->data, m->type->size);
    return s;
}

static aril_status run_begin(run *r, aril_module *m, int n_in, aril_tensor *const *in)
{
    r->th = aril__self();
    r->frame = (aril__frame){ .up = r->th->frame, .what = m };
    r->th->frame = &r->frame;
    aril_status s = check_inputs(m, n_in, in);
    if (aril__unlikely(s == ARIL_OK && !aril__is_ready(m))) s = build(m, n_in, in);
    if (aril__unlikely(r->th->tracer != NULL) && s == ARIL_OK) s = note_in_trace(m);
    r->scope = (aril_guard){ UINT32_MAX };
    if (aril__likely(s == ARIL_OK)) {
        r->scope = aril_scope_begin();
        if (aril__unlikely(r->scope.depth == UINT32_MAX)) s = ARIL_ERR_MEMORY;
    }
    return s;
}

static void run_end(run *r)
{
    if (aril__likely(r->scope.depth != UINT32_MAX)) aril_guard_end(&r->scope);
    r->th->frame = r->frame.up;
}

static aril__cold aril_status no_list(const aril_module *m, int n_in, int n_out, aril_tensor **out)
{
    return poison_results(n_out, out,
                          aril__fail(ARIL_ERR_ARG, "%s: a list of %d inputs is NULL", m->type->type,
                                     n_in));
}

static aril__cold aril_status no_module(int n_out, aril_tensor **out)
{
    /* When creating the module failed, its error is already set. */
    if (aril_ok()) aril__fail(ARIL_ERR_ARG, "forward: the module is NULL");
    return poison_results(n_out, out, ARIL_ERR_ARG);
}

/* A module fails as a whole: the results that it did not set become poison like the others. */
static void fail_together(int n_out, aril_tensor **out)
{
    const aril_tensor *bad = NULL;
    for (int i = 0; i < n_out && !bad; i++)
        if (out[i] && out[i]->flags & ARIL__POISON) bad = out[i];
    for (int i = 0; i < n_out && bad; i++)
        if (!out[i]) out[i] = aril__poison_like(bad);
    aril__fail_together(n_out, out);
}

static aril_status forward_plain(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                                 aril_tensor **out)
{
    enum { PADDED = 16 };
    run r;
    aril_tensor *all[PADDED];
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    if (aril__unlikely(!m)) return no_module(n_out, out);
    if (aril__unlikely(n_in > 0 && !in)) return no_list(m, n_in, n_out, out);
    if (aril__unlikely(n_in > 0 && n_in < m->type->inputs && n_in < PADDED)) {
        /* A class may read in[i] without checking n_in: omitted inputs are NULL. */
        for (int i = 0; i < PADDED; i++) all[i] = i < n_in ? in[i] : NULL;
        in = all;
    }
    aril_status s = run_begin(&r, m, n_in, in);
    if (aril__likely(s == ARIL_OK)) {
        s = aril__likely(!m->hooks) ? aril__run_class(m, n_in, in, n_out, out)
                                    : aril__run_hooked(m, n_in, in, n_out, out);
        if (n_out > 1) fail_together(n_out, out);
        for (int i = 0; i < n_out; i++)
            if (out[i]) aril_escape(out[i]);
    }
    run_end(&r);
    if (aril__unlikely(s < 0 && n_out > 0 && !out[0])) return poison_results(n_out, out, s);
    return s;
}

static inline aril_status forward(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                                  aril_tensor **out)
{
    if (aril__unlikely(m && m->program) && !aril__self()->tracer && !aril__building)
        return aril__forward_jit(m, n_in, in, n_out, out, forward_plain);
    return forward_plain(m, n_in, in, n_out, out);
}

aril_tensor *aril_forward(aril_module *m, aril_tensor *x)
{
    aril_tensor *out;
    forward(m, 1, &x, 1, &out);
    return out;
}

aril_tensor *aril_forward_n(aril_module *m, aril_list in)
{
    aril_tensor *out;
    forward(m, in.n, in.at, 1, &out);
    return out;
}

aril_status aril_forward_all(aril_module *m, aril_list in, int n_out, aril_tensor **out)
{
    int gives = m ? m->type->outputs ? m->type->outputs : 1 : -1;
    if (n_out < 1 || !out)
        return aril__fail(ARIL_ERR_ARG, "forward_all: expected at least 1 result, got %d", n_out);
    /* A class is never asked for more results than it declares. */
    int asked = gives > 0 && gives < n_out ? gives : n_out;
    for (int i = asked; i < n_out; i++) out[i] = NULL;
    aril_status s = forward(m, in.n, in.at, asked, out);
    for (int i = 0; i < asked && s == ARIL_OK; i++)
        if (out[i]) s = aril_tensor_status(out[i]);
    return s;
}

aril_tensor *aril__forward_fused(aril_module *m, aril_tensor *x, aril_activation activation)
{
    run r;
    aril_tensor *out = NULL;
    aril_status s = run_begin(&r, m, 1, &x);
    if (aril__likely(s == ARIL_OK)) out = aril_escape(m->layer->fused(m, x, activation));
    run_end(&r);
    return aril__likely(out != NULL) ? out : aril__poison();
}

static aril_tensor *forward_joined(aril_module *m, aril_tensor *x, aril_tensor *residual,
                                   aril_activation activation)
{
    run r;
    aril_tensor *out = NULL;
    aril_status s = run_begin(&r, m, 1, &x);
    if (aril__likely(s == ARIL_OK)) out = aril_escape(m->layer->joined(m, x, residual, activation));
    run_end(&r);
    return aril__likely(out != NULL) ? out : aril__poison();
}

aril_tensor *aril__forward_relu(aril_module *m, aril_tensor *x, aril_tensor *residual)
{
    bool plain = m && m->layer && !m->hooks && !aril__sketching();
    if (plain && residual && m->layer->joined) return forward_joined(m, x, residual, ARIL_RELU);
    if (plain && !residual && m->layer->fused) return aril__forward_fused(m, x, ARIL_RELU);
    aril_tensor *y = aril_forward(m, x);
    return aril_relu(residual ? aril_add(y, residual) : y);
}

aril_tensor *aril__forward_add(aril_module *m, aril_tensor *x, aril_tensor *residual)
{
    if (m && m->layer && !m->hooks && m->layer->joined && !aril__sketching())
        return forward_joined(m, x, residual, ARIL_NO_ACTIVATION);
    return aril_add(aril_forward(m, x), residual);
}

/* ---- sizes inferred from the first input ---- */

bool aril_module_built(const aril_module *m)
{
    if (!m) return false;
    if (!aril__is_ready(m)) return false;
    for (int i = 0; i < m->n_children; i++)
        if (!aril_module_built(m->child[i].module)) return false;
    return true;
}

aril_status aril_module_build_n(aril_module *m, aril_list in)
{
    if (!m) return aril__fail(ARIL_ERR_ARG, "module_build: the module is NULL");
    if (aril_module_built(m)) return ARIL_OK;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    /* Request all results: a forward function may skip parts whose results are not requested. */
    enum { MAX_OUT = 16 };
    aril_tensor *out[MAX_OUT];
    int n_out = m->type->outputs > 1 ? m->type->outputs : 1;
    bool before = aril__building;
    aril__building = true;
    aril_status s = aril_forward_all(m, in, n_out < MAX_OUT ? n_out : MAX_OUT, out);
    aril__building = before;
    if (s == ARIL_OK && !aril_module_built(m))
        s = aril__fail(ARIL_ERR_STATE,
                       "module_build: %s has modules that the forward pass does not reach: their "
                       "sizes are still unknown",
                       m->type->type);
    return s;
}

aril_status aril_module_build(aril_module *m, aril_shape x)
{
    if (!m) return aril__fail(ARIL_ERR_ARG, "module_build: the module is NULL");
    if (aril_module_built(m)) return ARIL_OK;
    if (x.ndim < 0 || x.ndim >= ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "module_build: %d dimensions without the batch", x.ndim);
    aril_shape batch = { .ndim = x.ndim + 1, .dim = { 1 } };
    memcpy(batch.dim + 1, x.dim, (size_t)x.ndim * sizeof *x.dim);
    ARIL_SCOPE;
    aril_tensor *zeros = aril_zeros(batch, m->dtype, aril__module_device(m));
    return aril_module_build_n(m, (aril_list){ 1, &zeros });
}

/* ---- training and evaluation mode ---- */

static void set_training(aril_module *m, bool training)
{
    m->training = training && !m->frozen_stats;
    for (int i = 0; i < m->n_children; i++) set_training(m->child[i].module, training);
}

void aril_module_train(aril_module *m)
{
    if (m) set_training(m, true);
}

void aril_module_eval(aril_module *m)
{
    if (m) set_training(m, false);
}

bool aril_module_training(const aril_module *m)
{
    return m && aril__is_training(m);
}
