/* Operators of ai.onnx.ml on rows of features: scaling, linear models, support vectors. */
#include "onnx/ml.h"

#include <inttypes.h>
#include <math.h>

/* ---- scores ---- */

aril_status aril__ml_transform_of(onnx_call *c, enum ml_transform *to)
{
    static const char *const names[] = { "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT" };
    for (int i = 0; i < 5; i++)
        if (attr_is(c, "post_transform", "NONE", names[i])) {
            *to = (enum ml_transform)i;
            return ARIL_OK;
        }
    return aril__onnx_fail(c, ARIL_ERR_ARG, "post_transform is none of ONNX's");
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* The inverse of the normal distribution, by Winitzki's formula for that of erf. */
static double probit(double p)
{
    double x = 2 * p - 1, l = log(1 - x * x), v = 2 / (3.14159 * 0.147) + 0.5 * l,
           w = 1 / 0.147 * l, r = sqrt(-v + sqrt(v * v - w));
    return 1.41421356 * (x < 0 ? -r : r);
}

static void softmax(double *score, int64_t n, bool zeros)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, score[i]);
    for (int64_t i = 0; i < n; i++) {
        bool zero = zeros && fabs(score[i]) < 1e-7; /* stays about 0 */
        score[i] = zero ? score[i] * exp(-most) : exp(score[i] - most);
        sum += score[i];
    }
    for (int64_t i = 0; i < n; i++) score[i] /= sum;
}

void aril__ml_transform(enum ml_transform how, double *score, int64_t n)
{
    if (how == ML_SOFTMAX || how == ML_SOFTMAX_ZERO) softmax(score, n, how == ML_SOFTMAX_ZERO);
    for (int64_t i = 0; i < n && how == ML_LOGISTIC; i++) score[i] = logistic(score[i]);
    for (int64_t i = 0; i < n && how == ML_PROBIT; i++) score[i] = probit(score[i]);
}

void aril__ml_two(enum ml_transform how, enum ml_second second, double s, double *to)
{
    if (how == ML_PROBIT) s = probit(s);
    to[0] = second == ML_COMPLEMENT ? 1 - s : how == ML_LOGISTIC ? logistic(-s) : -s;
    to[1] = second == ML_COMPLEMENT ? s : how == ML_LOGISTIC ? logistic(s) : s;
}

/* ---- attributes and results ---- */

aril_status aril__ml_numbers(onnx_call *c, const char *name, onnx_floats *to)
{
    char tensor[64];
    const void *at;
    onnx_value v;
    *to = aril__onnx_attr_floats(c, name);
    if (to->n >= 0) return ARIL_OK;
    snprintf(tensor, sizeof tensor, "%s_as_tensor", name);
    const aril__message *a = aril__onnx_attribute(c, tensor);
    if (!a) return ARIL_OK;
    aril_status s = aril__onnx_tensor(&c->run->arena, aril__message_sub(a, "t"), NULL, &v);
    if (s < 0) return s;
    if (v.kind != ONNX_TENSOR)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "%s is not a tensor of numbers", tensor);
    if ((s = aril__onnx_host(c, v.tensor, ARIL_F64, &at)) != ARIL_OK) return s;
    *to = (onnx_floats){ aril_numel(v.tensor),
                         aril__onnx_alloc(&c->run->arena, (size_t)aril_numel(v.tensor),
                                          sizeof(double)) };
    if (!to->at) return ARIL_ERR_MEMORY;
    if (to->n) memcpy(to->at, at, (size_t)to->n * sizeof(double));
    return ARIL_OK;
}

aril_status aril__ml_labels_of(onnx_call *c, ml_labels *to)
{
    *to = (ml_labels){ .ints = { .n = -1 } };
    const aril__message *list = aril__onnx_attribute(c, "classlabels_strings");
    if (list && aril__message_count(list, "strings") > 0) {
        to->strings = list;
        to->n = (int64_t)aril__message_count(list, "strings");
        return ARIL_OK;
    }
    to->ints = aril__onnx_attr_ints(c, "classlabels_int64s");
    if (to->ints.n < 0) to->ints = aril__onnx_attr_ints(c, "classlabels_ints");
    to->n = to->ints.n;
    return to->n > 0 ? ARIL_OK : aril__onnx_fail(c, ARIL_ERR_FORMAT, "the labels are missing");
}

