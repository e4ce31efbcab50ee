/* What version 4 of the plug-in interface promises, on a device that takes it at its word. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "plugin/strict.h"
#include "support/compare.h"
#include "support/run_op.h"
#include "support/slopes.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static aril_device strict(int index)
{
    static bool added;
    if (!added) added = aril__plugin_add("strict", strict_open) == ARIL_OK;
    return aril_device_named(index ? "strict:1" : "strict:0");
}

static aril_tensor *ramp(int64_t n, aril_device d)
{
    return aril_reshape(aril_arange(0, (double)n, 1, ARIL_F32, d), ARIL_SHAPE(n));
}

static aril_queue *queue_of(int index)
{
    return aril__device_find(strict(index))->queue;
}

/* ---- queues ---- */

TEST(work_is_done_later_and_in_order)
{
    ARIL_SCOPE;
    aril_tensor *x = ramp(5, strict(0));
    aril_synchronize(strict(0));
    const aril_device_ops *ops = strict_ops();
    aril_event *done = ops->event_new(strict_device(0));
    CHECK_INT(ops->event_query(strict_device(0), done), 1);
    strict_hold(0, true);
    aril_tensor *y = aril_mul_scalar(aril_add(x, x), 3);
    aril_add_(x, y); /* after x was read */
    ops->event_record(strict_device(0), done, queue_of(0));
    CHECK_INT(ops->event_query(strict_device(0), done), 0);
    strict_hold(0, false);
    CHECK_NEAR(aril_item(aril_sum(y, ARIL_ALL)), 60, 0);
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 70, 0);
    CHECK_INT(ops->event_query(strict_device(0), done), 1);
    ops->event_free(strict_device(0), done);
    CHECK(aril_ok());
}

