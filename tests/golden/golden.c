/* Runs the cases of one golden family (golden.py). The build compiles this file once for each
 * FAMILY.inc, with GOLDEN_INC and GOLDEN_BIN naming its two files. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/modules.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 64, HAS_GRAD = 1, ABSENT = 255 };

typedef struct golden {
    const char *name;
    int n_in, n_out;
    double rtol, atol;
    int flags, line;
    void (*run)(aril_tensor **x, aril_tensor **y);
} golden;

static void run_case(const golden *c);

/* Gives a module the tensors behind its `inputs` inputs as its state, so that gradients go to them:
 * names are those of PyTorch's state, in order, with commas between. Sizes that are not known come
 * from x[0]. */
static __attribute__((unused)) aril_module *golden_state(aril_module *m, aril_tensor **x,
                                                         int inputs, const char *names)
{
    const aril_named *state = NULL;
    if (aril_module_build_n(m, (aril_list){ 1, x }) == ARIL_OK) state = aril_state(m);
    int n = 0;
    const char *end = names;
    for (const char *at = names; state && *at; at = *end ? end + 1 : end, n++) {
        end = at + strcspn(at, ",");
        size_t length = (size_t)(end - at);
        const char *have = n < state->n ? state->name[n] : "nothing";
        if (strlen(have) == length && strncmp(have, at, length) == 0) continue;
        test_fail(__FILE__, __LINE__, "state %d is %s, PyTorch's is %.*s", n, have, (int)length,
                  at);
        return m;
    }
    if (state && state->n != n)
        test_fail(__FILE__, __LINE__, "%d tensors in the state, PyTorch has %d", state->n, n);
    end = names;
    n = 0;
    for (const char *at = names; state && *at; at = *end ? end + 1 : end, n++) {
        char name[128];
        end = at + strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        if (aril_module_share(m, name, x[inputs + n]) < 0) break;
    }
    return m;
}

/* Each case becomes a function, a row and a test of the harness. */
#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)
#define CASE(name, n_in, n_out, rtol, atol, flags, ...)                              \
    static void JOIN(body_, __LINE__)(aril_tensor * *x, aril_tensor * *y)            \
    {                                                                                \
        (void)x;                                                                     \
        __VA_ARGS__(void) y;                                                         \
    }                                                                                \
    static void JOIN(test_, __LINE__)(void)                                          \
    {                                                                                \
        static const golden self = { name, n_in,  n_out,    rtol,                    \
                                     atol, flags, __LINE__, JOIN(body_, __LINE__) }; \
        run_case(&self);                                                             \
    }                                                                                \
    __attribute__((constructor)) static void JOIN(add_, __LINE__)(void)              \
    {                                                                                \
        static test_case self = { name, JOIN(test_, __LINE__), NULL };               \
        test_register(&self);                                                        \
    }
#include GOLDEN_INC

/* ---- the file of values ---- */

static struct {
    const unsigned char *data;
    size_t size;
} file;

static bool load(void)
{
    if (file.data) return true;
    FILE *f = fopen(GOLDEN_BIN, "rb");
    if (!f) return false;
    static unsigned char buffer[1 << 20];
    file.size = fread(buffer, 1, sizeof buffer, f);
    fclose(f);
    file.data = buffer;
    return file.size > 8 && file.size < sizeof buffer && memcmp(buffer, "ARILGOLD", 8) == 0;
}

