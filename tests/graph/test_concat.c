/* Concatenations whose inputs are computed where they are in the result: the same bits with less
 * memory, and exactly what was predicted. */
#include "aril/aril.h"
#include "graph/executor.h"
#include "support/compare.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 2 };

#define FN(name) static void name(void *ctx, aril_tensor *const *in, aril_tensor **out)

static aril_tensor *image(int64_t channels, int64_t size, uint64_t seed)
{
    aril_generator *g = aril_generator_new(seed);
    aril_tensor *t = aril_randn_from(g, ARIL_SHAPE(2, channels, size, size), ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return aril_channels_last(t);
}

static aril_tensor *weight(int64_t out, int64_t in, int64_t kernel)
{
    aril_generator *g = aril_generator_new((uint64_t)(out + in + kernel));
    aril_shape shape = ARIL_SHAPE(out, in, kernel, kernel);
    aril_tensor *t = aril_randn_from(g, shape, ARIL_F32, aril_cpu());
    aril_generator_free(g);
    return t;
}

/* What a run of the program gives, and its plan; it allocates what was predicted. */
static aril_memory_plan run(aril_fn *fn, const char *passes, bool poisons, aril_list in,
                            aril_tensor **out)
{
    if (passes) setenv("ARIL_PASSES", passes, 1);
    aril__plan_poisons = poisons;
    aril_program *p = aril_jit(fn, NULL, (aril_jit_opts){ 0 });
    int64_t before = aril_memory(aril_cpu()).live;
    for (int i = 0; i < 2; i++) { /* weights are packed in the first run */
        before = aril_memory(aril_cpu()).live - (i ? aril_program_memory(p, aril_cpu()).arena : 0);
        aril_memory_reset_peak(aril_cpu());
        CHECK_INT(aril_program_run(p, in, out), ARIL_OK);
    }
    aril_memory_plan m = aril_program_memory(p, aril_cpu());
    int64_t peak = aril_memory(aril_cpu()).peak - before;
    CHECK_MSG(peak == m.peak, "predicted %lld, allocated %lld", (long long)m.peak, (long long)peak);
    CHECK_INT(m.unplanned, 0);
    aril_program_free(p);
    aril__plan_poisons = false;
    unsetenv("ARIL_PASSES");
    return m;
}

/* The memory of values and scratch with and without: results have the same bits, also when ended
 * values are overwritten. */
static void compare(aril_fn *fn, int n_out, aril_list in, int64_t *with, int64_t *without)
{
    aril_tensor *want[RESULTS], *got[RESULTS], *poisoned[RESULTS];
    *without = run(fn, "-concat", false, in, want).arena;
    *with = run(fn, NULL, false, in, got).arena;
    run(fn, NULL, true, in, poisoned);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    for (int i = 0; i < n_out && !test_failed(); i++) {
        char *why = test_difference_in_bits(got[i], want[i]);
        CHECK_MSG(!why, "result %d: %s", i, why);
        if (test_failed()) return;
        why = test_difference_in_bits(poisoned[i], want[i]);
        CHECK_MSG(!why, "result %d, poisoned: %s", i, why);
        CHECK_INT(aril_is_channels_last(got[i]), aril_is_channels_last(want[i]));
    }
}

/* Whether a run of the program concatenates. */
static bool concatenates(aril_fn *fn, aril_list in)
{
    char text[8192] = "";
    aril_tensor *out[RESULTS];
    aril_program *p = aril_jit(fn, NULL, (aril_jit_opts){ 0 });
    aril_program_run(p, in, out);
    aril_profile_begin((aril_profile_opts){ 0 });
    aril_program_run(p, in, out);
    aril_profile_end();
    FILE *f = tmpfile();
    aril_profile_print(f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    aril_program_free(p);
    return strstr(text, "\ncat ") != NULL;
}

/* ---- layers that append ---- */

static aril_tensor *norm(aril_tensor *x, aril_tensor *one)
{
    int64_t c = aril_size(x, 1);
    aril_tensor *ones = aril_slice(one, 0, 0, c, 1);
    return aril_relu(
        aril_batch_norm(x, ones, ones, ones, ones, (aril_batch_norm_opts){ .eval = true }));
}

/* in: an image of 32 channels, ones, weights of 8 outputs. */
FN(dense_block)
{
    (void)ctx;
    aril_tensor *x = aril_max_pool2d(in[0], (aril_pool_opts){ .kernel = { 2, 2 } }, NULL);
    for (int i = 0; i < 3; i++) {
        aril_tensor *y =
            aril_conv2d(norm(x, in[1]), in[2 + i], NULL, (aril_conv_opts){ .padding = { 1, 1 } });
        x = aril_cat(ARIL_LIST(x, y), 1);
    }
    out[0] = norm(x, in[1]);
}

TEST(layers_that_append_write_to_one_buffer)
{
    ARIL_SCOPE;
    int64_t with, without;
    aril_tensor *in[] = { image(32, 48, 1), aril_ones(ARIL_SHAPE(64), ARIL_F32, aril_cpu()),
                          weight(8, 32, 3), weight(8, 40, 3), weight(8, 48, 3) };
    compare(dense_block, 1, (aril_list){ 5, in }, &with, &without);
    CHECK_MSG(with <= without, "%lld bytes, %lld without", (long long)with, (long long)without);
    CHECK(!concatenates(dense_block, (aril_list){ 5, in }));
    setenv("ARIL_PASSES", "-concat", 1);
    CHECK(concatenates(dense_block, (aril_list){ 5, in }));
    unsetenv("ARIL_PASSES");
}

/* ---- contiguous parts ---- */

FN(rows)
{
    (void)ctx;
    aril_tensor *a = aril_tanh(in[0]), *b = aril_exp(in[0]);
    aril_tensor *y = aril_cat(ARIL_LIST(a, b), 0);
    out[0] = aril_sum(aril_mul(y, y), ARIL_AXES(0));
}

TEST(contiguous_parts_are_computed_in_place)
{
    ARIL_SCOPE;
    int64_t with, without;
    aril_tensor *x = aril_rand(ARIL_SHAPE(64, 128), ARIL_F32, aril_cpu());
    compare(rows, 1, ARIL_LIST(x), &with, &without);
    CHECK_MSG(with < without, "%lld bytes, %lld without", (long long)with, (long long)without);
    CHECK(!concatenates(rows, ARIL_LIST(x)));
}

/* Inputs that are one value, are needed later, are changed later, or are results themselves. */
FN(shared_inputs)
{
    (void)ctx;
    aril_tensor *a = aril_tanh(in[0]), *b = aril_exp(in[0]);
    aril_tensor *twice = aril_cat(ARIL_LIST(a, a, b), 0);
    aril_tensor *nested = aril_cat(ARIL_LIST(twice, aril_sin(b)), 0);
    aril_tensor *c = aril_neg(b);
    aril_tensor *last = aril_cat(ARIL_LIST(c, b), 0);
    aril_add_scalar_(c, 1);
    out[0] = aril_add(aril_sum(nested, ARIL_AXES(0)), aril_sum(last, ARIL_AXES(0)));
    out[0] = aril_add(out[0], aril_sum(c, ARIL_AXES(0)));
    out[1] = aril_cat(ARIL_LIST(aril_cos(a), b), 0);
}

TEST(inputs_that_are_used_elsewhere_keep_their_values)
{
    ARIL_SCOPE;
    int64_t with, without;
    compare(shared_inputs, 2, ARIL_LIST(aril_rand(ARIL_SHAPE(16, 16), ARIL_F32, aril_cpu())), &with,
            &without);
}
