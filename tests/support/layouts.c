#include "support/layouts.h"

#include "aril/aril.h"
#include "graph/trace.h"

const char *const test_layout_names[TEST_LAYOUTS] = { "contiguous", "offset",     "gaps",
                                                      "reversed",   "transposed", "everything" };

/* A view of a larger tensor of 77s, with the shape and dtype of t. */
static aril_tensor *within_larger(aril_tensor *t, bool offset, bool gaps, bool reversed)
{
    aril_shape shape = aril_shape_of(t);
    int last = shape.ndim - 1;
    if (last < 0) {
        aril_tensor *row = aril_full(ARIL_SHAPE(3), 77, aril_dtype_of(t), aril_device_of(t));
        return aril_select(row, 0, offset);
    }
    shape.dim[0] += offset;
    shape.dim[last] *= gaps ? 2 : 1;
    aril_tensor *x = aril_full(shape, 77, aril_dtype_of(t), aril_device_of(t));
    if (gaps) x = aril_slice(x, last, 0, ARIL_END, 2);
    if (offset) x = aril_slice(x, 0, 1, ARIL_END, 1);
    return reversed ? aril_slice(x, 0, -1, ARIL_END, -1) : x;
}

aril_tensor *test_laid_out(aril_tensor *t, int layout)
{
    bool all = layout == TEST_EVERYTHING;
    bool turned = (all || layout == TEST_TRANSPOSED) && aril_ndim(t) > 1;
    ARIL_NO_GRAD;
    aril_tensor *from = turned ? aril_transpose(t, -1, -2) : t;
    aril_tensor *x = within_larger(from, all || layout == TEST_OFFSET, all || layout == TEST_GAPS,
                                   all || layout == TEST_REVERSED);
    aril_copy_(x, from);
    return aril_detach(turned ? aril_transpose(x, -1, -2) : x);
}

aril_tensor *test_memory_of(aril_tensor *t)
{
    return aril_adopt(aril__whole_storage(t));
}
