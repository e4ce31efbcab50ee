/* Optimizers on a device that counts what is copied back from it. Its memory is closed to the host
 * except during copies and kernels, and every op has a kernel there: a step that touched a value of
 * the device on the host would crash, and one that waited for a value would be counted. */
#include <aril/aril.h>

#include "core/device.h"
#include "core/tensor.h"
#include "ops/shape/copy.h"
#include "ops/table/rows.h"
#include "support/heap_device.h"
#include "support/test.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* ---- the device ---- */

enum { MEMORY = 64 << 20, ALIGNMENT = 64, MAX_ROWS = ARIL__MAX_OPS };

static struct {
    char *memory;
    size_t used;
    int open;    /* kernels and copies under way */
    int syncs;   /* calls of synchronize */
    int kernels; /* runs */
} counted;

static void memory_open(void)
{
    if (counted.open++ == 0) mprotect(counted.memory, MEMORY, PROT_READ | PROT_WRITE);
}

static void memory_close(void)
{
    if (--counted.open == 0) mprotect(counted.memory, MEMORY, PROT_NONE);
}

static void *counted_alloc(void *self, aril_queue *queue, size_t bytes)
{
    (void)self, (void)queue;
    size_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > MEMORY - counted.used) return NULL;
    counted.used += size;
    return counted.memory + counted.used - size;
}

static void counted_free(void *self, aril_queue *queue, void *p, size_t bytes)
{
    (void)self, (void)queue, (void)p, (void)bytes;
}

static aril_status counted_synchronize(void *self)
{
    (void)self;
    counted.syncs++;
    return ARIL_OK;
}

/* How often the host waited for the device. */
static int waits_so_far(void)
{
    return counted.syncs + test_transferred.to_host;
}

/* The CPU's kernels that need no preparation; the reference of other ops. */
static const aril__row *plain_row(const aril__op *op)
{
    const aril__row *row = NULL;
    return aril__rows_of(ARIL__CPU, op, 1, &row, NULL) && !row->prepare ? row : NULL;
}

static aril_status run_there(aril_run *r)
{
    const aril__row *row = plain_row(r->op);
    counted.kernels++;
    memory_open();
    aril_status s = ARIL_OK;
    if (r->op->flags & ANYWHERE) /* a copy: its reference would come back here */
        aril__copy_elements(r->out[0], r->in[0]);
    else
        s = row ? row->run(r) : r->op->ref(r);
    memory_close();
    return s;
}

static aril_device device(void)
{
    static aril_device_ops ops;
    static aril__row rows[MAX_ROWS];
    static aril__device *d;
    if (d) return d->id;
    ops = test_heap_ops;
    ops.alloc = counted_alloc;
    ops.free = counted_free;
    ops.synchronize = counted_synchronize;
    test_transferred.begin = memory_open;
    test_transferred.end = memory_close;
    counted.memory = mmap(NULL, MEMORY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    d = test_device_add("counted", 0, &ops);
    int n = 0;
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        const aril__row *row = plain_row(op);
        bool reserve = op->reserve_out || op->reserve_in; /* needs a plan */
        bool copies = op == &aril__op_copy || op == &aril__op_cast;
        if ((!op->ref && !row) || (op->flags & ANYWHERE && !copies) || reserve) continue;
        if (copies) row = NULL;
        rows[n] = row ? *row
                      : (aril__row){ .dtypes = DT_ALL,
                                     .native = op->native,
                                     .strided = op->flags & STRIDED,
                                     .workspace = op->workspace };
        rows[n].op = op->name;
        rows[n].name = "counted";
        rows[n++].run = run_there;
    }
    aril__rows_register(d->id.kind, rows, n);
    return d->id;
}

/* ---- steps ---- */

typedef struct setup {
    const char *optimizer;
    aril_optim_opts opts;
    aril_dtype dtype;
} setup;

enum { PARAMS = 2, N = 6, STEPS = 6 };

/* The gradient of parameter i in step t, scaled; infinite in step 2. */
static aril_tensor *grad_of(const setup *s, int i, int t, double scale, aril_device on)
{
    double value = t == 2 ? INFINITY : (0.3 + 0.1 * t - 0.5 * i) * scale;
    aril_tensor *g = aril_full(ARIL_SHAPE(2, 3), value, ARIL_F32, aril_cpu());
    return aril_to(aril_cast(g, s->dtype), on);
}

