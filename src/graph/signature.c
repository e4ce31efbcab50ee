/* Signatures of calls, and what a trace demands of the tensors that it found. */
#include "graph/program_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- signatures ---- */

/* The first input with the same storage. */
int aril__input_twin(aril_list in, int i)
{
    for (int k = 0; k < i; k++)
        if (in.at[k]->storage == in.at[i]->storage) return k;
    return i;
}

bool aril__input_shared(aril_list in, int i)
{
    for (int k = 0; k < in.n; k++)
        if (k != i && in.at[k]->storage == in.at[i]->storage) return true;
    return false;
}

/* The sizes as the trace knows them: negative where they may differ. */
void aril__input_sizes(const aril_program *p, aril_list in, int i, int64_t *dim)
{
    const aril_tensor *t = in.at[i];
    const aril_shape *given = i < p->n_sizes && !aril__input_shared(in, i) ? &p->sizes[i] : NULL;
    for (int d = 0; d < t->ndim; d++)
        dim[d] = given && given->ndim == t->ndim && given->dim[d] < 0 ? given->dim[d] : t->dim[d];
}

bool aril__is_by_value(const aril_program *p)
{
    return p->kind && p->kind->by_value && p->kind->by_value(p->ctx);
}

/* Autograd's node of an input: one that records is met with a new one in each call. */
static void describe_input(const aril_program *p, aril_list in, int i, bool recorded, int64_t *word)
{
    const aril_tensor *t = in.at[i];
    memset(word, 0, INPUT_WORDS * sizeof *word);
    word[0] = t->dtype | t->ndim << 8 | (t->flags & (ARIL__WEAK | ARIL__NUMBER)) << 16;
    word[1] = (int64_t)(intptr_t)t->storage->device;
    word[2] = aril__input_twin(in, i);
    word[3] = recorded ? t->node != NULL : (int64_t)(intptr_t)t->node;
    word[4] = aril__input_shared(in, i) ? t->offset : 0;
    aril__input_sizes(p, in, i, word + 5);
    if (!aril__is_dense(t) || aril__input_shared(in, i))
        memcpy(word + 5 + ARIL_MAX_DIMS, t->stride, (size_t)t->ndim * sizeof *word);
    if (aril__is_by_value(p) &&
        aril__is_small_input(t)) /* in place of a stride that it does not have */
        aril__dtypes[t->dtype].load[ARIL__C_I64](&word[INPUT_WORDS - 1], aril__base(t), t->offset,
                                                 1, 1);
}

void aril__describe_call(const aril_program *p, aril_list in, bool recorded, int64_t *word)
{
    const aril__mode *m = &aril__self()->mode;
    word[0] = in.n;
    word[1] = m->no_grad | m->inference << 1 | m->anomaly << 2 | m->region << 3 | recorded << 4;
    word[2] = m->autocast;
    for (int i = 0; i < in.n; i++)
        describe_input(p, in, i, recorded, word + MODE_WORDS + (size_t)i * INPUT_WORDS);
}

/* ---- guards ---- */

static bool is_state_alike(const state_guard *g, const aril_tensor *t)
{
    return t->storage && g->device == t->storage->device && g->dtype == t->dtype &&
           g->node == t->node && g->offset == t->offset &&
           aril__same_dims(g->ndim, g->dim, t->ndim, t->dim) &&
           aril__same_dims(g->ndim, g->stride, t->ndim, t->stride);
}

uint32_t aril__state_twin(const aril__graph *g, uint32_t i)
{
    uint32_t k = 0;
    while (g->states[k].tensor->storage != g->states[i].tensor->storage) k++;
    return k;
}

/* The first state in the memory of a tensor, or -1. */
int aril__state_in(const aril__graph *g, const aril_tensor *t)
{
    for (uint32_t k = 0; k < g->n_states; k++)
        if (g->states[k].tensor->storage == t->storage) return (int)k;
    return -1;
}

static bool states_hold(const trace *t)
{
    bool moved = false;
    for (uint32_t i = 0; i < t->g->n_states; i++) {
        const aril_tensor *x = t->g->states[i].tensor;
        if (!is_state_alike(&t->guards[i], x)) return false;
        moved |= x->storage != t->guards[i].storage;
    }
    for (uint32_t i = 0; i < t->g->n_states && moved; i++)
        if (aril__state_twin(t->g, i) != t->guards[i].twin) return false;
    return true;
}

static bool grads_hold(const aril__graph *g)
{
    for (uint32_t i = 0; i < g->n_grads; i++) {
        const aril__grad_state *of = &g->grads[i];
        const aril_tensor *t = of->leaf->grad[0];
        if ((t != NULL) != of->had) return false;
        if (!t) continue;
        const aril__value *v = &g->values[of->value];
        if (t->dtype != v->dtype || aril__tensor_device(t) != v->device ||
            !aril__same_dims(t->ndim, t->dim, v->ndim, aril__graph_dims(g, of->value)))
            return false;
    }
    return true;
}

static bool inputs_hold(const trace *t, aril_list in)
{
    for (int i = 0; i < in.n; i++)
        if (aril__state_in(t->g, in.at[i]) != t->joined[i]) return false;
    return true;
}

/* What differs in an input, of which the words are. */
static const char *other_input(const int64_t *was, const int64_t *now)
{
    if ((was[0] ^ now[0]) & 0xff) return "the dtype";
    if ((was[0] ^ now[0]) >> 8 & 0xff) return "the number of dimensions";
    if (was[1] != now[1]) return "the device";
    if (was[2] != now[2] || was[4] != now[4]) return "the sharing of memory";
    if (was[3] != now[3]) return "requires_grad";
    if (memcmp(was + 5, now + 5, ARIL_MAX_DIMS * sizeof *now) != 0) return "the sizes";
    return "the memory format, or the value,";
}

/* NULL if the trace is for this call, else why not. */
const char *aril__other_than(const trace *t, aril_list in, const int64_t *word, size_t n,
                             difference *d)
{
    d->input = -1;
    d->depth = 0;
    if (t->n_words != n) return "the number of inputs";
    d->depth++;
    if (memcmp(t->signature, word, MODE_WORDS * sizeof *word) != 0) return "the thread's mode";
    d->depth++;
    for (int i = 0; i < in.n; i++) {
        size_t at = MODE_WORDS + (size_t)i * INPUT_WORDS;
        if (memcmp(t->signature + at, word + at, INPUT_WORDS * sizeof *word) == 0) continue;
        d->input = i;
        return other_input(t->signature + at, word + at);
    }
    d->depth++;
    if (!states_hold(t)) return "dtype, device, sizes or memory of a parameter or state";
    if (!grads_hold(t->g)) return "which parameters hold a gradient";
    if (!inputs_hold(t, in)) return "which inputs share memory with state";
    if (t->frozen && aril__watches_ended(&t->watches)) return NULL; /* nobody can change it */
    if (!aril__watches_unhooked(&t->watches)) return "hooks of parameters";
    return aril__watches_hold(&t->watches) ? NULL : "options or counters on the host";
}
