/* The classes and functions that a pickle may name, and what calling them means. */
#include "core/error.h"
#include "formats/npy.h"
#include "formats/pytorch/pickle.h"

#include <string.h>

typedef pickle_value *call_fn(pickle *p, const pickle_class *c, pickle_value *args);

struct pickle_class {
    const char *module, *name;
    call_fn *call; /* NULL: it is only named */
    pickle_dtype type;
    bool storage;
};

/* ---- arguments ---- */

static pickle_value *bad_call(pickle *p, const pickle_class *c)
{
    return aril__pickle_refuse(p, "its pickle calls %s.%s with other arguments than PyTorch does",
                               c->module, c->name);
}

/* The i-th argument if it is of a kind, else NULL. */
static pickle_value *argument(const pickle_value *args, size_t i, pickle_kind kind)
{
    return i < args->u.items.n && args->u.items.at[i]->kind == kind ? args->u.items.at[i] : NULL;
}

static bool is_sizes(const pickle_value *v)
{
    if (!pickle_is_sequence(v, 0)) return false;
    for (size_t i = 0; i < v->u.items.n; i++)
        if (v->u.items.at[i]->kind != PICKLE_INT) return false;
    return true;
}

/* ---- containers ---- */

/* A dict from another one, or from a list of pairs. */
static pickle_value *call_dict(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *d = aril__pickle_new(p, PICKLE_DICT);
    if (!d || !args->u.items.n) return d;
    pickle_value *from = args->u.items.at[args->u.items.n - 1];
    if (from->kind == PICKLE_DICT) return from;
    if (from->kind == PICKLE_CLASS) return d; /* defaultdict's factory */
    if (!pickle_is_sequence(from, 0)) return bad_call(p, c);
    for (size_t i = 0; i < from->u.items.n; i++) {
        const pickle_value *pair = from->u.items.at[i];
        if (!pickle_is_sequence(pair, 2) || pair->u.items.n != 2) return bad_call(p, c);
        if (!aril__pickle_append(p, d, pair->u.items.at[0]) ||
            !aril__pickle_append(p, d, pair->u.items.at[1]))
            return NULL;
    }
    return d;
}

static pickle_value *call_set(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *set = aril__pickle_new(p, PICKLE_SET);
    if (!set || !args->u.items.n) return set;
    const pickle_value *from = args->u.items.at[0];
    if (!pickle_is_sequence(from, 0) && from->kind != PICKLE_SET) return bad_call(p, c);
    set->u.items = from->u.items;
    set->u.items.cap = set->u.items.n; /* appending copies */
    return set;
}

/* torch.Size: a tuple of its argument. */
static pickle_value *call_size(pickle *p, const pickle_class *c, pickle_value *args)
{
    if (!args->u.items.n) return aril__pickle_new(p, PICKLE_TUPLE);
    return pickle_is_sequence(args->u.items.at[0], 0) ? args->u.items.at[0] : bad_call(p, c);
}

static pickle_value *call_other(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_OTHER);
    (void)args;
    if (v) v->u.other = c->name;
    return v;
}

/* ---- bytes ---- */

/* Bytes that protocol 2 writes as text in Latin-1: each character is one. */
static pickle_value *from_latin1(pickle *p, const pickle_class *c, const pickle_value *text)
{
    size_t n = text->u.text.n, used = 0;
    const unsigned char *at = (const unsigned char *)text->u.text.at;
    bool plain = true;
    for (size_t i = 0; i < n && plain; i++) plain = at[i] < 0x80;
    if (plain) return aril__pickle_text(p, PICKLE_BYTES, text->u.text.at, n);
    char *to = aril__pickle_alloc(p, n);
    for (size_t i = 0; to && i < n; i++) {
        if (at[i] < 0x80) {
            to[used++] = (char)at[i];
        } else if ((at[i] == 0xc2 || at[i] == 0xc3) && i + 1 < n && (at[i + 1] & 0xc0) == 0x80) {
            to[used++] = (char)(at[i] << 6 | (at[i + 1] & 0x3f));
            i++;
        } else {
            return bad_call(p, c);
        }
    }
    return to ? aril__pickle_text(p, PICKLE_BYTES, to, used) : NULL;
}

