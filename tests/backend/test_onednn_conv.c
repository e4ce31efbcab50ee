/* oneDNN convolutions: how they are cut among threads, that no piece gets a reference kernel, and
 * that results are right however they are cut. */
#include "aril/aril.h"
#include "core/clock.h"
#include "core/cpu.h"
#include "ops/table/apply.h"
#include "ops/vision/conv.h"
#include "ops/table/rows.h"
#include "support/compare.h"
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#if ARIL_HAVE_ONEDNN

#include "backend/onednn/conv_split.h"
#include "backend/onednn/rows.h"

/* ---- shapes ---- */

typedef struct layer {
    int64_t batch, c, k, size, kernel, stride, groups; /* c, k: total over all groups */
    int n;                                             /* spatial dimensions; 0: default 2 */
} layer;

static struct conv_attrs attrs_of(const layer *l)
{
    struct conv_attrs a = { .groups = { l->groups } };
    for (int i = 0; i < 3; i++) {
        a.stride[i] = l->stride;
        a.dilation[i] = 1;
        a.pad[2 * i] = a.pad[2 * i + 1] = l->kernel / 2;
    }
    return a;
}

static int64_t out_size(const layer *l)
{
    return (l->size + 2 * (l->kernel / 2) - l->kernel) / l->stride + 1;
}

static aril_shape image_shape(const layer *l, int64_t channels, int64_t size)
{
    aril_shape s = { .ndim = 2 + (l->n ? l->n : 2), .dim = { l->batch, channels } };
    for (int i = 2; i < s.ndim; i++) s.dim[i] = size;
    return s;
}

static aril_shape weight_shape(const layer *l)
{
    aril_shape s = image_shape(l, l->c / l->groups, l->kernel);
    s.dim[0] = l->k;
    return s;
}

/* x, w, and a gradient of y. */
static void tensors_of(const layer *l, aril_dtype dtype, aril_tensor **x, aril_tensor **w,
                       aril_tensor **g)
{
    *x = aril_channels_last(
        aril_cast(aril_randn(image_shape(l, l->c, l->size), ARIL_F32, aril_cpu()), dtype));
    *w = aril_cast(aril_randn(weight_shape(l), ARIL_F32, aril_cpu()), dtype);
    *g = aril_channels_last(
        aril_cast(aril_randn(image_shape(l, l->k, out_size(l)), ARIL_F32, aril_cpu()), dtype));
}

static const char *text_of(const layer *l)
{
    static char text[120];
    snprintf(text, sizeof text,
             "batch %d, %d to %d channels, size %d, kernel %d, stride %d, groups %d", (int)l->batch,
             (int)l->c, (int)l->k, (int)l->size, (int)l->kernel, (int)l->stride, (int)l->groups);
    return text;
}

/* ---- reference kernels ---- */

static int made, slow;
static char slow_name[80];

static void note(const char *name)
{
    made++;
    if (!strstr(name, "ref")) return;
    slow++;
    snprintf(slow_name, sizeof slow_name, "%s", name);
}

static const aril__row *row_of(const aril__op *op)
{
    const aril__row *rows[16];
    int n = aril__rows_of(ARIL__CPU, op, 16, rows, NULL);
    for (int i = 0; i < n && i < 16; i++)
        if (strncmp(rows[i]->name, "onednn_", 7) == 0) return rows[i];
    return NULL;
}

/* Prepares the row for a call; true when it accepts. No primitive may be a reference kernel. */
static bool prepares_fast(const layer *l, const aril__op *op, int n_in, aril_tensor **in,
                          aril_tensor *out, int threads)
{
    struct conv_attrs a = attrs_of(l);
    struct conv_transpose_attrs t = { .groups = { l->groups } };
    memcpy(t.stride, a.stride, sizeof t.stride);
    memcpy(t.pad, a.pad, sizeof t.pad);
    memcpy(t.dilation, a.dilation, sizeof t.dilation);
    aril__run r = { .op = op,
                    .attrs = op == &aril__op_conv_transpose ? (const void *)&t : &a,
                    .n_in = n_in,
                    .n_out = 1,
                    .in = in,
                    .out = &out,
                    .type = (aril_dtype)in[0]->dtype,
                    .device = aril__cpu_device };
    aril__plan plan = { 0 };
    const aril__row *row = row_of(op);
    slow = 0;
    aril__dnn_made = note;
    const char *why = row->prepare(&r, &plan);
    aril__dnn_made = NULL;
    if (!why) row->destroy(plan.prepared);
    if (slow)
        test_fail(__FILE__, __LINE__, "%s with %d threads made %s: %s", op->name, threads,
                  slow_name, text_of(l));
    return !why;
}

