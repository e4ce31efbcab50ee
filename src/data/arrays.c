/* NumPy and HDF5 files as datasets. */
#include "aril/datasets.h"

#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/shape.h"
#include "core/tensor.h"
#include "data/arrays.h"
#include "data/files.h"
#include "data/open.h"
#include "formats/hdf5.h"

#include <string.h>

aril_dataset *aril__dataset_of_arrays(const char *path, aril_tensor *x, aril_tensor *y)
{
    if (aril_tensor_status(x) != ARIL_OK || (y && aril_tensor_status(y) != ARIL_OK)) return NULL;
    if (aril_ndim(x) < 1 || (y && (aril_ndim(y) < 1 || aril_size(x, 0) != aril_size(y, 0)))) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        aril_shape sx = aril_shape_of(x), sy = y ? aril_shape_of(y) : (aril_shape){ 0 };
        aril__fail(ARIL_ERR_FORMAT,
                   "%s: x %s and y %s do not match: the first dimension of both must be the number "
                   "of samples",
                   path, aril__shape_text(a, sx.ndim, sx.dim),
                   aril__shape_text(b, sy.ndim, sy.dim));
        return NULL;
    }
    if (y && aril_ndim(y) == 2 && aril_size(y, 1) == 1)
        y = aril_squeeze(y, ARIL_AXES(1)); /* a column of targets */
    if (y && !aril_dtype_is_float(aril_dtype_of(y))) y = aril_cast(y, ARIL_I64);
    if (aril_dtype_of(x) == ARIL_F64) x = aril_cast(x, ARIL_F32);
    if (y && aril_dtype_of(y) == ARIL_F64) y = aril_cast(y, ARIL_F32);
    if (aril_tensor_status(x) != ARIL_OK || (y && aril_tensor_status(y) != ARIL_OK)) return NULL;
    if (aril_dtype_of(x) != ARIL_U8 || (aril_ndim(x) != 3 && aril_ndim(x) != 4))
        return aril_dataset_tensors(x, y);
    /* u8 arrays of three or four dimensions are images. Channels-last libraries save NumPy files
     * channels-last too. */
    if (aril_ndim(x) == 4 && aril_size(x, 1) > 4 && aril_size(x, 3) <= 4)
        x = aril_contiguous(aril_permute(x, ARIL_AXES(0, 3, 1, 2)));
    return aril_dataset_images(x, y);
}

/* The first array found under any of the names; NULL if there is none. */
static aril_tensor *first_of(aril_npz *f, const char *split, const char *const *names)
{
    for (; *names; names++) {
        char name[128];
        snprintf(name, sizeof name, split ? "%s_%s" : "%s", *names, split);
        int i = aril_npz_find(f, name);
        if (i >= 0) return aril_npz_tensor(f, i);
    }
    return NULL;
}

aril_dataset *aril_dataset_npz(const char *path, const char *x_name, const char *y_name)
{
    ARIL_SCOPE;
    aril_npz *f = aril_npz_open(path);
    if (!f) return NULL;
    int i = x_name ? aril_npz_find(f, x_name) : -1, k = y_name ? aril_npz_find(f, y_name) : -1;
    aril_dataset *d = NULL;
    if (i < 0 || (y_name && k < 0)) {
        char list[256] = "";
        for (int n = 0; n < aril_npz_count(f); n++) {
            size_t used = strlen(list);
            snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "", aril_npz_name(f, n));
        }
        aril__fail(ARIL_ERR_ARG, "%s has no array %s; it has %s", path,
                   i < 0 ? (x_name ? x_name : "(none)") : y_name, list);
    } else {
        d = aril__dataset_of_arrays(path, aril_npz_tensor(f, i),
                                    y_name ? aril_npz_tensor(f, k) : NULL);
    }
    aril_npz_close(f);
    return d;
}

aril_dataset *aril__open_npz(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)opts;
    static const char *const xs[] = { "x", "X", "data", "images", "arr_0", NULL };
    static const char *const ys[] = { "y", "Y", "label", "labels", "target", "arr_1", NULL };
    ARIL_SCOPE;
    aril_npz *f = aril_npz_open(path);
    if (!f) return NULL;
    aril_dataset *d = NULL;
    const char *part = split ? split : "train";
    aril_tensor *x = first_of(f, part, xs), *y = x ? first_of(f, part, ys) : NULL;
    if (!x && (!split || strcmp(split, "train") == 0)) {
        x = first_of(f, NULL, xs);
        y = x ? first_of(f, NULL, ys) : NULL;
    }
    if (x)
        d = aril__dataset_of_arrays(path, x, y);
    else
        aril__fail(ARIL_ERR_ARG,
                   "%s has no arrays x_%s and y_%s%s; for other names use aril_dataset_npz", path,
                   part, part, strcmp(part, "train") == 0 ? ", nor x and y" : "");
    aril_npz_close(f);
    return d;
}

aril_dataset *aril__open_npy(const char *path, const char *split, const aril_open_opts *opts)
{
    ARIL_SCOPE;
    (void)split, (void)opts;
    return aril__dataset_of_arrays(path, aril_npy_read(path), NULL);
}

/* ---- HDF5 ---- */

/* The array of that name, or with NULL the first found under any of `names`; NULL if there is
 * none. */
static aril_tensor *array_of(const aril__hdf5 *f, const char *path, const char *name,
                             const char *const *names)
{
    if (name) return aril_hdf5_read(path, name);
    for (; *names; names++) {
        int i = aril__hdf5_find(f, *names);
        if (i == ARIL_ERR_MEMORY) return aril__poison();
        if (i >= 0) return aril__hdf5_array(f, i);
    }
    return NULL;
}

aril_dataset *aril_dataset_hdf5(const char *path, const char *x_name, const char *y_name)
{
    static const char *const xs[] = { "x", "data", "X", "images", NULL };
    static const char *const ys[] = { "y", "label", "Y", "labels", NULL };
    ARIL_SCOPE;
    aril__hdf5 *f = aril__hdf5_open(path);
    if (!f) return NULL;
    aril_dataset *d = NULL;
    aril_tensor *x = array_of(f, path, x_name, xs);
    if (!x)
        aril__fail(ARIL_ERR_ARG, "%s has no array x or data; for other names use aril_dataset_hdf5",
                   path);
    else if (aril_tensor_status(x) == ARIL_OK)
        d = aril__dataset_of_arrays(path, x, array_of(f, path, y_name, ys));
    aril__hdf5_close(f);
    return d;
}

aril_dataset *aril__open_hdf5(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)split, (void)opts;
    return aril_dataset_hdf5(path, NULL, NULL);
}
