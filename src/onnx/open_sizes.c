/* Arithmetic on integers that stand for unknown sizes of a trace: what has a size for result. Where
 * the result is another number, sizes become tensors of the trace. */
#include "core/sizes.h"
#include "onnx/rules.h"

typedef aril_status size_fn(aril__sizes *s, int64_t a, int64_t b, int64_t *to);

static aril_status multiply(aril__sizes *s, int64_t a, int64_t b, int64_t *to)
{
    const int64_t both[] = { a, b };
    if ((a < 0 && !aril__size_is_named(a)) || (b < 0 && !aril__size_is_named(b)))
        return ARIL__ONNX_DYNAMIC; /* less than 0 */
    *to = aril__size_product(s, 2, both);
    return *to == -1 ? ARIL__ONNX_DYNAMIC : ARIL_OK;
}

static aril_status divide(aril__sizes *s, int64_t a, int64_t b, int64_t *to)
{
    if (b <= 0 && !aril__size_is_named(b)) return ARIL__ONNX_DYNAMIC;
    bool exact = aril__size_quotient(s, 1, &a, 1, &b, to);
    return !exact || *to == -1 ? ARIL__ONNX_DYNAMIC : ARIL_OK;
}

/* A size is not a negative number; whether it is another one, only a run knows. */
static aril_status equal(aril__sizes *s, int64_t a, int64_t b, int64_t *to)
{
    bool open = aril__size_is_named(a) || aril__size_is_named(b);
    bool negative = (a < 0 && !aril__size_is_named(a)) || (b < 0 && !aril__size_is_named(b));
    (void)s;
    *to = a == b;
    return a == b || negative || !open ? ARIL_OK : ARIL__ONNX_DYNAMIC;
}

/* Both have as many elements, or one of them one. */
static aril_status compute(onnx_call *c, size_fn *fn, aril_dtype dtype)
{
    onnx_ints a, b;
    aril_status s = aril__onnx_ints(c, 0, &a);
    if (s == ARIL_OK) s = aril__onnx_ints(c, 1, &b);
    if (s != ARIL_OK) return s;
    bool fits = a.n == b.n || a.n == 1 || b.n == 1;
    int wide = aril_ndim(c->in[1].tensor) > aril_ndim(c->in[0].tensor) || a.n < b.n;
    aril_shape shape = aril_shape_of(c->in[wide].tensor);
    int64_t n = a.n > b.n ? a.n : b.n, all = 1;
    for (int d = 0; d < shape.ndim; d++) all *= shape.dim[d];
    if (!fits || all != n) return ARIL__ONNX_DYNAMIC;
    int64_t *to = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *to);
    if (!to) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < n && s == ARIL_OK; i++)
        s = fn(aril__self()->sizes, a.at[a.n == 1 ? 0 : i], b.at[b.n == 1 ? 0 : i], &to[i]);
    if (s != ARIL_OK) return s;
    return give(c, 0, aril_cast(aril_reshape(aril__onnx_from_ints(to, n), shape), dtype));
}

bool aril__onnx_has_open_sizes(const onnx_call *c)
{
    bool open = false;
    for (int i = 0; i < c->n_in; i++) open |= c->in[i].sizes;
    return open;
}

aril_status aril__onnx_size_product(onnx_call *c)
{
    return compute(c, multiply, ARIL_I64);
}

aril_status aril__onnx_size_quotient(onnx_call *c)
{
    return compute(c, divide, ARIL_I64);
}

aril_status aril__onnx_size_equal(onnx_call *c)
{
    return compute(c, equal, ARIL_BOOL);
}

/* ---- sizes as tensors ---- */

int64_t aril__onnx_times(int64_t a, int64_t b)
{
    const int64_t both[] = { a, b };
    return aril__size_product(aril__self()->sizes, 2, both);
}

int64_t aril__onnx_over(int64_t a, int64_t b)
{
    int64_t to = -1;
    bool exact = b > 0 && aril__size_quotient(aril__self()->sizes, 1, &a, 1, &b, &to);
    return exact ? to : a < 0 ? -1 : a / (b ? b : 1);
}

aril_tensor *aril__onnx_size(aril_device to, int64_t size)
{
    return aril_full(ARIL_SHAPE(), size, ARIL_I64, to);
}

aril_tensor *aril__onnx_open_tensor(onnx_call *c, aril_tensor *sizes)
{
    const void *at;
    aril_device to = c->run->model->device;
    int64_t n = aril_numel(sizes);
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, (size_t)n, sizeof *part);
    if (!part || aril__onnx_host(c, sizes, ARIL_I64, &at) != ARIL_OK) return aril__poison();
    for (int64_t i = 0; i < n; i++)
        part[i] = aril_full(ARIL_SHAPE(1), ((const int64_t *)at)[i], ARIL_I64, to);
    aril_tensor *all = n == 1 ? part[0] : aril_cat((aril_list){ (int)n, part }, 0);
    return aril_reshape(all, aril_shape_of(sizes));
}