aril_status aril__ml_give(onnx_call *c, const ml_labels *labels, const int64_t *at, int64_t rows,
                          const double *scores, int64_t n)
{
    onnx_arena *a = &c->run->arena;
    aril_status s;
    if (labels->strings) {
        onnx_text *t = aril__onnx_alloc(a, 1, sizeof *t);
        if (!t || !(t->at = aril__onnx_alloc(a, (size_t)rows, sizeof *t->at)))
            return ARIL_ERR_MEMORY;
        t->n = (size_t)rows;
        t->shape = ARIL_SHAPE(rows);
        for (int64_t i = 0; i < rows; i++)
            t->at[i] = aril__message_bytes_at(labels->strings, "strings", (size_t)at[i]);
        s = give_value(c, 0, (onnx_value){ .kind = ONNX_TEXT, .text = t });
    } else {
        int64_t *own = aril__onnx_alloc(a, (size_t)rows, sizeof *own);
        if (!own) return ARIL_ERR_MEMORY;
        for (int64_t i = 0; i < rows; i++) own[i] = labels->ints.at[at[i]];
        s = give(c, 0, aril__onnx_index(c, own, rows));
    }
    if (s != ARIL_OK) return s;
    return give(
        c, 1, aril_reshape(aril__onnx_numbers(c, scores, rows * n, ARIL_F32), ARIL_SHAPE(rows, n)));
}

aril_status aril__ml_rows(onnx_call *c, onnx_floats *x, int64_t *rows, int64_t *features)
{
    aril_status s = aril__onnx_floats(c, 0, x);
    if (s != ARIL_OK) return s;
    if (!given(c, 0)) return aril__onnx_fail(c, ARIL_ERR_ARG, "the input is missing");
    aril_tensor *t = c->in[0].tensor;
    if (aril_ndim(t) < 1 || aril_ndim(t) > 2)
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "expected rows of features");
    *features = aril_size(t, -1);
    *rows = aril_ndim(t) == 2 ? aril_size(t, 0) : 1;
    return ARIL_OK;
}

static int64_t largest(const double *score, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (score[i] > score[best]) best = i;
    return best;
}

/* ---- linear models ---- */

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static aril_status linear_classifier(onnx_call *c)
{
    ml_labels labels;
    enum ml_transform how;
    onnx_floats x, w, b;
    int64_t rows, features;
    aril_status s = aril__ml_labels_of(c, &labels);
    if (s == ARIL_OK) s = aril__ml_transform_of(c, &how);
    if (s == ARIL_OK) s = aril__ml_numbers(c, "coefficients", &w);
    if (s == ARIL_OK) s = aril__ml_numbers(c, "intercepts", &b);
    if (s == ARIL_OK) s = aril__ml_rows(c, &x, &rows, &features);
    if (s != ARIL_OK) return s;
    int64_t classes = b.n > 0 ? b.n : labels.n;
    bool one = classes == 1 && labels.n == 2;
    if (w.n != classes * features || (classes != labels.n && !one))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE,
                               "%" PRId64 " coefficients for %" PRId64 " classes and %" PRId64
                               " features",
                               w.n, classes, features);
    double *score = aril__onnx_alloc(&c->run->arena, (size_t)(rows * labels.n), sizeof *score);
    int64_t *at = aril__onnx_alloc(&c->run->arena, (size_t)rows, sizeof *at);
    if (!score || !at) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++) {
        double *to = score + r * labels.n;
        for (int64_t k = 0; k < classes; k++)
            to[k] =
                dot(x.at + r * features, w.at + k * features, features) + (b.n > 0 ? b.at[k] : 0);
        if (one) {
            double sum = to[0];
            at[r] = sum > 0;
            aril__ml_two(how, how == ML_LOGISTIC ? ML_OPPOSITE : ML_COMPLEMENT, sum, to);
        } else {
            at[r] = largest(to, classes);
            aril__ml_transform(how, to, classes);
        }
    }
    return aril__ml_give(c, &labels, at, rows, score, labels.n);
}