static bool is_latin1(const pickle_value *v)
{
    return pickle_is_text(v, "latin1") || pickle_is_text(v, "latin-1");
}

static pickle_value *call_encode(pickle *p, const pickle_class *c, pickle_value *args)
{
    const pickle_value *text = argument(args, 0, PICKLE_TEXT);
    if (!text || args->u.items.n != 2 || !is_latin1(args->u.items.at[1])) return bad_call(p, c);
    return from_latin1(p, c, text);
}

/* bytes and bytearray: empty, of bytes, or of text in Latin-1. */
static pickle_value *call_bytes(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *bytes = argument(args, 0, PICKLE_BYTES);
    if (!args->u.items.n) return aril__pickle_text(p, PICKLE_BYTES, "", 0);
    return bytes ? bytes : call_encode(p, c, args);
}

/* ---- tensors ---- */

static pickle_value *new_tensor(pickle *p, pickle_kind kind)
{
    pickle_value *v = aril__pickle_new(p, kind);
    if (v) v->u.tensor = aril__pickle_alloc(p, sizeof *v->u.tensor);
    return v && v->u.tensor ? v : NULL;
}

/* Sizes, or strides in pairs, with a last dimension. */
static pickle_value *with_last(pickle *p, const pickle_value *from, int64_t times, int64_t last)
{
    pickle_value *v = aril__pickle_new(p, PICKLE_TUPLE);
    for (size_t i = 0; v && i <= from->u.items.n; i++) {
        pickle_value *n = aril__pickle_new(p, PICKLE_INT);
        if (!n) return NULL;
        n->u.i = last;
        if (i < from->u.items.n && __builtin_mul_overflow(from->u.items.at[i]->u.i, times, &n->u.i))
            n->u.i = -1; /* refused, as what is too large is */
        if (!aril__pickle_append(p, v, n)) return NULL;
    }
    return v;
}

/* Complex numbers as pairs of real ones: [...,2]. */
static pickle_value *in_pairs(pickle *p, pickle_value *v)
{
    pickle_tensor *t = v->u.tensor;
    if (!t->type.is_complex) return v;
    t->type.is_complex = false;
    t->type.size /= 2;
    if (__builtin_mul_overflow(t->offset, 2, &t->offset)) t->offset = -1;
    t->size = with_last(p, t->size, 1, 2);
    t->stride = with_last(p, t->stride, 2, 1);
    return t->size && t->stride ? v : NULL;
}

/* (storage, offset, size, stride, ...) */
static pickle_value *call_tensor(pickle *p, const pickle_class *c, pickle_value *args)
{
    const pickle_value *storage = argument(args, 0, PICKLE_STORAGE),
                       *offset = argument(args, 1, PICKLE_INT);
    if (!storage || !offset || args->u.items.n < 4 || !is_sizes(args->u.items.at[2]) ||
        !is_sizes(args->u.items.at[3]) ||
        args->u.items.at[2]->u.items.n != args->u.items.at[3]->u.items.n)
        return bad_call(p, c);
    pickle_value *v = new_tensor(p, PICKLE_TENSOR);
    if (!v) return NULL;
    *v->u.tensor = (pickle_tensor){ .storage = storage->u.storage,
                                    .type = storage->u.storage->type,
                                    .offset = offset->u.i,
                                    .size = args->u.items.at[2],
                                    .stride = args->u.items.at[3],
                                    .problem = storage->u.storage->type.problem };
    return v;
}

static pickle_value *call_tensor_v1(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = call_tensor(p, c, args);
    return v ? in_pairs(p, v) : NULL;
}

/* (storage, offset, size, stride, requires_grad, hooks, metadata): of views, as of conj(). */
static pickle_value *call_tensor_v2(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = call_tensor(p, c, args);
    const pickle_value *metadata = argument(args, 6, PICKLE_DICT);
    for (size_t i = 0; v && metadata && i + 1 < metadata->u.items.n; i += 2) {
        const pickle_value *key = metadata->u.items.at[i], *value = metadata->u.items.at[i + 1];
        bool changes = pickle_is_text(key, "neg") || pickle_is_text(key, "conj");
        if (changes && value->kind == PICKLE_BOOL && value->u.i && !v->u.tensor->problem)
            v->u.tensor->problem = "a view that negates its values";
    }
    return v ? in_pairs(p, v) : NULL;
}

