/* GPT-2 as a decoder: the keys and values of each layer are kept, in buffers for as many tokens as
 * will come at most. */
#include "aril/create.h"
#include "aril/index.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "models/decoder.h"
#include "models/gpt2.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

typedef struct gpt2_state {
    aril_module *net;
    const aril_gpt2_opts *opts;
    int64_t rows, length; /* room */
    int64_t *at;          /* [rows]: tokens read so far */
    aril_tensor **buffer; /* keys and values of each layer, [rows,heads,length,E] */
    /* What is being read: n sequences from `row` on, t tokens each. */
    int64_t row, n, t, most; /* most: the longest of them, with the new tokens */
    int layer;
} gpt2_state;

static void forget(gpt2_state *s)
{
    for (int i = 0; s->buffer && i < 2 * s->opts->layers; i++) aril_release(s->buffer[i]);
    free(s->buffer);
    free(s->at);
    s->buffer = NULL;
    s->at = NULL;
    s->rows = s->length = 0;
}

static aril_status gpt2_start(aril_decoder *self, int64_t rows, int64_t length)
{
    gpt2_state *s = aril_decoder_data(self);
    int n = 2 * s->opts->layers;
    aril_tensor *wte = aril_module_own(aril_module_child(s->net, 0), 0);
    if (rows == s->rows && length == s->length) { /* the buffers of the last time */
        memset(s->at, 0, (size_t)rows * sizeof *s->at);
        return ARIL_OK;
    }
    forget(s);
    s->at = aril__calloc((size_t)rows * sizeof *s->at);
    s->buffer = aril__calloc((size_t)n * sizeof(aril_tensor *));
    if (!s->at || !s->buffer) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a decoder");
    aril_shape shape = ARIL_SHAPE(rows, s->opts->heads, length, s->opts->width / s->opts->heads);
    for (int i = 0; i < n; i++) {
        /* Not empty: a shorter sequence has no token at the last positions, and the weight 0 that
         * attention gives them would keep a NaN. */
        aril_tensor *b = aril_zeros(shape, aril_dtype_of(wte), aril_device_of(wte));
        if (aril_tensor_status(b) < 0) return aril_tensor_status(b);
        s->buffer[i] = aril_keep(b);
    }
    s->rows = rows;
    s->length = length;
    return ARIL_OK;
}

/* True if all sequences that are read have the same length. */
static bool same_length(const gpt2_state *s)
{
    for (int64_t i = 1; i < s->n; i++)
        if (s->at[s->row + i] != s->at[s->row]) return false;
    return true;
}

/* aril__gpt2_cache.extend: puts the keys or values of new tokens behind those before. */
static aril_tensor *extend(void *ctx, int which, aril_tensor *t)
{
    gpt2_state *s = ctx;
    aril_tensor *b = aril_narrow(s->buffer[2 * s->layer + which], 0, s->row, s->n);
    if (same_length(s))
        aril_copy_(aril_narrow(b, 2, s->at[s->row], s->t), t);
    else
        for (int64_t i = 0; i < s->n; i++)
            aril_copy_(aril_narrow(aril_select(b, 0, i), 1, s->at[s->row + i], s->t),
                       aril_select(t, 0, i));
    return aril_narrow(b, 2, 0, s->most);
}

/* The positions of new tokens: [T], or [N,T] if the sequences differ in length. */
static aril_tensor *positions(const gpt2_state *s, aril_device device)
{
    int64_t first = s->at[s->row];
    if (same_length(s))
        return aril_arange((double)first, (double)(first + s->t), 1, ARIL_I64, device);
    aril_tensor *begin = aril_from(s->at + s->row, ARIL_SHAPE(s->n, 1), ARIL_I64, aril_cpu());
    aril_tensor *step = aril_arange(0, (double)s->t, 1, ARIL_I64, aril_cpu());
    return aril_to(aril_add(begin, step), device);
}

/* Which keys the new tokens attend to: [N,1,T,S]; NULL: all, or by `causal`. */
static aril_tensor *mask(const gpt2_state *s, aril_tensor *at, aril_device device, bool *causal)
{
    bool same = same_length(s);
    *causal = same && s->at[s->row] == 0;
    if (*causal || (same && s->t == 1)) return NULL;
    aril_tensor *key = aril_arange(0, (double)s->most, 1, ARIL_I64, device); /* [S] */
    aril_tensor *query = aril_unsqueeze(at, -1);                             /* [(N,)T,1] */
    aril_tensor *seen = aril_le(key, query);                                 /* [(N,)T,S] */
    return same ? seen : aril_unsqueeze(seen, 1);
}

