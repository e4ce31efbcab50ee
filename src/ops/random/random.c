#include "ops/random/random.h"

#include "aril/create.h"
#include "aril/math.h"
#include "ops/shape/create.h"
#include "ops/table/element.h"
#include "ops/table/sample.h"

#include <math.h>
#include <string.h>

aril_tensor *aril__rng_draw(aril_generator *g)
{
    aril__thread *th = aril__self();
    aril_rng_state before = aril_generator_state(g ? g : &th->generator);
    int64_t dim[1] = { 2 };
    aril_tensor *t = aril__tensor_new(th, ARIL_U64, 1, dim, aril__cpu_device);
    if (t) { /* a failed call draws nothing */
        aril__rng_key key = aril__rng_next(g ? g : &th->generator);
        uint64_t *k = t->storage->data;
        k[0] = key.seed;
        k[1] = key.call;
        t->flags |= ARIL__KEY;
        if (aril__unlikely(th->tracer && th->tracer->drew))
            th->tracer->drew(th->tracer, g == &th->generator ? NULL : g, before, t);
    }
    return aril__give(th, t);
}

void aril__rng_freed(aril_generator *g)
{
    aril__tracer *t = aril__self()->tracer;
    if (t && t->freed) t->freed(t, g);
}

void aril__rng_set(aril_generator *g, const uint64_t *seed)
{
    aril__tracer *t = aril__self()->tracer;
    if (t && t->set) t->set(t, g, seed);
}

aril_status aril__rng_check_key(aril__call *c)
{
    const aril_tensor *k = c->in[0];
    if (k->dtype != ARIL_U64 || k->ndim != 1 || k->dim[0] != 2)
        return aril__fail(ARIL_ERR_ARG, "%s: the first input is not a random key", c->op->name);
    return ARIL_OK;
}

/* ---- shapes: from the attributes, or from a second input ---- */

static aril_status random_infer(aril__call *c)
{
    aril_status s = aril__rng_check_key(c);
    const aril_tensor *like = c->n_in > 1 ? c->in[1] : NULL;
    aril__meta *o = &c->out[0];
    if (s < 0 || !like) return s < 0 ? s : aril__create_infer(c);
    o->dtype = c->type = (aril_dtype)like->dtype;
    o->ndim = like->ndim;
    memcpy(o->dim, like->dim, (size_t)o->ndim * sizeof *o->dim);
    return ARIL_OK;
}

static aril_status random_float_infer(aril__call *c)
{
    aril_status s = random_infer(c);
    if (s == ARIL_OK && !(DT_FLOAT >> c->type & 1))
        return aril__fail(ARIL_ERR_DTYPE, "%s: expected a floating-point dtype, got %s",
                          c->op->name, aril__dtypes[c->type].name);
    return s;
}

static aril_status random_any_infer(aril__call *c)
{
    aril_status s = random_infer(c);
    if (s == ARIL_OK && !aril__dtypes[c->type].computes)
        return aril__fail(ARIL_ERR_DTYPE, "%s: not defined for %s", c->op->name,
                          aril__dtypes[c->type].name);
    return s;
}

/* ---- references: one number at a time ---- */

double aril__rng_largest_below(uint8_t dtype, double high)
{
    if (dtype == ARIL_F64) return nextafter(high, -INFINITY);
    float f = (float)high;
    if (dtype == ARIL_F32) return f < high ? f : nextafterf(f, -INFINITY);
    uint16_t h;
    aril__dtypes[dtype].store[ARIL__C_F64](&h, 0, 1, &high, 1);
    double v;
    aril__dtypes[dtype].load[ARIL__C_F64](&v, &h, 0, 1, 1);
    if (v >= high) { /* sign-magnitude: one step towards minus infinity */
        h = h == 0 ? 0x8001u : h & 0x8000u ? (uint16_t)(h + 1) : (uint16_t)(h - 1);
        aril__dtypes[dtype].load[ARIL__C_F64](&v, &h, 0, 1, 1);
    }
    return v;
}