TEST(late_errors_name_their_op)
{
    ARIL_SCOPE;
    aril_tensor *x = ramp(5, strict(0));
    int64_t bad[2] = { 1, 9 };
    aril_tensor *at = aril_from(bad, ARIL_SHAPE(2), ARIL_I64, strict(0));
    aril_tensor *y = aril_index_select(x, at, 0);
    CHECK_INT(aril_tensor_status(y), ARIL_OK); /* nobody knows yet */
    CHECK(aril_synchronize(strict(0)) < 0);
    CHECK_MSG(strncmp(aril_error(), "index_select: ", 14) == 0 &&
                  strstr(aril_error(), "(reported late)") && strstr(aril_error(), "9"),
              "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril_synchronize(strict(0)), ARIL_OK); /* once */
    strict_fail_later(0, "conv", "the kernel went astray");
    float got[5];
    CHECK_INT(aril_read(x, got), ARIL_ERR_NUMBER);
    CHECK(strstr(aril_error(), "conv: the kernel went astray (reported late)"));
    aril_clear_error();
    CHECK_INT(aril_read(x, got), ARIL_OK);
}

/* ---- memory ---- */

TEST(the_pool_is_the_device_s)
{
    aril_device d = strict(0);
    aril_memory_stats before = aril_memory(d);
    {
        ARIL_SCOPE;
        aril_tensor *x = aril_zeros(ARIL_SHAPE(1000), ARIL_F32, d);
        CHECK(aril_ok() && aril_numel(x) == 1000);
        aril_memory_stats now = aril_memory(d);
        CHECK_INT(now.live - before.live, 4000); /* no rounding */
        CHECK(now.allocations > before.allocations);
    }
    CHECK_INT(aril_memory(d).live, before.live);
    CHECK_INT(aril_memory(d).cached, 0);
    CHECK_INT(aril_tensor_status(aril_zeros(ARIL_SHAPE(1 << 30), ARIL_F32, d)), ARIL_ERR_MEMORY);
    CHECK(strstr(aril_error(), "on strict"));
    aril_clear_error();
}

TEST(copies_between_devices_of_the_kind_stay_off_the_host)
{
    ARIL_SCOPE;
    int64_t before = strict_count().copies_between;
    aril_tensor *x = aril_reshape(ramp(6, strict(0)), ARIL_SHAPE(2, 3)), *y, *z;
    strict_hold(0, true);
    aril_tensor *doubled = aril_add(x, x);
    y = aril_to(doubled, strict(1)); /* before the source is computed */
    z = aril_to(aril_t(doubled), strict(1));
    aril_mul_scalar_(doubled, 0); /* and after the copy was queued */
    strict_hold(0, false);
    CHECK_INT(strict_count().copies_between - before, 2);
    CHECK(!test_difference(aril_to(y, aril_cpu()),
                           aril_mul_scalar(aril_reshape(ramp(6, aril_cpu()), ARIL_SHAPE(2, 3)), 2),
                           0, 0));
    CHECK(!test_difference(aril_to(aril_t(z), aril_cpu()), aril_to(y, aril_cpu()), 0, 0));
    CHECK(aril_ok());
}

/* As with PyTorch's preserve_format: in bytes, without a copy of another order in between. */
TEST(copies_keep_the_order_in_memory)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_reshape(ramp(120, aril_cpu()), ARIL_SHAPE(2, 3, 4, 5));
    aril_tensor *last = aril_channels_last(x);
    aril_tensor *there = aril_to(last, strict(0)), *other = aril_to(there, strict(1));
    aril_tensor *back = aril_to(other, aril_cpu());
    CHECK(aril_is_channels_last(there) && aril_is_channels_last(other) &&
          aril_is_channels_last(back));
    CHECK(aril_equal(back, x));
    aril_tensor *flat = aril_reshape(ramp(120, aril_cpu()), ARIL_SHAPE(2, 3, 1, 20)); /* in H */
    there = aril_to(aril_channels_last(flat), strict(0)), other = aril_to(there, strict(1));
    back = aril_to(other, aril_cpu());
    CHECK(aril_is_channels_last(there) && aril_is_channels_last(other) &&
          aril_is_channels_last(back));
    CHECK(aril_equal(back, flat));
    aril_tensor *half = aril_cast(aril_to(aril_cast(last, ARIL_F16), strict(0)), ARIL_F64);
    CHECK(aril_is_channels_last(half) && aril_is_channels_last(aril_to(half, aril_cpu())));
    CHECK(aril_equal(aril_cast(aril_to(half, aril_cpu()), ARIL_F32), x));
    aril_tensor *turned = aril_to(aril_t(aril_select(aril_select(x, 0, 1), 0, 2)), strict(0));
    CHECK_INT(aril_stride(turned, 0), 1); /* [5,4] */
    CHECK(aril_equal(aril_to(turned, aril_cpu()), aril_t(aril_select(aril_select(x, 0, 1), 0, 2))));
    aril_tensor *part = aril_to(aril_slice(x, 3, 1, 4, 2), strict(0)); /* has gaps: contiguous */
    CHECK(aril_is_contiguous(part) &&
          aril_equal(aril_to(part, aril_cpu()), aril_slice(x, 3, 1, 4, 2)));
    aril_tensor *bits =
        aril_to(aril_t(aril_gt_scalar(aril_select(aril_select(x, 0, 0), 0, 0), 7)), strict(0));
    CHECK(aril_equal(aril_to(bits, aril_cpu()),
                     aril_t(aril_gt_scalar(aril_select(aril_select(x, 0, 0), 0, 0), 7))));
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* Without rows, copies pass through the host as spans. */
TEST(strided_copies_work_without_rows)
{
    ARIL_SCOPE;
    for (int forced = 0; forced < 2; forced++) {
        aril_tensor *here = aril_reshape(ramp(24, aril_cpu()), ARIL_SHAPE(2, 3, 4));
        aril_tensor *there = aril_to(here, strict(0));
        aril__force_row = forced ? ARIL__FORCE_REFERENCE : -1;
        aril_tensor *a = aril_to(aril_slice(there, 2, -1, ARIL_END, -2), aril_cpu());
        aril_tensor *b = aril_contiguous(aril_permute(there, ARIL_AXES(2, 0, 1)));
        aril_tensor *c = aril_cast(aril_select(there, 1, 1), ARIL_I32);
        aril_tensor *e =
            aril_contiguous(aril_expand(aril_slice(there, 0, 1, 2, 1), ARIL_SHAPE(2, 3, 4)));
        aril_copy_(aril_slice(there, 2, 1, 4, 2), aril_full(ARIL_SHAPE(), -1, ARIL_F32, strict(0)));
        aril_tensor *last = aril_channels_last(there);
        aril__force_row = -1;
        CHECK(!test_difference(a, aril_slice(here, 2, -1, ARIL_END, -2), 0, 0));
        CHECK(!test_difference(b, aril_permute(here, ARIL_AXES(2, 0, 1)), 0, 0));
        CHECK(!test_difference(c, aril_cast(aril_select(here, 1, 1), ARIL_I32), 0, 0));
        CHECK(!test_difference(e, aril_expand(aril_slice(here, 0, 1, 2, 1), ARIL_SHAPE(2, 3, 4)), 0,
                               0));
        aril_copy_(aril_slice(here, 2, 1, 4, 2), aril_full(ARIL_SHAPE(), -1, ARIL_F32, aril_cpu()));
        CHECK(!test_difference(there, here, 0, 0));
        CHECK(aril_is_channels_last(last) && !test_difference(last, here, 0, 0));
        CHECK_MSG(aril_ok(), "%s", aril_error());
    }
}

/* ---- the optional functions ---- */

TEST(compiled_source_is_launched_in_the_queue)
{
    ARIL_SCOPE;
    const aril_device_ops *ops = strict_ops();
    void *self = strict_device(0);
    aril_tensor *x = ramp(4, strict(0));
    CHECK(!ops->compile(self, "dance", NULL));
    aril_clear_error();
    aril_program *scale = ops->compile(self, "scale 10", NULL);
    void *data = aril__ptr(x);
    int64_t n = 4;
    uint32_t one[3] = { 1, 1, 1 };
    CHECK(scale);
    CHECK_INT(ops->launch(self, queue_of(0), scale, "main", one, one, 0,
                          (void *[]){ (void *)&data, &n }, 2),
              ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 60, 0);

    CHECK_INT(ops->capture_begin(self, queue_of(0)), ARIL_OK);
    ops->launch(self, queue_of(0), scale, "main", one, one, 0, (void *[]){ (void *)&data, &n }, 2);
    aril_recording *r = ops->capture_end(self, queue_of(0));
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 60, 0); /* recorded, not done */
    ops->replay(self, queue_of(0), r);
    ops->replay(self, queue_of(0), r);
    CHECK_NEAR(aril_item(aril_sum(x, ARIL_ALL)), 6000, 0);
    ops->recording_free(self, r);
    ops->program_free(self, scale);

    ops->range_begin(self, "step");
    CHECK_INT(strict_count().ranges, 1);
    ops->range_end(self);
    CHECK_INT(strict_count().ranges, 0);
    CHECK(aril_ok());
}

