/* Attention in f16 and bf16 at many sizes and in the memory orders of projections, on the device of
 * ARIL_TEST_DEVICE: compared with f64 on the CPU, and run twice. */
#include <aril/aril.h>

#include "support/compare.h"
#include "support/device.h"
#include "support/test.h"

#include <string.h>

enum { BATCH = 2, HEADS = 3 };

/* How q, k and v are stored. */
typedef enum storage {
    SEPARATE, /* [B,H,L,E] each */
    PACKED,   /* one tensor [B,L,H E + H E + H Ev], as a projection gives it; l == s */
    SHIFTED   /* the same, with its first column at an address of no alignment */
} storage;

typedef struct job {
    int64_t l, s, e, ev;
    bool causal;
    storage how;
    double scale;
    bool blind; /* a mask that hides all keys from some queries */
} job;

typedef struct outcome {
    aril_tensor *y, *dx[3];
} outcome;

static aril_tensor *heads_of(aril_tensor *x, int64_t from, int64_t columns)
{
    x = aril_unflatten(aril_narrow(x, 2, from, HEADS * columns), 2, ARIL_SHAPE(HEADS, columns));
    return aril_transpose(x, 1, 2);
}

static aril_tensor *blind_mask(const job *j, aril_device d)
{
    aril_tensor *row = aril_arange(0, (double)j->l, 1, ARIL_F32, aril_cpu());
    aril_tensor *seen = aril_ne_scalar(aril_remainder(row, aril_scalar(3)), 1);
    return aril_to(aril_reshape(seen, ARIL_SHAPE(j->l, 1)), d);
}

static outcome evaluate(const job *j, int n, aril_tensor **in, aril_tensor *g)
{
    outcome o = { .y = NULL };
    aril_tensor *q = in[0], *k = in[n > 1 ? 1 : 0], *v = in[n > 1 ? 2 : 0];
    for (int i = 0; i < n; i++) aril_set_requires_grad(in[i], true);
    if (j->how != SEPARATE) {
        int64_t first = j->how == SHIFTED ? 4 : 0, width = HEADS * j->e;
        q = heads_of(in[0], first, j->e);
        k = heads_of(in[0], first + width, j->e);
        v = heads_of(in[0], first + 2 * width, j->ev);
    }
    aril_attention_opts opts = { .causal = j->causal, .scale = j->scale };
    if (j->blind) opts.mask = blind_mask(j, aril_device_of(q));
    o.y = aril_scaled_dot_product_attention(q, k, v, opts);
    aril_gradients_n((aril_list){ 1, &o.y }, (aril_list){ n, in }, o.dx,
                     (aril_grad_opts){ .grad_outputs = { 1, &g } });
    return o;
}

static int make_inputs(const job *j, aril_dtype type, aril_tensor **in)
{
    aril_shape shapes[3] = { ARIL_SHAPE(BATCH, HEADS, j->l, j->e),
                             ARIL_SHAPE(BATCH, HEADS, j->s, j->e),
                             ARIL_SHAPE(BATCH, HEADS, j->s, j->ev) };
    int n = j->how == SEPARATE ? 3 : 1;
    int64_t columns = HEADS * (2 * j->e + j->ev) + (j->how == SHIFTED ? 8 : 0);
    if (n == 1) shapes[0] = ARIL_SHAPE(BATCH, j->l, columns);
    for (int i = 0; i < n; i++)
        in[i] = aril_cast(aril_randn(shapes[i], ARIL_F32, aril_cpu()), type);
    return n;
}

static void check_close(aril_tensor *got, aril_tensor *want, double tolerance, const job *j,
                        const char *what)
{
    double most = aril_item(aril_amax(aril_abs(want), ARIL_ALL));
    if (most < 1e-3) most = 1e-3; /* of one key, gradients of q and k are rounding errors */
    char *why = test_difference_in_value(aril_to(got, aril_cpu()), want, 0, tolerance * most);
    CHECK_MSG(!why, "%s of [%lld,%lld,%lld,%lld]%s stored %d: %s", what, (long long)j->l,
              (long long)j->s, (long long)j->e, (long long)j->ev, j->causal ? " causal" : "",
              (int)j->how, why);
}

