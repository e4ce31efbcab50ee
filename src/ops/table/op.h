/* The definition of an op: one row with everything about it.
 *
 * Tracing, gradients, tests, documentation and kernels for other devices are derived from rows of
 * this form. docs/adding-an-op.md walks through one. */
#ifndef ARIL_OPS_OP_H
#define ARIL_OPS_OP_H

#include "core/tensor.h"

enum {
    ARIL__MAX_OUT = 32,
    ARIL__ANY = 255, /* any number of inputs */
    ARIL__SAVES = 4, /* inputs with their own `saves` mask; later ones use the last */
    ARIL__MAX_OPS = 1024,
};

typedef struct aril__op aril__op;

/* ---- attributes ---- */

typedef enum aril__attr_type { ARIL__I64, ARIL__F64 } aril__attr_type;

typedef struct aril__attr {
    const char *name;
    uint8_t type; /* aril__attr_type */
    uint8_t count;
    uint16_t offset;
    double initial;   /* the default of each element */
    const char *onnx; /* NULL: not an attribute in ONNX */
} aril__attr;

/* Attributes are listed once, as A(op, type, count, name, default, ONNX name):
 *     #define CONV_ATTRS(A)                                                    \
 *         A(conv, I64, 3, stride, 1, "strides") A(conv, I64, 1, groups, 1, "group")
 *     ATTRS(conv, CONV_ATTRS)          in a header: struct conv_attrs { int64_t stride[3]; ... }
 *     ATTR_LIST(conv, CONV_ATTRS)      in the .c file: their description
 *     OP(conv, ..., WITH_ATTRS(conv))  in the row
 * Counts of 1 are arrays too, so that all attributes are accessed the same way. */
typedef int64_t aril__type_I64;
typedef double aril__type_F64;
#define ARIL__ATTR_FIELD(op, type, count, name, initial, onnx) aril__type_##type name[count];
#define ARIL__ATTR_ROW(op, type, count, name, initial, onnx) \
    { #name, ARIL__##type, count, offsetof(struct op##_attrs, name), initial, onnx },
#define ATTRS(op, LIST)        \
    struct op##_attrs {        \
        LIST(ARIL__ATTR_FIELD) \
    };
#define ATTR_LIST(op, LIST) static const aril__attr op##_attr_list[] = { LIST(ARIL__ATTR_ROW) };
#define WITH_ATTRS(op)                                                                  \
    .attrs = op##_attr_list, .n_attrs = sizeof op##_attr_list / sizeof *op##_attr_list, \
    .attr_size = sizeof(struct op##_attrs)

/* ... and, if one of them is `activation`: */
#define WITH_ACTIVATION(op) .activation = 1 + offsetof(struct op##_attrs, activation)

/* ---- one application of an op ---- */

/* What the shape rule infers for one output. */
typedef struct aril__meta {
    aril_dtype dtype;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];    /* -1: known after the run (or unknown in a trace) */
    int64_t stride[ARIL_MAX_DIMS]; /* views only */
    int64_t offset;                /* views only */
} aril__meta;

/* What a shape rule reads and fills in. Inputs may be symbolic, with unknown sizes: a rule reads
 * dtype, ndim and dim (and stride and offset, in views), never at values. */
typedef struct aril__call {
    const aril__op *op;
    const void *attrs;
    int n_in;
    aril_tensor *const *in; /* NULL if an optional input is absent */
    aril__device *device;   /* of the inputs; the rule of an op without inputs sets it */
    aril_dtype type;        /* the dtype the op computes in, which selects the kernel */
    aril__meta out[ARIL__MAX_OUT];
} aril__call;

/* What a kernel gets: inputs with values on its device, allocated outputs. */
typedef struct aril__run {
    const aril__op *op;
    const void *attrs;
    int n_in, n_out;
    aril_tensor *const *in;
    aril_tensor **out; /* NULL if the size is only known after the run: see aril__run_alloc */
    bool late;         /* results are headers without memory: the chosen row gives their order */
    bool alike;        /* all operands are contiguous, of one shape, and the inputs of one dtype */
    aril_dtype type;
    aril__device *device;
    void *prepared;  /* created by the row's prepare */
    void *workspace; /* as many bytes as the row asked for: scratch memory, not cleared */
    size_t workspace_bytes;
} aril__run;