static aril_status rand_ref(aril__run *r)
{
    const struct create_attrs *a = r->attrs;
    double low = a->value[0], high = a->value[1];
    double largest = aril__rng_largest_below(r->out[0]->dtype, high);
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double v;
        if (r->out[0]->dtype == ARIL_F64) {
            double u;
            aril__rng_uniform_f64(aril__rng_key_of(r), i, i + 1, &u);
            v = low + (high - low) * u;
        } else {
            float u;
            aril__rng_uniform_f32(aril__rng_key_of(r), i, i + 1, &u);
            v = (float)low + (float)(high - low) * u;
        }
        aril__put(r->out[0], i, v > largest && high > low ? largest : v);
    }
    return ARIL_OK;
}

static aril_status randn_ref(aril__run *r)
{
    const struct create_attrs *a = r->attrs;
    double mean = a->value[0], deviation = a->value[1];
    bool plain = mean == 0 && deviation == 1; /* -0 stays -0 */
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        double v;
        if (r->out[0]->dtype == ARIL_F64) {
            aril__rng_normal_f64(aril__rng_key_of(r), i, i + 1, &v);
            if (!plain) v = mean + deviation * v;
        } else {
            float z;
            aril__rng_normal_f32(aril__rng_key_of(r), i, i + 1, &z);
            v = plain ? z : (float)mean + (float)deviation * z;
        }
        aril__put(r->out[0], i, v);
    }
    return ARIL_OK;
}

static aril_status randint_ref(aril__run *r)
{
    const int64_t *range = ((const struct create_attrs *)r->attrs)->integer; /* low, step, high */
    uint64_t low = (uint64_t)range[0], width = (uint64_t)range[2] - low;
    for (int64_t i = 0; i < r->out[0]->numel; i++) {
        int64_t v;
        aril__rng_below(aril__rng_key_of(r), i, i + 1, width, &v);
        aril__put_i64(r->out[0], i, (int64_t)((uint64_t)v + low));
    }
    return ARIL_OK;
}

/* The numbers in the order of their 64-bit draws, equal draws by number: the place of each is how
 * many come before it. */
static aril_status randperm_ref(aril__run *r)
{
    int64_t n = r->out[0]->numel;
    for (int64_t i = 0; i < n; i++) {
        int64_t before = 0;
        uint64_t own, other;
        aril__rng_u64(aril__rng_key_of(r), i, i + 1, &own);
        for (int64_t k = 0; k < n; k++) {
            aril__rng_u64(aril__rng_key_of(r), k, k + 1, &other);
            before += other < own || (other == own && k < i);
        }
        aril__put_i64(r->out[0], before, i);
    }
    return ARIL_OK;
}

/* 1 if uniform number i is below p. */
static void put_bernoulli(aril__run *r, int64_t i, double p)
{
    double u;
    float f;
    if (r->out[0]->dtype == ARIL_F64) {
        aril__rng_uniform_f64(aril__rng_key_of(r), i, i + 1, &u);
    } else {
        aril__rng_uniform_f32(aril__rng_key_of(r), i, i + 1, &f);
        u = f;
    }
    aril__put(r->out[0], i, u < p);
}

static aril_status bernoulli_fill_ref(aril__run *r)
{
    double p = ((const struct create_attrs *)r->attrs)->value[0];
    for (int64_t i = 0; i < r->out[0]->numel; i++) put_bernoulli(r, i, p);
    return ARIL_OK;
}

aril_status aril__probability_error(double p)
{
    return aril__fail(ARIL_ERR_ARG, "bernoulli: the probability must be from 0 to 1, got %g", p);
}

static aril_status bernoulli_ref(aril__run *r)
{
    for (int64_t i = 0; i < r->in[1]->numel; i++) {
        double p = aril__get(r->in[1], i);
        if (!(p >= 0 && p <= 1)) return aril__probability_error(p);
        put_bernoulli(r, i, p);
    }
    return ARIL_OK;
}

/* ---- ops ---- */

ATTR_LIST(create, CREATE_ATTRS)