static uint32_t word(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The values of a case, found by name; NULL when the two files do not fit together. */
static const unsigned char *find(const char *name, const unsigned char **end)
{
    for (size_t at = 8; at + 8 < file.size;) {
        uint32_t name_size = word(file.data + at), body = word(file.data + at + 4);
        const unsigned char *text = file.data + at + 8;
        at += 8 + (size_t)name_size + body;
        if (strcmp((const char *)text, name) == 0) {
            *end = text + name_size + body;
            return at <= file.size ? text + name_size : NULL;
        }
    }
    return NULL;
}

/* The tensor at *p, which moves on; NULL for an absent one. */
static aril_tensor *next(const unsigned char **p)
{
    aril_dtype dtype = (aril_dtype)(*p)[0];
    aril_shape shape = { .ndim = (*p)[1] };
    size_t bytes = aril_dtype_size(dtype);
    bool absent = (*p)[0] == ABSENT;
    *p += 4;
    if (absent) return NULL;
    for (int i = 0; i < shape.ndim; i++, *p += 4) {
        shape.dim[i] = (int64_t)word(*p);
        bytes *= (size_t)shape.dim[i];
    }
    aril_tensor *t = aril_from(*p, shape, dtype, test_device());
    *p += (bytes + 3) / 4 * 4;
    return t;
}

/* ---- a case ---- */

/* The weights of result k, which golden.py knows too. */
static aril_tensor *weights(aril_tensor *y, int k)
{
    int64_t n = aril_numel(y);
    double *w = malloc((size_t)(n + 1) * sizeof *w);
    for (int64_t i = 0; i < n; i++) w[i] = (double)((i * 37 + k * 11) % 19 - 9) / 8 + 0.0625;
    aril_tensor *t = aril_from(w, aril_shape_of(y), ARIL_F64, aril_device_of(y));
    free(w);
    return aril_cast(t, aril_dtype_of(y));
}

#define FAIL(...) test_fail(GOLDEN_INC, c->line, __VA_ARGS__)

static void check_grads(const golden *c, aril_tensor **x, aril_tensor **y, const unsigned char **p)
{
    aril_tensor *roots[MAX_TENSORS], *ws[MAX_TENSORS], *leaves[MAX_TENSORS], *want[MAX_TENSORS],
        *got[MAX_TENSORS];
    int which[MAX_TENSORS], n = 0, n_roots = 0;
    for (int k = 0; k < c->n_out; k++) {
        if (!aril_requires_grad(y[k])) continue;
        roots[n_roots] = y[k];
        ws[n_roots++] = weights(y[k], k);
    }
    for (int i = 0; i < c->n_in; i++) {
        aril_tensor *g = next(p);
        if (!g) continue;
        leaves[n] = x[i];
        which[n] = i;
        want[n++] = g;
    }
    if (n_roots == 0) {
        FAIL("%s: no result takes part in a gradient", c->name);
        return;
    }
    aril_grad_opts opts = { .allow_unused = true, .grad_outputs = { n_roots, ws } };
    if (aril_gradients_n((aril_list){ n_roots, roots }, (aril_list){ n, leaves }, got, opts) < 0) {
        FAIL("%s: backward: %s", c->name, aril_error());
        return;
    }
    for (int i = 0; i < n; i++) {
        char what[160];
        snprintf(what, sizeof what, "%s: gradient of x[%d]", c->name, which[i]);
        char *why = test_difference(got[i], want[i], c->rtol, c->atol);
        if (why) FAIL("%s: %s", what, why);
    }
}

static void run_case(const golden *c)
{
    ARIL_SCOPE;
    aril_clear_error();
    CHECK_MSG(load(), "%s cannot be read", GOLDEN_BIN);
    const unsigned char *end = NULL, *p = find(c->name, &end);
    CHECK_MSG(p, "%s is not in the .bin file: run the Python script again", c->name);
    aril_tensor *x[MAX_TENSORS] = { NULL }, *y[MAX_TENSORS] = { NULL }, *want[MAX_TENSORS];
    for (int i = 0; i < c->n_in; i++) x[i] = next(&p);
    for (int k = 0; k < c->n_out; k++) want[k] = next(&p);
    const unsigned char *grads = p;
    for (int i = 0; i < c->n_in && c->flags & HAS_GRAD; i++)
        if (next(&p)) aril_set_requires_grad(x[i], true);
    CHECK_MSG(p == end && aril_ok(), "%s: the .bin file does not fit: %s", c->name, aril_error());
    c->run(x, y);
    if (!aril_ok()) {
        if (strstr(aril_error(), "built without"))
            test_skip("%s", aril_error());
        else
            FAIL("%s: %s", c->name, aril_error());
        aril_clear_error();
        return;
    }
    for (int k = 0; k < c->n_out; k++) {
        char *why = y[k] ? test_difference(y[k], want[k], c->rtol, c->atol) : "not set";
        if (why) FAIL("%s: y[%d]: %s", c->name, k, why);
    }
    if (!test_failed() && c->flags & HAS_GRAD) check_grads(c, x, y, &grads);
    aril_clear_error();
}