/* What a gradient rule gets. */
typedef struct aril__grad {
    const aril__op *op;
    const void *attrs;
    int n_in, n_out;
    aril_tensor *const *x; /* inputs: values that `saves` names, shapes it names LIKE, else NULL */
    aril_tensor *const *y; /* outputs that `saves` names, else NULL */
    aril_tensor *const *g; /* gradient of each output; NULL where it is zero */
    aril_tensor **dx;      /* to be set for each wanted input; NULL means zero */
    const bool *wants;
} aril__grad;

/* ---- the row ---- */

/* `saves` masks: what the gradient of an input needs. */
#define IN(i)       (1u << (i))
#define OUT(i)      (1u << (16 + (i)))
#define LIKE(i)     (1u << (8 + (i))) /* only the shape and dtype of input i */
#define LIKE_OUT(i) (1u << (24 + (i)))

/* `out` kinds. */
enum { FRESH = 0 };
#define VIEW(i)           (1 + (i))
#define WRITES(i)         (32 + (i))
#define ARIL__IS_VIEW(k)  ((k) >= 1 && (k) < 32)
#define ARIL__IS_WRITE(k) ((k) >= 32)

/* Flags. */
enum {
    NONDIFF = 1,      /* no gradient flows through it */
    STRIDED = 2,      /* the reference takes inputs and outputs of any strides */
    DYNAMIC = 4,      /* sizes of results are only known after the run */
    INPLACE = 8,      /* the reference supports out[0] in the memory of in[0] */
    RANDOM = 16,      /* in[0] is a key from aril__rng_draw */
    KEEPS_ORDER = 32, /* out[0] has the memory format of the first input of the same shape, or is
                         channels-last if any of them is */
    RAW = 64,         /* moves elements of any dtype without computing: never staged */
    ELEMENTWISE = 128,
    ANYWHERE = 256,       /* the reference handles every device itself */
    KEEPS_CHANNELS = 512, /* results are channels-last, or samples-last, if in[0] or a shape-only
                             input is */
    GRADIENT = 1024,      /* computes a gradient of another op */
};

/* Sets of dtypes, for kernel rows and `types`. */
#define DT(t)    (1u << (t))
#define DT_FLOAT (DT(ARIL_F16) | DT(ARIL_BF16) | DT(ARIL_F32) | DT(ARIL_F64))
#define DT_INT                                                                               \
    (DT(ARIL_U8) | DT(ARIL_U16) | DT(ARIL_U32) | DT(ARIL_U64) | DT(ARIL_I8) | DT(ARIL_I16) | \
     DT(ARIL_I32) | DT(ARIL_I64))
#define DT_BOOL    DT(ARIL_BOOL)
#define DT_COMPUTE (DT_FLOAT | DT_INT | DT_BOOL)
#define DT_ALL     ((1u << (ARIL_U2 + 1)) - 1)

/* What autocast does to the floating-point inputs of an op (ops/table/autocast.h). */
enum {
    CAST_NONE,       /* nothing: the op runs in the dtype of its inputs */
    CAST_LOW,        /* casts them to the dtype of the region */
    CAST_F32,        /* casts them to f32 */
    CAST_WIDEST,     /* casts them to the widest dtype among them */
    CAST_F32_IN_F16, /* to f32 in f16 regions, whose range results easily leave; else nothing: what
                        PyTorch's list for CUDA has beyond that for CPUs */
    CAST_BY_CALL,    /* depends on the rank or an attribute: `cast_of` says */
};

typedef struct aril__sample aril__sample;   /* ops/table/sample.h: inputs for the tests */
typedef struct aril__formula aril__formula; /* ops/elementwise/formula.h */