static const aril__sample rand_samples[] = {
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 2 }, .dim = { 4, 5 }, .dtype = { ARIL_F32 }, .value = { -1, 2 } } },
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){ .ndim = { 0 }, .dtype = { ARIL_F64 }, .value = { 0, 1 } } },
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 2 }, .dim = { 0, 3 }, .dtype = { ARIL_BF16 }, .value = { 0, 1 } } },
    { .in = { "key", "[2,3]" }, .attrs = &(const struct create_attrs){ .value = { 0, 1 } } },
    SAMPLE_END
};
OP(rand, .doc = "uniform random values between two bounds", .onnx = "RandomUniform", .min_in = 1,
   .max_in = 2, .n_out = 1, .flags = NONDIFF | RANDOM | STRIDED | KEEPS_ORDER, .optional = IN(1),
   .shape_only = IN(1), .infer = random_float_infer, .ref = rand_ref, .samples = rand_samples,
   WITH_ATTRS(create));
OP(randn, .doc = "normally distributed random values with a mean and standard deviation",
   .onnx = "RandomNormal", .min_in = 1, .max_in = 2, .n_out = 1,
   .flags = NONDIFF | RANDOM | STRIDED | KEEPS_ORDER, .optional = IN(1), .shape_only = IN(1),
   .infer = random_float_infer, .ref = randn_ref, .samples = rand_samples, WITH_ATTRS(create));

static const aril__sample randint_samples[] = {
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 2 }, .dim = { 4, 5 }, .dtype = { ARIL_I64 }, .integer = { -3, 1, 7 } } },
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 5 }, .dtype = { ARIL_F32 }, .integer = { 0, 1, 2 } } },
    { .in = { "key", "[2,3]" }, .attrs = &(const struct create_attrs){ .integer = { 0, 1, 9 } } },
    SAMPLE_END
};
OP(randint, .doc = "random integers from low to high - 1", .min_in = 1, .max_in = 2, .n_out = 1,
   .flags = NONDIFF | RANDOM | STRIDED, .optional = IN(1), .shape_only = IN(1),
   .infer = random_any_infer, .ref = randint_ref, .samples = randint_samples, WITH_ATTRS(create));

static const aril__sample randperm_samples[] = {
    { .in = { "key" },
      .attrs = &(const struct create_attrs){ .ndim = { 1 }, .dim = { 9 }, .dtype = { ARIL_I64 } } },
    { .in = { "key" },
      .attrs = &(const struct create_attrs){ .ndim = { 1 }, .dim = { 0 }, .dtype = { ARIL_I64 } } },
    SAMPLE_END
};
OP(randperm, .doc = "random permutation of 0..n-1", .min_in = 1, .max_in = 1, .n_out = 1,
   .flags = NONDIFF | RANDOM | STRIDED, .infer = random_any_infer, .ref = randperm_ref,
   .samples = randperm_samples, WITH_ATTRS(create));

static const aril__sample bernoulli_fill_samples[] = {
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 2 }, .dim = { 4, 5 }, .dtype = { ARIL_F32 }, .value = { 0.3 } } },
    { .in = { "key" },
      .attrs =
          &(const struct create_attrs){
              .ndim = { 1 }, .dim = { 5 }, .dtype = { ARIL_BOOL }, .value = { 0.5 } } },
    { .in = { "key", "[2,3]" }, .attrs = &(const struct create_attrs){ .value = { 0.5 } } },
    SAMPLE_END
};
OP(bernoulli_fill, .doc = "1 with a given probability, else 0", .min_in = 1, .max_in = 2,
   .n_out = 1, .flags = NONDIFF | RANDOM | STRIDED, .optional = IN(1), .shape_only = IN(1),
   .infer = random_any_infer, .ref = bernoulli_fill_ref, .samples = bernoulli_fill_samples,
   WITH_ATTRS(create));

static const aril__sample bernoulli_samples[] = { { .in = { "key", "p[3,4]" } },
                                                  { .in = { "key", "p[]" } },
                                                  { .in = { "key", "p[0,2]" } },
                                                  SAMPLE_END };
OP(bernoulli, .doc = "1 with the probability in each element of p, else 0", .onnx = "Bernoulli",
   .min_in = 2, .max_in = 2, .n_out = 1, .flags = NONDIFF | RANDOM | STRIDED,
   .infer = random_float_infer, .ref = bernoulli_ref, .samples = bernoulli_samples);

