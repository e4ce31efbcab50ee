/* Control flow in a graph: a branch on z that chooses x with w1 or w2, and the loop
 * y_t = (y_{t-1} + x_t) * w. The same functions run as plain C in eager mode. */
#include <aril/aril.h>

typedef struct weights {
    aril_tensor *w1, *w2;
} weights;

static void with_w1(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(in[0], ((weights *)ctx)->w1);
}

static void with_w2(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(in[0], ((weights *)ctx)->w2);
}

static void trip(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    out[0] = aril_mul(aril_add(in[0], in[1]), ((weights *)ctx)->w1);
}

/* in: x [3], z []; out: the chosen product, and the gradients of both weights. */
static void branch(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_cond(aril_gt_scalar(in[1], 0), with_w1, with_w2, w, ARIL_LIST(in[0]), 1, out);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(w->w1, w->w2), out + 1,
                   (aril_grad_opts){ .allow_unused = true });
}

/* in: x [T,3]; out: y_T [3], and the gradient of w. */
static void loop(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    weights *w = ctx;
    aril_tensor *y0 = aril_zeros(ARIL_SHAPE(3), ARIL_F32, aril_cpu());
    aril_scan(trip, w, ARIL_LIST(y0), ARIL_LIST(in[0]), 0, out, NULL);
    aril_gradients(aril_sum(out[0], ARIL_ALL), ARIL_LIST(w->w1), out + 1, (aril_grad_opts){ 0 });
}

static void show(const char *what, aril_tensor *t)
{
    printf("%s ", what);
    aril_print(t);
}

int main(void)
{
    weights w = { aril_parameter(aril_full(ARIL_SHAPE(3), 2, ARIL_F32, aril_cpu())),
                  aril_parameter(aril_full(ARIL_SHAPE(3), -1, ARIL_F32, aril_cpu())) };
    const aril_shape any_length = ARIL_SHAPE(-1, 3);
    aril_program *choose = aril_jit(branch, &w, (aril_jit_opts){ .name = "branch" });
    aril_program *run =
        aril_jit(loop, &w, (aril_jit_opts){ .name = "loop", .sizes = &any_length, .n_sizes = 1 });
    aril_tensor *x = aril_arange(1, 4, 1, ARIL_F32, aril_cpu()), *out[3];
    for (int z = -1; z <= 1; z += 2) {
        aril_tensor *side = aril_full(ARIL_SHAPE(), z, ARIL_F32, aril_cpu());
        aril_program_run(choose, ARIL_LIST(x, side), out);
        show(z > 0 ? "z > 0: y" : "z < 0: y", out[0]);
        show("  dy/dw1", out[1]);
        show("  dy/dw2", out[2]);
    }
    for (int64_t t = 1; t <= 3; t++) {
        aril_program_run(run, ARIL_LIST(aril_ones(ARIL_SHAPE(t, 3), ARIL_F32, aril_cpu())), out);
        show("y_T", out[0]);
        show("  dy/dw", out[1]);
    }
    printf("the loop was traced %d time(s)\n", aril_program_traces(run));
    aril_program_print(run, stdout);
    aril_program_free(choose);
    aril_program_free(run);
    aril_release(w.w1);
    aril_release(w.w2);
    return aril_report(stderr);
}
