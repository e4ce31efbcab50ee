/* Prepared values: what a program computes from its weights alone is computed once, seen anew when
 * a weight changes, and kept only packed where kernels have packed it. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- a block of a residual network ---- */

typedef struct block {
    aril_tensor *w, *scale, *shift, *mean, *var;
} block;

static aril_tensor *some(aril_shape shape, double center)
{
    return aril_add_scalar(aril_mul_scalar(aril_rand(shape, ARIL_F32, aril_cpu()), 0.5), center);
}

static block make_block(int64_t channels)
{
    aril_shape each = ARIL_SHAPE(channels);
    return (block){ aril_keep(some(ARIL_SHAPE(channels, channels, 3, 3), -0.25)),
                    aril_keep(some(each, 1)), aril_keep(some(each, 0)), aril_keep(some(each, 0)),
                    aril_keep(some(each, 0.5)) };
}

static void free_block(block *b)
{
    aril_tensor *all[] = { b->w, b->scale, b->shift, b->mean, b->var };
    for (int i = 0; i < 5; i++) aril_release(all[i]);
}

static void residual(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    block *b = ctx;
    aril_tensor *y = aril_conv2d(in[0], b->w, NULL, (aril_conv_opts){ .padding = { 1, 1 } });
    y = aril_batch_norm(y, b->scale, b->shift, b->mean, b->var,
                        (aril_batch_norm_opts){ .eval = true });
    out[0] = aril_relu(aril_add(y, in[0]));
}

static aril_tensor *eager(aril_fn *fn, void *ctx, aril_tensor *x)
{
    ARIL_INFERENCE;
    aril_tensor *y;
    fn(ctx, &x, &y);
    return y;
}

static void check_run(aril_program *p, block *b, aril_tensor *x)
{
    ARIL_SCOPE;
    aril_tensor *y;
    ARIL_INFERENCE;
    aril_program_run(p, ARIL_LIST(x), &y);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    char *why = test_difference(y, eager(residual, b, x), 1e-4, 1e-4);
    CHECK_MSG(!why, "%s", why);
}

static void printed(const aril_program *p, char *text, size_t size)
{
    FILE *f = tmpfile();
    aril_program_print(p, f);
    rewind(f);
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
    char *to = text; /* without source locations */
    for (const char *at = text; *at; at++) {
        if (strncmp(at, "  #", 3) == 0) at += strcspn(at, "\n");
        *to++ = *at;
    }
    *to = '\0';
}

TEST(normalization_and_residual_join_the_convolution)
{
    ARIL_SCOPE;
    char text[4000];
    block b = make_block(16);
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block" });
    check_run(p, &b, some(ARIL_SHAPE(2, 16, 8, 8), -0.25));
    printed(p, text, sizeof text);
    const char *main = strstr(text, "graph block(");
    CHECK(main);
    CHECK_STR(main,
              "graph block(%1: f32[2,16,8,8]) {\n"
              "  %2: f32[16,16,3,3] = state\n"
              "  %4: f32[16] = state\n"
              "  %5: f32[16] = state\n"
              "  %6: f32[16] = state\n"
              "  %7: f32[16] = state\n"
              "  %prepared.0: f32[16] = state\n"
              "  %prepared.1: f32[16,16,3,3] = state\n"
              "  %21: f32[2,16,8,8] = conv_add(%1, %prepared.1, %prepared.0, %1, pad=[1,1,1,1],"
              " activation=relu)\n"
              "  return %21\n"
              "}\n");
    CHECK(strncmp(text, "graph block.prepare() {\n", 24) == 0);
    CHECK(strstr(text, "%prepared.1 <- "));
    aril_program_free(p);
    free_block(&b);
}

/* ---- changes of weights ---- */

TEST(a_program_sees_changed_weights)
{
    ARIL_SCOPE;
    block b = make_block(16);
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block" });
    aril_tensor *x = some(ARIL_SHAPE(1, 16, 8, 8), -0.25);
    check_run(p, &b, x);
    check_run(p, &b, x);
    aril_copy_(b.var, aril_mul_scalar(b.var, 2));
    check_run(p, &b, x);
    aril_copy_(b.w, aril_mul_scalar(b.w, -0.5));
    check_run(p, &b, x);
    aril_copy_(aril_select(b.w, 0, 3), aril_scalar(0)); /* through a view */
    check_run(p, &b, x);
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
    free_block(&b);
}

