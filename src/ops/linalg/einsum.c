/* einsum: products and sums by axis labels. Composed of diagonals, sums, permutations and matrix
 * products, which provide the gradient. Operands are combined from left to right, two at a time; an
 * axis is summed over as soon as nothing later needs it. */
#include "aril/create.h"
#include "aril/linalg.h"
#include "aril/math.h"
#include "aril/reduce.h"
#include "aril/view.h"
#include "core/memory.h"
#include "ops/table/apply.h"
#include "ops/norm/norm.h"
#include "ops/shape/view.h"
#include "ops/linalg/matmul.h"

#include <stdlib.h>
#include <string.h>

/* Labels: A-Z are 0..25, a-z 26..51, the axes of "..." 52.. counted from its end. */
enum { LETTERS = 52, LABELS = LETTERS + ARIL_MAX_DIMS };

/* The axes of a tensor, in order. */
typedef struct term {
    aril_tensor *t;
    int n;
    int label[2 * ARIL_MAX_DIMS];
} term;

typedef uint64_t set; /* of labels */

static set one(int label)
{
    return (set)1 << label;
}

static set labels_of(const term *x)
{
    set s = 0;
    for (int i = 0; i < x->n; i++) s |= one(x->label[i]);
    return s;
}

static int axis_of(const term *x, int label)
{
    for (int i = 0; i < x->n; i++)
        if (x->label[i] == label) return i;
    return -1;
}

static char letter(int label)
{
    return label >= LETTERS ? '.' : (char)(label < 26 ? 'A' + label : 'a' + label - 26);
}

/* ---- parsing ---- */

static aril_status bad_char(const char *expression, char c)
{
    return aril__fail(ARIL_ERR_ARG, "einsum: unexpected '%c' in \"%s\"", c, expression);
}

/* Reads labels up to ',', "->" or the end. `dots` is the number of axes that "..." stands for (-1:
 * those of operand t that have no letter); advances *at past the labels. */
static aril_status read_labels(const char *expression, const char **at, int dots, term *x)
{
    const char *p = *at;
    int letters = 0;
    bool ellipsis = false;
    for (const char *q = p; *q && *q != ',' && *q != '-'; q++)
        letters += (*q >= 'a' && *q <= 'z') || (*q >= 'A' && *q <= 'Z');
    if (dots < 0) dots = x->t->ndim - letters;
    x->n = 0;
    if (letters > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_ARG, "einsum: more than %d axes in \"%s\"", ARIL_MAX_DIMS,
                          expression);
    for (; *p && *p != ',' && *p != '-'; p++) {
        if (*p == ' ') continue;
        if (*p >= 'A' && *p <= 'Z') {
            x->label[x->n++] = *p - 'A';
        } else if (*p >= 'a' && *p <= 'z') {
            x->label[x->n++] = *p - 'a' + 26;
        } else if (!strncmp(p, "...", 3) && !ellipsis) {
            ellipsis = true;
            p += 2;
            for (int d = 0; d < dots; d++) x->label[x->n++] = LETTERS + dots - 1 - d;
        } else {
            return bad_char(expression, *p);
        }
    }
    *at = p;
    if (x->t && x->n != x->t->ndim) {
        char text[ARIL__SHAPE_TEXT];
        return aril__fail(ARIL_ERR_SHAPE, "einsum: \"%s\" has %d labels for an operand of shape %s",
                          expression, letters, aril__text(text, x->t));
    }
    return ARIL_OK;
}

/* Parses the operands and the result of an expression. */
static aril_status read_all(const char *expression, aril_list operands, term *in, term *out)
{
    const char *p = expression;
    int dots = 0, seen[LABELS] = { 0 };
    for (int i = 0; i < operands.n; i++) {
        in[i].t = operands.at[i];
        aril_status s = read_labels(expression, &p, -1, &in[i]);
        if (s < 0) return s;
        for (int k = 0; k < in[i].n; k++) {
            seen[in[i].label[k]]++;
            if (in[i].label[k] - LETTERS + 1 > dots) dots = in[i].label[k] - LETTERS + 1;
        }
        bool last = i == operands.n - 1;
        if (*p == ',' ? last : !last)
            return aril__fail(ARIL_ERR_ARG, "einsum: \"%s\" does not match %d operands", expression,
                              operands.n);
        if (*p == ',') p++;
    }
    out->t = NULL;
    out->n = 0;
    if (!*p) { /* every letter that occurs once, in order, after the axes of "..." */
        for (int d = 0; d < dots; d++) out->label[out->n++] = LETTERS + dots - 1 - d;
        for (int l = 0; l < LETTERS; l++)
            if (seen[l] == 1 && out->n < 2 * ARIL_MAX_DIMS) out->label[out->n++] = l;
    } else {
        if (strncmp(p, "->", 2) != 0) return bad_char(expression, *p);
        p += 2;
        aril_status s = read_labels(expression, &p, dots, out);
        if (s < 0) return s;
        if (*p) return bad_char(expression, *p);
    }
    if (out->n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "einsum: the result of \"%s\" has more than %d axes",
                          expression, ARIL_MAX_DIMS);
    set have = 0;
    for (int k = 0; k < out->n; k++) {
        if (!seen[out->label[k]])
            return aril__fail(ARIL_ERR_ARG, "einsum: no operand of \"%s\" has the label '%c'",
                              expression, letter(out->label[k]));
        if (have & one(out->label[k]))
            return aril__fail(ARIL_ERR_ARG, "einsum: the result of \"%s\" has '%c' twice",
                              expression, letter(out->label[k]));
        have |= one(out->label[k]);
    }
    return ARIL_OK;
}

