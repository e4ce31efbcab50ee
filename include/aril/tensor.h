/* Tensors: their properties, and conversion from and to plain memory. */
#ifndef ARIL_TENSOR_H
#define ARIL_TENSOR_H

#include "aril/base.h"

/* Axes of an operation. No axes (ARIL_ALL) means all of them. Negative axes count from the end. */
typedef struct aril_axes {
    int n;
    bool keepdim; /* keep the reduced axes in the result, with size 1 */
    int axis[ARIL_MAX_DIMS];
} aril_axes;

/* A list of tensors, borrowed. */
typedef struct aril_list {
    int n;
    aril_tensor *const *at;
} aril_list;

/* A C number as an argument of an operation; it records whether it is an integer or a float.
 * ARIL_NUMBER(x) converts any arithmetic value, and nothing else. Functions that take one have a
 * macro of the same name, so that aril_mul_scalar(x, 2) and aril_mul_scalar(x, 0.5) both work. */
typedef struct aril_number {
    double f;
    int64_t i;
    bool is_float;
#ifdef __cplusplus
    aril_number() = default;
    template <class V> aril_number(V v) : f(double(v)), i(0), is_float(double(V(0.5)) == 0.5)
    {
        if (!is_float) i = int64_t(v);
    }
#endif
} aril_number;

#ifdef __cplusplus

template <class... D> inline aril_shape aril__make_shape(D... d)
{
    const int64_t all[] = { 0, int64_t(d)... };
    aril_shape s = { int(sizeof...(d)), { 0 } };
    for (int i = 0; i < s.ndim && i < ARIL_MAX_DIMS; i++) s.dim[i] = all[i + 1];
    return s;
}
template <class... A> inline aril_axes aril__make_axes(bool keep, A... a)
{
    const int all[] = { 0, int(a)... };
    aril_axes s = { int(sizeof...(a)), keep, { 0 } };
    for (int i = 0; i < s.n && i < ARIL_MAX_DIMS; i++) s.axis[i] = all[i + 1];
    return s;
}
template <int N> struct aril__list_of { /* lives until the end of the full expression */
    aril_tensor *at[N];
    operator aril_list() const
    {
        aril_list l = { N, at };
        return l;
    }
};
template <class... P> inline aril__list_of<int(sizeof...(P))> aril__make_list(P... p)
{
    return { { p... } };
}
#define ARIL_SHAPE(...)   aril__make_shape(__VA_ARGS__)
#define ARIL_AXES(...)    aril__make_axes(false, __VA_ARGS__)
#define ARIL_KEEPDIM(...) aril__make_axes(true, __VA_ARGS__)
#define ARIL_ALL          (aril_axes())
#define ARIL_LIST(...)    aril__make_list(__VA_ARGS__)
#define ARIL_NUMBER(x)    (aril_number(x))

#else

static inline aril_shape aril__make_shape(int n, const int64_t *dim)
{
    aril_shape s = { .ndim = n };
    for (int i = 0; i < n && i < ARIL_MAX_DIMS; i++) s.dim[i] = dim[i];
    return s;
}
static inline aril_axes aril__make_axes(bool keepdim, int n, const int *axis)
{
    aril_axes a = { .n = n, .keepdim = keepdim };
    for (int i = 0; i < n && i < ARIL_MAX_DIMS; i++) a.axis[i] = axis[i];
    return a;
}
static inline aril_number aril__integer(int64_t i)
{
    aril_number n = { .f = (double)i, .i = i };
    return n;
}
static inline aril_number aril__real(double f)
{
    aril_number n = { .f = f, .is_float = true };
    return n;
}

/* Sizes: ARIL_SHAPE(64, 1000); ARIL_SHAPE() has no dimensions. */
#define ARIL_SHAPE(...)                                                                  \
    aril__make_shape((int)(sizeof((int64_t[]){ 0, __VA_ARGS__ }) / sizeof(int64_t)) - 1, \
                     (int64_t[]){ 0, __VA_ARGS__ } + 1)
/* Axes: ARIL_AXES(0, 2), ARIL_KEEPDIM(-1), ARIL_ALL. */
#define ARIL__AXES_OF(keep, ...)                                                        \
    aril__make_axes((keep), (int)(sizeof((int[]){ 0, __VA_ARGS__ }) / sizeof(int)) - 1, \
                    (int[]){ 0, __VA_ARGS__ } + 1)
#define ARIL_AXES(...)    ARIL__AXES_OF(false, __VA_ARGS__)
#define ARIL_KEEPDIM(...) ARIL__AXES_OF(true, __VA_ARGS__)
#define ARIL_ALL          ((aril_axes){ 0 })
/* Tensors: ARIL_LIST(w1, w2). */
#define ARIL_LIST(...)                                                                     \
    ((aril_list){ (int)(sizeof((aril_tensor *[]){ __VA_ARGS__ }) / sizeof(aril_tensor *)), \
                  (aril_tensor *[]){ __VA_ARGS__ } })
