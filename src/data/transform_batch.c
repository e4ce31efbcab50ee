/* Transforms of targets and of whole batches, and the dataset that applies transforms. */
#include "data/transform.h"

#include "aril/scope.h"

#include <math.h>
#include <string.h>

/* Writes one one-hot row for class i. */
static aril_status put_class(const char *what, float *row, int64_t classes, int64_t i)
{
    if (i < 0 || i >= classes)
        return aril__fail(ARIL_ERR_INDEX, "%s: class %lld is out of range for %lld classes", what,
                          (long long)i, (long long)classes);
    memset(row, 0, (size_t)classes * sizeof *row);
    row[i] = 1;
    return ARIL_OK;
}

/* ---- one-hot ---- */

static aril_status one_hot_sample(const aril_transform *t, aril__change *w)
{
    int64_t classes = (int64_t)t->value[0].v[0], dim[1] = { classes };
    aril_tensor *y = w->s->y;
    if (!y || aril__check_value("one_hot", y) < 0 || y->ndim != 0 ||
        !aril__is_int((aril_dtype)y->dtype))
        return aril__fail(ARIL_ERR_SHAPE, "one_hot: expected y to be one integer");
    aril__thread *th = aril__self();
    aril_tensor *out = aril__tensor_new(th, ARIL_F32, 1, dim, aril__cpu_device);
    if (!out) return ARIL_ERR_MEMORY;
    out = aril__give(th, out);
    if (aril__is_poison(out)) return ARIL_ERR_MEMORY;
    w->s->y = out;
    return put_class("one_hot", aril__ptr(out), classes, aril_item_int(y));
}

/* Converts y of a batch to f32 [n,classes], in a tensor that may be modified. */
static aril_status batch_targets(const char *what, aril_batch *b, int64_t classes)
{
    char text[ARIL__SHAPE_TEXT];
    aril_tensor *y = b->y;
    if (y && y->dtype == ARIL_F32 && y->ndim == 2) return ARIL_OK;
    if (!y || y->ndim != 1 || y->dtype != ARIL_I64)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected y as classes, i64 [%lld], got %s", what,
                          (long long)b->n, y ? aril__text(text, y) : "none");
    if (!classes)
        return aril__fail(
            ARIL_ERR_ARG,
            "%s: the dataset does not define the number of classes; set it: %s=...:classes=10",
            what, what);
    aril_tensor *hot = NULL;
    if (!aril_batch_buffer(&hot, ARIL_F32, ARIL_SHAPE(b->n, classes))) return ARIL_ERR_MEMORY;
    const int64_t *from = aril__ptr(y);
    aril_status status = ARIL_OK;
    for (int64_t i = 0; i < b->n && status >= 0; i++)
        status = put_class(what, (float *)aril__ptr(hot) + i * classes, classes, from[i]);
    if (status < 0) {
        aril_release(hot);
        return status;
    }
    aril_release(y);
    b->y = hot;
    return ARIL_OK;
}

static aril_status one_hot_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    (void)g;
    return batch_targets("one_hot", b, (int64_t)t->value[0].v[0]);
}

const aril__transform_kind aril__kind_one_hot = {
    .name = "one_hot",
    .doc = "one-hot targets",
    .setting = { { .name = "classes",
                   .type = ARIL__SET_INTEGER,
                   .required = true,
                   .low = 1,
                   .high = 1 << 30 } },
    .sample = one_hot_sample,
    .batch = one_hot_batch,
};

aril_transform *aril_transform_one_hot(int64_t classes)
{
    aril_transform *t = aril__transform_new(&aril__kind_one_hot);
    aril__set1(t, 0, (double)classes);
    return aril__transform_checked(t);
}

/* ---- mixup and cutmix ---- */

static double draw_normal(aril_generator *g)
{
    double pair[2];
    aril__rng_normal_f64(aril__rng_next(g), 0, 2, pair);
    return pair[0];
}

