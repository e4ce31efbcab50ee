/* Memory plans: values in use at the same time do not overlap, the predicted peak is the
 * allocator's, and plans are kept for later runs. */
#include "aril/aril.h"
#include "graph/executor.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- layout ---- */

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static bool in_use_together(const aril__place *a, const aril__place *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The largest sum of sizes in use at once. */
static size_t most_in_use(const aril__place *at, uint32_t n, uint32_t actions)
{
    size_t most = 0;
    for (uint32_t k = 0; k < actions; k++) {
        size_t sum = 0;
        for (uint32_t i = 1; i < n; i++)
            if (at[i].first <= k && k <= at[i].last) sum += (at[i].bytes + 63) / 64 * 64;
        if (sum > most) most = sum;
    }
    return most;
}

static void check_layout(uint32_t n, uint32_t actions, uint32_t largest, double waste)
{
    aril__instance *x = calloc(1, sizeof *x);
    x->places = calloc(n, sizeof *x->places);
    x->n_places = n;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t first = below(actions), length = below(8) ? below(6) : below(actions);
        x->places[i] = (aril__place){ .kind = ARIL__IN_ARENA,
                                      .device = aril__cpu_device,
                                      .bytes = 1 + below(largest),
                                      .first = first,
                                      .last = below(50) ? first + length : UINT32_MAX };
    }
    CHECK(aril__layout(x));
    for (uint32_t i = 1; i < n && !test_failed(); i++) {
        const aril__place *a = &x->places[i];
        CHECK(a->offset + a->bytes <= x->arena[0].bytes && a->offset % ARIL__PLACE_ALIGN == 0);
        for (uint32_t k = 1; k < i; k++) {
            const aril__place *b = &x->places[k];
            if (!in_use_together(a, b)) continue;
            CHECK_MSG(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset,
                      "places %u and %u overlap", i, k);
        }
    }
    double most = (double)most_in_use(x->places, n, actions);
    CHECK_MSG((double)x->arena[0].bytes <= waste * most, "%zu bytes for %.0f in use",
              x->arena[0].bytes, most);
    free(x->places);
    free(x);
}

TEST(places_in_use_at_the_same_time_do_not_overlap)
{
    aril_synchronize(aril_cpu()); /* starts the library */
    for (int i = 0; i < 20; i++) check_layout(2 + below(400), 1 + below(300), 100000, 1.25);
    check_layout(6000, 3000, 5000, 1.5); /* more than are fitted one by one */
}

/* ---- programs ---- */

typedef struct net {
    aril_module *module;
    aril_optim *opt;
} net;

static net image_net(void)
{
    aril_seed(3);
    aril_module *m =
        aril_nn_sequential(aril_nn_conv2d_with(3, 8, 3, (aril_nn_conv_opts){ .padding = { 1, 1 } }),
                           aril_nn_batch_norm2d(8), aril_nn_relu(), aril_nn_max_pool2d(2),
                           aril_nn_dropout(0.2), aril_nn_flatten(), aril_nn_linear(8 * 8 * 8, 32),
                           aril_nn_tanh(), aril_nn_linear(32, 5));
    return (net){ m, aril_adam(aril_parameters(m), (aril_adam_opts){ .lr = 0.01 }) };
}

static void net_free(net *n)
{
    aril_optim_free(n->opt);
    aril_module_release(n->module);
}

static void train(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    net *n = ctx;
    aril_tensor *y = aril_forward(n->module, in[0]);
    out[0] = aril_cross_entropy(y, in[1]);
    out[1] = y;
    aril_backward(out[0]);
    aril_step(n->opt);
}

static aril_tensor *images(int64_t n, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, ARIL_SHAPE(n, 3, 16, 16), ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return t;
}

static aril_tensor *labels(int64_t n)
{
    return aril_cast(aril_remainder_scalar(aril_arange(0, (double)n, 1, ARIL_F32, aril_cpu()), 5),
                     ARIL_I64);
}