/* number: a label's letter and two of its sizes. */
static aril_status label_broadcasts(const aril__requirement *q)
{
    int64_t m = q->number[1], n = q->number[2];
    if (aril__size_fits(m, n) || m == 1 || n == 1) return ARIL_OK;
    return aril__fail(ARIL_ERR_SHAPE, "einsum: in \"%s\" the sizes of '%c' differ: %lld and %lld",
                      q->what, (char)q->number[0], (long long)m, (long long)n);
}

/* The same for one operand, which repeats the label. */
static aril_status label_repeats(const aril__requirement *q)
{
    int64_t m = q->number[1], n = q->number[2];
    if (aril__size_fits(m, n)) return ARIL_OK;
    return aril__fail(
        ARIL_ERR_SHAPE,
        "einsum: in \"%s\" an operand repeats '%c' with different sizes: %lld and %lld", q->what,
        (char)q->number[0], (long long)m, (long long)n);
}

static aril_status require_label(const char *expression, aril__size_check *check, aril_tensor *of,
                                 int label, int64_t m, int64_t n)
{
    aril__requirement q;
    memset(&q, 0, sizeof q);
    q.check = check;
    q.n_numbers = 3;
    snprintf(q.what, sizeof q.what, "%s", expression);
    q.number[0] = letter(label);
    q.number[1] = m;
    q.number[2] = n;
    return aril__require_now(&q, 1, &of);
}

/* Sizes of one label must agree; size 1 broadcasts. */
static aril_status check_sizes(const char *expression, const term *in, int n)
{
    aril_status s = ARIL_OK;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < in[i].n; k++)
            for (int j = 0; j < i; j++) {
                int at = axis_of(&in[j], in[i].label[k]);
                int64_t a = at < 0 ? 1 : in[j].t->dim[at], b = in[i].t->dim[k];
                if (a == b || a == 1 || b == 1) continue;
                s = require_label(expression, label_broadcasts, in[i].t, in[i].label[k], a, b);
                if (s < 0) return s;
            }
    return s;
}

/* ---- one tensor ---- */

static void drop_axis(term *x, int axis)
{
    memmove(x->label + axis, x->label + axis + 1, (size_t)(x->n - axis - 1) * sizeof *x->label);
    x->n--;
}

/* Takes the diagonal for repeated labels. */
static aril_status take_diagonals(const char *expression, term *x)
{
    for (int i = 0; i < x->n; i++)
        for (int k = i + 1; k < x->n; k++) {
            if (x->label[i] != x->label[k]) continue;
            int label = x->label[i];
            int64_t m = x->t->dim[i], n = x->t->dim[k];
            aril_status s =
                m == n ? ARIL_OK : require_label(expression, label_repeats, x->t, label, m, n);
            if (s < 0) return s;
            x->t = aril_diagonal(x->t, 0, i, k);
            drop_axis(x, k);
            drop_axis(x, i);
            x->label[x->n++] = label;
            i = -1; /* restart: positions have changed */
            break;
        }
    return aril_tensor_status(x->t);
}

/* Sums over the axes that are not in `keep`. */
static void sum_out(term *x, set keep)
{
    aril_axes axes = { 0 };
    for (int i = x->n - 1; i >= 0; i--)
        if (!(keep & one(x->label[i]))) {
            axes.axis[axes.n++] = i;
            drop_axis(x, i);
        }
    if (axes.n) x->t = aril_sum(x->t, axes);
}

