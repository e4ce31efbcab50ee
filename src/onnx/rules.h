/* Rules: how an operator of ONNX is computed with Aril's operations. */
#ifndef ARIL_ONNX_RULES_H
#define ARIL_ONNX_RULES_H

#include "core/tensor.h"
#include "graph/control.h"
#include "onnx/onnx.h"
#include "ops/table/apply.h"

#include <string.h>

/* One application of an operator. */
typedef struct onnx_call {
    onnx_run *run;
    const onnx_node *node;
    int version;
    bool host;   /* all inputs are known: computed on the CPU, also in a trace */
    bool opened; /* sizes that are left open are tensors of the trace here */
    int n_in, n_out;
    const onnx_value *in;
    onnx_value *out; /* to be set */
} onnx_call;

typedef aril_status onnx_convert(onnx_call *c);

enum {
    ONNX_SIZES = 1,          /* reads only the sizes of its inputs: the result is known */
    ONNX_RANDOM = 2,         /* never known */
    ONNX_BODIES = 4,         /* runs bodies, which see values besides its inputs */
    ONNX_MOVES = 8,          /* moves or compares elements without computing: strings too */
    ONNX_MOVES_FIRST = 1024, /* only to output 0: the others are numbers */
    /* Integers of input i, from 0 to 3, that stand for unknown sizes are moved to the result; or
     * those of all inputs. */
    ONNX_OPEN_0 = 16,
    ONNX_OPEN_ALL = 240,
    /* Integers of input i may stand for unknown sizes, and the result has these. */
    ONNX_SHAPE_0 = 256,
    ONNX_SHAPE_1 = 512,
    /* What it tells of integers that stand for unknown sizes holds in all runs. */
    ONNX_TELLS = 1024,
};

typedef struct onnx_rule {
    const char *domain, *name;
    int from, to; /* versions of the operator set; to 0: all later ones */
    onnx_convert *convert;
    aril_tensor *(*unary)(aril_tensor *a);
    aril_tensor *(*binary)(aril_tensor *a, aril_tensor *b);
    int flags;
} onnx_rule;

/* The newest versions of the operator sets that rules are written for. */
enum { ONNX_NEWEST = 28 };

/* The rule of an operator; NULL: none of that name, or for that version. Then *from and *to are the
 * versions that there are rules for, 0 if none. */
const onnx_rule *aril__onnx_rule(const char *domain, const char *name, int version, int *from,
                                 int *to);
/* The tables of rules, each up to a row without a name; NULL beyond the last. */
const onnx_rule *aril__onnx_rules(int table);

/* signature.c: whether a node has the inputs, outputs and attributes of its rule's operator, each
 * attribute with a value of its kind. Notes in n->takes which inputs there are. */
aril_status aril__onnx_check_node(const onnx_model *m, onnx_node *n);
/* Whether input i is required, by such letters. */
bool aril__onnx_requires(const char *takes, int i);

/* The types of an operator of the default domain: a letter for each input and output, equal ones
 * for those of the same type, '.' for any; the types that each may have, as bits. */
typedef struct onnx_type_row {
    const char *name;
    int from;
    const char *in, *out;
    uint32_t types[8]; /* of 'A' and so on: bit N is ONNX's number of a dtype */
} onnx_type_row;

/* The row of a version; NULL: the operator has none. */
const onnx_type_row *aril__onnx_type_row(const char *name, int version);
/* The letter of input or output i: the last one stands for all that follow. */
char aril__onnx_type_letter(const char *letters, int i);
/* Whether an operator of the default domain has an attribute in a version. */
bool aril__onnx_takes_attribute(const char *name, int version, const char *attribute);
/* The most inputs and outputs of it; -1: any number. False: there is no such operator. */
bool aril__onnx_most_ports(const char *name, int version, int *in, int *out);

/* Computes another operator of the default domain on the same node's attributes: its output 0. */
aril_status aril__onnx_apply(onnx_call *c, const char *name, int version, int n_in,
                             const onnx_value *in, aril_tensor **out);

/* open_sizes.c: whether integers among the inputs stand for unknown sizes; and Mul, Div and Equal
 * of such: ARIL__ONNX_DYNAMIC where the result is not a size that a trace can name. */