static aril_status linear_regressor(onnx_call *c)
{
    enum ml_transform how;
    onnx_floats w = aril__onnx_attr_floats(c, "coefficients"),
                b = aril__onnx_attr_floats(c, "intercepts");
    int64_t targets = aril__onnx_attr_int(c, "targets", 1);
    aril_status s = aril__ml_transform_of(c, &how);
    if (s != ARIL_OK) return s;
    aril_tensor *x = aril_cast(in(c, 0), ARIL_F32);
    if (aril_ndim(x) == 1) x = aril_unsqueeze(x, 0);
    if (aril_ndim(x) == 2 && aril_size(x, 1) < 0) return aril__onnx_open_error(c);
    int64_t expected;
    if (targets < 1 || aril_ndim(x) != 2 ||
        __builtin_mul_overflow(targets, aril_size(x, 1), &expected) || w.n != expected ||
        (b.n > 0 && b.n != targets))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "%" PRId64 " coefficients", w.n);
    if (how == ML_PROBIT || how == ML_SOFTMAX_ZERO)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "that post_transform");
    aril_tensor *weight = aril_reshape(aril__onnx_numbers(c, w.at, w.n, ARIL_F32),
                                       ARIL_SHAPE(targets, aril_size(x, 1)));
    aril_tensor *bias = b.n > 0 ? aril__onnx_numbers(c, b.at, b.n, ARIL_F32) : NULL;
    aril_tensor *y = aril_linear(x, weight, bias);
    if (how == ML_SOFTMAX) y = aril_softmax(y, 1);
    if (how == ML_LOGISTIC) y = aril_sigmoid(y);
    return give(c, 0, y);
}

/* ---- support vectors ---- */

enum kernel { LINEAR, POLY, RBF, SIGMOID };

typedef struct svm {
    enum kernel kernel;
    double gamma, coef0, degree;
    onnx_floats vectors, coefficients, rho;
    int64_t supports, features;
} svm;

static aril_status read_svm(onnx_call *c, int64_t features, svm *m)
{
    static const char *const names[] = { "LINEAR", "POLY", "RBF", "SIGMOID" };
    onnx_floats p = aril__onnx_attr_floats(c, "kernel_params");
    bool found = false;
    *m = (svm){ .gamma = p.n > 0 ? p.at[0] : 0,
                .coef0 = p.n > 1 ? p.at[1] : 0,
                .degree = p.n > 2 ? p.at[2] : 3,
                .vectors = aril__onnx_attr_floats(c, "support_vectors"),
                .coefficients = aril__onnx_attr_floats(c, "coefficients"),
                .rho = aril__onnx_attr_floats(c, "rho"),
                .features = features };
    for (int i = 0; i < 4; i++)
        if (attr_is(c, "kernel_type", "LINEAR", names[i])) {
            m->kernel = (enum kernel)i;
            found = true;
        }
    if (found && m->rho.n > 0 && m->coefficients.n > 0) return ARIL_OK;
    return aril__onnx_fail(c, ARIL_ERR_FORMAT, "kernel_type, rho or coefficients");
}

static double kernel_of(const svm *m, const double *a, const double *b)
{
    double sum = 0;
    if (m->kernel == RBF) {
        for (int64_t i = 0; i < m->features; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
        return exp(-m->gamma * sum);
    }
    sum = dot(a, b, m->features);
    if (m->kernel == POLY) return pow(m->gamma * sum + m->coef0, m->degree);
    return m->kernel == SIGMOID ? tanh(m->gamma * sum + m->coef0) : sum;
}

static aril_status svm_regressor(onnx_call *c)
{
    enum ml_transform how;
    onnx_floats x;
    int64_t rows, features, supports = aril__onnx_attr_int(c, "n_supports", 0);
    svm m;
    aril_status s = aril__ml_transform_of(c, &how);
    if (s == ARIL_OK) s = aril__ml_rows(c, &x, &rows, &features);
    if (s == ARIL_OK) s = read_svm(c, features, &m);
    if (s != ARIL_OK) return s;
    int64_t expected;
    bool fits = supports > 0 ? !__builtin_mul_overflow(supports, features, &expected) &&
                                   m.vectors.n == expected && m.coefficients.n == supports
                             : m.coefficients.n == features;
    if (!fits) return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the support vectors do not fit");
    double *y = aril__onnx_alloc(&c->run->arena, (size_t)rows, sizeof *y);
    if (!y) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++) {
        const double *row = x.at + r * features;
        double sum = supports > 0 ? 0 : kernel_of(&m, row, m.coefficients.at);
        for (int64_t k = 0; k < supports; k++)
            sum += m.coefficients.at[k] * kernel_of(&m, row, m.vectors.at + k * features);
        y[r] = sum + m.rho.at[0];
        if (aril__onnx_attr_int(c, "one_class", 0)) y[r] = y[r] > 0 ? 1 : -1;
        aril__ml_transform(how, y + r, 1);
    }
    return give(c, 0, aril_reshape(aril__onnx_numbers(c, y, rows, ARIL_F32), ARIL_SHAPE(rows, 1)));
}

/* ---- classification by support vectors: a machine for each pair of classes ---- */