/* ---- loaders ---- */

TEST(pinned_batches_are_copied_asynchronously)
{
    ARIL_SCOPE;
    strict(0);
    int64_t before = strict_count().copies_async;
    aril_tensor *x = aril_reshape(ramp(40, aril_cpu()), ARIL_SHAPE(10, 4));
    aril_dataset *d = aril_dataset_tensors(x, NULL);
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = 4, .pinned = true });
    aril_tensor *moved[3];
    int n = 0;
    for (aril_batch b; aril_loader_next(l, &b); n++) {
        strict_hold(0, true);
        moved[n] = aril_to(b.x, strict(0)); /* returns before the copy is made */
        strict_hold(0, false);
    }
    CHECK_INT(n, 3);
    CHECK_INT(strict_count().copies_async - before, 3);
    CHECK(!test_difference(aril_cat(ARIL_LIST(moved[0], moved[1], moved[2]), 0), x, 0, 0));
    aril_loader_free(l);
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* ---- what is refused ---- */

static aril_device_ops broken;
static aril_row row;

static aril_status open_broken(const aril_host *host, aril_plugin *out)
{
    static void *devices[1];
    (void)host;
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "broken",
                          .kind = "broken",
                          .n_devices = 1,
                          .device_ops = &broken,
                          .devices = devices,
                          .n_rows = row.op != NULL,
                          .rows = &row };
    return ARIL_OK;
}