static aril_program *compile(aril_fn *fn, void *ctx)
{
    const aril_shape sizes[] = { ARIL_SHAPE(-2, 3, 16, 16), ARIL_SHAPE(-2) };
    return aril_jit(fn, ctx, (aril_jit_opts){ .name = "train", .sizes = sizes, .n_sizes = 2 });
}

static void check_equal(aril_tensor *got, aril_tensor *want, const char *what)
{
    char *why = test_difference_in_value(got, want, 0, 0);
    CHECK_MSG(!why, "%s: %s", what, why);
}

/* Trains with the memory of ended values overwritten by NaN. */
TEST(no_value_is_read_after_its_end)
{
    ARIL_SCOPE;
    net eager = image_net(), jit = image_net();
    aril_program *p = compile(train, &jit);
    aril_rng_state mine = { 5, 0 }, theirs = { 5, 0 };
    aril__plan_poisons = true;
    for (int i = 0; i < 6; i++) {
        ARIL_SCOPE;
        int64_t n = 4 + 3 * (i % 2);
        aril_tensor *got[2], *want[2], *in[] = { images(n, (uint64_t)i), labels(n) };
        aril_generator_set_state(aril_default_generator(), mine);
        CHECK_INT(aril_program_run(p, (aril_list){ 2, in }, got), ARIL_OK);
        mine = aril_generator_state(aril_default_generator());
        aril_generator_set_state(aril_default_generator(), theirs);
        train(&eager, in, want);
        theirs = aril_generator_state(aril_default_generator());
        CHECK_MSG(aril_ok(), "%s", aril_error());
        check_equal(got[0], want[0], "loss");
        check_equal(got[1], want[1], "scores");
    }
    aril__plan_poisons = false;
    const aril_named *a = aril_parameters(jit.module), *b = aril_parameters(eager.module);
    for (int i = 0; i < a->n; i++) check_equal(a->at[i], b->at[i], a->name[i]);
    aril_program_free(p);
    net_free(&eager);
    net_free(&jit);
}

/* ---- predicted memory ---- */

static int64_t live(void)
{
    return aril_memory(aril_cpu()).live;
}

/* Runs the program some times: each adds what was predicted to what was there before. */
static void check_peak(aril_fn *fn, void *ctx, aril_list in, const char *what)
{
    aril_tensor *out[8];
    aril_program *p = aril_jit(fn, ctx, (aril_jit_opts){ .name = what });
    CHECK_INT(aril_program_memory(p, aril_cpu()).peak, 0);
    {
        ARIL_SCOPE;
        aril_program_run(p, in, out); /* creates the state of an optimizer, too */
    }
    aril_program_free(p);
    int64_t before = live();
    p = aril_jit(fn, ctx, (aril_jit_opts){ .name = what });
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril_memory_reset_peak(aril_cpu());
        CHECK_INT(aril_program_run(p, in, out), ARIL_OK);
        CHECK_MSG(aril_ok(), "%s: %s", what, aril_error());
        aril_memory_plan m = aril_program_memory(p, aril_cpu());
        CHECK_INT(m.unplanned, 0);
        CHECK_MSG(aril_memory(aril_cpu()).peak - before == m.peak,
                  "%s, run %d: predicted %lld, allocated %lld", what, i, (long long)m.peak,
                  (long long)(aril_memory(aril_cpu()).peak - before));
        CHECK_INT(m.peak, m.arena + m.results);
    }
    aril_program_free(p);
    CHECK_MSG(live() == before, "%s: leaves %lld bytes", what, (long long)(live() - before));
}

static void chain(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    aril_tensor *y = in[0];
    for (int i = 0; i < 6; i++) y = aril_tanh(aril_mul(aril_add(y, in[0]), in[0]));
    out[0] = y;
    out[1] = aril_sum(y, ARIL_AXES(1));
}

TEST(the_predicted_peak_is_that_of_the_allocator)
{
    ARIL_SCOPE;
    net n = image_net();
    check_peak(train, &n, ARIL_LIST(images(8, 1), labels(8)), "train");
    check_peak(chain, NULL, ARIL_LIST(aril_ones(ARIL_SHAPE(100, 50), ARIL_F32, aril_cpu())),
               "small chain");
    /* Larger than what stays allocated between runs. */
    check_peak(chain, NULL, ARIL_LIST(aril_ones(ARIL_SHAPE(5000, 1000), ARIL_F32, aril_cpu())),
               "large chain");
    net_free(&n);
}

