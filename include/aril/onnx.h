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

#include "aril/formats.h"
#include "aril/graph.h"
#include "aril/module.h"
#include "aril/value.h"

ARIL_C_BEGIN

typedef struct aril_load_opts {
    aril_device device; /* where the model runs; default the CPU */
    /* Instead of the model's outputs, the value of this name: the nodes after it are left out. To
     * put another head on a network. */
    const char *output;
    /* The first size of every input may be any, also where the model declares it, as models do that
     * were exported for one sample: to train in batches. A Reshape to the declared number of
     * samples keeps the given number. Where the model does not hold for another, runs fail. */
    bool open_batch;
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

/* The name that the model gives to open size d of an input, such as "batch"; NULL: it has none, or
 * the size is known. Belongs to the program. */
ARIL_API const char *aril_program_input_size_name(const aril_program *p, int i, int d);

/* What an input takes and an output returns: a tensor, or what only aril_program_run_values takes
 * (strings, a sequence, a map, an optional). */
ARIL_API aril_value_kind aril_program_input_kind(const aril_program *p, int i);
ARIL_API aril_value_kind aril_program_output_kind(const aril_program *p, int i);

/* What the file says of the model beside it, such as names of classes: the entries of its
 * metadata_props. They belong to the program; n is 0 for one that is not loaded. */
ARIL_API aril_metadata aril_program_metadata(const aril_program *p);

/* ---- modules ---- */

/* The model as a module, to be trained further: its parameters are the floating-point initializers,
 * by their names ("layer1.0.weight" is a tensor of a child of a child); running statistics of batch
 * norm and numbers that steer other operators (scales of Resize, of quantization) are buffers. It
 * takes the model's inputs and returns its outputs. Batch norm uses its running statistics and
 * dropout does nothing, as in the file, also in training. NULL with an error, as
 * aril_program_load. */
ARIL_API aril_module *aril_module_load(const char *path, aril_load_opts opts);

/* ---- writing ----
 *
 *     aril_module_export(net, ARIL_LIST(x), "net.onnx", (aril_export_opts){ .batch = true });
 *
 * The model computes what the module or program computes, in operators of ONNX's default domain:
 * other programs run it without Aril. Names of parameters are those of the modules. An op that ONNX
 * has no form for is an error that names it. A file is replaced atomically, and stays as it was on
 * failure. Text must be UTF-8, and names must not be empty. */

typedef struct aril_export_opts {
    int opset; /* version of the operator set, 13 to 28; default 18 */
    /* Of the graph; default: that of a loaded model, of the program, or the module's type. */
    const char *name;
    /* Names of inputs and results, one for each; default those of a loaded model or a graph's
     * placeholders, otherwise "input" and "output", numbered if there are several. */
    const char *const *inputs, *const *outputs;
    /* Sizes that are left open, as in aril_jit_opts: negative numbers in one shape for each input.
     * size_names[k], of n_size_names, is what the size -2 - k is called. Other sizes are those of
     * the inputs. */
    const aril_shape *sizes;
    int n_sizes;
    const char *const *size_names;
    int n_size_names;
    /* Instead of `sizes`: the first size of every input is left open, and called "batch". An error
     * if the model does not hold for other numbers of samples. */
    bool batch;
    /* Parameters lie in a file PATH.data beside the model, or PATH.data1 if that is the one of the
     * model that is replaced, whose data are removed then; also without this if they take more
     * than 2 GB, which is the limit of a model's file. */
    bool external_data;
    /* Entries of metadata_props, each key once; default those of a loaded program. */
    const aril_metadata *metadata;
} aril_export_opts;

/* Writes a module in evaluation mode. The inputs give sizes and dtypes; their values don't matter:
 * branches and loops of a loaded model that depend on them are written as such. */
ARIL_API aril_status aril_module_export(aril_module *m, aril_list inputs, const char *path,
                                        aril_export_opts opts);

/* Writes a program (aril_jit, aril_program_load). Tensors from outside that it changes, such as the
 * parameters and the optimizer's state of a training step, are inputs of the model, whose defaults
 * are the values of now; after its results the model has outputs NAME.next, to be fed to the next
 * run. Gradients that it leaves are outputs NAME.grad. */
ARIL_API aril_status aril_program_export(const aril_program *p, aril_list inputs, const char *path,
                                         aril_export_opts opts);

/* Writes a part of a graph that was defined: it takes values for the placeholders `inputs` and
 * returns those of `outputs`, then the new values of the variables that `updates` (the results of
 * aril_assign and its like) assign to. Sizes that the placeholders leave open stay so; `sizes` and
 * `batch` are not used. */
ARIL_API aril_status aril_graph_export(aril_list inputs, aril_list outputs, aril_list updates,
                                       const char *path, aril_export_opts opts);

/* ---- test data ---- */

typedef struct aril_onnx_results {
    int passed, failed, skipped;
    int random; /* of the passed: by shape and dtype alone, as the model draws random numbers */
} aril_onnx_results;

typedef struct aril_onnx_test_opts {
    double rtol, atol; /* default 1e-3 and 1e-5; ARIL_ZERO: 0 */
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
