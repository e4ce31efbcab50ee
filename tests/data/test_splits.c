/* What a training asks of a dataset: statistics for normalization, the number of outputs, and
 * consistent splits. */
#include "aril/aril.h"
#include "aril/datasets.h"
#include "formats/atomic_file.h"
#include "support/temp.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

static bool write_text(const char *path, const char *text)
{
    return aril__file_replace(path, text, strlen(text)) == ARIL_OK;
}

static double at(aril_tensor *t, int64_t i)
{
    return aril_item(aril_select(t, 0, i));
}

/* ---- statistics ---- */

TEST(statistics_of_each_channel_of_images)
{
    ARIL_SCOPE;
    enum { N = 300, C = 3 };
    aril_generator *g = aril_generator_new(5);
    aril_tensor *x = aril_cast(
        aril_mul_scalar(aril_rand_from(g, ARIL_SHAPE(N, C, 4, 5), ARIL_F32, aril_cpu()), 255),
        ARIL_U8);
    aril_generator_free(g);
    /* The last channel is black. */
    x = aril_mul(x, aril_from((uint8_t[]){ 1, 1, 0 }, ARIL_SHAPE(C, 1, 1), ARIL_U8, aril_cpu()));
    aril_dataset *d = aril_dataset_images(x, NULL);
    aril_tensor *mean, *std;
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ 0 }, &mean, &std), ARIL_OK);
    CHECK(aril_numel(mean) == C && aril_dtype_of(std) == ARIL_F64);
    aril_tensor *want =
        aril_cast(aril_div_scalar(aril_cast(x, ARIL_F32), 255), ARIL_F64); /* as batches */
    for (int k = 0; k < 2; k++) {
        aril_tensor *channel = aril_select(want, 1, k);
        CHECK_NEAR(at(mean, k), aril_item(aril_mean(channel, ARIL_ALL)), 1e-12);
        CHECK_NEAR(at(std, k), aril_item(aril_std(channel, ARIL_ALL, 0)), 1e-12);
    }
    CHECK_NEAR(at(mean, 2), 0, 0);
    CHECK_NEAR(at(std, 2), 1, 0); /* constant */

    /* Over all values, and over some of the samples. */
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ .overall = true }, &mean, &std), ARIL_OK);
    CHECK_INT(aril_numel(mean), 1);
    CHECK_NEAR(at(std, 0), aril_item(aril_std(want, ARIL_ALL, 0)), 1e-12);
    aril_stats_opts some = { .samples = 20, .seed = 4 };
    double first[2];
    for (int i = 0; i < 2; i++) {
        CHECK_INT(aril_dataset_stats(d, some, &mean, &std), ARIL_OK);
        first[i] = at(mean, 0);
    }
    CHECK(first[0] == first[1]);
    some.seed = 5;
    CHECK_INT(aril_dataset_stats(d, some, &mean, &std), ARIL_OK);
    CHECK(at(mean, 0) != first[0]);
    aril_dataset_release(d);
}

/* A small deviation from a large mean is not lost, and batches add up. */
TEST(statistics_are_accurate)
{
    ARIL_SCOPE;
    enum { N = 1000 };
    double v[N];
    for (int i = 0; i < N; i++) v[i] = 1e9 + (i % 2 ? 1e-3 : -1e-3);
    aril_tensor *x = aril_from(v, ARIL_SHAPE(N, 1), ARIL_F64, aril_cpu()), *mean, *std;
    aril_dataset *d = aril_dataset_tensors(x, aril_cast(x, ARIL_F64));
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ 0 }, &mean, &std), ARIL_OK);
    CHECK_NEAR(at(mean, 0), 1e9, 1e-6);
    CHECK_NEAR(at(std, 0), 1e-3, 1e-6);
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ .targets = true }, &mean, &std), ARIL_OK);
    CHECK_NEAR(at(std, 0), 1e-3, 1e-6);
    aril_dataset_release(d);
}