typedef struct machines {
    svm m;
    int64_t classes;
    const int64_t *count, *first; /* support vectors of each class */
    onnx_floats prob_a, prob_b;
} machines;

/* The decision of each pair (i, j), i < j: positive for i. */
static void decide(const machines *v, const double *kernel, double *to)
{
    int64_t n = v->m.supports, pair = 0;
    for (int64_t i = 0; i < v->classes; i++)
        for (int64_t j = i + 1; j < v->classes; j++, pair++) {
            double sum = 0;
            const double *of_i = v->m.coefficients.at + (j - 1) * n,
                         *of_j = v->m.coefficients.at + i * n;
            for (int64_t k = v->first[i]; k < v->first[i] + v->count[i]; k++)
                sum += of_i[k] * kernel[k];
            for (int64_t k = v->first[j]; k < v->first[j] + v->count[j]; k++)
                sum += of_j[k] * kernel[k];
            to[pair] = sum + v->m.rho.at[pair];
        }
}

/* Probabilities of classes from those of pairs (Wu, Lin and Weng 2004, the second method). */
static void couple(int64_t n, const double *r, double *p, double *q, double *qp)
{
    double eps = 0.005 / (double)n;
    for (int64_t t = 0; t < n; t++) {
        p[t] = 1 / (double)n;
        q[t * n + t] = 0;
        for (int64_t j = 0; j < n; j++) {
            if (j == t) continue;
            q[t * n + t] += r[j * n + t] * r[j * n + t];
            q[t * n + j] = -r[j * n + t] * r[t * n + j];
        }
    }
    for (int loop = 0; loop < 100; loop++) {
        double pqp = 0, worst = 0;
        for (int64_t t = 0; t < n; t++) {
            qp[t] = 0;
            for (int64_t j = 0; j < n; j++) qp[t] += q[t * n + j] * p[j];
            pqp += p[t] * qp[t];
        }
        for (int64_t t = 0; t < n; t++) worst = fmax(worst, fabs(qp[t] - pqp));
        if (worst < eps) break;
        for (int64_t t = 0; t < n; t++) {
            double diff = (-qp[t] + pqp) / q[t * n + t];
            p[t] += diff;
            pqp = (pqp + diff * (diff * q[t * n + t] + 2 * qp[t])) / (1 + diff) / (1 + diff);
            for (int64_t j = 0; j < n; j++) {
                qp[j] = (qp[j] + diff * q[t * n + j]) / (1 + diff);
                p[j] /= 1 + diff;
            }
        }
    }
}

/* Scores of a row from its decisions, and the class with the most votes of pairs. `space` holds
 * 2 n n + n numbers. */
static int64_t classify(const machines *v, const double *decision, double *score, double *space)
{
    int64_t n = v->classes, pair = 0;
    double *votes = space;
    for (int64_t i = 0; i < n; i++) votes[i] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, pair++) votes[decision[pair] > 0 ? i : j]++;
    int64_t best = largest(votes, n);
    if (v->prob_a.n < 1) {
        memcpy(score, decision, (size_t)pair * sizeof *score);
        return best;
    }
    double *r = space, *q = r + n * n, *qp = q + n * n;
    pair = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, pair++) {
            double p = 1 - logistic(decision[pair] * v->prob_a.at[pair] + v->prob_b.at[pair]);
            r[i * n + j] = fmin(fmax(p, 1e-7), 1 - 1e-7);
            r[j * n + i] = 1 - r[i * n + j];
        }
    couple(n, r, score, q, qp);
    return best;
}

static aril_status read_machines(onnx_call *c, int64_t features, int64_t classes, machines *v)
{
    onnx_ints count = aril__onnx_attr_ints(c, "vectors_per_class");
    aril_status s = read_svm(c, features, &v->m);
    if (s != ARIL_OK) return s;
    v->prob_a = aril__onnx_attr_floats(c, "prob_a");
    v->prob_b = aril__onnx_attr_floats(c, "prob_b");
    v->classes = classes;
    int64_t *first = aril__onnx_alloc(&c->run->arena, (size_t)classes + 1, sizeof *first);
    if (!first) return ARIL_ERR_MEMORY;
    int64_t pairs = classes * (classes - 1) / 2;
    if (count.n != classes)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "a classifier without support vectors");
    for (int64_t i = 0; i < classes; i++) {
        if (count.at[i] < 0 || count.at[i] > v->m.vectors.n)
            return aril__onnx_fail(c, ARIL_ERR_FORMAT, "vectors_per_class");
        first[i + 1] = first[i] + count.at[i];
    }
    v->count = count.at;
    v->first = first;
    v->m.supports = first[classes];
    if (v->m.vectors.n != v->m.supports * features ||
        v->m.coefficients.n != v->m.supports * (classes - 1) || v->m.rho.n != pairs ||
        (v->prob_a.n > 0 && (v->prob_a.n != pairs || v->prob_b.n != pairs)))
        return aril__onnx_fail(c, ARIL_ERR_SHAPE, "the support vectors do not fit the classes");
    return ARIL_OK;
}