static aril_tensor *param_of(const setup *s, int i, aril_device on)
{
    static const float v[N] = { 1, -2, 3, 0.5f, -0.25f, 1.5f };
    aril_tensor *t = aril_from(v, ARIL_SHAPE(2, 3), ARIL_F32, aril_cpu());
    return aril_parameter(aril_to(aril_cast(aril_mul_scalar(t, 1 + i), s->dtype), on));
}

static void read_f32(aril_tensor *t, float *to)
{
    ARIL_SCOPE;
    aril_read(aril_cast(aril_to(aril_detach(t), aril_cpu()), ARIL_F32), to);
}

/* Runs the steps with parameter i on devices[i]; the results follow each other in `to`. Counts how
 * often a step waited for a device. */
static void run(const setup *s, const aril_device *devices, float *to, int *waits)
{
    ARIL_SCOPE;
    aril_tensor *p[PARAMS];
    for (int i = 0; i < PARAMS; i++) p[i] = param_of(s, i, devices[i]);
    aril_optim *o = aril_optim_new(s->optimizer, ARIL_TENSORS(p[0], p[1]), s->opts);
    aril_tensor *scale = aril_optim_loss_scale(o);
    double factor = 8;
    *waits = 0;
    for (int t = 0; t < STEPS; t++) {
        ARIL_SCOPE;
        for (int i = 0; i < PARAMS; i++)
            aril_set_grad(p[i], grad_of(s, i, t, scale ? factor : 1, devices[i]));
        int before = waits_so_far();
        CHECK_MSG(aril_step(o) == ARIL_OK, "%s: %s", s->optimizer, aril_error());
        *waits += waits_so_far() - before;
        if (t == 2) factor /= 2; /* what the loss scale does */
    }
    for (int i = 0; i < PARAMS; i++) read_f32(p[i], to + i * N);
    if (scale) {
        CHECK(aril_optim_loss_scale(o) == scale);
        CHECK(aril_device_equal(aril_device_of(scale), devices[0]));
        CHECK_NEAR(aril_item(scale), factor, 0);
        CHECK_INT(aril_item_int(aril_optim_steps(o)), STEPS - 1);
    }
    aril_optim_free(o);
    for (int i = 0; i < PARAMS; i++) aril_release(p[i]);
}

static void compare(const setup *s, const aril_device *devices)
{
    float here[PARAMS * N], there[PARAMS * N];
    int waits, before = counted.kernels;
    run(s, (aril_device[]){ aril_cpu(), aril_cpu() }, here, &waits);
    CHECK_INT(counted.kernels, before);
    run(s, devices, there, &waits);
    CHECK(counted.kernels > before);
    CHECK_MSG(waits == 0, "%s: its steps waited %d times", s->optimizer, waits);
    for (int k = 0; k < PARAMS * N; k++) {
        CHECK_MSG(fabsf(there[k] - here[k]) < 1e-5f, "%s, element %d: %.9g and %.9g", s->optimizer,
                  k, (double)there[k], (double)here[k]);
    }
    CHECK(isfinite(here[0]) && (here[0] != 1 || s->dtype == ARIL_BF16));
    CHECK_MSG(aril_ok(), "%s: %s", s->optimizer, aril_error());
}

TEST(copies_to_the_host_are_counted)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_full(ARIL_SHAPE(), 3, ARIL_F32, device());
    int before = waits_so_far();
    CHECK_NEAR(aril_item(aril_add(t, t)), 6, 0);
    CHECK_INT(waits_so_far() - before, 1);
}

TEST(no_step_waits_for_the_device)
{
    static const struct {
        double clip_norm, loss_scale;
        bool master_weights;
        aril_dtype dtype;
    } cases[] = { { 0, 8, false, ARIL_F32 },
                  { 1, 8, false, ARIL_F32 },
                  { 1, 8, false, ARIL_F64 },
                  { 1, 8, true, ARIL_BF16 } };
    const char *const *names = aril_optim_names();
    aril_device all[PARAMS] = { device(), device() };
    for (int k = 0; names[k]; k++) {
        if (strcmp(names[k], "lbfgs") == 0) continue; /* its line search reads the loss */
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            setup s = { names[k],
                        { .lr = 0.05,
                          .clip_norm = cases[c].clip_norm,
                          .loss_scale = cases[c].loss_scale,
                          .master_weights = cases[c].master_weights },
                        cases[c].dtype };
            compare(&s, all);
        }
    }
}

