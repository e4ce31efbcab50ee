/* Models of ONNX as programs.
 *
 *     aril_program *p = aril_program_load("model.onnx", (aril_load_opts){ 0 });
 *     aril_tensor *y;
 *     aril_program_run(p, ARIL_LIST(x), &y);
 *
 * The model is traced once for each signature of its inputs, as by aril_jit: sizes that the model
 * computes from those of its inputs are constants of the trace. A model in which they depend on
 * values (the number of boxes that a detector finds) is interpreted at each run. */
#ifndef ARIL_ONNX_H
#define ARIL_ONNX_H

#include "aril/graph.h"
#include "aril/module.h"

ARIL_C_BEGIN

typedef struct aril_load_opts {
    aril_device device; /* where the model runs; default the CPU */
    /* Instead of the model's outputs, the value of this name: the nodes after it are left out. To
     * put another head on a network. */
    const char *output;
} aril_load_opts;

/* Reads an ONNX model: IR versions 3 to 14, operator sets 1 to 28. NULL with an error when the file
 * is malformed, or has operators that are not supported: the message lists them with node and
 * version. Data outside the file are read from the model's folder, never from elsewhere. */
ARIL_API aril_program *aril_program_load(const char *path, aril_load_opts opts);

/* The inputs that a run takes, in order: those of the model without an initializer. And its
 * outputs. 0 for programs that are not loaded. */
ARIL_API int aril_program_inputs(const aril_program *p);
ARIL_API int aril_program_outputs(const aril_program *p);

/* The name of an input or output; NULL if there is none. Belongs to the program. */
ARIL_API const char *aril_program_input_name(const aril_program *p, int i);
ARIL_API const char *aril_program_output_name(const aril_program *p, int i);

/* The declared sizes of an input, -1 where the model leaves one open; no dimensions if it declares
 * none. And its dtype. */
ARIL_API aril_shape aril_program_input_shape(const aril_program *p, int i);
ARIL_API aril_dtype aril_program_input_dtype(const aril_program *p, int i);

/* ---- modules ---- */

/* The model as a module, to be trained further: its parameters are the floating-point initializers,
 * by their names ("layer1.0.weight" is a tensor of a child of a child); running statistics of batch
 * norm and numbers that steer other operators (scales of Resize, of quantization) are buffers. It
 * takes the model's inputs and returns its outputs. Batch norm uses its running statistics and
 * dropout does nothing, as in the file, also in training. NULL with an error, as
 * aril_program_load. */
ARIL_API aril_module *aril_module_load(const char *path, aril_load_opts opts);

/* ---- test data ---- */

typedef struct aril_onnx_results {
    int passed, failed, skipped;
    int random; /* of the passed: by shape and dtype alone, as the model draws random numbers */
} aril_onnx_results;

typedef struct aril_onnx_test_opts {
    double rtol, atol; /* default 1e-3 and 1e-5 */
    aril_device device;
    bool verbose; /* also lists what passed */
} aril_onnx_test_opts;

/* Runs ONNX's backend tests: a folder with model.onnx and test_data_set_0 ... (input_0.pb,
 * output_0.pb), a folder of such folders, or files light_X.onnx with light_X_output_0.pb. Prints
 * the name and the reason of each case that fails. A folder without any is an error. */
ARIL_API aril_status aril_onnx_test(const char *folder, FILE *to, aril_onnx_test_opts opts,
                                    aril_onnx_results *results);

/* Prints the operators that can be loaded, with their versions, as a page in Markdown. */
ARIL_API void aril_onnx_operators(FILE *to);

ARIL_C_END

#endif