TEST(statistics_name_a_column_that_is_not_finite)
{
    ARIL_SCOPE;
    aril_tensor *mean, *std;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_path("missing.csv"));
    CHECK(write_text(path, "area,rooms,price\n50,2,1.5\n70,NA,2.5\n"));
    aril_dataset *d = aril_dataset_csv(path, (aril_csv_opts){ .allow_missing = true });
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ 0 }, &mean, &std), ARIL_ERR_NUMBER);
    CHECK_MSG(strstr(aril_error(), "column rooms has NaN"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_dataset_stats(d, (aril_stats_opts){ .targets = true }, &mean, &std), ARIL_OK);
    CHECK_NEAR(at(mean, 0), 2, 1e-12);
    aril_dataset_release(d);
    aril_dataset *bare =
        aril_dataset_tensors(aril_ones(ARIL_SHAPE(3, 2), ARIL_F32, aril_cpu()), NULL);
    CHECK_INT(aril_dataset_stats(bare, (aril_stats_opts){ .targets = true }, &mean, &std),
              ARIL_ERR_ARG);
    CHECK(strstr(aril_error(), "no targets"));
    aril_clear_error();
    aril_dataset_release(bare);
    CHECK_INT(aril_dataset_stats(NULL, (aril_stats_opts){ 0 }, &mean, &std), ARIL_ERR_ARG);
    aril_clear_error();
}

/* ---- outputs ---- */

TEST(outputs_follow_from_the_targets)
{
    ARIL_SCOPE;
    bool regression;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(4, 2), ARIL_F32, aril_cpu());
    int64_t label[] = { 0, 6, 2, 1 };
    aril_dataset *d =
        aril_dataset_tensors(x, aril_from(label, ARIL_SHAPE(4), ARIL_I64, aril_cpu()));
    CHECK_INT(aril_dataset_outputs(d, &regression), 7);
    CHECK(!regression);
    const char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    CHECK_INT(aril_dataset_set_classes(d, 8, names), ARIL_OK);
    CHECK_INT(aril_dataset_outputs(d, NULL), 8);
    aril_dataset_release(d);
    d = aril_dataset_tensors(x, aril_zeros(ARIL_SHAPE(4, 3), ARIL_F32, aril_cpu()));
    CHECK_INT(aril_dataset_outputs(d, &regression), 3);
    CHECK(regression);
    aril_dataset_release(d);
    d = aril_dataset_tensors(x, NULL);
    CHECK_INT(aril_dataset_outputs(d, &regression), -1);
    CHECK(strstr(aril_error(), "no targets"));
    aril_clear_error();
    aril_dataset_release(d);
    label[1] = -1;
    d = aril_dataset_tensors(x, aril_from(label, ARIL_SHAPE(4), ARIL_I64, aril_cpu()));
    CHECK_INT(aril_dataset_outputs(d, &regression), -1);
    CHECK_MSG(strstr(aril_error(), "sample 1 is -1"), "%s", aril_error());
    aril_clear_error();
    aril_dataset_release(d);
    CHECK_INT(aril_dataset_outputs(NULL, NULL), -1);
    aril_clear_error();
}

/* ---- splits ---- */

