/* What the nodes of a model cost that is interpreted at each run. */
#include "formats/schemas.h"
#include "onnx/program.h"
#include "onnx/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

enum { RUNS = 5 }; /* after one that prepares */

typedef struct row {
    const onnx_node *node;
    const onnx_type *type;
    double seconds;
} row;

static int by_time(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* "f32[1,3]", or "" for what is no tensor. */
static const char *type_text(const onnx_type *t, char *text, size_t size)
{
    aril_dtype dtype;
    text[0] = '\0';
    if (t->kind != ONNX_TENSOR || !aril__onnx_dtype(t->elem, &dtype)) return text;
    size_t n = (size_t)snprintf(text, size, "%s[", aril_dtype_name(dtype));
    for (int d = 0; d < t->ndim && n < size; d++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, d ? "," : "", t->dim[d]);
    if (n < size) snprintf(text + n, size - n, "]");
    return text;
}

/* Runs the model; times of node i in run k at seconds[i * (RUNS + 1) + k]. */
static aril_status measure(onnx_model *m, aril_list in, onnx_times *times, double *seconds)
{
    aril_status s = ARIL_OK;
    for (int k = 0; k <= RUNS && s == ARIL_OK; k++) {
        ARIL_SCOPE;
        onnx_arena arena = { 0 };
        onnx_value *v = aril__onnx_alloc(&arena, (size_t)(in.n + m->n_out) + 1, sizeof *v);
        if (!v) return ARIL_ERR_MEMORY;
        for (int i = 0; i < in.n; i++)
            v[i] = (onnx_value){ .kind = ONNX_TENSOR, .tensor = in.at[i] };
        s = aril__onnx_run_timed(m, &arena, (size_t)in.n, v, v + in.n, times);
        for (size_t i = 0; i < m->main.n_nodes; i++)
            seconds[i * (RUNS + 1) + (size_t)k] = times->seconds[i];
        aril__onnx_arena_free(&arena);
    }
    return s;
}

static aril_status print(row *rows, size_t n, FILE *to)
{
    double total = 0;
    char type[300];
    for (size_t i = 0; i < n; i++) total += rows[i].seconds;
    qsort(rows, n, sizeof *rows, by_time);
    fprintf(to, "%-22s %-22s %10s %7s\n", "node", "result", "us", "");
    for (size_t i = 0; i < n; i++)
        fprintf(to, "%-22s %-22s %10.1f %5.1f %%  %s\n",
                aril__message_text(rows[i].node->message, "op_type"),
                type_text(rows[i].type, type, sizeof type), rows[i].seconds * 1e6,
                total > 0 ? 100 * rows[i].seconds / total : 0, rows[i].node->path);
    fprintf(to, "\n%-45s %10.1f\n", "all nodes", total * 1e6);
    if (fflush(to) == 0 && !ferror(to)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "costs: cannot write the table: %s", strerror(errno));
}

aril_status aril__onnx_costs(onnx_model *m, aril_list in, FILE *to)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    onnx_arena a = { 0 };
    size_t n = m->main.n_nodes;
    onnx_times times = { aril__onnx_alloc(&a, n + 1, sizeof *times.seconds),
                         aril__onnx_alloc(&a, n + 1, sizeof *times.type) };
    double *seconds = aril__onnx_alloc(&a, n + 1, (RUNS + 1) * sizeof *seconds);
    row *rows = aril__onnx_alloc(&a, n + 1, sizeof *rows);
    aril_status s = times.seconds && times.type && seconds && rows ? measure(m, in, &times, seconds)
                                                                   : ARIL_ERR_MEMORY;
    for (size_t i = 0; i < n && s == ARIL_OK; i++) {
        double *of = seconds + i * (RUNS + 1) + 1;
        qsort(of, RUNS, sizeof *of, by_value);
        rows[i] = (row){ &m->main.node[i], &times.type[i], of[RUNS / 2] };
    }
    if (s == ARIL_OK) s = print(rows, n, to);
    aril__onnx_arena_free(&a);
    return s;
}
