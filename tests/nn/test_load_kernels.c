/* Loading kernels in the order of Keras into modules, and files of which nothing fits. */
#include "aril/aril.h"
#include "formats/hdf5.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

enum { DENSE = 5, KERNELS = 5 };

/* A module, and tensors for it whose element at [h,w,i,o] is 1000 h + 100 w + 10 i + o. */
static aril_module *kernels(aril_named *file)
{
    static const char *const name[] = { "dense", "conv", "depthwise", "transposed", "table" };
    static aril_tensor *at[KERNELS];
    aril_shape shape[] = { ARIL_SHAPE(1, 1, DENSE, DENSE), ARIL_SHAPE(2, 3, 4, 6),
                           ARIL_SHAPE(3, 3, 4, 2), ARIL_SHAPE(2, 2, 3, 5), ARIL_SHAPE(1, 1, 4, 4) };
    for (int k = 0; k < KERNELS; k++) {
        aril_tensor *t = aril_scalar(0);
        for (int d = 0; d < 4; d++) {
            static const double digit[] = { 1000, 100, 10, 1 };
            aril_shape one = ARIL_SHAPE(1, 1, 1, 1);
            one.dim[d] = shape[k].dim[d];
            aril_tensor *i = aril_arange(0, (double)one.dim[d], 1, ARIL_F32, aril_cpu());
            t = aril_add(t, aril_reshape(aril_mul(i, aril_scalar(digit[d])), one));
        }
        bool flat = k == 0 || k == 4;
        at[k] = flat ? aril_reshape(t, ARIL_SHAPE(shape[k].dim[2], shape[k].dim[3])) : t;
    }
    *file = (aril_named){ KERNELS, at, name };
    return aril_nn_sequential(
        aril_nn_linear_with(DENSE, DENSE, (aril_nn_linear_opts){ .no_bias = true }),
        aril_nn_conv2d_with(4, 6, 0, (aril_nn_conv_opts){ .kernel = { 2, 3 }, .no_bias = true }),
        aril_nn_conv2d_with(4, 8, 3, (aril_nn_conv_opts){ .groups = 4, .no_bias = true }),
        aril_nn_conv_transpose2d_with(5, 3, 2, (aril_nn_conv_opts){ .no_bias = true }),
        aril_nn_embedding(4, 4));
}

static const aril_rename to_module[] = { { "dense", "0.weight" },     { "conv", "1.weight" },
                                         { "depthwise", "2.weight" }, { "transposed", "3.weight" },
                                         { "table", "4.weight" },     { 0 } };

static double element(aril_module *m, const char *name, int64_t a, int64_t b, int64_t c, int64_t d)
{
    ARIL_SCOPE;
    aril_tensor *t = aril_module_tensor(m, name);
    bool flat = aril_ndim(t) == 2;
    t = aril_select(aril_select(t, 0, a), 0, b);
    return aril_item(flat ? t : aril_select(aril_select(t, 0, c), 0, d));
}

static void check_turned(aril_module *m, const aril_weights_report *r)
{
    CHECK_INT(r->loaded, KERNELS);
    CHECK_INT(r->turned, KERNELS - 1);
    CHECK_NEAR(element(m, "0.weight", 3, 1, 0, 0), 13, 0);           /* [out,in] */
    CHECK_NEAR(element(m, "1.weight", 5, 3, 1, 2), 1235, 0);         /* [out,in,h,w] */
    CHECK_NEAR(element(m, "2.weight", 2 * 3 + 1, 0, 2, 1), 2131, 0); /* [in * multiplier,1,h,w] */
    CHECK_NEAR(element(m, "3.weight", 4, 2, 1, 0), 1024, 0);         /* [in,out,h,w] */
    CHECK_NEAR(element(m, "4.weight", 1, 3, 0, 0), 13, 0);           /* no kernel */
}

TEST(kernels_in_the_order_of_keras)
{
    ARIL_SCOPE;
    aril_named file;
    aril_weights_report report;
    aril_module *m = kernels(&file);
    const char *path = temp_path("kernels.safetensors");
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril_weights_save(path, &file, (aril_weights_save_opts){ 0 }), ARIL_OK);
    aril_load_weights_opts opts = { .rename = to_module, .report = &report };
    CHECK_INT(aril_load_weights(m, path, opts), ARIL_ERR_SHAPE); /* the order is not known */
    aril_weights_report_free(&report);
    aril_clear_error();
    opts.order = ARIL_ORDER_KERAS;
    CHECK_MSG(aril_load_weights(m, path, opts) == ARIL_OK, "%s", aril_error());
    check_turned(m, &report);
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    aril_weights_report_print(&report, to, 0);
    fclose(to);
    bool told = text && strcmp(text, "5 loaded, 4 of them turned from Keras' order\n") == 0;
    free(text);
    aril_weights_report_free(&report);
    CHECK(told);
    opts.order = (aril_weights_order)7;
    CHECK_INT(aril_load_weights(m, path, opts), ARIL_ERR_ARG);
    aril_clear_error();
    aril_module_release(m);
}

/* What tells a file of weights of Keras 3. */
TEST(kernels_in_files_of_keras)
{
    ARIL_SCOPE;
    static const char *const group = "vars";
    aril_named file;
    aril_weights_report report;
    aril_module *m = kernels(&file);
    const char *path = temp_path("kernels.weights.h5");
    aril__hdf5_contents contents = { .arrays = file, .n_groups = 1, .group = &group };
    aril_status s = aril__hdf5_write(path, &contents);
    if (s == ARIL_ERR_UNSUPPORTED) {
        aril_module_release(m);
        aril_clear_error();
        SKIP("without the HDF5 library");
    }
    aril_load_weights_opts opts = { .rename = to_module, .report = &report };
    CHECK_MSG(aril_load_weights(m, path, opts) == ARIL_OK, "%s", aril_error());
    check_turned(m, &report);
    aril_weights_report_free(&report);
    opts.order = ARIL_ORDER_SAME;
    CHECK_INT(aril_load_weights(m, path, opts), ARIL_ERR_SHAPE);
    aril_weights_report_free(&report);
    aril_clear_error();
    opts.order = ARIL_ORDER_OF_FILE;
    static const aril_rename wrong[] = { { "conv", "0.weight" }, { 0 } };
    opts.rename = wrong;
    CHECK_INT(aril_load_weights(m, path, opts), ARIL_ERR_SHAPE);
    aril_weights_report_free(&report);
    aril_clear_error();
    aril_module_release(m);
}

TEST(a_file_without_any_name_of_the_module_is_an_error)
{
    ARIL_SCOPE;
    aril_named file;
    aril_module *m = kernels(&file);
    const char *path = temp_path("kernels.safetensors");
    CHECK_INT(aril_weights_save(path, &file, (aril_weights_save_opts){ 0 }), ARIL_OK);
    aril_load_weights_opts opts = { .partial = true };
    CHECK_INT(aril_load_weights(m, path, opts), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), "names are as \"0.weight\", not \""), "%s", aril_error());
    aril_clear_error();
    static const aril_rename one[] = { { "table", "4.weight" }, { 0 } };
    opts.rename = one;
    CHECK_MSG(aril_load_weights(m, path, opts) == ARIL_OK, "%s", aril_error());
    aril_module_release(m);
}
