/* Exported models with their values, in the layout of ONNX's tests, under the folder that
 * ARIL_EXPORT_DIR names: for tests/peers/onnx_exports.py. */
#ifndef ARIL_TESTS_EXPORT_CASE_H
#define ARIL_TESTS_EXPORT_CASE_H

#include "aril/aril.h"
#include "formats/schemas.h"
#include "onnx/export.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <sys/stat.h>

/* Where the model of a case is written: the test's own folder if no cases are kept. */
static inline const char *case_path(const char *name)
{
    static char path[1400];
    const char *keep = getenv("ARIL_EXPORT_DIR");
    if (!keep) return temp_path("model.onnx");
    mkdir(keep, 0777);
    snprintf(path, sizeof path, "%s/%s", keep, name);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/model.onnx", keep, name);
    return path;
}

static inline void case_value(const char *folder, const char *kind, int i, aril_tensor *t)
{
    char path[2400];
    snprintf(path, sizeof path, "%s/%s_%d.pb", folder, kind, i);
    aril__message *m = aril__message_new(&aril__onnx_TensorProto);
    aril__export_tensor(m, aril_contiguous(aril_detach(t)), kind);
    if (aril__message_save(m, path) < 0) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril__message_free(m);
}

/* Values of one run: the inputs of the model in its order, and its outputs. */
static inline void keep_case(const char *name, int set, int n_in, aril_tensor *const *in, int n_out,
                             aril_tensor *const *out)
{
    char folder[1400];
    const char *keep = getenv("ARIL_EXPORT_DIR");
    if (!keep) return;
    ARIL_SCOPE;
    snprintf(folder, sizeof folder, "%s/%s/test_data_set_%d", keep, name, set);
    mkdir(folder, 0777);
    for (int i = 0; i < n_in; i++) case_value(folder, "input", i, in[i]);
    for (int i = 0; i < n_out; i++) case_value(folder, "output", i, out[i]);
}

#endif