/* Each elementwise op writes over an operand that ends: one buffer is enough besides the result. */
/* Results that are views, inputs, parts of another or one value twice, and tensors outside that get
 * each other's values. */
static aril_tensor *pair[2];

static void give_views(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    aril_tensor *h = aril_tanh(in[0]); /* [100,100] */
    switch (*(int *)ctx) {
    case 0: out[0] = aril_reshape(h, ARIL_SHAPE(-1)); break;
    case 1: out[0] = aril_t(h); break;
    case 2: out[0] = aril_slice(h, 0, 0, 10, 1); break;
    case 3: out[0] = aril_expand(aril_slice(h, 0, 0, 1, 1), ARIL_SHAPE(100, 100)); break;
    case 4: out[0] = aril_reshape(h, ARIL_SHAPE(-1)), out[1] = aril_exp(h); break;
    case 5: out[0] = aril_reshape(h, ARIL_SHAPE(-1)), out[1] = h; break;
    case 6: out[0] = in[0]; break;
    case 7: out[0] = out[1] = h; break;
    case 8: out[0] = out[1] = out[2] = in[0], out[3] = aril_neg(h); break;
    case 9: out[0] = aril_ones(ARIL_SHAPE(100, 100), ARIL_F32, aril_cpu()); break;
    case 10:
        h = aril_copy(pair[0]);
        aril_copy_(pair[0], pair[1]);
        aril_copy_(pair[1], h);
        out[0] = h;
        break;
    default: out[0] = aril_copy_(pair[0], aril_flip(pair[0], ARIL_AXES(0))); break;
    }
}

TEST(copies_that_results_are_belong_to_the_predicted_peak)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_rand(ARIL_SHAPE(100, 100), ARIL_F32, aril_cpu());
    for (int i = 0; i < 2; i++) pair[i] = aril_rand(ARIL_SHAPE(100, 100), ARIL_F32, aril_cpu());
    for (int k = 0; k < 12; k++) {
        char what[32];
        snprintf(what, sizeof what, "results %d", k);
        check_peak(give_views, &k, ARIL_LIST(x), what);
    }
}

/* Nothing but a copy of an input: the plan has no step. */
TEST(a_limit_of_memory_counts_the_copies_that_results_are)
{
    ARIL_SCOPE;
    int k = 6;
    aril_tensor *x = aril_rand(ARIL_SHAPE(100, 100), ARIL_F32, aril_cpu()), *y;
    aril_program *p = aril_jit(give_views, &k, (aril_jit_opts){ .max_memory = 40000 - 1 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_ERR_MEMORY);
    aril_clear_error();
    aril_program_free(p);
}

TEST(a_chain_reuses_the_memory_of_its_operands)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(512, 512), ARIL_F32, aril_cpu()), *out[2];
    aril_program *p = aril_jit(chain, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), out);
    aril_memory_plan m = aril_program_memory(p, aril_cpu());
    CHECK_MSG(m.arena <= 2 * 512 * 512 * 4 + 65536, "%lld bytes", (long long)m.arena);
    aril_program_free(p);
}

/* ---- indices of maxima ---- */

static void maxima(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_max_pool2d(in[0], (aril_pool_opts){ .kernel = { 3, 3 } }, NULL);
}

/* Kernels that compute no indices find the same maxima, NaN among them. */
TEST(maxima_without_indices_have_the_same_bits)
{
    const aril_dtype types[] = { ARIL_F32, ARIL_F64, ARIL_BF16, ARIL_F16, ARIL_I32 };
    for (int k = 0; k < 5 * 4; k++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_channels_last(aril_randn(ARIL_SHAPE(2, k % 4 < 2 ? 20 : 3, 17, 17),
                                                       ARIL_F32, aril_cpu())),
                    *got[1], *want[1];
        if (k % 2) x = aril_where(aril_gt_scalar(x, 1.5), aril_full_like(x, NAN), x);
        x = aril_cast(aril_mul_scalar(x, types[k / 4] == ARIL_I32 && k % 2 ? 0 : 100),
                      types[k / 4]);
        if (k % 4 == 0) x = aril_contiguous(x);
        maxima(NULL, &x, want);
        aril_program *p = aril_jit(maxima, NULL, (aril_jit_opts){ 0 });
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), got), ARIL_OK);
        aril_program_free(p);
        char *why = test_difference_in_bits(got[0], want[0]);
        CHECK_MSG(!why, "%s: %s", aril_dtype_name(types[k / 4]), why);
    }
}