/* Gamma(a, 1): Marsaglia and Tsang, "A simple method for generating gamma variables", 2000. */
static double draw_gamma(aril_generator *g, double a)
{
    if (a < 1) return draw_gamma(g, a + 1) * pow(1 - aril__draw(g), 1 / a);
    double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = draw_normal(g), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        double u = 1 - aril__draw(g);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

/* Beta(alpha, alpha). */
static double draw_beta(aril_generator *g, double alpha)
{
    double a = draw_gamma(g, alpha), b = draw_gamma(g, alpha);
    return a + b > 0 ? a / (a + b) : 0.5;
}

/* row i = keep * row i + (1 - keep) * row (i - 1); the first row mixes with the last. */
static void mix_rows(float *x, int64_t n, int64_t row, float keep, float *last)
{
    memcpy(last, x + (n - 1) * row, (size_t)row * sizeof *x);
    for (int64_t i = n - 1; i >= 0; i--) {
        float *to = x + i * row;
        const float *from = i ? to - row : last;
        for (int64_t k = 0; k < row; k++) to[k] = keep * to[k] + (1 - keep) * from[k];
    }
}

static aril_status check_batch(const char *what, const aril_batch *b, int ndim)
{
    char text[ARIL__SHAPE_TEXT];
    if (!b->x || b->x->dtype != ARIL_F32 || b->x->ndim < 2 || (ndim && b->x->ndim != ndim) ||
        !aril__is_dense(b->x))
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected a batch of %s in f32, got %s %s", what,
                          ndim ? "images [N,C,H,W]" : "samples",
                          b->x ? aril__dtypes[b->x->dtype].name : "none",
                          b->x ? aril__text(text, b->x) : "");
    for (int i = 0; i < ARIL_SAMPLE_EXTRA_Y; i++)
        if (b->extra_y[i])
            return aril__fail(ARIL_ERR_UNSUPPORTED,
                              "%s mixes x and y only, but the samples have further targets", what);
    return ARIL_OK;
}

static aril_status mix_targets(aril_batch *b, float keep)
{
    int64_t row = b->y->dim[1], dim[1] = { row };
    aril__thread *th = aril__self();
    aril_tensor *last = aril__tensor_new(th, ARIL_F32, 1, dim, aril__cpu_device);
    if (!last) return ARIL_ERR_MEMORY;
    mix_rows(aril__ptr(b->y), b->n, row, keep, aril__ptr(last));
    aril__bump_version(b->y);
    aril__tensor_release(th, last);
    return ARIL_OK;
}

static aril_status mixup_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    aril_status status = check_batch("mixup", b, 0);
    if (status >= 0) status = batch_targets("mixup", b, (int64_t)t->value[1].v[0]);
    if (status < 0 || !b->n) return status;
    float keep = (float)draw_beta(g, t->value[0].v[0]);
    int64_t row = b->x->numel / b->n, dim[1] = { row };
    aril__thread *th = aril__self();
    aril_tensor *last = aril__tensor_new(th, ARIL_F32, 1, dim, aril__cpu_device);
    if (!last) return ARIL_ERR_MEMORY;
    mix_rows(aril__ptr(b->x), b->n, row, keep, aril__ptr(last));
    aril__bump_version(b->x);
    aril__tensor_release(th, last);
    return mix_targets(b, keep);
}

static aril_status cutmix_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    aril_status status = check_batch("cutmix", b, 4);
    if (status >= 0) status = batch_targets("cutmix", b, (int64_t)t->value[1].v[0]);
    if (status < 0 || !b->n) return status;
    int64_t c = b->x->dim[1], h = b->x->dim[2], w = b->x->dim[3];
    double keep = draw_beta(g, t->value[0].v[0]), side = 0.5 * sqrt(1 - keep);
    int64_t x = aril__draw_below(g, w), y = aril__draw_below(g, h);
    int64_t half_w = (int64_t)(side * (double)w), half_h = (int64_t)(side * (double)h);
    int64_t left = x > half_w ? x - half_w : 0, right = x + half_w < w ? x + half_w : w;
    int64_t top = y > half_h ? y - half_h : 0, bottom = y + half_h < h ? y + half_h : h;
    int64_t wide = right - left, tall = bottom - top, part = c * tall * wide;
    aril__thread *th = aril__self();
    int64_t dim[1] = { part ? part : 1 };
    aril_tensor *last = aril__tensor_new(th, ARIL_F32, 1, dim, aril__cpu_device);
    if (!last) return ARIL_ERR_MEMORY;
    float *all = aril__ptr(b->x), *kept = aril__ptr(last);
    size_t bytes = (size_t)wide * sizeof *all;
    /* From the last image to the first, each copies from its predecessor; the first copies from the
     * last. */
    for (int64_t i = b->n; i >= 0; i--)
        for (int64_t k = 0; k < c * tall; k++) {
            int64_t at = ((k / tall) * h + top + k % tall) * w + left;
            float *line = all + at + (i < b->n ? i : b->n - 1) * c * h * w;
            if (i == b->n)
                memcpy(kept + k * wide, line, bytes);
            else
                memcpy(line, i ? line - c * h * w : kept + k * wide, bytes);
        }
    aril__bump_version(b->x);
    aril__tensor_release(th, last);
    return mix_targets(b, (float)(1 - (double)(wide * tall) / (double)(w * h)));
}

