/* Folders of IDX files, such as MNIST's. */
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/shape.h"
#include "data/files.h"
#include "data/open.h"

#include <limits.h>
#include <string.h>

const char *const aril__classes_digits[10] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };

const char *const aril__classes_clothes[10] = { "T-shirt/top", "Trouser",   "Pullover", "Dress",
                                                "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                                "Bag",         "Ankle boot" };

/* Tries both naming schemes, compressed or not. */
static bool find(const char *folder, const char *part, const char *what, int ndim,
                 char path[PATH_MAX])
{
    static const char *const form[] = { "%s-%s-idx%d-ubyte", "%s-%s.idx%d-ubyte",
                                        "%s-%s-idx%d-ubyte.gz", "%s-%s.idx%d-ubyte.gz" };
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, form[i], part, what, ndim);
        if (!aril__is_file(folder, name)) continue;
        int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
        return n > 0 && n < PATH_MAX;
    }
    return false;
}

bool aril__holds_idx(const char *folder)
{
    char path[PATH_MAX];
    return find(folder, "train", "images", 3, path) || find(folder, "t10k", "images", 3, path);
}

aril_dataset *aril__open_idx(const char *folder, const char *split, const aril_open_opts *opts)
{
    (void)opts;
    ARIL_SCOPE;
    const char *part = !split || strcmp(split, "train") == 0 ? "train"
                       : strcmp(split, "test") == 0          ? "t10k"
                                                             : NULL;
    if (!part) return aril__no_split(folder, split, "\"train\" and \"test\"");
    char images[PATH_MAX], labels[PATH_MAX];
    bool found = find(folder, part, "images", 3, images);
    if (!found || !find(folder, part, "labels", 1, labels)) {
        aril__fail(ARIL_ERR_IO, "%s: missing file %s-%s-ubyte (or the same with .gz)", folder, part,
                   found ? "labels-idx1" : "images-idx3");
        return NULL;
    }
    aril_tensor *x = aril_idx_read(images), *y = aril_idx_read(labels);
    if (aril_tensor_status(x) != ARIL_OK || aril_tensor_status(y) != ARIL_OK) return NULL;
    if (aril_ndim(x) != 3 || aril_ndim(y) != 1 || aril_size(x, 0) != aril_size(y, 0) ||
        aril_dtype_of(x) != ARIL_U8 || aril_dtype_is_float(aril_dtype_of(y))) {
        char a[ARIL__SHAPE_TEXT], b[ARIL__SHAPE_TEXT];
        aril_shape sx = aril_shape_of(x), sy = aril_shape_of(y);
        aril__fail(ARIL_ERR_FORMAT, "%s: images %s of %s and labels %s of %s do not match", folder,
                   aril__shape_text(a, sx.ndim, sx.dim), aril_dtype_name(aril_dtype_of(x)),
                   aril__shape_text(b, sy.ndim, sy.dim), aril_dtype_name(aril_dtype_of(y)));
        return NULL;
    }
    return aril_dataset_images(x, aril_cast(y, ARIL_I64)); /* u8 [N,28,28], i64 [N] */
}
