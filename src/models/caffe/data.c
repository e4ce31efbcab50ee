/* Layers without bottoms, and those that files or programs feed, or that feed files. */
#include "models/caffe/layer.h"

#define FORWARD(name) \
    static void name(aril_module *m, caffe_layer *l, aril_tensor *const *in, aril_tensor **out)

/* ---- shapes ---- */

aril_status aril__caffe_shape(const caffe_layer *l, const aril__message *shape, aril_shape *to)
{
    size_t n = aril__message_count(shape, "dim");
    int64_t count = 1;
    *to = (aril_shape){ 0 };
    if (n > ARIL_MAX_DIMS)
        return aril__caffe_bad(l, ARIL_ERR_UNSUPPORTED, "a shape of %zu dimensions; at most %d", n,
                               ARIL_MAX_DIMS);
    for (size_t i = 0; i < n; i++) {
        int64_t dim = aril__message_int_at(shape, "dim", i);
        if (dim < 1 || __builtin_mul_overflow(count, dim, &count) || count > INT64_MAX / 8)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%lld cannot be size %zu of a blob",
                                   (long long)dim, i);
        to->dim[to->ndim++] = dim;
    }
    return ARIL_OK;
}

static aril_status input_check(aril_module *m, caffe_layer *l)
{
    size_t n = aril__message_count(l->param, "shape");
    (void)m;
    aril_shape shape;
    if (n > 1 && n != (size_t)l->n_tops)
        return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%zu shapes for %d tops", n, l->n_tops);
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < n && s == ARIL_OK; i++)
        s = aril__caffe_shape(l, aril__message_sub_at(l->param, "shape", i), &shape);
    return s;
}

static bool input_shape(const caffe_layer *l, int i, aril_shape *shape)
{
    size_t given = aril__message_count(l->param, "shape");
    return given > 0 &&
           aril__caffe_shape(l, aril__message_sub_at(l->param, "shape", given > 1 ? (size_t)i : 0),
                             shape) == ARIL_OK;
}

/* ---- MemoryData: its sizes are in the file, the data come from the program ---- */

static bool memory_shape(const caffe_layer *l, int i, aril_shape *shape)
{
    static const char *const sizes[] = { "batch_size", "channels", "height", "width" };
    *shape = (aril_shape){ .ndim = i == 0 ? 4 : 1 };
    for (int k = 0; k < shape->ndim; k++) shape->dim[k] = aril__message_int(l->param, sizes[k]);
    return true;
}

static aril_status memory_check(aril_module *m, caffe_layer *l)
{
    aril_shape shape;
    int64_t count = 1;
    (void)m;
    memory_shape(l, 0, &shape);
    for (int k = 0; k < shape.ndim; k++)
        if (shape.dim[k] < 1 || __builtin_mul_overflow(count, shape.dim[k], &count) ||
            count > INT64_MAX / 8)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT,
                                   "batch_size, channels, height and width must be at least 1, "
                                   "and fit in memory");
    return ARIL_OK;
}

/* ---- Parameter ---- */

static aril_status parameter_check(aril_module *m, caffe_layer *l)
{
    (void)m;
    aril_shape shape;
    return aril__caffe_shape(l, aril__message_sub(l->param, "shape"), &shape);
}

static aril_status parameter_build(aril_module *m, caffe_layer *l, aril_tensor *const *in)
{
    (void)in;
    aril_shape shape;
    aril_status s = aril__caffe_shape(l, aril__message_sub(l->param, "shape"), &shape);
    return s == ARIL_OK ? aril__caffe_add_blob(m, "weight", shape, NULL, 0) : s;
}

FORWARD(parameter)
{
    (void)l, (void)in;
    out[0] = aril__caffe_blob(m, 0);
}

/* ---- DummyData ---- */

