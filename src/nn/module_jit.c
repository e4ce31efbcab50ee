/* Compiled modules: aril_forward runs them from a trace. */
#include "aril/autograd.h"
#include "core/log.h"
#include "graph/compiled.h"
#include "nn/module.h"
#include "ops/table/apply.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_INPUTS = 16 };

/* The module with some inputs given and some results asked for. */
typedef struct form {
    struct form *next;
    aril_module *m;
    uint32_t given; /* inputs that are not NULL */
    int n_in, n_out;
    bool recorded; /* autograd records the call */
    aril__compiled *program;
} form;

struct aril__module_program {
    pthread_mutex_t lock; /* guards the list, which only grows */
    form *forms;
    atomic_bool refused; /* a line in the log has said so */
};

static aril_status no_memory(const aril_module *m)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for its program", m->type->type);
}

aril_status aril_module_jit(aril_module *m)
{
    if (!m) return aril__fail(ARIL_ERR_ARG, "module_jit: the module is NULL");
    if (m->program) return ARIL_OK;
    struct aril__module_program *p = aril__calloc(sizeof *p);
    if (!p) return no_memory(m);
    pthread_mutex_init(&p->lock, NULL);
    atomic_init(&p->refused, false);
    m->program = p;
    return ARIL_OK;
}

void aril__module_program_free(aril_module *m)
{
    struct aril__module_program *p = m->program;
    if (!p) return;
    for (form *f = p->forms, *next; f; f = next) {
        next = f->next;
        aril__compiled_free(f->program);
        free(f);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
    m->program = NULL;
}

const char *aril_module_eager_reason(aril_module *m)
{
    if (!m || !m->program) return NULL;
    const char *why = aril__module_eager(m);
    pthread_mutex_lock(&m->program->lock);
    for (form *f = m->program->forms; f && !why; f = f->next)
        why = aril__compiled_reason(f->program);
    pthread_mutex_unlock(&m->program->lock);
    return why;
}

/* ---- running ---- */

static void traced_forward(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const form *f = ctx;
    aril_tensor *all[MAX_INPUTS] = { NULL };
    for (int i = 0, n = 0; i < f->n_in; i++)
        if (f->given >> i & 1) all[i] = in[n++];
    aril_forward_all(f->m, (aril_list){ f->n_in, all }, f->n_out, out);
}

static form *form_of(aril_module *m, int n_in, uint32_t given, int n_out, bool recorded)
{
    struct aril__module_program *p = m->program;
    pthread_mutex_lock(&p->lock);
    form *f = p->forms;
    while (f &&
           !(f->n_in == n_in && f->given == given && f->n_out == n_out && f->recorded == recorded))
        f = f->next;
    if (!f && (f = aril__calloc(sizeof *f))) {
        *f = (form){ p->forms, m, given, n_in, n_out, recorded, NULL };
        f->program = aril__compiled_new(m->type->type, traced_forward, f, false);
        if (f->program) {
            p->forms = f;
        } else {
            free(f);
            f = NULL;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return f;
}

const char *aril__module_eager(const aril_module *m)
{
    const char *why = m->type->eager;
    for (int i = 0; i < m->n_children && !why; i++) why = aril__module_eager(m->child[i].module);
    return why;
}

static bool has_hooks(const aril_module *m)
{
    bool found = m->hooks != NULL;
    for (int i = 0; i < m->n_children && !found; i++) found = has_hooks(m->child[i].module);
    return found;
}

static bool wants_gradient(const aril_module *m)
{
    bool wants = false;
    for (int i = 0; i < m->n_own && !wants; i++)
        wants = m->own[i].tensor && m->own[i].kind == ARIL__PARAMETER && m->own[i].tensor->node;
    for (int i = 0; i < m->n_children && !wants; i++) wants = wants_gradient(m->child[i].module);
    return wants;
}

/* Whether autograd records the call. */
static bool is_recorded(const aril_module *m, int n_in, aril_tensor *const *in)
{
    if (aril__self()->mode.no_grad) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->node) return true;
    return wants_gradient(m);
}

/* Why the call cannot run from a program; NULL: it can be tried. */
static const char *obstacle(const aril_module *m)
{
    if (aril__self()->mode.anomaly) return "anomaly detection looks at every operation";
    if (has_hooks(m)) return "it has hooks, which are called each time";
    return aril__module_eager(m);
}

static form *form_for(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                      aril_tensor **list, int *n)
{
    bool recorded = is_recorded(m, n_in, in);
    uint32_t given = 0;
    *n = 0;
    for (int i = 0; i < n_in; i++) {
        if (!in[i]) continue;
        if (!in[i]->storage) return NULL; /* poison, or symbolic */
        given |= 1u << i;
        list[(*n)++] = in[i]->node && !recorded ? aril_detach(in[i]) : in[i];
    }
    return given & 1 ? form_of(m, n_in, given, n_out, recorded) : NULL;
}

aril_status aril__forward_jit(aril_module *m, int n_in, aril_tensor *const *in, int n_out,
                              aril_tensor **out, aril__forward_fn *plain)
{
    aril_tensor *list[MAX_INPUTS];
    int n;
    bool tries = n_in >= 1 && n_in <= MAX_INPUTS && in && n_out >= 1 && aril_module_built(m);
    const char *why = tries ? obstacle(m) : NULL;
    if (why && !atomic_exchange(&m->program->refused, true))
        aril__log(ARIL__LOG_TRACE, "%s runs eagerly: %s", m->type->type, why);
    form *f = tries && !why ? form_for(m, n_in, in, n_out, list, &n) : NULL;
    if (!f) return plain(m, n_in, in, n_out, out);
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    aril_status s;
    if (aril__compiled_run(f->program, (aril_list){ n, list }, f->recorded, out, &s)) return s;
    s = plain(m, n_in, in, n_out, out);
    aril__compiled_ran(f->program, s < 0 ? s : aril_tensor_status(out[0]));
    return s;
}
