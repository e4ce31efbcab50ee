/* Caffe's nets and solvers on the command line. */
#ifndef ARIL_CLI_CAFFE_H
#define ARIL_CLI_CAFFE_H

#include "model_file.h"
#include "weights_file.h"

/* Whether it is a file of Caffe's, by its name: .prototxt, .caffemodel. */
bool is_caffe(const char *path);

/* The folder of a file, in buf. */
const char *caffe_folder(const char *path, char *buf, size_t size);

/* ---- train, test ---- */

/* What signals do; the values of --sigint-effect and --sighup-effect. */
const char *const *caffe_effects(void);

typedef struct caffe_train_options {
    const char *solver, *weights, *snapshot, *sigint, *sighup, *memory, *test_memory;
} caffe_train_options;

#define CAFFE_MEMORY_HELP                                                              \
    "arrays for MemoryData layers, named as their tops: an .npz, .h5 or .safetensors " \
    "file"

/* Its options, in a struct `options` that has it as `caffe`. */
#define CAFFE_TRAIN_OPTIONS                                                                \
    { .name = "", .help = "Solvers of Caffe, without MODEL:" },                            \
        { .name = "solver",                                                                \
          .value = "FILE",                                                                 \
          .kind = OPTION_FILE,                                                             \
          OPTION_AT(caffe.solver),                                                         \
          .beside = "device threads workers quiet weights snapshot memory test-memory "    \
                    "sigint-effect sighup-effect ",                                        \
          .help = "train as this solver says; of the options above, --device, --threads, " \
                  "--workers and "                                                         \
                  "--quiet apply" },                                                       \
        { .name = "snapshot",                                                              \
          .value = "FILE",                                                                 \
          .kind = OPTION_FILE,                                                             \
          OPTION_AT(caffe.snapshot),                                                       \
          .help = "solverstate to resume from" },                                          \
        { .name = "memory",                                                                \
          .value = "FILE",                                                                 \
          .kind = OPTION_FILE,                                                             \
          OPTION_AT(caffe.memory),                                                         \
          .help = CAFFE_MEMORY_HELP },                                                     \
        { .name = "test-memory",                                                           \
          .value = "FILE",                                                                 \
          .kind = OPTION_FILE,                                                             \
          OPTION_AT(caffe.test_memory),                                                    \
          .by_default = "that of --memory",                                                \
          .help = "the same for the test nets" },                                          \
        { .name = "sigint-effect",                                                         \
          .value = "EFFECT",                                                               \
          .kind = OPTION_STRING,                                                           \
          OPTION_AT(caffe.sigint),                                                         \
          .choices = caffe_effects,                                                        \
          .only_choices = true,                                                            \
          .by_default = "stop",                                                            \
          .help = "what Ctrl-C does: stop, after a snapshot; snapshot; none" },            \
    {                                                                                      \
        .name = "sighup-effect", .value = "EFFECT", .kind = OPTION_STRING,                 \
        OPTION_AT(caffe.sighup), .choices = caffe_effects, .only_choices = true,           \
        .by_default = "snapshot", .help = "the same for SIGHUP"                            \
    }

/* aril train --solver. device NULL: that of the solver; workers 0: the default. */
int caffe_train(const caffe_train_options *o, const char *device, int64_t workers, bool quiet);

typedef struct caffe_test_options {
    const char *model, *weights, *stage, *memory;
    int64_t iterations, level;
} caffe_test_options;

int caffe_test(const char *net, const caffe_test_options *o, const char *device);

/* ---- nets as models ---- */

/* Opens a net in the test phase with its weights (NULL: random ones). Shapes have `batch` as their
 * first size unless it is 0. NULL after an error. */
aril_module *caffe_open(const char *net, const char *weights, int64_t batch,
                        aril_caffe_phase phase);

typedef struct caffe_predict_options {
    const char *weights;
    image_options images;
} caffe_predict_options;

/* Opens a net for images as a model. False after an error. */
bool caffe_model(const char *net, const caffe_predict_options *o, model_file *m);
/* Reads an image as such a net expects it: [1,C,H,W]. */
aril_tensor *caffe_image(const model_file *m, const char *path, const caffe_predict_options *o);

/* Warns that a net without weights is random, once it is built, if it has parameters. */
void caffe_random(const char *what, const aril_module *net);

/* aril convert of a net: to .onnx, .caffemodel, .prototxt or a file of weights. */
int caffe_convert(const char *from, const char *to, const char *weights, aril_export_opts opts,
                  const weights_options *o);
/* aril time of a net: of its layers and as a whole, forward and backward. */
int caffe_time(const char *net, const char *weights, int64_t batch, double seconds);

#endif