TEST(clipping_alone_does_not_wait)
{
    aril_device all[PARAMS] = { device(), device() };
    ARIL_SCOPE;
    aril_tensor *p = param_of(&(setup){ .dtype = ARIL_F32 }, 0, all[0]);
    aril_optim *o =
        aril_adam(ARIL_TENSORS(p), (aril_adam_opts){ .clip_norm = 0.5, .accumulate = 2 });
    int before = waits_so_far();
    for (int t = 0; t < 4; t++) {
        aril_set_grad(p, aril_full(ARIL_SHAPE(2, 3), 1, ARIL_F32, all[0]));
        CHECK_INT(aril_step(o), ARIL_OK);
    }
    CHECK_INT(waits_so_far(), before);
    CHECK_INT(aril_item_int(aril_optim_steps(o)), 2); /* a number of the host still */
    CHECK_INT(waits_so_far(), before);
    aril_optim_free(o);
    aril_release(p);
}

TEST(parameters_may_be_on_several_devices)
{
    static const char *const names[] = { "sgd", "adam", "lamb", "adafactor" };
    for (int k = 0; k < 4; k++)
        for (int first = 0; first < 2; first++) {
            setup s = { names[k], { .lr = 0.05, .clip_norm = 1, .loss_scale = 8 }, ARIL_F32 };
            aril_device two[PARAMS] = { first ? device() : aril_cpu(),
                                        first ? aril_cpu() : device() };
            float here[PARAMS * N], there[PARAMS * N];
            int waits;
            run(&s, (aril_device[]){ aril_cpu(), aril_cpu() }, here, &waits);
            run(&s, two, there, &waits);
            for (int i = 0; i < PARAMS * N; i++) CHECK_NEAR(there[i], here[i], 1e-5);
        }
}

TEST(scaled_loss_keeps_its_dtype_on_the_device)
{
    ARIL_SCOPE;
    static const aril_dtype dtypes[] = { ARIL_F16, ARIL_BF16, ARIL_F32, ARIL_F64 };
    aril_tensor *p = param_of(&(setup){ .dtype = ARIL_F32 }, 0, device());
    aril_optim *o = aril_sgd(ARIL_TENSORS(p), (aril_sgd_opts){ .loss_scale = 1024 });
    aril_set_grad(p, aril_ones(ARIL_SHAPE(2, 3), ARIL_F32, device()));
    CHECK_INT(aril_step(o), ARIL_OK);
    for (int i = 0; i < 4; i++) {
        int before = waits_so_far();
        aril_tensor *l = aril_scale_loss(o, aril_full(ARIL_SHAPE(), 0.5, dtypes[i], device()));
        CHECK_INT(waits_so_far(), before);
        CHECK_INT(aril_dtype_of(l), dtypes[i]);
        CHECK_NEAR(aril_item(l), 512, 0);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_optim_free(o);
    aril_release(p);
}

/* The learning rate and the step count by value, and as values on the device. */
TEST(updates_by_hand_take_numbers_of_the_host_or_the_device)
{
    float want[N], got[N];
    for (int k = 0; k < 3; k++) { /* all on the host, all on the device, the numbers on the host */
        ARIL_SCOPE;
        aril_device on = k ? device() : aril_cpu(), numbers = k == 1 ? device() : aril_cpu();
        aril_tensor *p = param_of(&(setup){ .dtype = ARIL_F32 }, 0, on);
        aril_tensor *g = aril_full(ARIL_SHAPE(2, 3), 0.5, ARIL_F32, on);
        aril_tensor *m = aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, on);
        aril_tensor *v = aril_zeros(ARIL_SHAPE(2, 3), ARIL_F32, on);
        aril_tensor *lr = aril_full(ARIL_SHAPE(), 0.1, ARIL_F64, numbers);
        aril_tensor *step = aril_zeros(ARIL_SHAPE(), ARIL_I64, numbers);
        int before = waits_so_far();
        for (int t = 0; t < 3; t++)
            CHECK_MSG(aril_adam_update(ARIL_LIST(p), ARIL_LIST(g), ARIL_LIST(m), ARIL_LIST(v),
                                       (aril_list){ 0 }, lr, step,
                                       (aril_adam_update_opts){ 0 }) == ARIL_OK,
                      "%s", aril_error());
        CHECK_INT(waits_so_far(), before);
        CHECK_INT(aril_item_int(step), 3);
        read_f32(p, k ? got : want);
        for (int i = 0; i < N && k; i++) CHECK_NEAR(got[i], want[i], 1e-6);
        aril_release(p);
    }
}