#define ALPHA_SETTING(at)                                                                    \
    {                                                                                        \
        .name = "alpha", .type = ARIL__SET_NUMBER, .low = 1e-3, .high = 1e3, .start = { at } \
    }

const aril__transform_kind aril__kind_mixup = {
    .name = "mixup",
    .doc = "batches: each sample mixed with another",
    .setting = { ALPHA_SETTING(0.2),
                 { .name = "classes",
                   .type = ARIL__SET_INTEGER,
                   .class_count = true,
                   .high = 1 << 30 } },
    .batch = mixup_batch,
};

const aril__transform_kind aril__kind_cutmix = {
    .name = "cutmix",
    .doc = "batches: a part of each image from another",
    .setting = { ALPHA_SETTING(1),
                 { .name = "classes",
                   .type = ARIL__SET_INTEGER,
                   .class_count = true,
                   .high = 1 << 30 } },
    .batch = cutmix_batch,
};

static aril_transform *mixing(const aril__transform_kind *kind, double alpha, int64_t classes)
{
    aril_transform *t = aril__transform_new(kind);
    aril__set1(t, 0, alpha);
    if (classes) aril__set1(t, 1, (double)classes);
    return aril__transform_checked(t);
}

aril_transform *aril_transform_mixup(double alpha, int64_t classes)
{
    return mixing(&aril__kind_mixup, alpha, classes);
}

aril_transform *aril_transform_cutmix(double alpha, int64_t classes)
{
    return mixing(&aril__kind_cutmix, alpha, classes);
}

/* ---- datasets ---- */

struct transformed {
    aril_transform *t;
    bool batches; /* whole batches can be transformed, with bit-identical results */
};

static int64_t transformed_size(aril_dataset *self)
{
    return aril_dataset_size(self->source);
}

static aril_status transformed_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct transformed *d = aril_dataset_data(self);
    s->wants = aril__transform_has_region(d->t) ? d->t : NULL;
    aril_status status = self->source->type->get(self->source, i, s);
    s->wants = NULL;
    return status < 0 ? status : aril_transform_sample(d->t, s);
}

static aril_status transformed_get_batch(aril_dataset *self, int64_t n, const int64_t *index,
                                         aril_batch *b)
{
    const struct transformed *d = aril_dataset_data(self);
    if (!d->batches || !self->source->type->get_batch || !aril_dataset_has_images(self->source) ||
        !aril_dataset_has_images(self))
        return 1;
    aril_status status = self->source->type->get_batch(self->source, n, index, b);
    if (status != ARIL_OK) return status;
    b->n = n;
    return aril_transform_batch(d->t, b, NULL);
}

static int transformed_next(aril_dataset *self, aril_sample *s)
{
    const struct transformed *d = aril_dataset_data(self);
    s->wants = aril__transform_has_region(d->t) ? d->t : NULL;
    int status = self->source->type->next(self->source, s);
    s->wants = NULL;
    return status;
}

static aril_status transformed_restart(aril_dataset *self, uint64_t seed, int64_t epoch)
{
    return aril__stream_restart(self->source, seed, epoch);
}

static aril_status transformed_finish(aril_dataset *self, aril_sample *s)
{
    const struct transformed *d = aril_dataset_data(self);
    aril_status status = aril__stream_finish(self->source, s);
    return status < 0 ? status : aril_transform_sample(d->t, s);
}

static void transformed_destroy(aril_dataset *self)
{
    struct transformed *d = aril_dataset_data(self);
    aril_transform_free(d->t);
}

static const aril_dataset_class transformed_class = {
    .type = "Transform",
    .data_size = sizeof(struct transformed),
    .size = transformed_size,
    .get = transformed_get,
    .get_batch = transformed_get_batch,
    .destroy = transformed_destroy,
};

static const aril_dataset_class transformed_stream_class = {
    .type = "Transform",
    .data_size = sizeof(struct transformed),
    .next = transformed_next,
    .restart = transformed_restart,
    .finish = transformed_finish,
    .destroy = transformed_destroy,
};

aril_dataset *aril_dataset_transform(aril_dataset *source, aril_transform *t)
{
    aril_dataset *d = NULL;
    if (source && t && aril__transform_check_samples("dataset_transform", t) >= 0)
        d = aril_dataset_make(source->type->get ? &transformed_class : &transformed_stream_class);
    if (!d) {
        aril_transform_free(t);
        aril_dataset_release(source);
        return NULL;
    }
    struct transformed *data = aril_dataset_data(d);
    data->t = t;
    data->batches = aril__transform_takes_batches(t);
    aril_dataset_set_source(d, source);
    return d;
}
