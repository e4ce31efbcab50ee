/* Train, export, run elsewhere: a network learns on which of two spirals a point is, is written as
 * a model of ONNX, and read again as another program would read it. The training step is written,
 * too: its parameters are inputs and outputs, so that any program that runs ONNX can train on.
 *
 *     export [MODEL.onnx] */
#include <aril/aril.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 256 };

typedef struct training {
    aril_module *net;
    aril_optim *opt;
} training;

/* in: x [N,2], class [N]; out: the loss. */
static void train_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    training *t = ctx;
    out[0] = aril_cross_entropy(aril_forward(t->net, in[0]), in[1]);
    aril_backward(out[0]);
    aril_step(t->opt);
}

/* Two spirals: x [N,2], class [N]. */
static void spirals(aril_tensor **x, aril_tensor **y)
{
    float point[POINTS][2];
    int64_t class[POINTS];
    for (int i = 0; i < POINTS; i++) {
        double t = 1 + 6.0 * (i / 2) / POINTS, side = i % 2 ? 1 : -1;
        point[i][0] = (float)(side * t * cos(2 * t) / 4);
        point[i][1] = (float)(side * t * sin(2 * t) / 4);
        class[i] = i % 2;
    }
    *x = aril_from(point, ARIL_SHAPE(POINTS, 2), ARIL_F32, aril_cpu());
    *y = aril_from(class, ARIL_SHAPE(POINTS), ARIL_I64, aril_cpu());
}

static double accuracy(aril_tensor *logits, aril_tensor *y)
{
    aril_tensor *right = aril_eq(aril_argmax(logits, ARIL_AXES(1)), y);
    return aril_item(aril_mean(aril_cast(right, ARIL_F32), ARIL_ALL));
}

int main(int argc, char **argv)
{
    int steps = getenv("ARIL_EXAMPLE_QUICK") ? 50 : 1000;
    const char *path = argc > 1 ? argv[1] : "spirals.onnx";
    static const char *const inputs[] = { "point" }, *const outputs[] = { "logits" };
    aril_tensor *x, *y, *loss = NULL, *logits;
    spirals(&x, &y);
    aril_seed(1);
    training t = { .net = aril_nn_sequential(aril_nn_linear(2, 32), aril_nn_tanh(),
                                             aril_nn_linear(32, 32), aril_nn_tanh(),
                                             aril_nn_linear(32, 2)) };
    t.opt = aril_adam(aril_parameters(t.net), (aril_adam_opts){ .lr = 0.01 });
    aril_program *step = aril_jit(train_step, &t, (aril_jit_opts){ .name = "step" });
    for (int i = 0; i < steps; i++) aril_program_run(step, ARIL_LIST(x, y), &loss);
    printf("loss %.4f after %d steps\n", aril_item(loss), steps);

    /* The network, for any number of points. */
    aril_module_export(t.net, ARIL_LIST(x), path,
                       (aril_export_opts){ .batch = true, .inputs = inputs, .outputs = outputs });
    aril_program *model = aril_program_load(path, (aril_load_opts){ 0 });
    aril_program_run(model, ARIL_LIST(x), &logits);
    printf("%s: input %s, output %s, accuracy %.3f\n", path, aril_program_input_name(model, 0),
           aril_program_output_name(model, 0), accuracy(logits, y));

    /* The step: outputs are the loss and "0.weight.next" ..., inputs "0.weight" .... */
    aril_program_export(step, ARIL_LIST(x, y), "spirals-step.onnx", (aril_export_opts){ 0 });
    aril_program_free(model);
    aril_program_free(step);
    aril_optim_free(t.opt);
    aril_module_release(t.net);
    return aril_report(stderr);
}