/* ---- plans ---- */

static void gather(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_embedding(in[1], in[0], (aril_embedding_opts){ 0 });
}

TEST(errors_are_those_of_eager_mode)
{
    ARIL_SCOPE;
    aril_tensor *w = aril_ones(ARIL_SHAPE(4, 3), ARIL_F32, aril_cpu()), *out[1];
    aril_tensor *good = aril_zeros(ARIL_SHAPE(2), ARIL_I64, aril_cpu());
    aril_tensor *bad = aril_full(ARIL_SHAPE(2), 7, ARIL_I64, aril_cpu());
    aril_program *p = aril_jit(gather, NULL, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(w, good), out), ARIL_OK);
    CHECK_INT(aril_program_run(p, ARIL_LIST(w, bad), out), ARIL_ERR_INDEX);
    char *got = strdup(aril_error());
    aril_clear_error();
    gather(NULL, (aril_tensor *[]){ w, bad }, out);
    const char *at = strstr(aril_error(), " at "); /* the source location differs */
    size_t n = at ? (size_t)(at - aril_error()) : strlen(aril_error());
    CHECK_MSG(n > 10 && strncmp(got, aril_error(), n) == 0, "'%s', but '%s'", got, aril_error());
    aril_clear_error();
    free(got);
    CHECK_INT(aril_program_run(p, ARIL_LIST(w, good), out), ARIL_OK);
    check_equal(out[0], aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu()), "after an error");
    aril_program_free(p);
}

static void twice_and_more(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_mul(in[0], in[0]);
    out[1] = aril_transpose(out[0], 0, 1); /* a view of a result */
    out[2] = out[0];
    out[3] = in[0];
}

TEST(results_that_share_memory_are_separate_tensors)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_full(ARIL_SHAPE(3, 40), 2, ARIL_F32, aril_cpu()), *out[4], *kept[4];
    aril_program *p = aril_jit(twice_and_more, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), kept);
    CHECK_INT(aril_program_run(p, ARIL_LIST(aril_full(ARIL_SHAPE(3, 40), 5, ARIL_F32, aril_cpu())),
                               out),
              ARIL_OK);
    for (int i = 0; i < 4; i++) {
        aril_zero_(out[i]);
        check_equal(aril_sum(kept[i], ARIL_ALL),
                    aril_full(ARIL_SHAPE(), i < 3 ? 480 : 240, ARIL_F32, aril_cpu()), "kept");
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_program_free(p);
}

/* Kernels are prepared before the values that they will read have memory: the bias, for instance,
 * that a batch norm becomes. */
typedef struct normed {
    aril_tensor *weight, *scale, *shift, *mean, *var;
} normed;

static void convolve(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    const normed *n = ctx;
    aril_tensor *y = aril_conv2d(in[0], n->weight, NULL, (aril_conv_opts){ .groups = 48 });
    out[0] = aril_batch_norm(y, n->scale, n->shift, n->mean, n->var,
                             (aril_batch_norm_opts){ .eval = true });
}

static aril_tensor *numbers(aril_shape shape)
{
    return test_there(aril_rand(shape, ARIL_F32, aril_cpu()));
}

