/* Optimizer state: saved mid-run, loaded, invalid, and when out of memory. */
#include "aril/aril.h"
#include "core/tensor.h"
#include "support/device.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { A = 12, B = 5, SIZE = A + B, STEPS = 14, AT = 7, MAX_TENSORS = 512 };

/* A run: two parameters, the second of which has no gradient at first. */
typedef struct run {
    aril_tensor *p[2];
    aril_optim *opt;
    int t;
} run;

static aril_tensor *loss_of(void *ctx)
{
    run *r = ctx;
    aril_tensor *a = aril_sum(aril_square(aril_sub_scalar(r->p[0], 0.1 * r->t)), ARIL_ALL);
    aril_tensor *b = aril_sum(aril_cosh(r->p[1]), ARIL_ALL);
    aril_tensor *loss = r->t < 3 ? a : aril_add(a, b);
    aril_backward(aril_scale_loss(r->opt, loss));
    return loss;
}

static const aril_named *params_of(run *r)
{
    static const char *const names[] = { "net.0.weight", "net.0.bias" };
    static aril_named list;
    list = (aril_named){ 2, r->p, names };
    return &list;
}

static aril_optim_opts options_of(const char *name)
{
    aril_optim_opts o = { .lr = 0.05 };
    if (strcmp(name, "lbfgs") == 0) return (aril_optim_opts){ .lr = 0.1, .max_iter = 3 };
    o.clip_norm = 1.5;
    o.accumulate = 2;
    o.loss_scale = 16;
    o.loss_scale_growth = 3;
    if (strcmp(name, "sgd") == 0) o.momentum = 0.9;
    if (strcmp(name, "rmsprop") == 0) o.momentum = 0.5;
    if (strcmp(name, "rmsprop") == 0) o.centered = true;
    return o;
}

static void run_start(run *r, const char *name)
{
    ARIL_SCOPE;
    aril_seed(5);
    *r = (run){ .t = 0 };
    r->p[0] = aril_parameter(aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, test_device()));
    bool matrices = strcmp(name, "muon") == 0;
    aril_shape second = matrices ? ARIL_SHAPE(B, 1) : ARIL_SHAPE(B);
    r->p[1] = aril_parameter(aril_randn(second, ARIL_F32, test_device()));
    r->opt = aril_optim_new(name, params_of(r), options_of(name));
    aril_optim_schedule(r->opt, aril_cosine_schedule((aril_schedule_opts){
                                    .total = 30, .per_batch = true, .warmup = 3 }));
    aril_optim_schedule(r->opt, aril_plateau_schedule((aril_schedule_opts){ .patience = 1 }));
}

static void run_end(run *r)
{
    aril_optim_free(r->opt);
    aril_release(r->p[0]);
    aril_release(r->p[1]);
}

static aril_status run_step(run *r)
{
    ARIL_SCOPE;
    aril_status s = ARIL_OK;
    if (strcmp(aril_optim_name(r->opt), "lbfgs") == 0) {
        s = aril_tensor_status(aril_step_closure(r->opt, loss_of, r));
    } else {
        loss_of(r);
        s = aril_step(r->opt);
    }
    if (r->t % 3 == 2) aril_optim_epoch(r->opt, 1);
    r->t++;
    return s;
}

static void run_read(run *r, float *to)
{
    aril_read(r->p[0], to);
    aril_read(r->p[1], to + A);
}

/* Copies of named tensors, as if read from a file. */
typedef struct copies {
    aril_named list;
    aril_tensor *at[MAX_TENSORS];
    char text[MAX_TENSORS][64];
    const char *name[MAX_TENSORS];
} copies;

static void copy_state(const aril_named *from, copies *to)
{
    to->list = (aril_named){ from->n, to->at, to->name };
    for (int i = 0; i < from->n && i < MAX_TENSORS; i++) {
        snprintf(to->text[i], sizeof to->text[i], "%s", from->name[i]);
        to->name[i] = to->text[i];
        to->at[i] = aril_keep(aril_copy(from->at[i]));
    }
}

static void copies_free(copies *c)
{
    for (int i = 0; i < c->list.n; i++) aril_release(c->at[i]);
    c->list.n = 0;
}