/* Permutes the axes to the given order, which must list all of them. */
static aril_tensor *ordered(const term *x, int n, const int *label)
{
    aril_axes axes = { .n = n };
    bool same = true;
    for (int i = 0; i < n; i++) {
        axes.axis[i] = axis_of(x, label[i]);
        same = same && axes.axis[i] == i;
    }
    return same ? x->t : aril_permute(x->t, axes);
}

/* ---- two tensors ---- */

/* x with axes for `n` labels in their order, with size 1 for missing ones. */
static aril_tensor *spread(const term *x, int n, const int *label)
{
    int own[2 * ARIL_MAX_DIMS] = { 0 }, count = 0;
    int64_t mask = 0;
    for (int i = 0; i < n; i++) {
        if (axis_of(x, label[i]) >= 0)
            own[count++] = label[i];
        else
            mask |= (int64_t)1 << i;
    }
    struct unsqueeze_attrs a = { { mask } };
    aril_tensor *t = ordered(x, count, own);
    return mask ? aril__op_with(&a, &aril__op_unsqueeze, t) : t;
}

/* Flattens axes first..first+n-1 into one. */
static aril_tensor *joined(aril_tensor *x, int first, int n)
{
    return n == 0 ? aril_unsqueeze(x, first) : n == 1 ? x : aril_flatten(x, first, first + n - 1);
}

typedef struct groups {
    int batch[ARIL_MAX_DIMS], left[ARIL_MAX_DIMS], right[ARIL_MAX_DIMS], inner[ARIL_MAX_DIMS];
    int n_batch, n_left, n_right, n_inner;
} groups;

static int append(int *to, int n, const int *from, int count)
{
    memcpy(to + n, from, (size_t)count * sizeof *to);
    return n + count;
}

/* The shape of the product with its flattened axes unflattened; false if too many sizes are
 * unknown. */
static bool apart(const groups *g, const term *a, const term *b, aril_tensor *y, aril_shape *to)
{
    int unknown = 0;
    to->ndim = 0;
    for (int i = 0; i < g->n_batch; i++) to->dim[to->ndim++] = y ? y->dim[i] : 1;
    for (int i = 0; i < g->n_left; i++) to->dim[to->ndim++] = a->t->dim[axis_of(a, g->left[i])];
    for (int i = 0; i < g->n_right; i++) to->dim[to->ndim++] = b->t->dim[axis_of(b, g->right[i])];
    for (int i = 0; i < to->ndim; i++) unknown += to->dim[i] == -1;
    return unknown <= 1;
}

/* Computes the product as one batched matmul. */
static aril_tensor *by_matmul(const groups *g, const term *a, const term *b)
{
    int label[2 * ARIL_MAX_DIMS];
    int n = append(label, append(label, append(label, 0, g->batch, g->n_batch), g->left, g->n_left),
                   g->inner, g->n_inner);
    aril_tensor *x = joined(ordered(a, n, label), g->n_batch, g->n_left);
    x = joined(x, g->n_batch + 1, g->n_inner);
    n = append(label, append(label, append(label, 0, g->batch, g->n_batch), g->inner, g->n_inner),
               g->right, g->n_right);
    aril_tensor *z = joined(ordered(b, n, label), g->n_batch, g->n_inner);
    z = joined(z, g->n_batch + 1, g->n_right);
    aril_tensor *y = aril__op(&aril__op_matmul, x, z);
    if (aril__is_poison(y)) return aril__pass_on(y);
    if (g->n_left > 1 || g->n_right > 1) {
        aril_shape to;
        apart(g, a, b, y, &to);
        return aril_reshape(y, to);
    }
    struct unsqueeze_attrs none = { { (g->n_left ? 0 : 1 << (y->ndim - 2)) |
                                      (g->n_right ? 0 : 1 << (y->ndim - 1)) } };
    return none.mask[0] ? aril__op_with(&none, &aril__op_squeeze, y) : y;
}