/* ---- state ---- */

TEST(state_on_the_device_is_saved_and_loaded)
{
    ARIL_SCOPE;
    setup s = { "adam",
                { .lr = 0.05, .clip_norm = 1, .loss_scale = 8, .master_weights = true },
                ARIL_BF16 };
    aril_tensor *p = param_of(&s, 0, device()), *q = param_of(&s, 0, device());
    aril_optim *a = aril_optim_new(s.optimizer, ARIL_TENSORS(p), s.opts);
    aril_optim *b = aril_optim_new(s.optimizer, ARIL_TENSORS(q), s.opts);
    for (int t = 0; t < 2; t++) {
        aril_set_grad(p, grad_of(&s, 0, t, 8, device()));
        CHECK_INT(aril_step(a), ARIL_OK);
        aril_set_grad(q, grad_of(&s, 0, 2, 8, device())); /* another course, to be forgotten */
        CHECK_INT(aril_step(b), ARIL_OK);
    }
    aril_copy_(aril_detach(q), aril_detach(p));
    CHECK_MSG(aril_optim_load_state(b, aril_optim_state(a)) == ARIL_OK, "%s", aril_error());
    for (int t = 3; t < STEPS; t++) {
        aril_set_grad(p, grad_of(&s, 0, t, 8, device()));
        aril_set_grad(q, grad_of(&s, 0, t, 8, device()));
        CHECK_INT(aril_step(a), ARIL_OK);
        CHECK_INT(aril_step(b), ARIL_OK);
    }
    const aril_named *x = aril_optim_state(a), *y = aril_optim_state(b);
    CHECK_INT(x->n, y->n);
    for (int i = 0; i < x->n; i++) {
        CHECK_STR(x->name[i], y->name[i]);
        CHECK_MSG(aril_item(aril_sum(aril_abs(aril_sub(x->at[i], y->at[i])), ARIL_ALL)) == 0, "%s",
                  x->name[i]);
    }
    aril_optim_free(a);
    aril_optim_free(b);
    aril_release(p);
    aril_release(q);
}

/* The numbers follow parameters that are moved. */
TEST(numbers_follow_the_parameters)
{
    float here[3], there[3];
    for (int k = 0; k < 2; k++) {
        ARIL_SCOPE;
        aril_seed(5);
        aril_module *net = aril_nn_linear(3, 1);
        aril_optim *o = aril_adam(aril_parameters(net), (aril_adam_opts){ .loss_scale = 4 });
        aril_tensor *w = aril_module_tensor(net, "weight"), *scale = aril_optim_loss_scale(o);
        for (int t = 0; t < 6; t++) {
            if (k && t == 2) CHECK_INT(aril_module_to(net, device()), ARIL_OK);
            if (k && t == 4) CHECK_INT(aril_module_to(net, aril_cpu()), ARIL_OK);
            aril_set_grad(w, aril_full(ARIL_SHAPE(1, 3), 4 + t, ARIL_F32, aril_device_of(w)));
            CHECK_MSG(aril_step(o) == ARIL_OK, "%s", aril_error());
            CHECK(aril_device_equal(aril_device_of(scale), aril_device_of(w)));
        }
        CHECK_INT(aril_item_int(aril_optim_steps(o)), 6);
        aril_read(w, k ? there : here);
        aril_optim_free(o);
        aril_module_release(net);
    }
    for (int i = 0; i < 3; i++) CHECK_NEAR(there[i], here[i], 1e-6);
}