/* Stops after AT steps, an odd number: with accumulated gradients pending. */
static void stop_and_resume(const char *name, float *want, float *got, copies *saved)
{
    ARIL_SCOPE;
    run full, part;
    run_start(&full, name);
    for (int t = 0; t < STEPS; t++) CHECK_MSG(run_step(&full) == ARIL_OK, "%s", aril_error());
    run_read(&full, want);
    double lr = aril_item(aril_optim_lr(full.opt));
    run_end(&full);

    float middle[SIZE];
    run_start(&part, name);
    for (int t = 0; t < AT; t++) run_step(&part);
    run_read(&part, middle);
    const aril_named *state = aril_optim_state(part.opt);
    CHECK_MSG(state, "%s: %s", name, aril_error());
    CHECK(state->n < MAX_TENSORS);
    copy_state(state, saved);
    run_end(&part);

    run_start(&part, name);
    aril_write(part.p[0], middle);
    aril_write(part.p[1], middle + A);
    CHECK_MSG(aril_optim_load_state(part.opt, &saved->list) == ARIL_OK, "%s: %s", name,
              aril_error());
    part.t = AT;
    for (int t = AT; t < STEPS; t++) run_step(&part);
    run_read(&part, got);
    CHECK_NEAR(aril_item(aril_optim_lr(part.opt)), lr, 0);
    run_end(&part);
}

TEST(resumed_run_is_bitwise_the_same)
{
    static copies saved;
    float want[SIZE], got[SIZE];
    const char *const *names = aril_optim_names();
    for (int k = 0; names[k] && !test_failed(); k++) {
        stop_and_resume(names[k], want, got, &saved);
        copies_free(&saved);
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s: other bits", names[k]);
        CHECK_MSG(isfinite(want[0]) && aril_ok(), "%s: %s", names[k], aril_error());
    }
}

static const char *refused(run *r, const aril_named *from)
{
    static char text[512];
    float before[SIZE], after[SIZE];
    run_read(r, before);
    int64_t steps = aril_item_int(aril_optim_steps(r->opt));
    double lr = aril_item(aril_optim_lr(r->opt));
    if (aril_optim_load_state(r->opt, from) == ARIL_OK) return "taken";
    snprintf(text, sizeof text, "%s", aril_error());
    aril_clear_error();
    run_read(r, after);
    if (memcmp(before, after, sizeof after) != 0) return "parameters changed";
    if (aril_item_int(aril_optim_steps(r->opt)) != steps) return "the step changed";
    if (aril_item(aril_optim_lr(r->opt)) != lr) return "the rate changed";
    return text;
}

TEST(mismatched_state_changes_nothing)
{
    ARIL_SCOPE;
    static copies saved;
    run r;
    run_start(&r, "adam");
    for (int t = 0; t < AT; t++) run_step(&r);
    copy_state(aril_optim_state(r.opt), &saved);
    for (int t = 0; t < 2; t++) run_step(&r);
    aril_named *list = &saved.list;
    int n = list->n;

    for (int i = 0; i < n;
         i++) { /* each one missing, misnamed, of another size, of another dtype */
        const char *name = saved.name[i];
        saved.name[i] = "nobody";
        const char *why = refused(&r, list);
        CHECK_MSG(strstr(why, "missing") || strstr(why, "not known"), "%s: %s", name, why);
        saved.name[i] = name;
        aril_tensor *was = saved.at[i];
        saved.at[i] = aril_zeros(ARIL_SHAPE(77), aril_dtype_of(was), test_device());
        why = refused(&r, list);
        CHECK_MSG(strstr(why, "expected") && strstr(why, name), "%s: %s", name, why);
        saved.at[i] = aril_cast(was, ARIL_F16);
        why = refused(&r, list);
        CHECK_MSG(strstr(why, "expected") && strstr(why, name), "%s: %s", name, why);
        saved.at[i] = was;
    }
    list->n = n - 1;
    CHECK(strstr(refused(&r, list), "missing"));
    list->n = n;
    CHECK(strstr(refused(&r, &(aril_named){ 0 }), "missing"));
    CHECK_INT(aril_optim_load_state(r.opt, NULL), ARIL_ERR_ARG);
    aril_clear_error();

    run other;
    run_start(&other, "sgd");
    CHECK(strstr(refused(&other, list), "missing")); /* momentum */
    run_end(&other);
    CHECK_INT(aril_optim_load_state(r.opt, list), ARIL_OK);
    copies_free(&saved);
    run_end(&r);
}