/* (storage, offset, size, stride, requires_grad, hooks, dtype, metadata) */
static pickle_value *call_tensor_v3(pickle *p, const pickle_class *c, pickle_value *args)
{
    const pickle_value *dtype = argument(args, 6, PICKLE_CLASS);
    pickle_value *v = call_tensor(p, c, args);
    if (!v) return NULL;
    if (!dtype || (!dtype->u.type->type.size && !dtype->u.type->type.problem))
        return bad_call(p, c);
    v->u.tensor->type = dtype->u.type->type;
    v->u.tensor->problem = dtype->u.type->type.problem;
    return in_pairs(p, v);
}

static pickle_value *call_quantized(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = call_tensor(p, c, args);
    if (v) v->u.tensor->problem = "it is quantized; save model.dequantize() or its int_repr()";
    return v;
}

/* A tensor of which only the shape is known. */
static pickle_value *without_values(pickle *p, const pickle_value *size, const char *problem)
{
    pickle_value *v = new_tensor(p, PICKLE_TENSOR);
    if (!v) return NULL;
    v->u.tensor->size = size && is_sizes(size) ? size : aril__pickle_new(p, PICKLE_TUPLE);
    v->u.tensor->problem = problem;
    return v->u.tensor->size ? v : NULL;
}

/* (layout, (indices, values, size, ...)) */
static pickle_value *call_sparse(pickle *p, const pickle_class *c, pickle_value *args)
{
    (void)c;
    const pickle_value *parts = argument(args, 1, PICKLE_TUPLE);
    const pickle_value *size = parts && parts->u.items.n > 2 ? parts->u.items.at[2] : NULL;
    return without_values(p, size, "it is sparse; save its to_dense()");
}

/* (dtype, size, stride, requires_grad) */
static pickle_value *call_meta(pickle *p, const pickle_class *c, pickle_value *args)
{
    (void)c;
    return without_values(p, args->u.items.n > 1 ? args->u.items.at[1] : NULL,
                          "it is on the meta device, without values");
}

static pickle_value *call_unreadable(pickle *p, const pickle_class *c, pickle_value *args)
{
    (void)c, (void)args;
    return without_values(p, NULL, "it is of a subclass of torch.Tensor; save a plain one");
}

/* (data, ...): Parameter, and tensors of other devices. */
static pickle_value *call_first(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = args->u.items.n ? args->u.items.at[0] : NULL;
    return v && (v->kind == PICKLE_TENSOR || v->kind == PICKLE_ARRAY) ? v : bad_call(p, c);
}

/* (function, type, arguments, state) */
static pickle_value *call_from_type(pickle *p, const pickle_class *c, pickle_value *args)
{
    const pickle_value *callee = argument(args, 0, PICKLE_CLASS);
    pickle_value *inner = argument(args, 2, PICKLE_TUPLE);
    if (!callee || !inner || !argument(args, 1, PICKLE_CLASS) ||
        callee->u.type->call == call_from_type)
        return bad_call(p, c);
    return aril__pickle_call(p, callee, inner);
}

/* ---- NumPy ---- */

/* Sets type from "f4" and a byte order. */
static void set_dtype(pickle_dtype *type, const char *descr, char order)
{
    char text[8];
    snprintf(text, sizeof text, "%c%s", order, descr);
    *type = (pickle_dtype){ .problem = "its dtype is not one of numbers that Aril has" };
    if (!aril__npy_dtype(text, &type->dtype, &type->big)) return;
    type->problem = NULL;
    type->size = (size_t)(strcmp(descr, "?") == 0 ? 1 : descr[1] - '0');
}