/* ---- public ---- */

/* A new tensor of a given shape, or (like) of the shape of another, or written to dest. */
static aril_tensor *draw_new(const aril__op *op, aril_generator *g, aril_shape shape,
                             const double value[2], aril_dtype dtype, aril_device device)
{
    struct create_attrs a;
    if (aril__create_attrs(op->name, shape, dtype, device, &a) < 0) return aril__poison();
    a.value[0] = value[0];
    a.value[1] = value[1];
    return aril__op_with(&a, op, aril__rng_draw(g));
}

static aril_tensor *draw_like(const aril__op *op, aril_generator *g, aril_tensor *x,
                              const double value[2])
{
    if (!x) return aril__null_tensor(op->name);
    if (aril__is_poison(x)) return aril__pass_on(x);
    struct create_attrs a = { .value = { value[0], value[1] } };
    return aril__op_with(&a, op, aril__rng_draw(g), x);
}

static aril_tensor *draw_into(const aril__op *op, aril_generator *g, aril_tensor *x,
                              const double value[2])
{
    if (!x) return aril__null_tensor(op->name);
    if (aril__is_poison(x)) return aril__pass_on(x);
    struct create_attrs a = { .value = { value[0], value[1] } };
    return aril__apply_to(x, op, 2, (aril_tensor *[]){ aril__rng_draw(g), x }, &a);
}

static const double unit[2] = { 0, 1 };

aril_tensor *aril_rand_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                            aril_device device)
{
    return draw_new(&aril__op_rand, g, shape, unit, dtype, device);
}

aril_tensor *aril_rand(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return aril_rand_from(NULL, shape, dtype, device);
}

aril_tensor *aril_randn_from(aril_generator *g, aril_shape shape, aril_dtype dtype,
                             aril_device device)
{
    return draw_new(&aril__op_randn, g, shape, unit, dtype, device);
}

aril_tensor *aril_randn(aril_shape shape, aril_dtype dtype, aril_device device)
{
    return aril_randn_from(NULL, shape, dtype, device);
}

aril_tensor *aril_rand_like(aril_tensor *x)
{
    return draw_like(&aril__op_rand, NULL, x, unit);
}

aril_tensor *aril_randn_like(aril_tensor *x)
{
    return draw_like(&aril__op_randn, NULL, x, unit);
}

/* Whether the dtype represents every integer from low to high - 1 exactly. */
static bool holds(aril_dtype t, int64_t low, int64_t high)
{
    unsigned bits = aril__dtypes[t].bits;
    if (t == ARIL_BOOL) return low >= 0 && high <= 2;
    if (aril__dtypes[t].kind == ARIL__KIND_UINT)
        return low >= 0 && (bits >= 63 || high <= (int64_t)1 << bits);
    if (aril__dtypes[t].kind == ARIL__KIND_INT && bits < 64)
        return low >= -((int64_t)1 << (bits - 1)) && high <= (int64_t)1 << (bits - 1);
    return true;
}

aril_tensor *aril_randint_from(aril_generator *g, int64_t low, int64_t high, aril_shape shape,
                               aril_dtype dtype, aril_device device)
{
    struct create_attrs a;
    if (aril__create_attrs("randint", shape, dtype, device, &a) < 0) return aril__poison();
    if (high <= low || (uint64_t)high - (uint64_t)low > (uint64_t)1 << 63) {
        aril__fail(ARIL_ERR_ARG, "randint: the range from %lld to %lld - 1 is empty",
                   (long long)low, (long long)high);
        return aril__poison();
    }
    if (!holds(dtype, low, high)) {
        aril__fail(ARIL_ERR_ARG, "randint: %s cannot represent all integers from %lld to %lld - 1",
                   aril__dtypes[dtype].name, (long long)low, (long long)high);
        return aril__poison();
    }
    a.integer[0] = low;
    a.integer[1] = 1;
    a.integer[2] = high;
    return aril__op_with(&a, &aril__op_randint, aril__rng_draw(g));
}

