/* Sizes that a model of ONNX leaves open, and those that the command line gives them. */
#ifndef ARIL_CLI_ONNX_SIZES_H
#define ARIL_CLI_ONNX_SIZES_H

#include <aril/aril.h>

enum { ONNX_INPUTS = 64, ONNX_SIZE_NAMES = 128 };

typedef struct onnx_sizes {
    int n; /* inputs */
    aril_shape known[ONNX_INPUTS];
    /* The same as aril_export_opts takes them: negative where the model leaves a size open that was
     * not given; names[k] is what -2 - k is called. */
    aril_shape open[ONNX_INPUTS];
    const char *names[ONNX_SIZE_NAMES];
    int n_names;
} onnx_sizes;

/* `given` is "seq=7,ids=2x7": sizes by their names, and whole shapes of inputs; or NULL. Open sizes
 * that are not given are `batch` where the first size of an input has their name, or they are first
 * and have none; else 1. False with an error. */
bool onnx_sizes_read(const aril_program *p, const char *given, int64_t batch, onnx_sizes *to);

#define OPTION_SIZE(help_)                                                                    \
    {                                                                                         \
        .name = "size", .value = "SIZES", .kind = OPTION_LIST, OPTION_AT(size), .help = help_ \
    }

#endif