/* a times b, summed over the labels not in `keep`. */
static aril_status combine(const char *expression, term *a, term *b, set keep)
{
    /* If a summed axis has size 1 on one side, drop it there. */
    for (int i = a->n - 1; i >= 0; i--) {
        int label = a->label[i], k = axis_of(b, label);
        if (k < 0 || keep & one(label)) continue;
        int64_t m = a->t->dim[i], n = b->t->dim[k];
        if (m == 1 && n != 1) {
            struct unsqueeze_attrs mask = { { 1 << i } };
            a->t = aril__op_with(&mask, &aril__op_squeeze, a->t);
            drop_axis(a, i);
        } else if (n == 1 && m != 1) {
            struct unsqueeze_attrs mask = { { 1 << k } };
            b->t = aril__op_with(&mask, &aril__op_squeeze, b->t);
            drop_axis(b, k);
        } else if (m != n) { /* unknown ones: only a run can tell whether one is 1 */
            int64_t size = aril__broadcast_size(m, n, a->t);
            a->t = aril__expand_axis(a->t, i, size);
            b->t = aril__expand_axis(b->t, k, size);
        }
    }
    set in_a = labels_of(a), in_b = labels_of(b);
    aril_dtype a_type = (aril_dtype)a->t->dtype, b_type = (aril_dtype)b->t->dtype;
    sum_out(a, keep | in_b);
    sum_out(b, keep | in_a);
    a->t = aril_cast(a->t, a_type); /* sums of integers are i64, products keep their dtype */
    b->t = aril_cast(b->t, b_type);
    if (aril__is_poison(a->t) || aril__is_poison(b->t)) return ARIL_ERR_ARG;
    groups g = { .n_batch = 0 };
    for (int i = 0; i < a->n; i++) {
        int label = a->label[i];
        if (!(in_b & one(label)))
            g.left[g.n_left++] = label;
        else if (keep & one(label))
            g.batch[g.n_batch++] = label;
        else
            g.inner[g.n_inner++] = label;
    }
    for (int i = 0; i < b->n; i++)
        if (!(in_a & one(b->label[i]))) g.right[g.n_right++] = b->label[i];
    int label[4 * ARIL_MAX_DIMS];
    int n = append(label, append(label, append(label, 0, g.batch, g.n_batch), g.left, g.n_left),
                   g.right, g.n_right);
    if (n > ARIL_MAX_DIMS)
        return aril__fail(ARIL_ERR_SHAPE, "einsum: a product in \"%s\" has more than %d axes",
                          expression, ARIL_MAX_DIMS);
    aril_shape sizes;
    bool matrices = g.n_inner && g.n_batch + 2 <= ARIL_MAX_DIMS &&
                    (apart(&g, a, b, NULL, &sizes) || (g.n_left <= 1 && g.n_right <= 1));
    if (matrices) {
        a->t = by_matmul(&g, a, b);
    } else { /* elementwise product, then sum */
        int all = append(label, n, g.inner, g.n_inner);
        if (all > ARIL_MAX_DIMS)
            return aril__fail(ARIL_ERR_SHAPE, "einsum: a product in \"%s\" has more than %d axes",
                              expression, ARIL_MAX_DIMS);
        a->t = aril_mul(spread(a, all, label), spread(b, all, label));
        aril_axes axes = { .n = g.n_inner };
        for (int i = 0; i < g.n_inner; i++) axes.axis[i] = n + i;
        if (axes.n) a->t = aril_cast(aril_sum(a->t, axes), (aril_dtype)a->t->dtype);
    }
    a->n = n;
    memcpy(a->label, label, (size_t)n * sizeof *label);
    return aril_tensor_status(a->t);
}

/* ---- public ---- */

static aril_tensor *evaluate(const char *expression, aril_list operands, term *in)
{
    term out;
    if (read_all(expression, operands, in, &out) < 0) return aril__poison();
    if (check_sizes(expression, in, operands.n) < 0) return aril__poison();
    set wanted = labels_of(&out);
    for (int i = 0; i < operands.n; i++)
        if (take_diagonals(expression, &in[i]) < 0) return aril__poison();
    for (int i = 1; i < operands.n; i++) {
        set keep = wanted;
        for (int k = i + 1; k < operands.n; k++) keep |= labels_of(&in[k]);
        if (combine(expression, &in[0], &in[i], keep) < 0) return aril__poison();
    }
    aril_dtype type = (aril_dtype)in[0].t->dtype;
    sum_out(&in[0], wanted);
    if (aril__is_poison(in[0].t)) return aril__pass_on(in[0].t);
    if (operands.n > 1) in[0].t = aril_cast(in[0].t, type);
    return ordered(&in[0], out.n, out.label);
}

aril_tensor *aril_einsum(const char *expression, aril_list operands)
{
    if (!expression || operands.n < 1 || !operands.at) {
        aril__fail(ARIL_ERR_ARG, "einsum: needs an expression and at least one operand");
        return aril__poison();
    }
    for (int i = 0; i < operands.n; i++) {
        aril_tensor *t = operands.at[i];
        if (!t) return aril__null_tensor("einsum");
        if (aril__is_poison(t)) return aril__pass_on(t);
    }
    term *in = aril__malloc((size_t)operands.n * sizeof *in);
    if (!in) {
        aril__fail(ARIL_ERR_MEMORY, "einsum: out of memory");
        return aril__poison();
    }
    ARIL_SCOPE;
    aril_tensor *y = evaluate(expression, operands, in);
    free(in);
    return aril_escape(y);
}