struct aril__op {
    const char *name;
    const char *doc;  /* one line */
    const char *file; /* the file that defines it */
    const char *onnx; /* the operator's name in ONNX, NULL if there is no direct equivalent */
    /* The op's position in the table: the table's, not the row's, so that a new op recompiles no
     * other row. NULL: an op outside the table, which is never dispatched. */
    const uint16_t *number;
    uint8_t min_in, max_in, n_out;
    uint8_t out[ARIL__MAX_OUT]; /* FRESH, VIEW(i) or WRITES(i) */
    uint16_t flags;
    /* List ops: `fixed` inputs, then any number of items of `each` inputs. In the masks `optional`
     * and `writes`, IN(fixed + k) is input k of every item. each = 0: not a list. */
    uint8_t fixed, each;
    uint8_t cast;        /* autocast: CAST_LOW etc. */
    uint32_t writes;     /* IN(i): changed in place, besides WRITES outputs; for NONDIFF ops */
    uint32_t optional;   /* IN(i): may be NULL */
    uint32_t shape_only; /* IN(i): only the shape is read */
    uint32_t index_in;   /* IN(i): indices; any integer dtype, kernels get contiguous i64 */
    /* 1 + the output, or the input of the gradient, that is a reserve: bytes which the row that ran
     * the op keeps for its gradient, of a size and format that only this row knows. 0: none. */
    uint8_t reserve_out, reserve_in;
    uint32_t types;  /* supported dtypes: checked against in[0] (0: the rule checks) */
    uint32_t native; /* dtypes that the reference computes in; others are staged through
                            f32, f64, i64 or u64 (0: all) */
    const aril__attr *attrs;
    uint16_t n_attrs, attr_size;

    aril_status (*infer)(aril__call *c);      /* shape and dtype of each output */
    unsigned (*cast_of)(const aril__call *c); /* for CAST_BY_CALL: the class of this call */
    aril_status (*ref)(aril__run *r);         /* the reference kernel, on the CPU; NULL for views */
    size_t (*workspace)(
        const aril__run *r);    /* bytes of memory that the reference needs; NULL: none */
    void (*vjp)(aril__grad *c); /* the gradient, in public ops */
    /* For ops of one input and one output, views of part of it: the gradient of the input of n
     * calls that share it, latest first, in one op where their parts make up the whole. NULL: each
     * has its own. */
    aril_tensor *(*join)(int n, const aril__grad *calls);
    void (*decompose)(aril__call *c, aril_tensor **out); /* the same in public ops */
    uint32_t saves[ARIL__SAVES];                         /* what the gradient of input i needs */
    uint16_t activation; /* 1 + offset of the aril_activation of out[0] in the attributes:
                                     with one, gradients need OUT(0) besides what `saves` says */
    /* Floating-point operations of a run, 2 per multiply-add. NULL: one per element of the larger
     * side, none if elements are only moved (RAW) or are integers. */
    double (*flops)(const aril__run *r);
    const aril__sample *samples;  /* ends with a sample without inputs or attributes */
    const aril__formula *formula; /* elementwise ops */
};

/* The bit of input i in the masks of a row. */
static inline int aril__role(const aril__op *op, int i)
{
    if (op->each && i >= op->fixed) i = op->fixed + (i - op->fixed) % op->each;
    return i < 31 ? i : 31;
}

/* Whether the op changes input i in place. */
static inline bool aril__changes(const aril__op *op, int i)
{
    return op->writes >> aril__role(op, i) & 1;
}

/* The number of items of a list op with that many inputs. */
static inline int aril__items(const aril__op *op, int n_in)
{
    return (n_in - op->fixed) / op->each;
}

/* A row: OP(conv, .doc = "...", .min_in = 2, ...); its name must be listed in its room's
 * ops.def. The header of its file declares it if other files name it, or rules ahead of it. */
#define OP(op, ...)                                                              \
    extern const uint16_t aril__number_##op;                                     \
    const aril__op aril__op_##op = {                                             \
        .name = #op, .number = &aril__number_##op, .file = __FILE__, __VA_ARGS__ \
    }

/* Rule and row helpers: VJP(sum) { GRAD(0, ...); } and .vjp = sum_vjp. */
#define VJP(op) static void op##_vjp(aril__grad *c)
#define GRAD(i, value)                       \
    do {                                     \
        if (c->wants[i]) c->dx[i] = (value); \
    } while (0)

/* All ops. */
extern const aril__op *const aril__ops[];
extern const int aril__n_ops;
const aril__op *aril__op_find(const char *name);
/* NULL if no op has that number. */
const aril__op *aril__op_numbered(int number);

/* The number of an op of the table. */
static inline int aril__op_number(const aril__op *op)
{
    return *op->number;
}

#endif