/* How many of the four ops accept the layer. */
static int walk_layer(const layer *l, aril_dtype dtype)
{
    ARIL_SCOPE;
    aril_tensor *x, *w, *g;
    int taken = 0;
    tensors_of(l, dtype, &x, &w, &g);
    for (int threads = 1; threads <= 4; threads++) {
        aril_set_threads(threads);
        taken += prepares_fast(l, &aril__op_conv, 3, (aril_tensor *[]){ x, w, NULL }, g, threads);
        taken +=
            prepares_fast(l, &aril__op_conv_dgrad, 3, (aril_tensor *[]){ g, w, x }, x, threads);
        taken +=
            prepares_fast(l, &aril__op_conv_wgrad, 3, (aril_tensor *[]){ g, x, w }, w, threads);
        if ((l->size + 2 * (l->kernel / 2) - l->kernel) % l->stride == 0)
            taken += prepares_fast(l, &aril__op_conv_transpose, 3, (aril_tensor *[]){ g, w, NULL },
                                   x, threads);
    }
    aril_set_threads(0);
    return taken;
}

TEST(no_partition_uses_a_reference_kernel)
{
    static const int64_t sizes[] = { 7, 13, 15, 27 }, channels[] = { 16, 64, 200 };
    int taken = 0, layers = 0;
    made = 0;
    for (int i = 0; i < 4; i++)
        for (int kernel = 1; kernel <= 3; kernel += 2)
            for (int stride = 1; stride <= 2; stride++)
                for (int c = 0; c < 3; c++)
                    for (int k = 0; k < 3 && !test_failed(); k++, layers++)
                        taken += walk_layer(&(layer){ 1, channels[c], channels[k], sizes[i], kernel,
                                                      stride, 1, 2 },
                                            ARIL_F32);
    CHECK_MSG(taken > layers * 4 && made > taken, "%d of %d calls taken, %d primitives", taken,
              layers * 16, made);
}

TEST(no_partition_of_other_convolutions_uses_a_reference_kernel)
{
    static const layer layers[] = {
        { 1, 64, 64, 13, 3, 1, 4, 2 },     { 1, 256, 256, 7, 3, 1, 32, 2 },
        { 1, 192, 192, 15, 3, 1, 192, 2 }, { 1, 192, 192, 27, 3, 2, 192, 2 },
        { 3, 64, 256, 13, 1, 1, 1, 2 },    { 5, 48, 72, 15, 3, 2, 1, 2 },
        { 1, 64, 256, 129, 1, 1, 1, 1 },   { 1, 40, 72, 301, 3, 2, 1, 1 },
        { 1, 32, 64, 7, 3, 1, 1, 3 },      { 1, 64, 256, 7, 1, 1, 1, 3 },
        { 16, 64, 200, 7, 1, 1, 1, 2 },
    };
    static const aril_dtype types[] = { ARIL_F32, ARIL_BF16, ARIL_F16 };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int t = 0; t < 3 && !test_failed(); t++) walk_layer(&layers[i], types[t]);
}

/* ---- timing ---- */

static double time_of(aril_tensor *x, aril_tensor *w, int threads)
{
    double best = 1e9;
    aril_set_threads(threads);
    for (int i = 0; i < 6; i++) {
        ARIL_SCOPE;
        double start = aril__seconds();
        aril_conv2d(x, w, NULL, (aril_conv_opts){ 0 });
        double now = aril__seconds() - start;
        if (now < best) best = now;
    }
    aril_set_threads(0);
    return best;
}

/* Reference loops take a thousand times as long; threads that wait for a core, a few times. */
TEST(more_threads_are_not_slower)
{
    static const layer layers[] = { { 1, 64, 256, 13, 1, 1, 1, 2 },
                                    { 1, 256, 64, 7, 1, 1, 1, 2 },
                                    { 1, 64, 256, 27, 1, 1, 1, 2 } };
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_tensor *x, *w, *g;
        tensors_of(&layers[i], ARIL_F32, &x, &w, &g);
        double one = time_of(x, w, 1), two = time_of(x, w, 2);
        CHECK_MSG(two < 20 * one + 2e-3, "%.3f ms with 2 threads, %.3f with 1: %s", 1e3 * two,
                  1e3 * one, text_of(&layers[i]));
    }
}