static aril_status svm_classifier(onnx_call *c)
{
    ml_labels labels;
    enum ml_transform how;
    onnx_floats x;
    int64_t rows, features;
    machines v = { 0 };
    aril_status s = aril__ml_labels_of(c, &labels);
    if (s == ARIL_OK) s = aril__ml_transform_of(c, &how);
    if (s == ARIL_OK) s = aril__ml_rows(c, &x, &rows, &features);
    if (s == ARIL_OK) s = read_machines(c, features, labels.n, &v);
    if (s != ARIL_OK) return s;
    int64_t n = labels.n, pairs = n * (n - 1) / 2;
    bool certain = v.prob_a.n > 0, one = n == 2 && !certain;
    int64_t width = certain ? n : one ? 2 : pairs;
    onnx_arena *a = &c->run->arena;
    double *score = aril__onnx_alloc(a, (size_t)(rows * width), sizeof *score);
    double *kernel =
        aril__onnx_alloc(a, (size_t)(v.m.supports + pairs + 2 * n * n + n) + 1, sizeof *kernel);
    int64_t *at = aril__onnx_alloc(a, (size_t)rows, sizeof *at);
    if (!score || !kernel || !at) return ARIL_ERR_MEMORY;
    double *decision = kernel + v.m.supports, *space = decision + pairs;
    double *own = aril__onnx_alloc(a, (size_t)(pairs > n ? pairs : n), sizeof *own);
    if (!own) return ARIL_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++) {
        double *to = score + r * width;
        for (int64_t k = 0; k < v.m.supports; k++)
            kernel[k] = kernel_of(&v.m, x.at + r * features, v.m.vectors.at + k * features);
        decide(&v, kernel, decision);
        at[r] = classify(&v, decision, own, space);
        if (!one) memcpy(to, own, (size_t)width * sizeof *to);
        if (one)
            aril__ml_two(how, ML_OPPOSITE, decision[0], to);
        else if (!certain)
            aril__ml_transform(how, to, width);
    }
    return aril__ml_give(c, &labels, at, rows, score, width);
}

/* ---- features ---- */

/* (x - offset) * scale */
static aril_status scaler(onnx_call *c)
{
    onnx_floats offset = aril__onnx_attr_floats(c, "offset"),
                scale = aril__onnx_attr_floats(c, "scale");
    aril_tensor *x = aril_cast(in(c, 0), ARIL_F32);
    if (offset.n > 0) x = aril_sub(x, aril__onnx_numbers(c, offset.at, offset.n, ARIL_F32));
    if (scale.n > 0) x = aril_mul(x, aril__onnx_numbers(c, scale.at, scale.n, ARIL_F32));
    return give(c, 0, x);
}

/* Rows divided by their norm, unless that is 0. */
static aril_status normalizer(onnx_call *c)
{
    aril_tensor *x = aril_cast(in(c, 0), ARIL_F32), *norm;
    if (attr_is(c, "norm", "MAX", "MAX"))
        norm = aril_amax(x, ARIL_KEEPDIM(-1));
    else if (attr_is(c, "norm", "MAX", "L1"))
        norm = aril_sum(aril_abs(x), ARIL_KEEPDIM(-1));
    else if (attr_is(c, "norm", "MAX", "L2"))
        norm = aril_sqrt(aril_sum(aril_square(x), ARIL_KEEPDIM(-1)));
    else
        return aril__onnx_fail(c, ARIL_ERR_ARG, "the norm is none of MAX, L1, L2");
    norm = aril_where(aril_eq_scalar(norm, 0), aril_ones_like(norm), norm);
    return give(c, 0, aril_div(x, norm));
}