static aril_status check_room(gpt2_state *s, int64_t row, aril_tensor *tokens)
{
    s->row = row;
    s->n = aril_size(tokens, 0);
    s->t = aril_size(tokens, 1);
    s->most = 0;
    if (row < 0 || row + s->n > s->rows || s->n < 1 || s->t < 1)
        return aril__fail(ARIL_ERR_SHAPE, "gpt2: expected tokens of at most %lld sequences",
                          (long long)s->rows);
    for (int64_t i = row; i < row + s->n; i++)
        if (s->at[i] + s->t > s->most) s->most = s->at[i] + s->t;
    if (s->most > s->length)
        return aril__fail(ARIL_ERR_SHAPE, "gpt2: there is room for %lld tokens, got %lld",
                          (long long)s->length, (long long)s->most);
    return ARIL_OK;
}

static aril_tensor *gpt2_read(aril_decoder *self, int64_t row, aril_tensor *tokens)
{
    gpt2_state *s = aril_decoder_data(self);
    aril_module *wte = aril_module_child(s->net, 0), *wpe = aril_module_child(s->net, 1);
    aril_module *h = aril_module_child(s->net, 2);
    aril_device device = aril_device_of(aril_module_own(wte, 0));
    if (check_room(s, row, tokens) < 0) return aril__poison();
    aril_tensor *at = positions(s, device);
    aril__gpt2_cache cache = { .extend = extend, .ctx = s };
    cache.mask = mask(s, at, device, &cache.causal);
    aril_tensor *x = aril_forward(wte, aril_to(tokens, device)); /* [N,T,width] */
    x = aril_add(x, aril_forward(wpe, at));
    for (s->layer = 0; s->layer < s->opts->layers; s->layer++)
        x = aril__gpt2_block(aril_module_child(h, s->layer), x, &cache);
    for (int64_t i = row; i < row + s->n; i++) s->at[i] += s->t;
    x = aril_forward(aril_module_child(s->net, 3), aril_select(x, 1, -1)); /* [N,width] */
    return aril_linear(x, aril_module_own(wte, 0), NULL);                  /* [N,vocabulary] */
}

/* The sequences that move are gathered before any is overwritten. */
static aril_status move_rows(gpt2_state *s, int64_t n, const int64_t *from, const int64_t *to,
                             int64_t length)
{
    aril_device device = aril_device_of(s->buffer[0]);
    aril_tensor *source = aril_to(aril_from(from, ARIL_SHAPE(n), ARIL_I64, aril_cpu()), device);
    aril_tensor *target = aril_to(aril_from(to, ARIL_SHAPE(n), ARIL_I64, aril_cpu()), device);
    for (int i = 0; i < 2 * s->opts->layers; i++) {
        ARIL_SCOPE;
        aril_tensor *used = aril_narrow(s->buffer[i], 2, 0, length);
        aril_tensor *moved = aril_index_select(used, source, 0);
        aril_tensor *done = aril_index_copy_(used, target, moved, 0);
        if (aril_tensor_status(done) < 0) return aril_tensor_status(done);
    }
    return ARIL_OK;
}

static aril_status gpt2_select(aril_decoder *self, int64_t n, const int64_t *rows)
{
    gpt2_state *s = aril_decoder_data(self);
    if (n > s->rows)
        return aril__fail(ARIL_ERR_SHAPE, "gpt2: there is room for %lld sequences, got %lld",
                          (long long)s->rows, (long long)n);
    int64_t *move = aril__malloc((size_t)(3 * s->rows + 1) * sizeof *move), moved = 0, length = 0;
    if (!move) return aril__fail(ARIL_ERR_MEMORY, "out of memory for a decoder");
    int64_t *to = move + s->rows, *at = to + s->rows;
    for (int64_t i = 0; i < n; i++) {
        at[i] = s->at[rows[i]];
        if (at[i] > length) length = at[i];
        if (rows[i] == i) continue;
        move[moved] = rows[i];
        to[moved++] = i;
    }
    memcpy(s->at, at, (size_t)n * sizeof *at);
    aril_status status = moved ? move_rows(s, moved, move, to, length) : ARIL_OK;
    free(move);
    return status;
}

static void gpt2_destroy(aril_decoder *self)
{
    gpt2_state *s = aril_decoder_data(self);
    forget(s);
    aril_module_release(s->net);
}

aril_decoder *aril_gpt2_decoder(aril_module *net)
{
    static const aril_decoder_class class = {
        .type = "GPT2",
        .size = sizeof(gpt2_state),
        .start = gpt2_start,
        .read = gpt2_read,
        .select = gpt2_select,
        .destroy = gpt2_destroy,
    };
    const aril_gpt2_opts *opts = aril__gpt2_opts_of(net);
    if (!opts) {
        aril__fail(ARIL_ERR_ARG, "gpt2_decoder: expected a GPT2, got %s",
                   net ? aril_module_type(net) : "NULL");
        return NULL;
    }
    aril_decoder *d = aril_decoder_make(&class, opts->context);
    if (!d) return NULL;
    gpt2_state *s = aril_decoder_data(d);
    s->net = aril_module_keep(net);
    s->opts = opts;
    return d;
}
