/* Load a model and classify an image: any model of ONNX with one input [N,C,H,W] and a score for
 * each class. Without arguments, the digit that mnist-8 sees in a photograph.
 *
 *     classify MODEL.onnx IMAGE */
#include <aril/aril.h>

#include <stdio.h>
#include <stdlib.h>

/* The image in the size and channels of the model, from 0 to 1: [1,C,H,W]. */
static aril_tensor *prepare(const char *path, aril_shape input)
{
    aril_image_opts opts = { .channels = input.dim[1] == 1 ? 1 : 3 };
    aril_tensor *x = aril_unsqueeze(aril_cast(aril_image_read(path, opts), ARIL_F32), 0);
    x = aril_interpolate(x, (aril_interpolate_opts){ .size = { input.dim[2], input.dim[3] },
                                                     .mode = ARIL_LINEAR,
                                                     .antialias = true });
    return aril_div_scalar(x, 255);
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    const char *data = getenv("ARIL_TEST_DATA");
    char model[4096], image[4096];
    snprintf(model, sizeof model, "%s/onnx-models/mnist_8/model.onnx", data ? data : "data");
    snprintf(image, sizeof image, "%s/images/scikit-image/astronaut.png", data ? data : "data");
    if (argc > 1) snprintf(model, sizeof model, "%s", argv[1]);
    if (argc > 2) snprintf(image, sizeof image, "%s", argv[2]);
    FILE *there = fopen(model, "rb");
    if (!there) {
        printf("%sno model %s; classify MODEL.onnx IMAGE reads others\n", quick ? "SKIP: " : "",
               model);
        return quick ? 77 : 1;
    }
    fclose(there);
    aril_program *p = aril_program_load(model, (aril_load_opts){ 0 });
    aril_shape input = aril_program_input_shape(p, 0);
    if (p && (aril_program_inputs(p) != 1 || input.ndim != 4)) {
        fprintf(stderr, "%s: expected one input of images\n", model);
        aril_program_free(p);
        return 1;
    }
    aril_tensor *x = prepare(image, input), *scores, *class;
    if (quick && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        printf("SKIP: %s\n", aril_error());
        return 77;
    }
    aril_program_run(p, ARIL_LIST(x), &scores);
    int64_t n = aril_size(scores, 1), top = n < 3 ? n : 3;
    aril_tensor *best = aril_topk(aril_softmax(scores, 1), top, 1, (aril_topk_opts){ 0 }, &class);
    for (int64_t i = 0; i < top && aril_ok(); i++)
        printf("class %.0f: %.1f %%\n", aril_item(aril_select(aril_select(class, 0, 0), 0, i)),
               100 * aril_item(aril_select(aril_select(best, 0, 0), 0, i)));
    aril_program_free(p);
    return aril_report(stderr);
}