/* Values that are missing (NaN, or another number) are replaced, for each feature. */
static aril_status imputer(onnx_call *c)
{
    aril_tensor *x = in(c, 0), *missing, *by;
    onnx_floats floats = aril__onnx_attr_floats(c, "imputed_value_floats");
    onnx_ints ints = aril__onnx_attr_ints(c, "imputed_value_int64s");
    bool is_float = aril_dtype_is_float(aril_dtype_of(x));
    if (is_float ? floats.n < 1 : ints.n < 1)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT,
                               "imputed values of the input's type are missing");
    if (is_float) {
        double value = aril__onnx_attr_float(c, "replaced_value_float", 0);
        missing = isnan(value) ? aril_isnan(x) : aril_eq_scalar(x, value);
        by = aril__onnx_numbers(c, floats.at, floats.n, aril_dtype_of(x));
    } else {
        missing = aril_eq_scalar(x, aril__onnx_attr_int(c, "replaced_value_int64", 0));
        by = aril__onnx_index(c, ints.at, ints.n);
    }
    return give(c, 0, aril_where(aril_cast(missing, ARIL_BOOL), by, x));
}

/* Columns of all inputs, one after the other. */
static aril_status feature_vectorizer(onnx_call *c)
{
    aril_tensor **part = aril__onnx_alloc(&c->run->arena, (size_t)c->n_in, sizeof *part);
    if (!part) return ARIL_ERR_MEMORY;
    for (int i = 0; i < c->n_in; i++) {
        part[i] = aril_cast(in(c, i), ARIL_F32);
        if (aril_ndim(part[i]) == 1) part[i] = aril_unsqueeze(part[i], 0);
    }
    return give(c, 0, aril_cat((aril_list){ c->n_in, part }, 1));
}

/* A row of zeros with a one at the input's category. */
static aril_status one_hot_encoder(onnx_call *c)
{
    const aril__message *strings = aril__onnx_attribute(c, "cats_strings");
    onnx_ints ints = aril__onnx_attr_ints(c, "cats_int64s");
    bool text = c->n_in > 0 && c->in[0].kind == ONNX_TEXT;
    int64_t n = text ? (strings ? (int64_t)aril__message_count(strings, "strings") : 0) : ints.n;
    if (n < 1)
        return aril__onnx_fail(c, ARIL_ERR_FORMAT, "categories of the input's type are missing");
    onnx_floats x = { 0 };
    aril_status s = text ? ARIL_OK : aril__onnx_floats(c, 0, &x);
    if (s != ARIL_OK) return s;
    const onnx_text *words = text ? c->in[0].text : NULL;
    int64_t count = text ? (int64_t)words->n : x.n;
    double *y = aril__onnx_alloc(&c->run->arena, (size_t)(count * n), sizeof *y);
    if (!y) return ARIL_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        bool found = false;
        for (int64_t k = 0; k < n && !found; k++) {
            aril__slice at =
                text ? aril__message_bytes_at(strings, "strings", (size_t)k) : (aril__slice){ 0 };
            found = text ? at.n == words->at[i].n && memcmp(at.at, words->at[i].at, at.n) == 0
                         : x.at[i] == (double)ints.at[k];
            if (found) y[i * n + k] = 1;
        }
        if (!found && !aril__onnx_attr_int(c, "zeros", 1))
            return aril__onnx_fail(c, ARIL_ERR_ARG, "a value is in no category");
    }
    aril_shape shape = text ? words->shape : aril_shape_of(c->in[0].tensor);
    if (shape.ndim == ARIL_MAX_DIMS)
        return aril__onnx_fail(c, ARIL_ERR_UNSUPPORTED, "too many dimensions");
    shape.dim[shape.ndim++] = n;
    return give(c, 0, aril_reshape(aril__onnx_numbers(c, y, count * n, ARIL_F32), shape));
}

const onnx_rule aril__onnx_ml_linear_rules[] = {
    RULE_OF("ai.onnx.ml", "LinearClassifier", 1, linear_classifier),
    RULE_OF("ai.onnx.ml", "LinearRegressor", 1, linear_regressor),
    RULE_OF("ai.onnx.ml", "SVMClassifier", 1, svm_classifier),
    RULE_OF("ai.onnx.ml", "SVMRegressor", 1, svm_regressor),
    RULE_OF("ai.onnx.ml", "Scaler", 1, scaler),
    RULE_OF("ai.onnx.ml", "Normalizer", 1, normalizer),
    RULE_OF("ai.onnx.ml", "Imputer", 1, imputer),
    RULE_OF("ai.onnx.ml", "FeatureVectorizer", 1, feature_vectorizer),
    RULE_OF("ai.onnx.ml", "OneHotEncoder", 1, one_hot_encoder),
    { 0 },
};
