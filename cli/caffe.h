/* Caffe's nets and solvers on the command line. */
#ifndef ARIL_CLI_CAFFE_H
#define ARIL_CLI_CAFFE_H

#include "model_file.h"
#include "weights_file.h"

/* Whether it is a file of Caffe's, by its name: .prototxt, .caffemodel. */
bool is_caffe(const char *path);

/* The folder of a file, in buf. */
const char *caffe_folder(const char *path, char *buf, size_t size);

/* ---- which layers a net has ---- */

typedef struct caffe_state {
    const char *phase, *stage; /* phase NULL: the default; stage: "a,b" */
    int64_t level;
} caffe_state;

/* The values of --phase. */
const char *const *caffe_phases(void);

/* Its options, in a struct `options` that has it as `field`. */
#define CAFFE_OPTION_STAGE(field)                                                          \
    {                                                                                      \
        .name = "stage", .value = "NAME,...", .kind = OPTION_LIST, OPTION_AT(field.stage), \
        .help = "stages of a Caffe net's state, separated by commas, for the rules "       \
                "stage and not_stage of its layers"                                        \
    }
#define CAFFE_OPTION_LEVEL(field)                                                      \
    {                                                                                  \
        .name = "level", .value = "N", .kind = OPTION_INTEGER, OPTION_AT(field.level), \
        .max = 2147483647,                                                             \
        .help = "level of a Caffe net's state, for the rules min_level and "           \
                "max_level of its layers"                                              \
    }
#define CAFFE_OPTION_PHASE(field, default_)                                               \
    {                                                                                     \
        .name = "phase", .value = "PHASE", .kind = OPTION_STRING, OPTION_AT(field.phase), \
        .choices = caffe_phases, .only_choices = true, .by_default = default_,            \
        .help = "phase of a Caffe net: TRAIN or TEST"                                     \
    }

/* The same for the library: `list` holds the stages. */
enum { CAFFE_STAGES = 64 };
typedef struct caffe_stages {
    char text[4096];
    const char *at[CAFFE_STAGES];
} caffe_stages;
/* False after an error: too many stages. */
bool caffe_state_opts(const caffe_state *s, aril_caffe_phase by_default, caffe_stages *list,
                      aril_caffe_opts *opts);

/* ---- train, test ---- */

/* What signals do; the values of --sigint-effect and --sighup-effect. */
const char *const *caffe_effects(void);

typedef struct caffe_train_options {
    const char *solver, *weights, *snapshot, *sigint, *sighup, *memory, *test_memory;
    caffe_state state;
    bool glog;
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
                    "sigint-effect sighup-effect stage level glog ",                       \
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
        CAFFE_OPTION_STAGE(caffe.state), CAFFE_OPTION_LEVEL(caffe.state),                  \
        { .name = "glog",                                                                  \
          OPTION_AT(caffe.glog),                                                           \
          .help = "begin lines of the output with glog's prefix (date, time, thread), "    \
                  "for Caffe's parse_log.py" },                                            \
    {                                                                                      \
        .name = "sighup-effect", .value = "EFFECT", .kind = OPTION_STRING,                 \
        OPTION_AT(caffe.sighup), .choices = caffe_effects, .only_choices = true,           \
        .by_default = "snapshot", .help = "the same for SIGHUP"                            \
    }

/* Whether a training without --solver has neither a file of Caffe as its MODEL nor options of
 * solvers among its values. False after a message. */
bool caffe_is_unused(const char *model, const void *values);

/* aril train --solver. device NULL: that of the solver; workers 0: the default. */
int caffe_train(const caffe_train_options *o, const char *device, int64_t workers, bool quiet);

typedef struct caffe_test_options {
    const char *model, *weights, *memory;
    caffe_state state;
    int64_t iterations;
} caffe_test_options;

int caffe_test(const char *net, const caffe_test_options *o, const char *device);

/* ---- nets as models ---- */

/* Opens a net. The shapes of its inputs have `batch` as their first size unless it is 0. NULL after
 * an error. */
aril_module *caffe_open(const char *net, aril_caffe_opts opts, int64_t batch);

typedef struct caffe_predict_options {
    const char *weights;
    image_options images;
} caffe_predict_options;

/* Opens a net for images as a model. False after an error. */
bool caffe_model(const char *net, const caffe_predict_options *o, model_file *m);
/* Reads an image as such a net expects it: [1,C,H,W]. */
aril_tensor *caffe_image(const model_file *m, const char *path, const caffe_predict_options *o);

/* Warns of layers of the net whose blobs were not in the file of weights, and if `ignored` of those
 * of the file that the net does not have. */
void caffe_report_weights(const char *what, const aril_module *net, bool ignored);

/* Warns that a net without weights is random, once it is built, if it has parameters. */
void caffe_random(const char *what, const aril_module *net);

/* aril convert of a net: to .onnx, .caffemodel, .prototxt or a file of weights. */
int caffe_convert(const char *from, const char *to, const char *weights, aril_export_opts opts,
                  const weights_options *o);
/* Whether that writes blobs as they are in a file, and the options of weights apply. */
bool caffe_keeps_blobs(const char *from, const char *to, const char *weights);
/* aril convert of a single blob, such as a mean: from and to .binaryproto, .npy and files of
 * weights. */
int caffe_convert_blob(const char *from, const char *to);
/* Whether one of two files is a .binaryproto. */
bool caffe_is_blob(const char *from, const char *to);

typedef struct caffe_time_options {
    const char *weights, *device;
    caffe_state state;
    int64_t batch, iterations; /* iterations 0: as many as fit into `seconds` */
    double seconds;
} caffe_time_options;

/* aril time of a net: of its layers and as a whole, forward and backward. */
int caffe_time(const char *net, const caffe_time_options *o);

/* aril show of a net (.prototxt): its layers with their outputs and parameters. -1 without a
 * message: it is no net that can be opened. */
int caffe_show(const char *net, const caffe_state *state);

#endif
