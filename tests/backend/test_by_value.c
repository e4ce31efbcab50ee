/* Host numbers reach the kernels of any device by value: scalars, keys of random ops, an
 * optimizer's numbers. The device here counts what is copied to it and what is allocated on it; it
 * computes with the CPU's kernels. */
#include <aril/aril.h>

#include "ops/shape/copy.h"
#include "ops/table/apply.h"
#include "ops/table/rows.h"
#include "support/heap_device.h"
#include "support/test.h"

#include <string.h>

/* Numbers in host memory, all else on the device. */
static bool in_place(const aril_run *r)
{
    for (int i = 0; i < r->n_in; i++) {
        const aril_tensor *t = r->in[i];
        if (!t || !t->storage || (i < 31 && r->op->shape_only >> i & 1)) continue;
        if (t->storage->device != (aril__is_number(t) ? aril__cpu_device : r->device)) return false;
    }
    return true;
}

static aril_status device_run(aril_run *r)
{
    if (!in_place(r))
        return aril__fail(ARIL_ERR_INTERNAL, "%s: an input is elsewhere", r->op->name);
    if (r->op->flags & ANYWHERE) { /* copies: by the memory alone */
        aril__copy_elements(r->out[0], r->in[0]);
        return ARIL_OK;
    }
    aril__run here = *r;
    here.device = aril__cpu_device;
    return aril__dispatch(&here);
}

static aril_device device(void)
{
    static const aril_row formulas = {
        .name = "counted", .dtypes = DT_COMPUTE, .strided = true, .run = device_run
    };
#define ROW(op_)                                                                           \
    {                                                                                      \
        .op = op_, .name = "counted", .dtypes = DT_ALL, .strided = true, .run = device_run \
    }
    static const aril_row rows[] = { ROW("rand"),        ROW("randn"),     ROW("randint"),
                                     ROW("randperm"),    ROW("bernoulli"), ROW("bernoulli_fill"),
                                     ROW("multinomial"), ROW("dropout"),   ROW("copy"),
                                     ROW("scatter"),     ROW("update"),    ROW("full"),
                                     ROW("sum"),         ROW("full_like") };
#undef ROW
    static aril__device *d;
    if (!d) {
        d = test_device_add("counted", 0, &test_heap_ops);
        aril__rows_register_formulas(d->id.kind, &formulas, &formulas);
        aril__rows_register(d->id.kind, rows, sizeof rows / sizeof *rows);
    }
    return d->id;
}

static aril_tensor *ramp(aril_device d)
{
    float v[40];
    for (int i = 0; i < 40; i++) v[i] = (float)i / 40;
    return aril_from(v, ARIL_SHAPE(4, 10), ARIL_F32, d);
}

/* One call with a tensor of a device, or the same call on the CPU. */
typedef aril_tensor *call(aril_tensor *x);

static aril_tensor *scaled(aril_tensor *x)
{
    return aril_mul_scalar(x, 2);
}

static aril_tensor *number_first(aril_tensor *x)
{
    return aril_sub(aril_scalar(1.5), x);
}

static aril_tensor *added_in_place(aril_tensor *x)
{
    return aril_add_scalar_(x, 0.5);
}

static aril_tensor *clamped(aril_tensor *x)
{
    return aril_clamp(x, 0.2, 0.7);
}

static aril_tensor *filled(aril_tensor *x)
{
    return aril_copy_(x, aril_scalar(3));
}

static aril_tensor *uniform(aril_tensor *x)
{
    return aril_rand(aril_shape_of(x), ARIL_F32, aril_device_of(x));
}

static aril_tensor *normal(aril_tensor *x)
{
    return aril_randn(aril_shape_of(x), ARIL_F32, aril_device_of(x));
}

static aril_tensor *integers(aril_tensor *x)
{
    return aril_randint(0, 9, aril_shape_of(x), ARIL_I64, aril_device_of(x));
}

static aril_tensor *permutation(aril_tensor *x)
{
    return aril_randperm(20, ARIL_I64, aril_device_of(x));
}

static aril_tensor *uniform_in_place(aril_tensor *x)
{
    return aril_uniform_(x, -1, 1);
}

static aril_tensor *dropped(aril_tensor *x)
{
    return aril_dropout(x, 0.5, (aril_dropout_opts){ 0 });
}

static aril_tensor *coins(aril_tensor *x)
{
    return aril_bernoulli(x);
}

static aril_tensor *coins_like(aril_tensor *x)
{
    return aril_bernoulli_like(x, 0.3);
}

static aril_tensor *drawn(aril_tensor *x)
{
    return aril_multinomial(x, 3, true);
}

static const struct {
    const char *name;
    call *fn;
    int allocations; /* of the result */
} calls[] = { { "mul_scalar", scaled, 1 },
              { "sub", number_first, 1 },
              { "add_scalar_", added_in_place, 0 },
              { "clamp", clamped, 1 },
              { "copy_", filled, 0 },
              { "rand", uniform, 1 },
              { "rand_like", aril_rand_like, 1 },
              { "randn", normal, 1 },
              { "randint", integers, 1 },
              { "randperm", permutation, 1 },
              { "uniform_", uniform_in_place, 0 },
              { "dropout", dropped, 1 },
              { "bernoulli", coins, 1 },
              { "bernoulli_like", coins_like, 1 },
              { "multinomial", drawn, 1 } };