/* dtype('f4', False, True) */
static pickle_value *call_dtype(pickle *p, const pickle_class *c, pickle_value *args)
{
    const pickle_value *name = argument(args, 0, PICKLE_TEXT);
    pickle_value *v = name ? aril__pickle_new(p, PICKLE_DTYPE) : bad_call(p, c);
    if (!v) return NULL;
    char text[4] = "";
    if (name->u.text.n < sizeof text) memcpy(text, name->u.text.at, name->u.text.n);
    set_dtype(&v->u.dtype, text, '<');
    return v;
}

/* (version, order, subdtype, names, fields, elsize, alignment, flags) */
static bool build_dtype(pickle_value *v, const pickle_value *state)
{
    const pickle_value *order = argument(state, 1, PICKLE_TEXT);
    if (state->kind != PICKLE_TUPLE || !order || order->u.text.n != 1) return false;
    char c = *order->u.text.at;
    v->u.dtype.big = c == '>';
    return c == '<' || c == '>' || c == '|' || c == '=';
}

/* _reconstruct(ndarray, (0,), b'b'): what it is comes with its state. */
static pickle_value *call_reconstruct(pickle *p, const pickle_class *c, pickle_value *args)
{
    (void)c, (void)args;
    pickle_value *v = new_tensor(p, PICKLE_ARRAY);
    if (v) v->u.tensor->size = aril__pickle_new(p, PICKLE_TUPLE);
    if (v) v->u.tensor->problem = "it has no state";
    return v && v->u.tensor->size ? v : NULL;
}

static bool fill_array(pickle_tensor *t, const pickle_value *size, const pickle_value *dtype,
                       bool fortran, const pickle_value *bytes)
{
    if (!is_sizes(size) || dtype->kind != PICKLE_DTYPE) return false;
    *t = (pickle_tensor){ .type = dtype->u.dtype,
                          .size = size,
                          .fortran = fortran,
                          .bytes = bytes,
                          .problem = dtype->u.dtype.problem };
    return bytes->kind == PICKLE_BYTES || bytes->kind == PICKLE_TEXT || t->problem;
}

/* (version, shape, dtype, is_fortran, bytes) */
static bool build_array(pickle_value *v, const pickle_value *state)
{
    if (!pickle_is_sequence(state, 5) || state->u.items.n != 5) return false;
    pickle_value *const *at = state->u.items.at;
    return at[3]->kind == PICKLE_BOOL &&
           fill_array(v->u.tensor, at[1], at[2], at[3]->u.i != 0, at[4]);
}

/* Sizes in another order of axes; NULL if it is none, or, with an error, when out of memory. */
static pickle_value *permuted(pickle *p, const pickle_value *size, const pickle_value *axes)
{
    unsigned seen = 0;
    size_t n = size->u.items.n;
    if (!is_sizes(axes) || axes->u.items.n != n || n > ARIL_MAX_DIMS) return NULL;
    pickle_value *v = aril__pickle_new(p, PICKLE_TUPLE);
    for (size_t i = 0; v && i < n; i++) {
        int64_t axis = axes->u.items.at[i]->u.i;
        if (axis < 0 || (uint64_t)axis >= n || seen >> axis & 1) return NULL;
        seen |= 1u << axis;
        if (!aril__pickle_append(p, v, size->u.items.at[axis])) return NULL;
    }
    return v;
}

/* _frombuffer(bytes, dtype, shape, order, axes): order "K" is the shape in memory, and the axes of
 * the array in it. */
static pickle_value *call_from_buffer(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = new_tensor(p, PICKLE_ARRAY), *const *at = args->u.items.at;
    size_t n = args->u.items.n;
    if (!v) return NULL;
    if (n < 4 || n > 5 || at[3]->kind != PICKLE_TEXT ||
        !fill_array(v->u.tensor, at[2], at[1], pickle_is_text(at[3], "F"), at[0]))
        return bad_call(p, c);
    if (!pickle_is_text(at[3], "K") || n < 5 || at[4]->kind == PICKLE_NONE) return v;
    v->u.tensor->axes = at[4];
    v->u.tensor->size = permuted(p, at[2], at[4]);
    if (v->u.tensor->size) return v;
    return p->status == ARIL_OK ? bad_call(p, c) : NULL;
}