/* ---- values ---- */

static const layer cut_layers[] = {
    { 1, 128, 160, 7, 3, 1, 1, 2 },  /* few rows, large weights */
    { 1, 200, 328, 14, 1, 1, 1, 2 }, /* channels that are not a multiple of a block */
    { 1, 160, 192, 15, 3, 2, 1, 2 }, { 1, 192, 192, 7, 3, 1, 6, 2 }, /* groups */
    { 1, 32, 48, 33, 3, 1, 1, 2 },                                   /* rows */
    { 3, 96, 160, 9, 3, 1, 1, 2 },   { 16, 64, 96, 7, 3, 1, 1, 2 },
    { 1, 128, 256, 96, 3, 1, 1, 1 }, { 2, 48, 64, 6, 3, 1, 1, 3 },
};
enum { LAYERS = sizeof cut_layers / sizeof *cut_layers, MAX_THREADS = 16 };

typedef struct case_ {
    const aril__op *op;
    int n_in;
    aril_tensor *in[3];
    const void *attrs;
} case_;

static aril_tensor *apply(const case_ *c)
{
    return aril_contiguous(aril__apply1(c->op, c->n_in, c->in, c->attrs));
}

/* The four ops on one layer, with a bias and an activation where supported. */
static int cases_of(const layer *l, aril_dtype dtype, struct conv_attrs a[2],
                    struct conv_transpose_attrs *t, case_ *to)
{
    aril_tensor *x, *w, *g;
    tensors_of(l, dtype, &x, &w, &g);
    aril_tensor *to_y = aril_cast(aril_randn(ARIL_SHAPE(l->k), ARIL_F32, aril_cpu()), dtype);
    aril_tensor *to_x = aril_cast(aril_randn(ARIL_SHAPE(l->c), ARIL_F32, aril_cpu()), dtype);
    a[0] = a[1] = attrs_of(l);
    a[1].activation[0] = ARIL_RELU;
    *t = (struct conv_transpose_attrs){ .groups = { l->groups }, .activation = { ARIL_RELU } };
    memcpy(t->stride, a->stride, sizeof t->stride);
    memcpy(t->pad, a->pad, sizeof t->pad);
    memcpy(t->dilation, a->dilation, sizeof t->dilation);
    to[0] = (case_){ &aril__op_conv, 3, { x, w, to_y }, &a[1] };
    to[1] = (case_){ &aril__op_conv_dgrad, 3, { g, w, x }, &a[0] };
    to[2] = (case_){ &aril__op_conv_wgrad, 3, { g, x, w }, &a[0] };
    to[3] = (case_){ &aril__op_conv_transpose, 3, { g, w, to_x }, t };
    return 4;
}

/* With any number of threads, repeatedly: the reference's values, and the same bits each time. */
static void agrees(const case_ *c, const layer *l, bool any_threads)
{
    ARIL_SCOPE;
    aril__force_row = ARIL__FORCE_REFERENCE;
    aril_tensor *want = apply(c), *first = NULL;
    aril__force_row = -1;
    double size = aril_item(aril_amax(aril_abs(want), ARIL_ALL));
    for (int threads = 1; threads <= MAX_THREADS && !test_failed(); threads++) {
        aril_set_threads(threads);
        aril_tensor *got = apply(c);
        char *bad = test_difference(got, want, 0, 1e-5 * size);
        if (!bad && !any_threads) bad = test_difference_in_bits(apply(c), got);
        if (!bad && any_threads && first) bad = test_difference_in_bits(got, first);
        if (!first) first = got;
        if (bad)
            test_fail(__FILE__, __LINE__, "%s with %d threads: %s: %s", c->op->name, threads, bad,
                      text_of(l));
    }
    aril_set_threads(0);
}

static void numbers(bool any_threads)
{
    aril_set_deterministic(any_threads ? ARIL_ANY_THREADS : ARIL_SAME_THREADS);
    aril_seed(4);
    for (int i = 0; i < LAYERS && !test_failed(); i++) {
        ARIL_SCOPE;
        struct conv_attrs a[2];
        struct conv_transpose_attrs t;
        case_ c[4];
        int n = cases_of(&cut_layers[i], ARIL_F32, a, &t, c);
        for (int k = 0; k < n && !test_failed(); k++) agrees(&c[k], &cut_layers[i], any_threads);
    }
    aril_set_deterministic(ARIL_SAME_THREADS);
}

