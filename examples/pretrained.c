/* Fine-tuning beats training from scratch: ResNet-20 with weights that PyTorch made learns six
 * animals from a few images by a new head alone; the same network from scratch gets all the rest.
 *
 *     pretrained [WEIGHTS [CIFAR.bin]]
 *
 * WEIGHTS are the published ones by default (`aril zoo get resnet20`). CIFAR.bin is a batch of
 * CIFAR-10's binary files, such as test_batch.bin; it may be packed by xz. */
#include <aril/aril.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 1 + 3 * 32 * 32, MOST = 10000, FEW = 200, TEST = 300 };

/* CIFAR-10's classes bird, cat, deer, dog, frog and horse have the numbers 2 to 7. */
enum { FIRST = 2, CLASSES = 6 };

typedef struct images {
    aril_tensor *x, *y; /* [N,3,32,32], normalized; [N] */
    int64_t n;
} images;

/* Reads the animals of a file of records, a class and the pixels each. */
static images read_images(const char *path, const aril_preprocess *p)
{
    ARIL_SCOPE;
    images a = { 0 };
    char command[4200];
    const char *dot = strrchr(path, '.');
    bool packed = dot && strcmp(dot, ".xz") == 0;
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = packed ? popen(command, "r") : fopen(path, "rb");
    unsigned char *pixels = malloc((size_t)MOST * RECORD), record[RECORD];
    int64_t *class = malloc(MOST * sizeof *class);
    while (f && pixels && class && a.n < MOST && fread(record, RECORD, 1, f) == 1) {
        if (record[0] < FIRST || record[0] >= FIRST + CLASSES) continue;
        class[a.n] = record[0] - FIRST;
        memcpy(pixels + (RECORD - 1) * a.n++, record + 1, RECORD - 1);
    }
    if (f) packed ? pclose(f) : fclose(f);
    if (a.n > FEW + TEST) {
        /* Normalized as for the published weights. */
        aril_tensor *mean = aril_from(p->mean, ARIL_SHAPE(3, 1, 1), ARIL_F64, aril_cpu());
        aril_tensor *std = aril_from(p->std, ARIL_SHAPE(3, 1, 1), ARIL_F64, aril_cpu());
        aril_tensor *x = aril_from(pixels, ARIL_SHAPE(a.n, 3, 32, 32), ARIL_U8, aril_cpu());
        x = aril_div(aril_sub(aril_div_scalar(aril_cast(x, ARIL_F64), 255), mean), std);
        a.x = aril_keep(aril_cast(x, ARIL_F32));
        a.y = aril_keep(aril_from(class, ARIL_SHAPE(a.n), ARIL_I64, aril_cpu()));
    }
    free(pixels);
    free(class);
    return a;
}

/* Trains on images [from, to) and returns the accuracy on the last TEST ones. */
static double train(aril_module *net, const images *a, int64_t from, int64_t to, double lr,
                    int epochs)
{
    aril_model *model = aril_model_new(net, ARIL_SHAPE(3, 32, 32));
    aril_model_compile(model, (aril_model_opts){
                                  .loss = "cross_entropy",
                                  .metrics = "accuracy",
                                  .optimizer = aril_adam(NULL, (aril_adam_opts){ .lr = lr }) });
    ARIL_SCOPE;
    int64_t test = a->n - TEST;
    aril_samples held_out = { aril_slice(a->x, 0, test, a->n, 1),
                              aril_slice(a->y, 0, test, a->n, 1) };
    aril_history *h =
        aril_model_fit(model, aril_slice(a->x, 0, from, to, 1), aril_slice(a->y, 0, from, to, 1),
                       (aril_fit_opts){ .epochs = epochs, .verbose = 2 });
    double accuracy = 0;
    if (h) {
        aril_model_evaluate(model, held_out.x, held_out.y, (aril_eval_opts){ 0 });
        accuracy = aril_model_value(model, "accuracy");
    }
    aril_model_free(model);
    return accuracy;
}

int main(int argc, char **argv)
{
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    const char *data = getenv("ARIL_TEST_DATA");
    char weights[4096] = "default", batch[4096] = "test_batch.bin";
    if (data) {
        snprintf(weights, sizeof weights, "%s/pytorch-models/cifar10-resnet/resnet20-12fca82f.th",
                 data);
        snprintf(batch, sizeof batch, "%s/cifar10/test_batch_first2000.bin.xz", data);
    }
    if (argc > 1) snprintf(weights, sizeof weights, "%s", argv[1]);
    if (argc > 2) snprintf(batch, sizeof batch, "%s", argv[2]);
    const aril_zoo_entry *e = aril_zoo_find("resnet20");
    images a = read_images(batch, &e->preprocess);
    if (!a.x) {
        printf("%sexpected images of CIFAR-10 in %s\n", quick ? "SKIP: " : "", batch);
        return quick ? 77 : 1;
    }
    aril_seed(1);
    aril_zoo_opts opts = { .classes = CLASSES, .weights = weights };
    aril_module *tuned = aril_zoo_make("resnet20", opts);
    if (!tuned) return aril_report(stderr);
    aril_zoo_freeze_backbone(e, tuned); /* the new head alone */
    printf("%d images, %lld of %lld numbers:\n", FEW, (long long)aril_trainable_count(tuned),
           (long long)aril_parameter_count(tuned));
    double by_tuning = train(tuned, &a, 0, FEW, 0.01, quick ? 5 : 20);

    opts.weights = NULL;
    int64_t rest = a.n - TEST - FEW;
    printf("\n%lld images, from scratch:\n", (long long)rest);
    double from_scratch =
        train(aril_zoo_make("resnet20", opts), &a, FEW, FEW + rest, 0.002, quick ? 1 : 20);

    printf("\naccuracy on %d others: %.3f fine-tuned on %d images, %.3f from scratch on %lld\n",
           TEST, by_tuning, FEW, from_scratch, (long long)rest);
    aril_release(a.x);
    aril_release(a.y);
    if (aril_ok() && by_tuning <= from_scratch) return 1;
    return aril_report(stderr);
}