aril_tensor *aril_randint(int64_t low, int64_t high, aril_shape shape, aril_dtype dtype,
                          aril_device device)
{
    return aril_randint_from(NULL, low, high, shape, dtype, device);
}

aril_tensor *aril_randperm_from(aril_generator *g, int64_t n, aril_dtype dtype, aril_device device)
{
    return draw_new(&aril__op_randperm, g, (aril_shape){ .ndim = 1, .dim = { n } }, unit, dtype,
                    device);
}

aril_tensor *aril_randperm(int64_t n, aril_dtype dtype, aril_device device)
{
    return aril_randperm_from(NULL, n, dtype, device);
}

static bool is_probability(const char *what, double p)
{
    if (p >= 0 && p <= 1) return true;
    aril__fail(ARIL_ERR_ARG, "%s: the probability must be from 0 to 1, got %g", what, p);
    return false;
}

aril_tensor *aril_bernoulli_from(aril_generator *g, aril_tensor *p)
{
    if (!p) return aril__null_tensor("bernoulli");
    if (aril__is_poison(p)) return aril__pass_on(p);
    return aril__op(&aril__op_bernoulli, aril__rng_draw(g), p);
}

aril_tensor *aril_bernoulli(aril_tensor *p)
{
    return aril_bernoulli_from(NULL, p);
}

aril_tensor *aril_bernoulli_like(aril_tensor *x, double p)
{
    if (!is_probability("bernoulli_like", p)) return aril__poison();
    return draw_like(&aril__op_bernoulli_fill, NULL, x, (double[2]){ p, 0 });
}

aril_tensor *aril_bernoulli_(aril_tensor *x, double p)
{
    if (!is_probability("bernoulli_", p)) return aril__poison();
    return draw_into(&aril__op_bernoulli_fill, NULL, x, (double[2]){ p, 0 });
}

static aril_tensor *uniform_into(aril_generator *g, aril_tensor *x, double low, double high)
{
    if (!(low <= high) || isinf(low) || isinf(high)) {
        aril__fail(ARIL_ERR_ARG, "uniform_: invalid range from %g to %g", low, high);
        return aril__poison();
    }
    return draw_into(&aril__op_rand, g, x, (double[2]){ low, high });
}

aril_tensor *aril_uniform_(aril_tensor *x, double low, double high)
{
    return uniform_into(NULL, x, low, high);
}

aril_tensor *aril_uniform_from_(aril_generator *g, aril_tensor *x, double low, double high)
{
    return uniform_into(g, x, low, high);
}

aril_tensor *aril_normal_from_(aril_generator *g, aril_tensor *x, double mean, double std)
{
    if (!(std >= 0)) {
        aril__fail(ARIL_ERR_ARG, "normal_: invalid standard deviation %g", std);
        return aril__poison();
    }
    return draw_into(&aril__op_randn, g, x, (double[2]){ mean, std });
}

aril_tensor *aril_normal_(aril_tensor *x, double mean, double std)
{
    return aril_normal_from_(NULL, x, mean, std);
}

/* offset + scale * noise, with noise of their broadcast shape. */
static aril_tensor *reparameterised(const aril__op *op, aril_generator *g, aril_tensor *offset,
                                    aril_tensor *scale)
{
    aril_tensor *like = aril_add(offset, scale);
    return aril_add(offset, aril_mul(scale, draw_like(op, g, like, unit)));
}

aril_tensor *aril_normal_from(aril_generator *g, aril_tensor *mean, aril_tensor *std)
{
    ARIL_SCOPE;
    return aril_escape(reparameterised(&aril__op_randn, g, mean, std));
}

aril_tensor *aril_normal(aril_tensor *mean, aril_tensor *std)
{
    return aril_normal_from(NULL, mean, std);
}

aril_tensor *aril_uniform_from(aril_generator *g, aril_tensor *low, aril_tensor *high)
{
    ARIL_SCOPE;
    return aril_escape(reparameterised(&aril__op_rand, g, low, aril_sub(high, low)));
}

aril_tensor *aril_uniform(aril_tensor *low, aril_tensor *high)
{
    return aril_uniform_from(NULL, low, high);
}
