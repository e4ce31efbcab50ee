#include "commands.h"

#include <aril/aril.h>

typedef struct options {
    double rtol, atol;
    const char *device;
    bool verbose, operators;
} options;

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    aril_onnx_results all = { 0 };
    if (o->operators) {
        aril_onnx_operators(stdout);
        return EXIT_DONE;
    }
    if (!n) {
        fputs("aril test-onnx: expected a FOLDER\n", stderr);
        return EXIT_USAGE;
    }
    if (!check_device(o->device)) return report("test-onnx");
    aril_onnx_test_opts opts = { .rtol = o->rtol > 0 ? o->rtol : ARIL_ZERO,
                                 .atol = o->atol > 0 ? o->atol : ARIL_ZERO,
                                 .device = device_option(o->device),
                                 .verbose = o->verbose };
    for (int i = 0; i < n; i++) {
        aril_onnx_results r;
        if (aril_onnx_test(argument[i], stdout, opts, &r) < 0) return report("test-onnx");
        all.passed += r.passed;
        all.failed += r.failed;
        all.skipped += r.skipped;
        all.random += r.random;
    }
    if (all.random)
        printf("%d passed by shape and dtype: the models draw random numbers\n", all.random);
    printf("%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped);
    return all.failed ? EXIT_FAILED : EXIT_DONE;
}

static const option table[] = {
    { .name = "rtol",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(rtol),
      .help = "relative tolerance" },
    { .name = "atol",
      .value = "X",
      .kind = OPTION_FLOAT,
      OPTION_AT(atol),
      .help = "absolute tolerance" },
    OPTION_DEVICE("device to run on"),
    { .name = "verbose", OPTION_AT(verbose), .help = "also list the cases that pass" },
    { .name = "operators",
      OPTION_AT(operators),
      .help = "print the operators that can be loaded, and run nothing" },
    { 0 },
};

static const example examples[] = {
    { "aril test-onnx onnx/backend/test/data/node", "all cases of ONNX's operators" },
    { "aril test-onnx mnist_8", "one model with its test_data_set folders" },
    { 0 },
};

const command command_test_onnx = {
    .name = "test-onnx",
    .summary = "run the test data of ONNX models",
    .arguments = "FOLDER...",
    .about = "A FOLDER holds model.onnx and test_data_set_0, test_data_set_1 ... with input_0.pb, "
             "output_0.pb ..., or folders of that form, or files light_X.onnx with "
             "light_X_output_0.pb. Cases that fail are listed with the reason; the last line "
             "counts them.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .rtol = 1e-3, .atol = 1e-5 },
    .min = 0,
    .max = -1,
    .run = run
};