/* Memory whose address the program has may change at any time. */
TEST(a_program_sees_weights_written_through_a_pointer)
{
    ARIL_SCOPE;
    block b = make_block(16);
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block" });
    aril_tensor *x = some(ARIL_SHAPE(1, 16, 8, 8), -0.25);
    check_run(p, &b, x);
    float *w = aril_data_strided(b.w);
    for (int i = 0; i < 3; i++) {
        w[5 + i] += 1;
        check_run(p, &b, x);
    }
    aril_program_free(p);
    free_block(&b);
}

/* Values that were dropped are there for plans that pack them in another way. */
TEST(several_plans_share_prepared_values)
{
    ARIL_SCOPE;
    block b = make_block(64);
    const aril_shape any = ARIL_SHAPE(-1, 64, -1, -1);
    aril_program *p =
        aril_jit(residual, &b, (aril_jit_opts){ .name = "block", .sizes = &any, .n_sizes = 1 });
    int threads = aril_threads();
    for (int round = 0; round < 2; round++) {
        for (int64_t n = 1; n <= 4; n++) {
            aril_set_threads(1 + (int)n % 3);
            check_run(p, &b, some(ARIL_SHAPE(n, 64, 4 + 3 * n, 9), -0.25));
        }
        aril_copy_(b.w, aril_mul_scalar(b.w, 0.5));
    }
    CHECK_INT(aril_program_traces(p), 1);
    aril_set_threads(threads);
    aril_program_free(p);
    free_block(&b);
}

/* ---- frozen programs ---- */

TEST(a_frozen_program_keeps_its_weights)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    block b = make_block(16);
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block", .freeze = true });
    aril_tensor *x = some(ARIL_SHAPE(1, 16, 8, 8), -0.25), *first, *later;
    aril_program_run(p, ARIL_LIST(x), &first);
    aril_tensor *w = aril_copy(b.w);
    aril_copy_(b.w, aril_scalar(0));
    aril_copy_(b.shift, aril_scalar(7));
    aril_program_run(p, ARIL_LIST(x), &later);
    CHECK(aril_ok());
    char *why = test_difference_in_bits(first, later);
    CHECK_MSG(!why, "%s", why);
    CHECK(aril_item(aril_sum(aril_abs(w), ARIL_ALL)) > 0);
    aril_program_free(p);
    free_block(&b);
}

static void counting(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    block *b = ctx;
    aril_add_(b->mean, in[0]);
    out[0] = aril_mul(in[0], b->var);
}