/* Counts, floats and learning rates in a state must not be out of range. */
TEST(unreachable_values_are_rejected)
{
    ARIL_SCOPE;
    static const double reals[] = { 1e300, -1, 0.5, 1e16 };
    static const int64_t counts[] = { INT64_MAX, -1, INT64_MIN };
    static const char *const kinds[] = { "adam", "lbfgs" };
    for (int kind = 0; kind < 2; kind++) {
        static copies saved;
        run r;
        run_start(&r, kinds[kind]);
        for (int t = 0; t < AT; t++) run_step(&r);
        copy_state(aril_optim_state(r.opt), &saved);
        int tried = 0;
        for (int i = 0; i < saved.list.n; i++) {
            const char *name = saved.name[i];
            aril_tensor *was = saved.at[i];
            bool schedule = strncmp(name, "optim.schedule", 14) == 0;
            bool lbfgs = strcmp(name, "optim.lbfgs") == 0;
            bool scale = strcmp(name, "optim.loss_scale") == 0;
            bool rate = strncmp(name, "optim.lr", 8) == 0 || strcmp(name, "optim.base_lr") == 0;
            for (int k = 0; k < 7; k++) {
                double v = k < 4 ? reals[k] : k == 4 ? (double)NAN : (double)INFINITY;
                if (aril_dtype_of(was) == ARIL_I64) {
                    saved.at[i] = aril_expand(aril_from(&counts[k % 3], ARIL_SHAPE(), ARIL_I64,
                                                        test_device()),
                                              aril_shape_of(was));
                } else if (scale && (k < 2 || k >= 4)) {
                    saved.at[i] = aril_full(aril_shape_of(was), v, ARIL_F32, test_device());
                } else if ((schedule || lbfgs) || (rate && k >= 4)) {
                    saved.at[i] = aril_full(aril_shape_of(was), v, ARIL_F64, test_device());
                } else {
                    continue;
                }
                const char *why = refused(&r, &saved.list);
                CHECK_MSG(strstr(why, name) && strstr(why, "holds"), "%s: %s", name, why);
                tried++;
            }
            saved.at[i] = was;
        }
        CHECK(tried > 20);
        CHECK_INT(aril_optim_load_state(r.opt, &saved.list), ARIL_OK);
        copies_free(&saved);
        run_end(&r);
    }
    aril_tensor *p = aril_parameter(aril_zeros(ARIL_SHAPE(2), ARIL_F32, test_device()));
    aril_average *mean = aril_average_new(ARIL_TENSORS(p), (aril_average_opts){ 0 });
    const aril_named *state = aril_average_state(mean);
    aril_tensor *at[2];
    CHECK(state && state->n == 2);
    for (int i = 0; i < 2; i++)
        at[i] = strcmp(state->name[i], "average.count")
                    ? state->at[i]
                    : aril_from(&counts[0], ARIL_SHAPE(), ARIL_I64, test_device());
    CHECK_INT(aril_average_load_state(mean, &(aril_named){ 2, at, state->name }), ARIL_ERR_FORMAT);
    aril_clear_error();
    aril_average_free(mean);
    aril_release(p);
}

/* Creates an optimizer, steps, saves and loads; propagates any failure. */
static bool full_run(const char *name, float *to)
{
    ARIL_SCOPE;
    run r = { .t = 3 };
    aril_seed(5);
    r.p[0] = aril_parameter(aril_randn(ARIL_SHAPE(3, 4), ARIL_F32, test_device()));
    r.p[1] = aril_parameter(aril_randn(ARIL_SHAPE(B), ARIL_F32, test_device()));
    r.opt = aril_optim_new(name, params_of(&r), options_of(name));
    bool good = r.opt != NULL && aril_ok();
    if (good)
        good = aril_optim_schedule(
                   r.opt, aril_schedule_new("cosine", (aril_schedule_opts){ .total = 9,
                                                                            .warmup = 2,
                                                                            .per_batch = true })) ==
               ARIL_OK;
    for (int t = 0; t < 4 && good; t++) good = run_step(&r) == ARIL_OK && aril_ok();
    const aril_named *state = good ? aril_optim_state(r.opt) : NULL;
    good = state && aril_optim_load_state(r.opt, state) == ARIL_OK;
    aril_average *mean = good ? aril_average_new(params_of(&r), (aril_average_opts){ 0 }) : NULL;
    good = mean && aril_average_update(mean) == ARIL_OK && aril_average_swap(mean) == ARIL_OK &&
           aril_average_swap(mean) == ARIL_OK && aril_average_state(mean);
    aril_average_free(mean);
    if (good) run_read(&r, to);
    run_end(&r);
    return good;
}