TEST(results_are_correct_with_many_threads)
{
    numbers(false);
}

TEST(results_do_not_depend_on_threads)
{
    numbers(true);
}

/* ---- f16 and bf16 ---- */

/* Whether the row accepts the call, and what it asks of its first input. */
static bool accepts(const case_ *c, aril_operand *image)
{
    aril_tensor *in[3] = { c->in[0], c->in[1], c->in[2] }, *out = apply(c);
    const aril__row *row = row_of(c->op);
    aril__plan plan = { 0 };
    aril__run r = { .op = c->op,
                    .attrs = c->attrs,
                    .n_in = c->n_in,
                    .n_out = 1,
                    .in = in,
                    .out = &out,
                    .type = (aril_dtype)in[0]->dtype,
                    .device = aril__cpu_device };
    const char *why = row->prepare(&r, &plan);
    *image = plan.in[0];
    if (why)
        test_fail(__FILE__, __LINE__, "%s in %s: %s", c->op->name, aril__dtypes[in[0]->dtype].name,
                  why);
    else
        row->destroy(plan.prepared);
    return !why;
}

/* The default kernel against the reference; weights contiguous, channels-last and with gaps. */
static void half_agrees(case_ *c, aril_dtype dtype)
{
    aril_tensor *w = c->in[1];
    for (int order = 0; order < 3 && !test_failed(); order++) {
        ARIL_SCOPE;
        if (order > 0 && c->op == &aril__op_conv_wgrad) return;
        if (order == 1) c->in[1] = aril_channels_last(w);
        if (order == 2) c->in[1] = aril_slice(aril_cat(ARIL_LIST(w, w), 2), 2, 0, w->dim[2], 1);
        aril__force_row = ARIL__FORCE_REFERENCE;
        aril_tensor *want = apply(c);
        aril__force_row = -1;
        aril_tensor *got = apply(c);
        CHECK_INT(got->dtype, dtype);
        double size = aril_item(aril_cast(aril_amax(aril_abs(want), ARIL_ALL), ARIL_F64));
        char *bad = test_difference(got, want, 0, (dtype == ARIL_BF16 ? 8e-3 : 1e-3) * size);
        CHECK_MSG(!bad, "%s, weight %d: %s", c->op->name, order, bad);
    }
    c->in[1] = w;
}

/* A processor that does not compute in f16 or bf16 computes in f32 instead: the row serves it. */
TEST(half_precision_runs_on_any_processor)
{
    static const layer layers[] = { { 2, 16, 24, 9, 3, 1, 1, 2 },
                                    { 2, 16, 32, 8, 3, 2, 2, 2 },
                                    { 1, 16, 16, 33, 3, 1, 1, 1 },
                                    { 1, 16, 16, 5, 3, 1, 1, 3 } };
    static const aril_dtype types[] = { ARIL_BF16, ARIL_F16 };
    aril_seed(5);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int t = 0; t < 2 && !test_failed(); t++) {
            ARIL_SCOPE;
            struct conv_attrs a[2];
            struct conv_transpose_attrs transpose;
            case_ c[4];
            aril_operand image;
            int n = cases_of(&layers[i], types[t], a, &transpose, c);
            for (int k = 0; k < n && !test_failed() && accepts(&c[k], &image); k++) {
                if (aril__cpu() < ARIL__CPU_AVX512) CHECK_INT(image.dtype, 1 + ARIL_F32);
                half_agrees(&c[k], types[t]);
            }
        }
    CHECK(aril_ok());
}

