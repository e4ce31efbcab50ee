/* Embedding tables. */
#include "nn/module.h"

#include "aril/create.h"
#include "aril/embedding.h"
#include "aril/index.h"
#include "aril/loss.h"
#include "aril/view.h"
#include "nn/window.h"

typedef struct table {
    int64_t rows, size;
    int64_t padding; /* in the encoding of the ops; 0: none */
    aril_reduction mode;
    bool last_offset;
} table;

/* The padding row, or -1. */
static int64_t padding_row(const table *t)
{
    if (!t->padding) return -1;
    return t->padding == ARIL_ZERO ? 0 : t->padding < 0 ? t->padding + t->rows : t->padding;
}

static void table_reset(aril_module *self)
{
    const table *t = aril_module_data(self);
    int64_t row = padding_row(t);
    if (aril__sketching()) return;
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_normal_(aril__own_at(self, 0), 0, 1);
    if (row >= 0) aril_zero_(aril_select(aril__own_at(self, 0), 0, row));
}

static aril_module *make(const aril__layer *layer, table set)
{
    const char *type = layer->base.type;
    int64_t row = padding_row(&set);
    if (set.rows < 1 || set.size < 1 || (set.padding && (row < 0 || row >= set.rows))) {
        aril__fail(ARIL_ERR_ARG, "%s: %lld rows of %lld numbers, padding row %lld", type,
                   (long long)set.rows, (long long)set.size, (long long)row);
        return NULL;
    }
    aril_module *m = aril__layer_make(layer);
    if (!m) return NULL;
    *(table *)aril_module_data(m) = set;
    aril_status s = aril__add_parameter(m, "weight", ARIL_SHAPE(set.rows, set.size));
    if (s == ARIL_OK) table_reset(m);
    return aril__layer_made(m, s);
}

ARIL__FORWARD(embedding_forward)
{
    const table *t = aril_module_data(self);
    out[0] = aril_embedding(in[0], aril__own_at(self, 0), (aril_embedding_opts){ t->padding });
}

static void embedding_describe(const aril_module *self, char *text, size_t size)
{
    const table *t = aril_module_data(self);
    aril__text_out o = { text, size };
    aril__text_append(&o, "%lld, %lld", (long long)t->rows, (long long)t->size);
    if (t->padding) aril__text_append(&o, ", padding_idx=%lld", (long long)padding_row(t));
}

aril_module *aril_nn_embedding(int64_t rows, int64_t size)
{
    return aril_nn_embedding_with(rows, size, (aril_nn_embedding_opts){ 0 });
}

aril_module *aril_nn_embedding_with(int64_t rows, int64_t size, aril_nn_embedding_opts opts)
{
    static const aril__layer layer = {
        .base = { .type = "Embedding",
                  .size = sizeof(table),
                  .forward = embedding_forward,
                  .reset = table_reset,
                  .describe = embedding_describe },
    };
    return make(&layer, (table){ .rows = rows, .size = size, .padding = opts.padding_idx });
}

ARIL__FORWARD(bag_forward)
{
    const table *t = aril_module_data(self);
    out[0] = aril_embedding_bag(in[0], aril__own_at(self, 0), n_in > 1 ? in[1] : NULL,
                                (aril_embedding_bag_opts){
                                    .mode = t->mode,
                                    .per_sample_weights = n_in > 2 ? in[2] : NULL,
                                    .padding_idx = t->padding,
                                    .include_last_offset = t->last_offset,
                                });
}

static void bag_describe(const aril_module *self, char *text, size_t size)
{
    const table *t = aril_module_data(self);
    aril__text_out o = { text, size };
    aril__text_append(&o, "%lld, %lld, mode='%s'", (long long)t->rows, (long long)t->size,
                      t->mode == ARIL_SUM   ? "sum"
                      : t->mode == ARIL_MAX ? "max"
                                            : "mean");
    if (t->padding) aril__text_append(&o, ", padding_idx=%lld", (long long)padding_row(t));
}

aril_module *aril_nn_embedding_bag(int64_t rows, int64_t size)
{
    return aril_nn_embedding_bag_with(rows, size, (aril_nn_embedding_bag_opts){ 0 });
}

aril_module *aril_nn_embedding_bag_with(int64_t rows, int64_t size, aril_nn_embedding_bag_opts opts)
{
    static const aril__layer layer = {
        .base = { .type = "EmbeddingBag",
                  .size = sizeof(table),
                  .forward = bag_forward,
                  .reset = table_reset,
                  .describe = bag_describe,
                  .inputs = 3 },
    };
    return make(&layer, (table){ .rows = rows,
                                 .size = size,
                                 .padding = opts.padding_idx,
                                 .mode = opts.mode,
                                 .last_offset = opts.include_last_offset });
}