TEST(splits_hold_out_a_fraction)
{
    char path[512], text[4096] = "x,kind\n";
    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), 32, "%d,%s\n", i, i % 2 ? "odd" : "even");
    snprintf(path, sizeof path, "%s", temp_path("all.csv"));
    CHECK(write_text(path, text));
    aril_splits s, again;
    CHECK_INT(aril_splits_open(path, (aril_splits_opts){ 0 }, &s), ARIL_OK);
    CHECK(!s.test && !s.val_is_test && s.held_out == 0.1);
    CHECK_INT(aril_dataset_size(s.train), 36);
    CHECK_INT(aril_dataset_size(s.val), 4);
    aril_splits_release(&s);
    CHECK(!s.train && !s.val);
    /* The same samples for the same seed. */
    aril_splits_opts quarter = { .validation_split = 0.25, .seed = 3 };
    CHECK_INT(aril_splits_open(path, quarter, &s), ARIL_OK);
    CHECK_INT(aril_splits_open(path, quarter, &again), ARIL_OK);
    CHECK_INT(aril_dataset_size(s.val), 10);
    for (int64_t i = 0; i < 10; i++) {
        ARIL_SCOPE;
        aril_sample a, b;
        CHECK(aril_dataset_get(s.val, i, &a) == ARIL_OK);
        CHECK(aril_dataset_get(again.val, i, &b) == ARIL_OK);
        CHECK(aril_item(a.x) == aril_item(b.x));
    }
    aril_splits_release(&s);
    aril_splits_release(&again);
    CHECK_INT(aril_splits_open(path, (aril_splits_opts){ .validation_split = 1 }, &s),
              ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "expected a fraction"), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_splits_open(temp_path("none.csv"), (aril_splits_opts){ 0 }, &s), ARIL_ERR_IO);
    CHECK(!s.train);
    aril_clear_error();
}

TEST(splits_have_the_same_classes_and_columns)
{
    ARIL_SCOPE;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temp_path("set"));
    CHECK_INT(aril_folder_create(folder), ARIL_OK);
    CHECK(write_text(temp_path("set/train.csv"), "a,b,kind\n1,2,cat\n3,4,dog\n5,6,ant\n"));
    CHECK(write_text(temp_path("set/test.csv"), "b,kind,a\n20,dog,10\n"));
    aril_splits s;
    CHECK_INT(aril_splits_open(folder, (aril_splits_opts){ 0 }, &s), ARIL_OK);
    CHECK(s.test && s.val && s.val_is_test && s.held_out == 0);
    aril_sample one;
    CHECK_INT(aril_dataset_get(s.test, 0, &one), ARIL_OK);
    CHECK_INT(aril_item_int(one.y), 2); /* of ant, cat, dog */
    CHECK_NEAR(at(one.x, 0), 10, 0);    /* columns in the order of train */
    aril_splits_release(&s);
    /* A split called val, unless a fraction is to be held out. */
    CHECK(write_text(temp_path("set/val.csv"), "a,b,kind\n7,8,ant\n"));
    CHECK(aril_dataset_has_split(folder, "val") && !aril_dataset_has_split(folder, "dev"));
    CHECK(aril_ok());
    CHECK_INT(aril_splits_open(folder, (aril_splits_opts){ 0 }, &s), ARIL_OK);
    CHECK(!s.val_is_test && aril_dataset_size(s.val) == 1);
    aril_splits_release(&s);
    CHECK_INT(aril_splits_open(folder, (aril_splits_opts){ .validation_split = 0.4 }, &s), ARIL_OK);
    CHECK(s.test && !s.val_is_test && s.held_out == 0.4);
    aril_splits_release(&s);
}

/* Integer classes are matched by their values: the tables may hold different ones. */
TEST(integer_classes_are_named_by_their_values)
{
    ARIL_SCOPE;
    const char *const *names;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", temp_path("digits"));
    CHECK_INT(aril_folder_create(folder), ARIL_OK);
    CHECK(write_text(temp_path("digits/train.csv"), "x,y\n1,3\n2,7\n3,3\n"));
    CHECK(write_text(temp_path("digits/test.csv"), "x,y\n4,7\n"));
    aril_splits s;
    aril_sample one;
    CHECK_INT(aril_splits_open(folder, (aril_splits_opts){ 0 }, &s), ARIL_OK);
    CHECK_INT(aril_dataset_classes(s.train, &names), 2);
    CHECK_STR(names[1], "7");
    CHECK_INT(aril_dataset_get(s.test, 0, &one), ARIL_OK);
    CHECK_INT(aril_item_int(one.y), 1);
    aril_splits_release(&s);
}