/* The images are as wide as those for which oneDNN 3.2 sums uninitialized memory in bf16. */
TEST(dilated_weight_gradients_are_correct_in_half_precision)
{
    static const struct {
        int64_t batch, c, k, size[2], kernel, dilation, pad;
    } layers[] = { { 5, 17, 1, { 9, 31 }, 3, 3, 3 },   { 1, 27, 21, { 21, 29 }, 2, 4, 2 },
                   { 5, 28, 39, { 12, 33 }, 3, 3, 3 }, { 2, 34, 28, { 12, 31 }, 3, 2, 1 },
                   { 3, 26, 28, { 30, 32 }, 2, 2, 0 }, { 3, 23, 21, { 16, 31 }, 2, 2, 1 } };
    static const aril_dtype types[] = { ARIL_BF16, ARIL_F16 };
    aril_seed(6);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int t = 0; t < 2 && !test_failed(); t++) {
            ARIL_SCOPE;
            struct conv_attrs a = { .stride = { 1, 1, 1 }, .groups = { 1 } };
            int64_t out[2], reach = layers[i].dilation * (layers[i].kernel - 1);
            for (int d = 0; d < 2; d++) {
                a.dilation[d] = layers[i].dilation;
                a.pad[2 * d] = a.pad[2 * d + 1] = layers[i].pad;
                out[d] = layers[i].size[d] + 2 * layers[i].pad - reach;
            }
            aril_shape x =
                ARIL_SHAPE(layers[i].batch, layers[i].c, layers[i].size[0], layers[i].size[1]);
            aril_shape w = ARIL_SHAPE(layers[i].k, layers[i].c, layers[i].kernel, layers[i].kernel);
            aril_shape g = ARIL_SHAPE(layers[i].batch, layers[i].k, out[0], out[1]);
            case_ c = { &aril__op_conv_wgrad, 3, { NULL }, &a };
            c.in[0] = aril_cast(aril_randn(g, ARIL_F32, aril_cpu()), types[t]);
            c.in[1] = aril_cast(aril_randn(x, ARIL_F32, aril_cpu()), types[t]);
            c.in[2] = aril_zeros(w, types[t], aril_cpu());
            half_agrees(&c, types[t]);
        }
    CHECK(aril_ok());
}

/* ---- splits ---- */

static aril__conv describe(const layer *l)
{
    aril__conv d = { .batch = l->batch,
                     .groups = l->groups,
                     .c = l->c / l->groups,
                     .k = l->k / l->groups,
                     .in = { 1, 1, 1 },
                     .out = { 1, 1, 1 },
                     .kernel = { 1, 1, 1 },
                     .stride = { 1, 1, 1 },
                     .dilation = { 1, 1, 1 } };
    for (int i = 1; i < 3; i++) {
        d.in[i] = l->size;
        d.out[i] = out_size(l);
        d.kernel[i] = l->kernel;
        d.stride[i] = l->stride;
        d.begin[i] = l->kernel / 2;
    }
    return d;
}

static aril__conv_split best_split(const layer *l, enum aril__conv_role role, int64_t threads)
{
    aril__conv d = describe(l);
    aril__conv_split s[4];
    aril__conv_job j = { .d = &d, .role = role, .axis = 1, .threads = threads };
    aril__conv_splits(&j, s, 4);
    return s[0];
}

static int64_t up(int64_t n, int64_t parts)
{
    return (n + parts - 1) / parts;
}

/* The load of the busiest thread relative to an equal share. */
static double imbalance(const layer *l, const aril__conv_split *s, int64_t threads)
{
    int64_t pieces = s->batch * s->rows * s->channels, blocks = up(l->k, ARIL__CONV_BLOCK);
    double piece = (double)up(l->batch, s->batch) / (double)l->batch *
                   (double)up(out_size(l), s->rows) / (double)out_size(l) *
                   (double)up(blocks, s->channels) / (double)blocks;
    return piece * (double)up(pieces, threads) * (double)threads;
}

/* ResNet-50's layers, each kind once. */
static const layer resnet50[] = {
    { 1, 3, 64, 224, 7, 2, 1, 2 },     { 1, 64, 64, 56, 1, 1, 1, 2 },
    { 1, 64, 64, 56, 3, 1, 1, 2 },     { 1, 64, 256, 56, 1, 1, 1, 2 },
    { 1, 256, 64, 56, 1, 1, 1, 2 },    { 1, 256, 128, 56, 1, 1, 1, 2 },
    { 1, 128, 128, 56, 3, 2, 1, 2 },   { 1, 128, 512, 28, 1, 1, 1, 2 },
    { 1, 256, 512, 56, 1, 2, 1, 2 },   { 1, 512, 128, 28, 1, 1, 1, 2 },
    { 1, 128, 128, 28, 3, 1, 1, 2 },   { 1, 512, 256, 28, 1, 1, 1, 2 },
    { 1, 256, 256, 28, 3, 2, 1, 2 },   { 1, 256, 1024, 14, 1, 1, 1, 2 },
    { 1, 512, 1024, 28, 1, 2, 1, 2 },  { 1, 1024, 256, 14, 1, 1, 1, 2 },
    { 1, 256, 256, 14, 3, 1, 1, 2 },   { 1, 1024, 512, 14, 1, 1, 1, 2 },
    { 1, 512, 512, 14, 3, 2, 1, 2 },   { 1, 512, 2048, 7, 1, 1, 1, 2 },
    { 1, 1024, 2048, 14, 1, 2, 1, 2 }, { 1, 2048, 512, 7, 1, 1, 1, 2 },
    { 1, 512, 512, 7, 3, 1, 1, 2 },
};