/* A number of any arithmetic type. Every type is listed: a pointer, such as a tensor where a number
 * belongs, does not compile. */
#define ARIL_NUMBER(x)                           \
    _Generic((x), _Bool                          \
             : aril__integer, char               \
             : aril__integer, signed char        \
             : aril__integer, unsigned char      \
             : aril__integer, short              \
             : aril__integer, unsigned short     \
             : aril__integer, int                \
             : aril__integer, unsigned int       \
             : aril__integer, long               \
             : aril__integer, unsigned long      \
             : aril__integer, long long          \
             : aril__integer, unsigned long long \
             : aril__integer, float              \
             : aril__real, double                \
             : aril__real, long double           \
             : aril__real, aril_number           \
             : aril__same_number)(x)
static inline aril_number aril__same_number(aril_number n)
{
    return n;
}

#endif

ARIL_C_BEGIN

/* ---- properties ---- */

/* For a poisoned tensor these return f32, no dimensions, 1 element, the CPU. */
ARIL_API aril_dtype aril_dtype_of(const aril_tensor *t);
ARIL_API int aril_ndim(const aril_tensor *t);
ARIL_API aril_shape aril_shape_of(const aril_tensor *t);
ARIL_API int64_t aril_numel(const aril_tensor *t); /* number of elements; -1 if a size is unknown */
ARIL_API aril_device aril_device_of(const aril_tensor *t);

/* The size of one axis (negative axes count from the end); -1: no such axis. While a function is
 * traced, less than -1 for an unknown size: operations take this number as a size, C code cannot
 * calculate with it. */
ARIL_API int64_t aril_size(const aril_tensor *t, int axis);
/* The stride of an axis, in elements. */
ARIL_API int64_t aril_stride(const aril_tensor *t, int axis);
/* True when the tensor is contiguous: in row-major order without gaps. */
ARIL_API bool aril_is_contiguous(const aril_tensor *t);
/* True when a tensor [N,C,spatial...] is channels-last: stored in the order N, spatial, C. */
ARIL_API bool aril_is_channels_last(const aril_tensor *t);
/* True when both are views of the same memory. */
ARIL_API bool aril_shares_memory(const aril_tensor *a, const aril_tensor *b);

/* ---- from and to memory ---- */

/* A tensor with a copy of the elements at `data`, contiguous in row-major order. [shape] */
ARIL_API aril_tensor *aril_from(const void *data, aril_shape shape, aril_dtype dtype,
                                aril_device device);

/* A tensor that wraps the caller's memory without a copy; writes go to that memory. `deleter(data,
 * ctx)` is called when the last tensor that uses the memory is released (NULL: nothing to do), or
 * immediately on failure. CPU only. */
ARIL_API aril_tensor *aril_borrow(void *data, aril_shape shape, aril_dtype dtype,
                                  void (*deleter)(void *data, void *ctx), void *ctx);

/* The value of a one-element tensor, as a double or an integer. More than one element is an error,
 * and so is a poisoned tensor: both return NaN (or 0). */
ARIL_API double aril_item(const aril_tensor *t);
ARIL_API int64_t aril_item_int(const aril_tensor *t);

/* Copies the elements in row-major order to `buf` (aril_numel of them), or from it. */
ARIL_API aril_status aril_read(const aril_tensor *t, void *buf);
ARIL_API aril_status aril_write(aril_tensor *t, const void *buf);

/* The elements in row-major order, in host memory: the tensor's own memory if it is contiguous
 * there, else a copy that belongs to the innermost scope. NULL on failure. Read-only. */
ARIL_API const void *aril_data(aril_tensor *t);

/* The address of the first element of the tensor's memory, for use with aril_stride. NULL on
 * failure or on a device whose memory the host cannot access. Autograd does not see writes through
 * it: do not overwrite values that a gradient needs. Once this is called on a weight, kernels no
 * longer cache a packed copy of it and repack it at each use. */
ARIL_API void *aril_data_strided(aril_tensor *t);

/* Prints like PyTorch: aligned, summarized when large, with dtype and device unless they are the
 * default. aril_print writes to stdout with a newline, aril_fprint without one. */
ARIL_API void aril_print(aril_tensor *t);
ARIL_API void aril_fprint(FILE *to, aril_tensor *t);
/* The same into `buf`; returns the length needed, like snprintf. */
ARIL_API size_t aril_format(char *buf, size_t size, aril_tensor *t);

ARIL_C_END

#endif
