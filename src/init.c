/* Library startup and shutdown: the only file that refers to every part of the library. */
#include "autograd/node.h"
#include "backend/cpu/rows.h"
#include "backend/onednn/rows.h"
#include "core/device.h"
#include "core/profile.h"
#include "core/replaced.h"
#include "core/thread.h"
#include "formats/describe.h"
#include "formats/weights/weights.h"
#include "graph/trace.h"
#include "nn/module.h"
#include "ops/table/apply.h"
#include "ops/elementwise/formula.h"
#include "ops/table/plans.h"
#include "ops/table/rows.h"
#include "ops/table/tuning.h"

/* The readers of weights. */
const aril__weights_kind *const aril__weights_kinds[] = {
    &aril__onnx_weights,
    &aril__safetensors_weights,
    &aril__caffe_hdf5_weights, /* before HDF5 of any kind */
    &aril__hdf5_weights,
    &aril__pytorch_weights,
    &aril__npz_weights,
    &aril__npy_weights,
    &aril__parts_weights,
    &aril__tensorflow_weights,
    &aril__matlab_weights,
    &aril__caffe_weights,
    NULL,
};

/* The files of models that are printed as text. */
const aril__describer *const aril__describers[] = {
    &aril__solverstate_hdf5_describer, /* by its contents */
    &aril__onnx_describer,
    &aril__caffemodel_describer,
    &aril__prototxt_describer,
    &aril__binaryproto_describer,
    &aril__solverstate_describer,
    NULL,
};

void aril__library_start(void)
{
    aril__hook.release_node = aril__node_release;
    aril__hook.release_view = aril__view_release;
    aril__hook.node_name = aril__node_name;
    aril__hook.keep_symbol = aril__symbol_keep;
    aril__hook.release_symbol = aril__symbol_release;
    aril__hook.generator_freed = aril__rng_freed;
    aril__replaced_hook = aril__trace_replaced;
    aril__hook.generator_set = aril__rng_set;
    aril__hook.thread_end = aril__plans_thread_end;
    aril__hook.where = aril__module_where;
    aril__tape_hook = aril__autograd_tape;
    aril__devices_start();
    if (aril__formulas_start() < 0 || aril__cpu_start_ahead() < 0 || aril__dnn_start() < 0 ||
        aril__cpu_start() < 0 || aril__dnn_start_behind() < 0) {
        /* Only out of memory can fail here, whatever error the part reports (tests would catch an
         * invalid table). Every later call fails too and reports it. */
        aril__devices_close();
        return;
    }
    aril__open_plugins = aril__plugins_open;
    aril__plugin_reason = aril__plugins_reason;
    aril__profile_start();
}

void aril__library_end(void)
{
    aril__formulas_shutdown();
    aril__plans_shutdown();
    aril__dnn_end();
    aril__rows_shutdown();
    aril__plugins_shutdown();
    aril__tuning_shutdown();
    aril__cpu_end();
}

const char *aril_version(void)
{
#define TEXT(x)          #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
    return VERSION(ARIL_VERSION_MAJOR, ARIL_VERSION_MINOR, ARIL_VERSION_PATCH);
}