bool aril__onnx_has_open_sizes(const onnx_call *c);
aril_status aril__onnx_size_product(onnx_call *c);
aril_status aril__onnx_size_quotient(onnx_call *c);
aril_status aril__onnx_size_equal(onnx_call *c);
/* a * b and a / b of sizes that may be open: -1 where a trace cannot name the result. */
int64_t aril__onnx_times(int64_t a, int64_t b);
int64_t aril__onnx_over(int64_t a, int64_t b);
/* A size that may be open as a tensor of the trace, 0-d, i64. */
aril_tensor *aril__onnx_size(aril_device to, int64_t size);
/* n elements of an axis of x from a position on (0-d, i64), which may lie outside: 0 there. */
aril_tensor *aril__onnx_window(onnx_call *c, aril_tensor *x, int axis, aril_tensor *start,
                               int64_t n);
/* A known tensor of sizes, of which some are open, as a tensor of the trace. */
aril_tensor *aril__onnx_open_tensor(onnx_call *c, aril_tensor *sizes);
/* The error of a rule that has to know a size that is left open. */
aril__cold aril_status aril__onnx_open_error(const onnx_call *c);
/* The same if a size of x from axis `from` on is open. */
aril_status aril__onnx_known_sizes(const onnx_call *c, const aril_tensor *x, int from);

/* rules_text.c: runs a rule that moves elements on numbers in the order of the strings, and takes
 * these. */
aril_status aril__onnx_move_texts(onnx_call *c);

/* rules_quant.c: integers of one scale and zero point (NULL: 0) as f32, and back; and u8 with the
 * scale that covers the range of x and 0: the integers, the scale, the zero point. */
aril_tensor *aril__onnx_dequantized(aril_tensor *x, aril_tensor *scale, aril_tensor *zero);
aril_tensor *aril__onnx_quantized(aril_tensor *x, aril_tensor *scale, aril_tensor *zero,
                                  aril_dtype to);
void aril__onnx_quantize_dynamic(onnx_call *c, aril_tensor *x, aril_tensor **to);

/* rules_nn.c: the attributes of Conv with that many spatial dimensions, and these weights. */
struct conv_attrs;
aril_status aril__onnx_conv_attrs(onnx_call *c, int spatial, const aril_tensor *w,
                                  struct conv_attrs *to);

/* control_trace.c: If, Loop and Scan as nodes of a trace that does not know how they go on.
 * `states`: how many values a loop carries. Axes and directions are those of the scanned inputs and
 * outputs of a Scan. */
typedef struct onnx_scan_axes {
    int in[ARIL__CONTROL_ARGS], out[ARIL__CONTROL_ARGS];
    bool in_reverse[ARIL__CONTROL_ARGS], out_reverse[ARIL__CONTROL_ARGS];
} onnx_scan_axes;

aril_status aril__onnx_traced_if(onnx_call *c);
aril_status aril__onnx_traced_loop(onnx_call *c, const onnx_body *body, int states);
aril_status aril__onnx_traced_scan(onnx_call *c, const onnx_body *body, int states,
                                   const onnx_scan_axes *axes);

/* Rows of a table. */
#define RULE(name_, from_, fn)                 \
    {                                          \
        "", name_, from_, 0, fn, NULL, NULL, 0 \
    }
#define RULE_FLAGS(name_, from_, fn, flags_)        \
    {                                               \
        "", name_, from_, 0, fn, NULL, NULL, flags_ \
    }
#define RULE_OF(domain_, name_, from_, fn)          \
    {                                               \
        domain_, name_, from_, 0, fn, NULL, NULL, 0 \
    }

/* ---- inputs and outputs ---- */

static inline bool given(const onnx_call *c, int i)
{
    return i < c->n_in && c->in[i].kind != ONNX_NONE;
}

/* Input i, on the device where the node is computed; NULL if it is not given. An input that is no
 * tensor gives a poisoned one. */
aril_tensor *aril__onnx_in(onnx_call *c, int i);
static inline aril_tensor *in(onnx_call *c, int i)
{
    return aril__onnx_in(c, i);
}

static inline aril_status give_value(onnx_call *c, int i, onnx_value v)
{
    if (i < c->n_out) c->out[i] = v;
    return ARIL_OK;
}

/* Sets an output; nothing if the node does not have it. */
static inline aril_status give(onnx_call *c, int i, aril_tensor *t)
{
    aril_status s = t ? aril_tensor_status(t) : aril__latest_status();
    if (s < 0) return s;
    return give_value(c, i, (onnx_value){ .kind = ONNX_TENSOR, .tensor = t });
}