TEST(numbers_are_not_copied_to_the_device)
{
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        ARIL_SCOPE;
        aril_tensor *there = ramp(device()), *here = ramp(aril_cpu());
        int64_t allocations = aril_memory(device()).allocations;
        test_transferred.from_host = 0;
        aril_seed(5);
        aril_tensor *y = calls[k].fn(there);
        CHECK_MSG(aril_ok(), "%s: %s", calls[k].name, aril_error());
        allocations = aril_memory(device()).allocations - allocations;
        CHECK_MSG(test_transferred.from_host == 0 && allocations == calls[k].allocations,
                  "%s: %d copies to the device and %d allocations", calls[k].name,
                  test_transferred.from_host, (int)allocations);
        CHECK(aril_device_equal(aril_device_of(y), device()));
        aril_seed(5);
        aril_tensor *want = calls[k].fn(here);
        CHECK_MSG(aril_item_int(aril_all(aril_eq(aril_to(y, aril_cpu()), want), ARIL_ALL)),
                  "%s: other values than on the CPU", calls[k].name);
    }
}

TEST(gradients_take_numbers_by_value)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_parameter(ramp(device()));
    test_transferred.from_host = 0;
    aril_seed(6);
    aril_tensor *y =
        aril_dropout(aril_pow_scalar(aril_mul_scalar(x, 3), 2), 0.5, (aril_dropout_opts){ 0 });
    CHECK_INT(aril_backward(aril_sum(aril_sub_scalar(y, 1), ARIL_ALL)), ARIL_OK);
    CHECK_INT(test_transferred.from_host, 0);
    aril_tensor *kept = aril_cast(aril_ne_scalar(aril_to(y, aril_cpu()), 0), ARIL_F32);
    aril_tensor *want = aril_mul(aril_mul_scalar(ramp(aril_cpu()), 36), kept);
    aril_tensor *off = aril_abs(aril_sub(aril_to(aril_grad(x), aril_cpu()), want));
    CHECK_NEAR(aril_item(aril_amax(off, ARIL_ALL)), 0, 1e-5);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_release(x);
}

TEST(optimizer_numbers_stay_on_the_host)
{
    ARIL_SCOPE;
    aril_tensor *p = aril_parameter(ramp(device()));
    aril_optim *o = aril_adam(ARIL_TENSORS(p), (aril_adam_opts){ .lr = 0.1 });
    for (int t = 0; t < 3; t++) {
        ARIL_SCOPE;
        CHECK_INT(aril_backward(aril_sum(aril_square(p), ARIL_ALL)), ARIL_OK);
        int64_t allocations = aril_memory(device()).allocations;
        test_transferred.from_host = 0;
        CHECK_INT(aril_step(o), ARIL_OK);
        if (t == 0) continue; /* creates the state */
        CHECK_INT(test_transferred.from_host, 0);
        CHECK_INT(aril_memory(device()).allocations - allocations, 0);
    }
    CHECK_MSG(aril_ok(), "%s", aril_error());
    aril_optim_free(o);
    aril_release(p);
}

TEST(views_of_numbers_are_on_the_device_of_their_shape)
{
    ARIL_SCOPE;
    aril_tensor *x = ramp(device());
    aril_tensor *y =
        aril_add(x, aril_expand(aril_to(aril_scalar(2.0), device()), aril_shape_of(x)));
    CHECK(aril_device_equal(aril_device_of(y), device()));
    extern const aril__op aril__op_expand_like;
    aril_tensor *v = aril__op(&aril__op_expand_like, aril_scalar(2.0), x);
    CHECK_MSG(aril_ok(), "%s", aril_error());
    CHECK(aril_device_equal(aril_device_of(v), device()));
}

TEST(destination_is_on_the_device_of_the_inputs)
{
    ARIL_SCOPE;
    aril_tensor *x = ramp(device()), *total = aril_scalar(0.0);
    CHECK_INT(aril_tensor_status(aril_add_(total, aril_sum(x, ARIL_ALL))), ARIL_ERR_DEVICE);
    CHECK(strstr(aril_error(), "counted:0") && strstr(aril_error(), "cpu"));
    aril_clear_error();
}

/* No input tells the destination's device: the check of the destination does. */
TEST(message_names_the_device_of_the_destination)
{
    ARIL_SCOPE;
    extern const aril__op aril__op_relu;
    aril_tensor *x = ramp(device()), *here = ramp(aril_cpu());
    aril_tensor *y = aril__apply_to(here, &aril__op_relu, 1, &x, NULL);
    CHECK_INT(aril_tensor_status(y), ARIL_ERR_DEVICE);
    CHECK_MSG(strstr(aril_error(), "relu_: the destination is on cpu, but the inputs are on "
                                   "counted:0"),
              "%s", aril_error());
    aril_clear_error();
    aril_tensor *off = aril_abs(aril_sub(here, ramp(aril_cpu())));
    CHECK_NEAR(aril_item(aril_amax(off, ARIL_ALL)), 0, 0); /* unchanged */
    CHECK_MSG(aril_ok(), "%s", aril_error());
}

/* A number that is written to is state, not a constant any more. */
TEST(written_numbers_are_state)
{
    ARIL_SCOPE;
    aril_tensor *s = aril_scalar(1), *key = aril__rng_draw(NULL);
    CHECK_INT(s->flags & (ARIL__NUMBER | ARIL__WEAK), ARIL__CONSTANT | ARIL__WEAK);
    CHECK_INT(key->flags & (ARIL__NUMBER | ARIL__WEAK), ARIL__KEY);
    aril_add_scalar_(s, 1);
    CHECK_INT(s->flags & (ARIL__NUMBER | ARIL__WEAK), ARIL__STATE | ARIL__WEAK);
    CHECK(!aril__is_number(aril_zeros(ARIL_SHAPE(), ARIL_F32, aril_cpu())));
}