/* scalar(dtype, bytes): a number, as an array without dimensions. */
static pickle_value *call_scalar(pickle *p, const pickle_class *c, pickle_value *args)
{
    pickle_value *v = new_tensor(p, PICKLE_ARRAY), *none = aril__pickle_new(p, PICKLE_TUPLE);
    if (!v || !none) return NULL;
    if (args->u.items.n != 2 ||
        !fill_array(v->u.tensor, none, args->u.items.at[0], false, args->u.items.at[1]))
        return bad_call(p, c);
    return v;
}

/* ---- the list ---- */

/* clang-format off */
#define TYPE(d, n)      { .dtype = ARIL_##d, .size = n }
#define COMPLEX(d, n)   { .dtype = ARIL_##d, .size = n, .is_complex = true }
#define NONE(n, text)   { .dtype = ARIL_F32, .size = n, .problem = "dtype " text }
#define STORAGE(prefix, t)    { "torch", prefix "Storage", NULL, t, true }, \
                              { "torch.cuda", prefix "Storage", NULL, t, true }, \
                              { "torch", prefix "Tensor", NULL, t, false }, \
                              { "torch.cuda", prefix "Tensor", NULL, t, false }
static const pickle_class classes[] = {
    { "collections", "OrderedDict", call_dict, { 0 }, false },
    { "collections", "defaultdict", call_dict, { 0 }, false },
    { "collections", "Counter", call_dict, { 0 }, false },
    { "torch._utils", "_rebuild_tensor", call_tensor_v1, { 0 }, false },
    { "torch._utils", "_rebuild_tensor_v2", call_tensor_v2, { 0 }, false },
    { "torch._utils", "_rebuild_tensor_v3", call_tensor_v3, { 0 }, false },
    { "torch._utils", "_rebuild_parameter", call_first, { 0 }, false },
    { "torch._utils", "_rebuild_parameter_with_state", call_first, { 0 }, false },
    { "torch._utils", "_rebuild_device_tensor_from_numpy", call_first, { 0 }, false },
    { "torch._utils", "_rebuild_device_tensor_from_cpu_tensor", call_first, { 0 }, false },
    { "torch._utils", "_rebuild_qtensor", call_quantized, { 0 }, false },
    { "torch._utils", "_rebuild_sparse_tensor", call_sparse, { 0 }, false },
    { "torch._utils", "_rebuild_meta_tensor_no_storage", call_meta, { 0 }, false },
    { "torch._utils", "_rebuild_wrapper_subclass", call_unreadable, { 0 }, false },
    { "torch._utils", "_rebuild_nested_tensor", call_unreadable, { 0 }, false },
    { "torch._tensor", "_rebuild_from_type_v2", call_from_type, { 0 }, false },
    { "torch.tensor", "_rebuild_from_type", call_from_type, { 0 }, false },
    { "torch.nn.parameter", "Parameter", call_first, { 0 }, false },
    { "torch.nn.parameter", "Buffer", call_first, { 0 }, false },
    { "torch", "Tensor", NULL, { 0 }, false },
    { "torch", "Size", call_size, { 0 }, false },
    { "torch", "device", call_other, { 0 }, false },
    { "torch.serialization", "_get_layout", call_other, { 0 }, false },
    { "torch", "per_tensor_affine", NULL, { 0 }, false },
    { "torch", "per_tensor_symmetric", NULL, { 0 }, false },
    { "torch", "per_channel_affine", NULL, { 0 }, false },
    { "torch", "per_channel_symmetric", NULL, { 0 }, false },
    { "torch", "per_channel_affine_float_qparams", NULL, { 0 }, false },
    STORAGE("Double", TYPE(F64, 8)), STORAGE("Float", TYPE(F32, 4)), STORAGE("Half", TYPE(F16, 2)),
    STORAGE("BFloat16", TYPE(BF16, 2)), STORAGE("Long", TYPE(I64, 8)), STORAGE("Int", TYPE(I32, 4)),
    STORAGE("Short", TYPE(I16, 2)), STORAGE("Char", TYPE(I8, 1)), STORAGE("Byte", TYPE(U8, 1)),
    STORAGE("Bool", TYPE(BOOL, 1)), STORAGE("ComplexDouble", COMPLEX(F64, 16)),
    STORAGE("ComplexFloat", COMPLEX(F32, 8)), STORAGE("QUInt8", NONE(1, "quint8")),
    STORAGE("QInt8", NONE(1, "qint8")), STORAGE("QInt32", NONE(4, "qint32")),
    STORAGE("QUInt4x2", NONE(1, "quint4x2")), STORAGE("QUInt2x4", NONE(1, "quint2x4")),
    { "torch.storage", "UntypedStorage", NULL, TYPE(U8, 1), true },
    { "torch", "UntypedStorage", NULL, TYPE(U8, 1), true },
    { "torch", "float64", NULL, TYPE(F64, 8), false },
    { "torch", "float32", NULL, TYPE(F32, 4), false },
    { "torch", "float16", NULL, TYPE(F16, 2), false },
    { "torch", "bfloat16", NULL, TYPE(BF16, 2), false },
    { "torch", "int64", NULL, TYPE(I64, 8), false },
    { "torch", "int32", NULL, TYPE(I32, 4), false },
    { "torch", "int16", NULL, TYPE(I16, 2), false },
    { "torch", "int8", NULL, TYPE(I8, 1), false },
    { "torch", "uint64", NULL, TYPE(U64, 8), false },
    { "torch", "uint32", NULL, TYPE(U32, 4), false },
    { "torch", "uint16", NULL, TYPE(U16, 2), false },
    { "torch", "uint8", NULL, TYPE(U8, 1), false },
    { "torch", "bool", NULL, TYPE(BOOL, 1), false },
    { "torch", "float8_e4m3fn", NULL, TYPE(F8E4M3FN, 1), false },
    { "torch", "float8_e4m3fnuz", NULL, TYPE(F8E4M3FNUZ, 1), false },
    { "torch", "float8_e5m2", NULL, TYPE(F8E5M2, 1), false },
    { "torch", "float8_e5m2fnuz", NULL, TYPE(F8E5M2FNUZ, 1), false },
    { "torch", "float8_e8m0fnu", NULL, TYPE(F8E8M0, 1), false },
    { "torch", "float4_e2m1fn_x2", NULL, NONE(1, "float4_e2m1fn_x2"), false },
    { "torch", "complex32", NULL, COMPLEX(F16, 4), false },
    { "torch", "complex64", NULL, COMPLEX(F32, 8), false },
    { "torch", "complex128", NULL, COMPLEX(F64, 16), false },
    { "torch", "bcomplex32", NULL, COMPLEX(BF16, 4), false },
    { "torch", "quint8", NULL, NONE(1, "quint8"), false },
    { "torch", "qint8", NULL, NONE(1, "qint8"), false },
    { "torch", "qint32", NULL, NONE(4, "qint32"), false },
    { "torch", "quint4x2", NULL, NONE(1, "quint4x2"), false },
    { "torch", "quint2x4", NULL, NONE(1, "quint2x4"), false },
    { "torch", "bits8", NULL, NONE(1, "bits8"), false },
    { "torch", "bits16", NULL, NONE(2, "bits16"), false },
    { "torch", "bits1x8", NULL, NONE(1, "bits1x8"), false },
    { "torch", "bits2x4", NULL, NONE(1, "bits2x4"), false },
    { "torch", "bits4x2", NULL, NONE(1, "bits4x2"), false },
    { "numpy", "ndarray", NULL, { 0 }, false },
    { "numpy", "dtype", call_dtype, { 0 }, false },
    { "numpy.core.multiarray", "_reconstruct", call_reconstruct, { 0 }, false },
    { "numpy._core.multiarray", "_reconstruct", call_reconstruct, { 0 }, false },
    { "numpy.core.multiarray", "scalar", call_scalar, { 0 }, false },
    { "numpy._core.multiarray", "scalar", call_scalar, { 0 }, false },
    { "numpy.core.numeric", "_frombuffer", call_from_buffer, { 0 }, false },
    { "numpy._core.numeric", "_frombuffer", call_from_buffer, { 0 }, false },
    { "_codecs", "encode", call_encode, { 0 }, false },
    { "builtins", "bytes", call_bytes, { 0 }, false },
    { "__builtin__", "bytes", call_bytes, { 0 }, false },
    { "builtins", "bytearray", call_bytes, { 0 }, false },
    { "__builtin__", "bytearray", call_bytes, { 0 }, false },
    { "builtins", "set", call_set, { 0 }, false },
    { "__builtin__", "set", call_set, { 0 }, false },
    { "builtins", "frozenset", call_set, { 0 }, false },
    { "__builtin__", "frozenset", call_set, { 0 }, false },
    { "builtins", "complex", call_other, { 0 }, false },
    { "__builtin__", "complex", call_other, { 0 }, false },
    { "builtins", "dict", NULL, { 0 }, false }, { "__builtin__", "dict", NULL, { 0 }, false },
    { "builtins", "list", NULL, { 0 }, false }, { "__builtin__", "list", NULL, { 0 }, false },
    { "builtins", "int", NULL, { 0 }, false }, { "__builtin__", "int", NULL, { 0 }, false },
    { "builtins", "float", NULL, { 0 }, false }, { "__builtin__", "float", NULL, { 0 }, false },
    { "builtins", "str", NULL, { 0 }, false }, { "__builtin__", "unicode", NULL, { 0 }, false },
    { "builtins", "bool", NULL, { 0 }, false }, { "__builtin__", "bool", NULL, { 0 }, false },
    { "builtins", "tuple", NULL, { 0 }, false }, { "__builtin__", "tuple", NULL, { 0 }, false },
    { "__builtin__", "long", NULL, { 0 }, false }, { "__builtin__", "str", NULL, { 0 }, false },
};
/* clang-format on */