TEST(a_bias_without_memory_is_a_bias)
{
    ARIL_INFERENCE;
    aril_seed(5);
    aril_shape each = ARIL_SHAPE(48);
    normed n = { numbers(ARIL_SHAPE(48, 1, 1, 1)), numbers(each), numbers(each), numbers(each),
                 numbers(each) };
    aril_tensor *x = numbers(ARIL_SHAPE(1, 48, 8, 10)), *out[1], *want[1];
    aril_program *p = aril_jit(convolve, &n, (aril_jit_opts){ 0 });
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    convolve(&n, (aril_tensor *[]){ x }, want);
    CHECK(aril_item(aril_amax(aril_abs(aril_sub(out[0], want[0])), ARIL_ALL)) < 1e-4);
    aril_program_free(p);
}

TEST(many_sizes_have_plans_of_their_own)
{
    ARIL_SCOPE;
    const aril_shape any = ARIL_SHAPE(-1, 30);
    aril_program *p = aril_jit(chain, NULL, (aril_jit_opts){ .sizes = &any, .n_sizes = 1 });
    for (int i = 0; i < 120; i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_full(ARIL_SHAPE(1 + i % 40, 30), 0.1 * i, ARIL_F32, aril_cpu());
        aril_tensor *out[2], *want[2];
        aril_program_run(p, ARIL_LIST(x), out);
        chain(NULL, &x, want);
        check_equal(out[0], want[0], "chain");
        check_equal(out[1], want[1], "sum");
    }
    CHECK_INT(aril_program_traces(p), 1);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_program_free(p);
}

/* ---- threads ---- */

typedef struct worker {
    aril_program *p;
    int index;
    bool same;
} worker;

static void *run_worker(void *ctx)
{
    worker *w = ctx;
    w->same = true;
    for (int i = 0; i < 60; i++) {
        ARIL_SCOPE;
        int64_t rows = 1 + (w->index + i) % 5;
        aril_tensor *x = aril_full(ARIL_SHAPE(rows, 30), w->index + 1, ARIL_F32, aril_cpu());
        aril_tensor *out[2], *want[2];
        chain(NULL, &x, want);
        aril_program_run(w->p, ARIL_LIST(x), out);
        char *why = test_difference_in_value(out[0], want[0], 0, 0);
        w->same = w->same && !why && aril_ok();
    }
    return NULL;
}

TEST(eight_threads_with_sizes_of_their_own)
{
    ARIL_SCOPE;
    const aril_shape any = ARIL_SHAPE(-1, 30);
    aril_program *p = aril_jit(chain, NULL, (aril_jit_opts){ .sizes = &any, .n_sizes = 1 });
    pthread_t thread[8];
    worker w[8];
    for (int i = 0; i < 8; i++) {
        w[i] = (worker){ .p = p, .index = i };
        CHECK_INT(pthread_create(&thread[i], NULL, run_worker, &w[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
        CHECK_MSG(w[i].same, "thread %d", i);
    }
    aril_program_free(p);
}

/* ---- what watches runs ---- */

TEST(a_profile_shows_the_ops_of_a_program)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_ones(ARIL_SHAPE(20, 30), ARIL_F32, aril_cpu()), *out[2];
    aril_program *p = aril_jit(chain, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), out);
    aril_profile_begin((aril_profile_opts){ 0 });
    aril_program_run(p, ARIL_LIST(x), out);
    aril_profile_end();
    FILE *f = tmpfile();
    char text[8192] = "";
    aril_profile_print(f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    CHECK_MSG(strstr(text, "cpu_"), "%s", text); /* kernels */
    CHECK_MSG(strstr(text, "sum"), "%s", text);
    aril_program_free(p);
}

static void log_of(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    (void)ctx;
    out[0] = aril_log(in[0]);
}

TEST(anomaly_mode_finds_a_nan_in_a_program)
{
    ARIL_SCOPE;
    aril_program *p = aril_jit(log_of, NULL, (aril_jit_opts){ 0 });
    aril_tensor *one = aril_ones(ARIL_SHAPE(30), ARIL_F32, aril_cpu()), *out[1];
    aril_set_anomaly(true);
    CHECK_INT(aril_program_run(p, ARIL_LIST(one), out), ARIL_OK);
    CHECK_INT(aril_program_run(p, ARIL_LIST(aril_neg(one)), out), ARIL_ERR_NUMBER);
    aril_set_anomaly(false);
    aril_clear_error();
    aril_program_free(p);
}