TEST(every_allocation_fails_in_turn)
{
    ONLY_ON_CPU("allocations of the host");
    const char *const names[] = { "adam", "nadam", "lamb", "lbfgs", "rmsprop" };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        float want[SIZE], got[SIZE];
        CHECK_MSG(full_run(names[k], want) && full_run(names[k], want), "%s", aril_error());
        int failures = 0;
        for (int64_t n = 1;; n++, failures++) {
            int64_t blocks = aril__live_blocks(), bytes = aril_memory(test_device()).live;
            aril_fail_allocation(n);
            bool good = full_run(names[k], got), failed = aril_allocation_failed();
            aril_fail_allocation(0);
            CHECK_MSG(good || !aril_ok(), "%s, allocation %lld: no error", names[k], (long long)n);
            if (good) CHECK_MSG(memcmp(got, want, sizeof got) == 0, "%s: other bits", names[k]);
            aril_clear_error();
            CHECK_MSG(aril__live_blocks() == blocks, "%s, allocation %lld: %lld blocks leaked",
                      names[k], (long long)n, (long long)(aril__live_blocks() - blocks));
            CHECK_INT(aril_memory(test_device()).live, bytes);
            if (!failed) break;
        }
        CHECK(failures > 60);
    }
}

/* A failed step can be repeated: then every parameter was updated once. At least so many
 * allocations make it fail. */
static void check_repeated(const char *name, int min)
{
    float want[SIZE], got[SIZE];
    int failures = 0;
    run r;
    run_start(&r, name);
    for (int t = 0; t < 6; t++) run_step(&r);
    run_read(&r, want);
    run_end(&r);
    for (int64_t n = 1;; n++) {
        run_start(&r, name);
        for (int t = 0; t < 5; t++) run_step(&r);
        bool failed;
        {
            ARIL_SCOPE;
            loss_of(&r);
            aril_fail_allocation(n);
            aril_status s = aril_step(r.opt);
            failed = aril_allocation_failed();
            aril_fail_allocation(0);
            aril_clear_error();
            failures += s < 0;
            if (s < 0) CHECK_MSG(aril_step(r.opt) == ARIL_OK, "%s", aril_error());
        }
        run_read(&r, got);
        CHECK_MSG(memcmp(want, got, sizeof got) == 0, "%s: other bits after allocation %lld", name,
                  (long long)n);
        run_end(&r);
        if (!failed) break;
    }
    CHECK(failures >= min);
}

TEST(a_step_without_memory_can_be_repeated)
{
    ONLY_ON_CPU("allocations of the host");
    check_repeated("adam", 10);
    check_repeated("lamb", 10);
    check_repeated("adafactor", 40);
    check_repeated("muon", 40);
}

/* Two groups of parameters, each updated by its own calls. The last one has no gradient. Cases: in
 * bf16 with masters, with a loss scale, with gradients of another memory order, which kernels need
 * copies of; and all combinations. */