TEST(a_function_that_changes_its_state_cannot_be_frozen)
{
    ARIL_SCOPE;
    block b = make_block(4);
    aril_program *p = aril_jit(counting, &b, (aril_jit_opts){ .name = "count", .freeze = true });
    aril_tensor *y;
    CHECK(aril_program_run(p, ARIL_LIST(some(ARIL_SHAPE(4), 0)), &y) == ARIL_ERR_STATE);
    CHECK_MSG(strstr(aril_error(), "cannot be frozen"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
    free_block(&b);
}

/* ---- memory ---- */

TEST(a_run_allocates_what_its_plan_says)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    aril_device cpu = aril_cpu();
    block b = make_block(64);
    aril_tensor *x = some(ARIL_SHAPE(2, 64, 16, 16), -0.25), *y;
    int64_t before = aril_memory(cpu).live;
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block" });
    for (int i = 0; i < 2; i++) {
        ARIL_SCOPE;
        aril_program_run(p, ARIL_LIST(x), &y);
    }
    int64_t kept = aril_memory(cpu).live - before, weight = 64 * 64 * 9 * 4;
    aril_memory_plan plan = aril_program_memory(p, cpu);
    CHECK_INT(plan.unplanned, 0);
    aril_memory_reset_peak(cpu);
    int64_t live = aril_memory(cpu).live;
    aril_program_run(p, ARIL_LIST(x), &y);
    /* An arena of this size stays allocated. */
    CHECK_INT(aril_memory(cpu).peak - live, plan.peak - plan.arena);
#ifdef ARIL_HAVE_ONEDNN
    CHECK_MSG(kept - plan.arena < weight + weight / 2, "%lld bytes are kept, a weight has %lld",
              (long long)kept, (long long)weight); /* packed, and not plain, too */
#endif
    CHECK(kept > weight);
    aril_program_free(p);
    CHECK_INT(aril_memory(cpu).live - plan.results, before);
    free_block(&b);
}

/* ---- threads ---- */

typedef struct shared {
    aril_program *p;
    block *b;
    aril_tensor *x, *want;
    int failed;
} shared;

static void *run_often(void *ctx)
{
    shared *s = ctx;
    ARIL_INFERENCE;
    for (int i = 0; i < 20; i++) {
        ARIL_SCOPE;
        aril_tensor *y;
        aril_program_run(s->p, ARIL_LIST(s->x), &y);
        char *why = test_difference(y, s->want, 1e-4, 1e-4);
        s->failed += why != NULL || !aril_ok();
    }
    return NULL;
}

TEST(eight_threads_begin_at_once)
{
    enum { THREADS = 8 };
    ARIL_SCOPE;
    block b = make_block(32);
    aril_program *p = aril_jit(residual, &b, (aril_jit_opts){ .name = "block" });
    aril_tensor *x = some(ARIL_SHAPE(1, 32, 12, 12), -0.25);
    for (int round = 0; round < 3; round++) {
        pthread_t thread[THREADS];
        shared s[THREADS];
        aril_tensor *want = eager(residual, &b, x);
        for (int i = 0; i < THREADS; i++) {
            s[i] = (shared){ p, &b, x, want, 0 };
            pthread_create(&thread[i], NULL, run_often, &s[i]);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(thread[i], NULL);
            CHECK_INT(s[i].failed, 0);
        }
        aril_copy_(b.w, aril_mul_scalar(b.w, -0.5));
    }
    aril_program_free(p);
    free_block(&b);
}

/* ---- networks ---- */

static void check_network(const char *name, aril_shape input)
{
    ARIL_SCOPE;
    aril_seed(3);
    aril_module *m = aril_zoo_make(name, (aril_zoo_opts){ .input = input, .classes = 10 });
    CHECK_MSG(m, "%s: %s", name, aril_error());
    aril_module_eval(m);
    ARIL_INFERENCE;
    aril_shape batch = { .ndim = input.ndim + 1, .dim = { 2 } };
    memcpy(batch.dim + 1, input.dim, (size_t)input.ndim * sizeof *input.dim);
    aril_tensor *x = some(batch, -0.25), *want = aril_forward(m, x);
    aril_module_jit(m);
    for (int i = 0; i < 2; i++) {
        aril_tensor *y = aril_forward(m, x);
        CHECK_MSG(aril_ok(), "%s: %s", name, aril_error());
        char *why = test_difference(y, want, 1e-3, 1e-4);
        CHECK_MSG(!why, "%s: %s", name, why);
    }
    aril_module_release(m);
}

/* The first network of each family, all with ARIL_TEST_ALL; images are small, so that this takes
 * seconds. */
TEST(networks_give_the_results_of_eager_mode)
{
    for (int i = 0; i < aril_zoo_count() && !test_failed(); i++) {
        const aril_zoo_entry *e = aril_zoo_at(i);
        aril_shape input = e->input;
        if (e->dtype == ARIL_I64) continue; /* takes tokens */
        bool first = i == 0 || strcmp(aril_zoo_at(i - 1)->family, e->family) != 0;
        if (!first && !getenv("ARIL_TEST_ALL")) continue;
        int64_t side = strcmp(e->family, "inception") == 0 ? 75
                       : strcmp(e->family, "unet") == 0    ? 188
                                                           : 64;
        for (int d = 1; d < input.ndim; d++)
            if (input.dim[d] > side) input.dim[d] = side;
        check_network(e->name, input);
    }
}