TEST(threads_get_equal_work)
{
    for (size_t i = 0; i < sizeof resnet50 / sizeof *resnet50; i++)
        for (int threads = 2; threads <= 16; threads *= 2)
            for (int batch = 1; batch <= 16; batch += 15) {
                layer l = resnet50[i];
                l.batch = batch;
                aril__conv_split s = best_split(&l, ARIL__CONV_Y, threads);
                double max = imbalance(&l, &s, threads);
                CHECK_MSG(max < 1.15, "%d x %d x %d parts for %d threads: %.2f of a share: %s",
                          (int)s.batch, (int)s.rows, (int)s.channels, threads, max, text_of(&l));
            }
}

TEST(weights_are_split_if_there_are_few_rows)
{
    const layer last = { 1, 512, 512, 7, 3, 1, 1, 2 }, early = { 1, 64, 64, 56, 3, 1, 1, 2 };
    aril__conv_split s = best_split(&last, ARIL__CONV_Y, 16);
    CHECK_INT(s.channels, 16);
    s = best_split(&early, ARIL__CONV_Y, 2);
    CHECK_INT(s.rows, 2);
    CHECK_INT(s.channels, 1);
    s = best_split(&early, ARIL__CONV_Y, 1);
    CHECK_INT(s.batch * s.rows * s.channels, 1);
    /* Gradients of large weights: each thread computes a part, instead of a partial sum of all. */
    layer batch = last;
    batch.batch = 16;
    s = best_split(&batch, ARIL__CONV_W, 16);
    CHECK_MSG(s.channels >= 4, "%d x %d x %d", (int)s.batch, (int)s.rows, (int)s.channels);
}

/* A network that predicts holds its weights once: packed. They are computed from that form when
 * they are read. */
static int packed_weights;

static void packed_weight_is_the_only_one(const layer *l, aril_dtype dtype, bool last)
{
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *x, *w, *g;
    tensors_of(l, dtype, &x, &w, &g);
    if (last) w = aril_channels_last(w);
    aril_tensor *same = aril_copy(w);
    aril_conv_opts o = { .groups = l->groups };
    for (int i = 0; i < 2; i++) {
        o.stride[i] = l->stride;
        o.padding[i] = l->kernel / 2;
    }
    aril_tensor *y = aril_conv2d(x, w, NULL, o);
    bool packed = atomic_load(&w->storage->derived) != NULL;
    CHECK_INT(atomic_load(&w->storage->contents), packed ? ARIL__IN_FORM : ARIL__IN_MEMORY);
    CHECK_MSG(aril_equal(y, aril_conv2d(x, w, NULL, o)), "by the form: %s", text_of(l));
    CHECK_MSG(aril_equal(w, same), "restored: %s", text_of(l));
    CHECK_MSG(aril_equal(y, aril_conv2d(x, w, NULL, o)), "after that: %s", text_of(l));
    CHECK(aril_ok());
    packed_weights += packed;
}

TEST(packed_weights_are_the_only_ones)
{
    static const layer layers[] = {
        { 1, 64, 64, 14, 3, 1, 1, 2 },  { 2, 256, 128, 7, 1, 1, 1, 2 },
        { 1, 3, 160, 32, 11, 4, 1, 2 }, { 1, 67, 131, 9, 3, 2, 1, 2 },
        { 1, 128, 512, 7, 3, 1, 1, 2 }, { 1, 256, 512, 8, 3, 1, 32, 2 },
        { 2, 60, 96, 8, 5, 1, 3, 2 },   { 1, 512, 1000, 1, 1, 1, 1, 2 },
    };
    packed_weights = 0;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int last = 0; last < 2; last++) {
            packed_weight_is_the_only_one(&layers[i], ARIL_F32, last);
            packed_weight_is_the_only_one(&layers[i], ARIL_BF16, last);
        }
    CHECK(packed_weights > 0);
}

#else

TEST(there_is_no_onednn)
{
    test_skip("built without oneDNN");
}

#endif