static void check_job(const job *j, aril_dtype type)
{
    ARIL_SCOPE;
    aril_tensor *in[3], *here[3], *wide[3];
    double tolerance = type == ARIL_F16 ? 4e-3 : 3e-2;
    aril_seed(11);
    int n = make_inputs(j, type, in);
    aril_tensor *g = aril_randn(ARIL_SHAPE(BATCH, HEADS, j->l, j->ev), ARIL_F32, aril_cpu());
    g = aril_cast(g, type);
    for (int i = 0; i < n; i++) {
        here[i] = aril_detach(aril_to(in[i], test_device()));
        wide[i] = aril_detach(aril_cast(in[i], ARIL_F64));
    }
    outcome want = evaluate(j, n, wide, aril_cast(g, ARIL_F64)), got[2];
    for (int k = 0; k < 2; k++) got[k] = evaluate(j, n, here, aril_to(g, test_device()));
    CHECK_MSG(aril_tensor_status(got[0].y) == ARIL_OK, "%s", aril_error());
    check_close(got[0].y, want.y, tolerance, j, "result");
    CHECK_MSG(aril_equal(got[0].y, got[1].y), "the result differs from run to run");
    for (int i = 0; i < n; i++) {
        check_close(got[0].dx[i], want.dx[i], tolerance, j, "gradient");
        CHECK_MSG(aril_equal(got[0].dx[i], got[1].dx[i]), "gradients differ from run to run");
    }
}

static void check_jobs(aril_dtype type)
{
    static const job jobs[] = {
        { .l = 1, .s = 1, .e = 64, .ev = 64, .causal = true },
        { .l = 7, .s = 65, .e = 40, .ev = 24 },
        { .l = 64, .s = 64, .e = 64, .ev = 64, .causal = true, .how = PACKED },
        { .l = 65, .s = 65, .e = 8, .ev = 8, .causal = true },
        { .l = 200, .s = 333, .e = 64, .ev = 64, .causal = true },
        { .l = 333, .s = 200, .e = 64, .ev = 64, .causal = true },
        { .l = 300, .s = 300, .e = 64, .ev = 64, .causal = true, .how = SHIFTED },
        { .l = 1024, .s = 1024, .e = 64, .ev = 64, .causal = true, .how = PACKED },
        { .l = 1000, .s = 300, .e = 128, .ev = 120 },
        { .l = 129, .s = 1000, .e = 128, .ev = 128, .causal = true },
        { .l = 257, .s = 257, .e = 128, .ev = 128, .causal = true, .how = PACKED },
        { .l = 130, .s = 70, .e = 16, .ev = 128, .scale = -0.3 },
        { .l = 100, .s = 90, .e = 32, .ev = 64, .blind = true },
        { .l = 100, .s = 90, .e = 96, .ev = 96, .blind = true },
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) check_job(&jobs[i], type);
}

TEST(attention_of_f16)
{
    check_jobs(ARIL_F16);
}

TEST(attention_of_bf16)
{
    check_jobs(ARIL_BF16);
}

TEST(attention_of_random_sizes)
{
    uint32_t x = 12345;
#define DRAW(n) ((int64_t)((x = x * 1664525u + 1013904223u) >> 8) % (n))
    for (int i = 0; i < 16; i++) {
        job j = { .causal = DRAW(2), .how = (storage)DRAW(3) };
        j.l = 1 + DRAW(300);
        j.s = j.how == SEPARATE ? 1 + DRAW(300) : j.l;
        j.e = 8 + 8 * DRAW(16);
        j.ev = 8 + 8 * DRAW(16);
        check_job(&j, i % 2 ? ARIL_F16 : ARIL_BF16);
    }
#undef DRAW
}

/* Rows of GPUs give results in the order of a projection, so that nothing is copied. */
TEST(results_have_their_heads_where_inputs_have_them)
{
    aril_tensor *x = aril_randn(ARIL_SHAPE(BATCH, 40, 3 * HEADS * 16), ARIL_F32, aril_cpu());
    x = aril_to(aril_cast(x, ARIL_BF16), test_device());
    aril_tensor *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = heads_of(x, i * HEADS * 16, 16);
        part[i] = aril_detach(part[i]);
        aril_set_requires_grad(part[i], true);
    }
    aril_tensor *y = aril_scaled_dot_product_attention(part[0], part[1], part[2],
                                                       (aril_attention_opts){ .causal = true });
    CHECK_MSG(aril_tensor_status(y) == ARIL_OK, "%s", aril_error());
    char name[64];
    aril_device_name(test_device(), name, sizeof name);
    if (strncmp(name, "cuda", 4) != 0) return; /* others store heads outside */
    CHECK(aril_is_contiguous(aril_transpose(y, 1, 2)));
    aril_backward(aril_sum(y, ARIL_ALL));
    for (int i = 0; i < 3; i++) CHECK(aril_is_contiguous(aril_transpose(aril_grad(part[i]), 1, 2)));
}