static bool same(const char *a, const char *text, size_t n)
{
    return strlen(a) == n && memcmp(a, text, n) == 0;
}

const pickle_class *aril__pickle_find_class(pickle *p, const char *module, size_t n_module,
                                            const char *name, size_t n_name)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (same(classes[i].name, name, n_name) && same(classes[i].module, module, n_module))
            return &classes[i];
    char text[200];
    snprintf(text, sizeof text, "%.*s.%.*s", n_module < 120 ? (int)n_module : 120, module,
             n_name < 70 ? (int)n_name : 70, name);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    bool program = n_module >= 9 && memcmp(module, "__torch__", 9) == 0;
    return aril__pickle_refuse(
        p,
        "its pickle names %s, which is not among the classes that weights need; nothing of it was "
        "run. %s",
        text,
        program ? "It is a TorchScript program: save its state_dict() with torch.save"
                : "If you trust the file, load it in Python and save model.state_dict() alone");
}

pickle_value *aril__pickle_call(pickle *p, const pickle_value *callee, pickle_value *args)
{
    if (callee->kind != PICKLE_CLASS) return aril__pickle_wrong(p, "it calls what is no class");
    const pickle_class *c = callee->u.type;
    return c->call ? c->call(p, c, args)
                   : aril__pickle_refuse(p, "its pickle calls %s.%s, which weights do not need",
                                         c->module, c->name);
}

bool aril__pickle_build(pickle *p, pickle_value *v, const pickle_value *state)
{
    bool good = true;
    switch (v->kind) {
    case PICKLE_DTYPE: good = build_dtype(v, state); break;
    case PICKLE_ARRAY: good = build_array(v, state); break;
    case PICKLE_DICT: /* attributes of the object, such as a state dict's versions */
    case PICKLE_TENSOR:
    case PICKLE_SET: break;
    default: good = false;
    }
    if (!good) aril__pickle_refuse(p, "its pickle restores a state that weights do not need");
    return good;
}

bool aril__pickle_is_storage(const pickle_value *v, pickle_dtype *type)
{
    if (v->kind != PICKLE_CLASS || !v->u.type->storage) return false;
    *type = v->u.type->type;
    return true;
}