/* The shape of top i: of a BlobShape, or of the four sizes of the older form. */
static aril_status dummy_shape(const caffe_layer *l, int i, aril_shape *to)
{
    static const char *const sizes[] = { "num", "channels", "height", "width" };
    const aril__message *p = l->param;
    size_t n = aril__message_count(p, "shape");
    if (n) return aril__caffe_shape(l, aril__message_sub_at(p, "shape", n > 1 ? (size_t)i : 0), to);
    *to = (aril_shape){ .ndim = 4 };
    for (int k = 0; k < 4; k++) {
        size_t given = aril__message_count(p, sizes[k]);
        to->dim[k] = aril__message_int_at(p, sizes[k], given > 1 ? (size_t)i : 0);
        if (to->dim[k] < 1 || to->dim[k] > INT32_MAX)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%s is missing or 0", sizes[k]);
    }
    return ARIL_OK;
}

static aril_status dummy_check(aril_module *m, caffe_layer *l)
{
    static const char *const fields[] = { "data_filler", "shape",  "num",
                                          "channels",    "height", "width" };
    (void)m;
    for (int i = 0; i < 6; i++) {
        size_t n = aril__message_count(l->param, fields[i]);
        if (n > 1 && n != (size_t)l->n_tops)
            return aril__caffe_bad(l, ARIL_ERR_FORMAT, "%zu values of %s for %d tops", n, fields[i],
                                   l->n_tops);
    }
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < aril__message_count(l->param, "data_filler") && s == ARIL_OK; i++)
        s = aril__caffe_check_filler(l, aril__message_sub_at(l->param, "data_filler", i));
    for (int i = 0; i < l->n_tops && s == ARIL_OK; i++) {
        aril_shape shape;
        s = dummy_shape(l, i, &shape);
    }
    return s;
}

/* Drawn anew in each run; constants are zero by default. */
FORWARD(dummy)
{
    size_t n = aril__message_count(l->param, "data_filler");
    (void)in;
    for (int i = 0; i < l->n_tops; i++) {
        aril_shape shape;
        const aril__message *filler =
            n ? aril__message_sub_at(l->param, "data_filler", n > 1 ? (size_t)i : 0) : NULL;
        out[i] =
            dummy_shape(l, i, &shape) < 0 ? aril__poison() : aril_zeros(shape, m->dtype, m->device);
        if (filler && aril__caffe_fill(out[i], filler) < 0) out[i] = aril__poison();
    }
}

/* ---- files ---- */

/* Their tops are inputs of the net: nothing runs here. */
FORWARD(from_file)
{
    (void)m, (void)in;
    aril__caffe_failed(l, out);
}

FORWARD(to_file)
{
    (void)m, (void)l, (void)in, (void)out;
}

#define SOURCE(name, field, least, most)                           \
    CAFFE_ROW(name, caffe_layer), CAFFE_COUNTS(0, 0, least, most), \
        .param = field, .flags = CAFFE_DATA | CAFFE_INPUT, .forward = from_file

const caffe_row aril__caffe_data_rows[] = {
    { CAFFE_ROW("Input", caffe_layer), CAFFE_COUNTS(0, 0, 1, CAFFE_ANY), .param = "input_param",
      .flags = CAFFE_INPUT, .top_shape = input_shape, .check = input_check, .forward = from_file },
    { SOURCE("Data", "data_param", 1, 2) },
    { SOURCE("ImageData", "image_data_param", 1, 2) },
    { SOURCE("HDF5Data", "hdf5_data_param", 1, CAFFE_ANY) },
    { SOURCE("MemoryData", "memory_data_param", 2, 2), .top_shape = memory_shape,
      .check = memory_check },
    { SOURCE("WindowData", "window_data_param", 2, 2) },
    { CAFFE_ROW("HDF5Output", caffe_layer), CAFFE_COUNTS(1, 2, 0, 0), .param = "hdf5_output_param",
      .flags = CAFFE_SINK, .forward = to_file },
    { CAFFE_ROW("DummyData", caffe_layer), CAFFE_COUNTS(0, 0, 1, CAFFE_ANY),
      .param = "dummy_data_param", .check = dummy_check, .forward = dummy },
    { CAFFE_ROW("Parameter", caffe_layer), CAFFE_COUNTS(0, 0, 1, 1), .param = "parameter_param",
      .blob = { { "weight" } }, .check = parameter_check, .build = parameter_build,
      .forward = parameter },
    { .param = NULL },
};