static inline bool wanted(const onnx_call *c, int i)
{
    return i < c->n_out && c->node->out[i];
}

/* The device of results that depend on no input. */
aril_device aril__onnx_device(const onnx_call *c);

/* ---- values on the host ----
 *
 * ARIL__ONNX_DYNAMIC when a trace does not know the value. The memory belongs to the run. */

typedef struct onnx_ints {
    int64_t n;
    int64_t *at;
} onnx_ints;
typedef struct onnx_floats {
    int64_t n;
    double *at;
} onnx_floats;

aril_status aril__onnx_ints(onnx_call *c, int i, onnx_ints *out);
aril_status aril__onnx_floats(onnx_call *c, int i, onnx_floats *out);
/* One number; `otherwise` if input i is not given. */
aril_status aril__onnx_int_in(onnx_call *c, int i, int64_t otherwise, int64_t *out);
aril_status aril__onnx_float_in(onnx_call *c, int i, double otherwise, double *out);
/* A tensor as it is on the host. */
aril_status aril__onnx_host(onnx_call *c, aril_tensor *t, aril_dtype as, const void **at);

/* ---- attributes ---- */

const aril__message *aril__onnx_attribute(const onnx_call *c, const char *name);

static inline bool has_attr(const onnx_call *c, const char *name)
{
    return aril__onnx_attribute(c, name) != NULL;
}
int64_t aril__onnx_attr_int(const onnx_call *c, const char *name, int64_t otherwise);
double aril__onnx_attr_float(const onnx_call *c, const char *name, double otherwise);
const char *aril__onnx_attr_text(onnx_call *c, const char *name, const char *otherwise);
/* A list of integers; n is -1 if the attribute is not there. */
onnx_ints aril__onnx_attr_ints(onnx_call *c, const char *name);
onnx_floats aril__onnx_attr_floats(onnx_call *c, const char *name);
const onnx_body *aril__onnx_attr_body(const onnx_call *c, const char *name);

static inline bool attr_is(onnx_call *c, const char *name, const char *otherwise, const char *text)
{
    return strcmp(aril__onnx_attr_text(c, name, otherwise), text) == 0;
}

/* Integers that are an attribute up to some version, and an input after it: n is -1 if there are
 * none. */
aril_status aril__onnx_ints_of(onnx_call *c, const char *name, int input, onnx_ints *out);

/* ---- helpers ---- */

aril__cold aril_status aril__onnx_fail(const onnx_call *c, aril_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* An axis from 0 to n - 1; -1 with an error. */
int aril__onnx_axis(const onnx_call *c, int64_t axis, int n);
/* Axes for reductions. */
aril_status aril__onnx_axes(const onnx_call *c, onnx_ints from, int n, aril_axes *out);
/* Sizes from integers. */
aril_status aril__onnx_shape(const onnx_call *c, onnx_ints from, aril_shape *out);

/* The result of a computation whose memory order or form is like x, in its dtype. */
static inline aril_tensor *like(aril_tensor *y, const aril_tensor *x)
{
    return aril_cast(y, aril_dtype_of(x));
}

/* x in a float of 8 or 4 bits. What is too large becomes the largest number, or, unless `saturate`,
 * infinite or NaN. `round` is the direction for f8e8m0: "up", "down" or "nearest". */
aril_tensor *aril__onnx_small_float(aril_tensor *x, aril_dtype to, bool saturate,
                                    const char *round);

/* Integers, or numbers, of the host as a tensor of one dimension, where the node is computed. */
aril_tensor *aril__onnx_index(onnx_call *c, const int64_t *at, int64_t n);
aril_tensor *aril__onnx_numbers(onnx_call *c, const double *at, int64_t n, aril_dtype dtype);
/* The same integers on the CPU. */
aril_tensor *aril__onnx_from_ints(const int64_t *at, int64_t n);

/* A value that depends on the host alone is created outside the trace. */
aril__pause aril__onnx_pause(const onnx_call *c);
void aril__onnx_resume(const onnx_call *c, aril__pause p);

static inline bool is_symbolic(const aril_tensor *t)
{
    return (t->flags & ARIL__SYMBOLIC) != 0;
}

#endif