static void check_all_or_nothing(const char *name, int k)
{
    enum { N = 6, M = N - 1, LOW = 1, SCALED = 2, TURNED = 4 };
    aril_dtype dtype = k & LOW ? ARIL_BF16 : ARIL_F32;
    int failures = 0;
    for (int64_t n = 1;; n++) {
        ARIL_SCOPE;
        aril_tensor *p[N], *same[N];
        for (int i = 0; i < N; i++)
            p[i] = aril_parameter(aril_full(ARIL_SHAPE(5, 30), i + 1, dtype, test_device()));
        for (int i = 0; i < N; i++) same[i] = aril_copy(aril_detach(p[i]));
        aril_optim *opt = aril_optim_new(name, &(aril_named){ N / 2, p, NULL },
                                         (aril_optim_opts){ .lr = 50,
                                                            .clip_norm = 100,
                                                            .loss_scale = k & SCALED ? 8 : 0,
                                                            .master_weights = k & LOW });
        aril_optim_add_group(opt, &(aril_named){ N / 2, p + N / 2, NULL },
                             (aril_optim_opts){ .lr = 25 });
        for (int i = 0; i < M; i++) {
            aril_tensor *turned = aril_t(aril_ones(ARIL_SHAPE(30, 5), dtype, test_device()));
            aril_set_grad(p[i], k & TURNED ? turned : aril_ones_like(same[i]));
        }
        CHECK_MSG(aril_ok(), "%s", aril_error());
        aril_fail_allocation(n);
        aril_status s = aril_step(opt);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        int changed = 0;
        for (int i = 0; i < N; i++) changed += !aril_equal(aril_detach(p[i]), same[i]);
        CHECK_MSG(changed == (s < 0 ? 0 : M), "%s, case %d: allocation %lld: %d parameters changed",
                  name, k, (long long)n, changed);
        CHECK_INT((int)aril_item(aril_optim_steps(opt)), s < 0 ? 0 : 1);
        failures += s < 0;
        aril_optim_free(opt);
        for (int i = 0; i < N; i++) aril_release(p[i]);
        if (!failed) break;
    }
    CHECK_MSG(failures >= 5, "%s: %d failures", name, failures);
}

TEST(a_step_without_memory_changes_nothing)
{
    ONLY_ON_CPU("allocations of the host");
    const char *const names[] = { "adam", "lamb", "lars", "nadam", "muon", "adafactor" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 8; k++) check_all_or_nothing(names[i], k);
}

/* The same where device memory runs out: the limit rises until the step fits, and each step that
 * does not leaves parameters and state as they are. */
static void check_limited(const char *name)
{
    enum { N = 4 };
    ARIL_SCOPE;
    aril_tensor *p[N];
    aril_optim *opt = NULL;
    for (int i = 0; i < N; i++)
        p[i] = aril_parameter(
            aril_full(ARIL_SHAPE(50, i < N / 2 ? 60 : 6000), i + 1, ARIL_F32, test_device()));
    opt = aril_optim_new(name, &(aril_named){ N / 2, p, NULL }, (aril_optim_opts){ .lr = 0.5 });
    aril_optim_add_group(opt, &(aril_named){ N / 2, p + N / 2, NULL },
                         (aril_optim_opts){ .lr = 0.25 });
    for (int i = 0; i < N; i++) aril_set_grad(p[i], aril_ones_like(aril_detach(p[i])));
    CHECK_INT(aril_step(opt), ARIL_OK); /* the state exists */
    for (int i = 0; i < N; i++) aril_set_grad(p[i], aril_ones_like(aril_detach(p[i])));
    const aril_named *state = aril_optim_state(opt);
    aril_tensor *same[N], *before[64];
    for (int i = 0; i < N; i++) same[i] = aril_copy(aril_detach(p[i]));
    CHECK(state->n <= 64);
    for (int i = 0; i < state->n; i++) before[i] = aril_copy(state->at[i]);
    aril_synchronize(test_device());
    int failures = 0;
    for (int64_t more = 0; more < 1 << 28; more += more < 8192 ? 64 : more / 8) {
        aril_memory_set_limit(test_device(), aril_memory(test_device()).live + more + 1);
        aril_status s = aril_step(opt);
        aril_memory_set_limit(test_device(), 0);
        int changed = 0;
        for (int i = 0; i < N; i++) changed += !aril_equal(aril_detach(p[i]), same[i]);
        CHECK_MSG(changed == (s < 0 ? 0 : N), "%s, %lld bytes: %d parameters changed", name,
                  (long long)more, changed);
        if (s == ARIL_OK) break;
        const aril_named *now = aril_optim_state(opt);
        for (int i = 0; i < now->n && i < 64; i++)
            CHECK_MSG(aril_equal(now->at[i], before[i]), "%s, %lld bytes: %s changed", name,
                      (long long)more, now->name[i]);
        aril_clear_error();
        failures++;
    }
    CHECK_MSG(failures > 0, "%s: the step needs no memory", name);
    aril_optim_free(opt);
    for (int i = 0; i < N; i++) aril_release(p[i]);
}