static void expect_refusal(const char *text)
{
    CHECK_INT(aril__plugin_add("broken.so", open_broken), ARIL_ERR_PLUGIN);
    CHECK_MSG(strstr(aril_error(), text), "%s", aril_error());
    aril_clear_error();
    broken = *strict_ops();
    row = (aril_row){ 0 };
}

TEST(incomplete_devices_are_refused_with_what_is_missing)
{
    broken = *strict_ops();
    broken.to_host = NULL;
    expect_refusal("the required device function to_host is missing");
    broken.event_wait = NULL;
    expect_refusal("but no event_wait");
    broken.pinned_free = NULL;
    expect_refusal("have pinned_alloc but no pinned_free");
    broken.launch = NULL;
    expect_refusal("but no launch");
    broken.replay = NULL;
    expect_refusal("but no replay");
    broken.range_end = NULL;
    expect_refusal("but no range_end");
    broken.profile_mark = NULL;
    expect_refusal("but no profile_mark");
    broken.queue_new = NULL;
    broken.queue_free = NULL;
    broken.queue_wait = NULL;
    broken.synchronize = NULL;
    broken.poll = NULL;
    expect_refusal("the required device function queue_new is missing"); /* events need them */
    broken.size = 8;
    expect_refusal("aril_device_ops.size is 8");
    row = (aril_row){ .op = "copy", .name = "dense_copy", .dtypes = 1, .run = aril__dispatch };
    expect_refusal("row for copy is not strided");
}

/* ---- formulas ---- */

static const aril_host *host;
static char asked[64];

static const char *take_note(const aril_run *r, aril_plan *plan)
{
    (void)plan;
    const char *text = host->formula(r);
    snprintf(asked, sizeof asked, "%s: %s", host->op(r), text ? text : "none");
    return "only asks";
}

static aril_status open_formulas(const aril_host *given, aril_plugin *out)
{
    static const aril_row formulas = { .op = ARIL_ROW_FORMULAS,
                                       .name = "formulas",
                                       .dtypes = ~0u,
                                       .prepare = take_note,
                                       .run = aril__dispatch };
    host = given;
    *out = (aril_plugin){ .size = sizeof *out,
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "formulas",
                          .kind = "cpu",
                          .n_rows = 1,
                          .rows = &formulas };
    return ARIL_OK;
}

TEST(formulas_reach_rows_as_text)
{
    ARIL_SCOPE;
    CHECK_INT(aril__plugin_add("formulas", open_formulas), ARIL_OK);
    aril_tensor *x = aril_cast(ramp(4, aril_cpu()), ARIL_F64);
    aril__force_row = 100; /* asks every row, also those behind */
    aril_tanh(x);
    CHECK_STR(asked, "tanh: k_tanh(a)");
    aril_mul(x, x);
    CHECK_STR(asked, "mul: a * b");
    aril__force_row = -1;
    aril_clear_error(); /* no row took them */
}

enum { ROWS = 64, ROW_SIZE = 1024, PER_BATCH = 8 };

/* Reads an epoch while the limit of the device leaves no room for a batch, until the second
 * failure; after that there is enough. No sample is lost, and no failure is reported later. */
