/* Decoders: their common part, and the one for recurrent networks. */
#include "models/decoder.h"

#include "aril/create.h"
#include "aril/device.h"
#include "aril/index.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

aril_decoder *aril_decoder_make(const aril_decoder_class *type, int64_t max_length)
{
    if (!type || !type->start || !type->read || !type->select || max_length < 0) {
        aril__fail(ARIL_ERR_ARG, "decoder_make: expected the functions start, read and select, and "
                                 "a length of 0 or more");
        return NULL;
    }
    aril_decoder *d = aril__calloc(sizeof *d + type->size);
    if (!d) {
        aril__fail(ARIL_ERR_MEMORY, "out of memory for a decoder");
        return NULL;
    }
    d->type = type;
    d->max_length = max_length;
    return d;
}

void *aril_decoder_data(const aril_decoder *d)
{
    return d ? (void *)(uintptr_t)d->data : NULL;
}

void aril_decoder_free(aril_decoder *d)
{
    if (!d) return;
    if (d->type->destroy) d->type->destroy(d);
    free(d);
}

/* ---- recurrent networks ---- */

enum { MAX_STATES = 8 };

/* States of all sequences, [layers,rows,...]; NULL before the first token. */
typedef struct recurrent {
    aril_module *net;
    int states;
    int64_t rows;
    aril_tensor *state[MAX_STATES];
    aril_tensor *initial[MAX_STATES]; /* before the first token; NULL: the network's own */
} recurrent;

static void forget(recurrent *r)
{
    for (int i = 0; i < r->states; i++) {
        aril_release(r->state[i]);
        r->state[i] = NULL;
    }
}

static aril_status rnn_start(aril_decoder *self, int64_t rows, int64_t length)
{
    recurrent *r = aril_decoder_data(self);
    (void)length;
    forget(r);
    r->rows = rows;
    for (int i = 0; i < r->states && r->initial[i]; i++) {
        aril_tensor *copy = aril_copy(r->initial[i]);
        if (aril_tensor_status(copy) < 0) return aril_tensor_status(copy);
        aril_set(&r->state[i], copy);
    }
    return ARIL_OK;
}

/* The states of n sequences are part of all: the others stay as they are. */
static void keep_states(recurrent *r, int64_t row, int64_t n, aril_tensor *const *new)
{
    for (int i = 0; i < r->states; i++) {
        if (row == 0 && (n == r->rows || !r->state[i])) {
            aril_set(&r->state[i], new[i]);
            continue;
        }
        if (r->state[i] && row + n <= aril_size(r->state[i], 1)) {
            aril_copy_(aril_narrow(r->state[i], 1, row, n), new[i]);
            continue;
        }
        aril_set(&r->state[i], aril_cat(ARIL_LIST(r->state[i], new[i]), 1));
    }
}

static aril_tensor *rnn_read(aril_decoder *self, int64_t row, aril_tensor *tokens)
{
    recurrent *r = aril_decoder_data(self);
    aril_tensor *in[1 + MAX_STATES] = { NULL }, *out[1 + MAX_STATES];
    int64_t n = aril_size(tokens, 0);
    if (r->initial[0] && (!r->state[0] || row + n > aril_size(r->state[0], 1))) {
        aril__fail(ARIL_ERR_SHAPE,
                   "rnn_decoder: there are first states for %lld sequences, got %lld",
                   (long long)aril_size(r->initial[0], 1), (long long)(row + n));
        return aril__poison();
    }
    in[0] = aril_to(tokens, aril__module_device(r->net));
    for (int i = 0; i < r->states; i++)
        if (r->state[i] && row + n <= aril_size(r->state[i], 1))
            in[i + 1] = aril_contiguous(aril_narrow(r->state[i], 1, row, n));
    aril_list list = { 1 + (in[1] ? r->states : 0), in };
    if (aril_forward_all(r->net, list, 1 + r->states, out) < 0) return aril__poison();
    keep_states(r, row, n, out + 1);
    return aril_select(out[0], 1, -1);
}

static aril_status rnn_select(aril_decoder *self, int64_t n, const int64_t *rows)
{
    recurrent *r = aril_decoder_data(self);
    aril_tensor *index = aril_from(rows, ARIL_SHAPE(n), ARIL_I64, aril_cpu());
    index = aril_to(index, aril__module_device(r->net));
    for (int i = 0; i < r->states; i++) {
        if (!r->state[i]) continue;
        aril_tensor *chosen = aril_index_select(r->state[i], index, 1);
        if (aril_tensor_status(chosen) < 0) return aril_tensor_status(chosen);
        aril_set(&r->state[i], chosen);
    }
    r->rows = n;
    return ARIL_OK;
}

static void rnn_destroy(aril_decoder *self)
{
    recurrent *r = aril_decoder_data(self);
    forget(r);
    for (int i = 0; i < r->states; i++) aril_release(r->initial[i]);
    aril_module_release(r->net);
}

aril_decoder *aril_rnn_decoder(aril_module *net, int states)
{
    return aril_rnn_decoder_from(net, (aril_list){ states, NULL });
}

aril_decoder *aril_rnn_decoder_from(aril_module *net, aril_list initial)
{
    int states = initial.n;
    static const aril_decoder_class class = {
        .type = "RNN",
        .size = sizeof(recurrent),
        .start = rnn_start,
        .read = rnn_read,
        .select = rnn_select,
        .destroy = rnn_destroy,
    };
    if (!net || states < 1 || states > MAX_STATES) {
        aril__fail(ARIL_ERR_ARG, "rnn_decoder: expected a network and 1 to %d states, got %d",
                   MAX_STATES, states);
        return NULL;
    }
    aril_decoder *d = aril_decoder_make(&class, 0);
    if (!d) return NULL;
    recurrent *r = aril_decoder_data(d);
    r->net = aril_module_keep(net);
    r->states = states;
    for (int i = 0; i < states && initial.at; i++) {
        aril_status s = initial.at[i] ? aril_tensor_status(initial.at[i]) : ARIL_OK;
        if (s == ARIL_OK) aril_set(&r->initial[i], initial.at[i]);
        if (r->initial[i] && aril_ndim(r->initial[i]) >= 2) continue;
        if (s == ARIL_OK) aril__fail(ARIL_ERR_SHAPE, "rnn_decoder: expected states [layers,N,...]");
        aril_decoder_free(d);
        return NULL;
    }
    return d;
}