TEST(a_step_within_a_memory_limit_is_all_or_nothing)
{
    check_limited("lamb");
    check_limited("lars");
}

/* Whether each parameter has the value that `scale` times its number gives. */
static bool has_values(aril_tensor *const *p, int n, double scale)
{
    ARIL_SCOPE;
    for (int i = 0; i < n; i++)
        if (aril_item(aril_amax(aril_detach(p[i]), ARIL_ALL)) != scale * (i + 1)) return false;
    return true;
}

TEST(a_swap_of_averages_without_memory_changes_nothing)
{
    ONLY_ON_CPU("allocations of the host");
    int failures = 0;
    for (int64_t n = 1;; n++) {
        ARIL_SCOPE;
        ARIL_NO_GRAD;
        aril_tensor *p[4];
        for (int i = 0; i < 4; i++)
            p[i] = aril_parameter(aril_full(ARIL_SHAPE(100), i + 1, ARIL_F32, test_device()));
        aril_average *a = aril_average_new(&(aril_named){ 4, p, NULL }, (aril_average_opts){ 0 });
        CHECK_INT(aril_average_update(a), ARIL_OK);
        for (int i = 0; i < 4; i++) aril_fill_(p[i], 10 * (i + 1));
        aril_fail_allocation(n);
        aril_status s = aril_average_swap(a);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        aril_clear_error();
        failures += s < 0;
        CHECK_MSG(has_values(p, 4, s < 0 ? 10 : 1), "half swapped after allocation %lld",
                  (long long)n);
        CHECK_INT(aril_average_swap(a), ARIL_OK);
        CHECK(has_values(p, 4, s < 0 ? 1 : 10));
        aril_average_free(a);
        for (int i = 0; i < 4; i++) aril_release(p[i]);
        if (!failed) break;
    }
    CHECK(failures >= 4);
}

/* ---- many parameters ---- */

enum { MANY = 20000 };

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Time grows with the number of parameters, not with its square, which would be 50 times that of
 * saving here. */
TEST(loading_takes_as_long_as_saving)
{
    ARIL_SCOPE;
    ONLY_ON_CPU("timing");
    static aril_tensor *p[MANY];
    static char name[MANY][48];
    static const char *names[MANY];
    for (int i = 0; i < MANY; i++) {
        p[i] = aril_parameter(aril_ones(ARIL_SHAPE(1), ARIL_F32, aril_cpu()));
        aril_set_grad(p[i], p[i]);
        snprintf(name[i], sizeof name[i], "model.encoder.layers.%d.weight", i);
        names[i] = name[i];
    }
    aril_named list = { MANY, p, names };
    double start = cpu_seconds();
    aril_optim *from = aril_adam(&list, (aril_adam_opts){ .lr = 0.1 });
    aril_average *mean = aril_average_new(&list, (aril_average_opts){ 0 });
    CHECK_INT(aril_step(from), ARIL_OK);
    CHECK_INT(aril_average_update(mean), ARIL_OK);
    const aril_named *state = aril_optim_state(from), *means = aril_average_state(mean);
    double saved = cpu_seconds() - start;
    CHECK(state && state->n > 2 * MANY && means && means->n == MANY + 1);

    aril_optim *to = aril_adam(&list, (aril_adam_opts){ .lr = 0.1 });
    start = cpu_seconds();
    CHECK_INT(aril_optim_load_state(to, state), ARIL_OK);
    double loaded = cpu_seconds() - start;
    CHECK_MSG(loaded < 15 * saved, "%.3f s to load, %.3f s to save", loaded, saved);
    start = cpu_seconds();
    CHECK_INT(aril_average_load_state(mean, means), ARIL_OK);
    loaded = cpu_seconds() - start;
    CHECK_MSG(loaded < 15 * saved, "averages: %.3f s to load, %.3f s to save", loaded, saved);
    CHECK_INT(aril_optim_state(to)->n, state->n);
    aril_average_free(mean);
    aril_optim_free(from);
    aril_optim_free(to);
    for (int i = 0; i < MANY; i++) aril_release(p[i]);
}