static void check_epoch_without_memory(int workers)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_zeros(ARIL_SHAPE(ROWS, ROW_SIZE), ARIL_F32, aril_cpu());
    aril_tensor *y = aril_arange(0, ROWS, 1, ARIL_I64, aril_cpu());
    aril_loader *l = aril_loader_new(
        aril_dataset_tensors(x, y),
        (aril_loader_opts){ .batch = PER_BATCH, .workers = workers, .device = strict(0) });
    CHECK(l != NULL);
    aril_memory_set_limit(strict(0), aril_memory(strict(0)).live + 1024);
    int seen[ROWS] = { 0 }, failures = 0;
    for (aril_batch b; failures < 10;) {
        if (aril_loader_next(l, &b)) {
            int64_t v[PER_BATCH];
            CHECK_INT(aril_read(b.y, v), ARIL_OK);
            for (int i = 0; i < PER_BATCH; i++) seen[v[i]]++;
            continue;
        }
        if (aril_ok()) break;
        CHECK_INT(aril_error_code(), ARIL_ERR_MEMORY);
        CHECK_MSG(strstr(aril_error(), "on strict:0, with"), "%s", aril_error());
        aril_clear_error();
        if (++failures == 2) aril_memory_set_limit(strict(0), 0);
    }
    CHECK_INT(failures, 2);
    for (int i = 0; i < ROWS; i++) CHECK_INT(seen[i], 1);
    aril_memory_set_limit(strict(0), 0);
    aril_loader_free(l);
}

TEST(a_batch_without_device_memory_is_loaded_again)
{
    check_epoch_without_memory(0);
    check_epoch_without_memory(2);
}

/* ---- gradients ---- */

TEST(a_gradient_on_another_device_is_refused)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(ramp(5, strict(0))), *g = ramp(5, aril_cpu());
    CHECK_INT(aril_set_grad(p, g), ARIL_ERR_DEVICE);
    CHECK_MSG(strstr(aril_error(), "set_grad: the gradient is on cpu, but the tensor is on strict"),
              "%s", aril_error());
    aril_clear_error();
    aril_tensor *y = aril_mul_scalar(p, 2);
    CHECK_INT(aril_backward_with(y, g, (aril_grad_opts){ 0 }), ARIL_ERR_DEVICE);
    aril_clear_error();
    CHECK(!aril_has_grad(p));
    CHECK_INT(aril_backward_with(y, ramp(5, strict(0)), (aril_grad_opts){ 0 }), ARIL_OK);
    CHECK(aril_has_grad(p) && aril_device_equal(aril_device_of(aril_grad(p)), strict(0)));
    aril_release(p);
}

static int compared;

static void compare_gradients(const test_sample *s)
{
    ARIL_SCOPE;
    aril_tensor *here[TEST_INPUTS], *there[TEST_INPUTS], *out[TEST_RESULTS];
    aril_tensor *want[TEST_INPUTS], *got[TEST_INPUTS];
    test_working_on("the gradient on the strict device", s);
    if (s->op->flags & (NONDIFF | RANDOM) || strcmp(s->op->name, "to_device") == 0 ||
        s->flags & SAMPLE_NO_GRAD || test_untyped(s))
        return;
    if (!test_sample_inputs(s, ARIL_F32, 0, here) || test_run(s, here, out) < 0) return;
    for (int i = 0; i < s->n_in; i++) there[i] = here[i] ? aril_to(here[i], strict(0)) : NULL;
    char *why = test_gradients(s, here, want);
    if (!why) why = test_gradients(s, there, got);
    for (int i = 0; i < s->n_in && !why; i++) {
        if (!want[i] || !got[i]) continue;
        compared++;
        why = aril_device_equal(aril_device_of(got[i]), strict(0))
                  ? test_op_difference(aril__op_find("neg"), &got[i], &want[i],
                                       5 * test_tolerance(ARIL_F32), false)
                  : "the gradient is on another device";
    }
    if (why) test_fail(__FILE__, __LINE__, "%s: %s", s->name, why);
    aril_clear_error();
}

TEST(gradients_equal_the_cpu_s)
{
    test_each_sample(compare_gradients);
    CHECK(compared > 300);
}
