/* The source of fused kernels compiles without headers, for every formula in every compute type.
 * Needs NVRTC, but no GPU. */
#include "aril/aril.h"
#include "backend/cuda/fused/source.h"
#include "ops/elementwise/formula.h"
#include "ops/table/apply.h"
#include "support/test.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVRTC ---- */

typedef struct compiler {
    int (*create)(void **program, const char *source, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*compile)(void *program, int n_options, const char *const *options);
    int (*destroy)(void **program);
    int (*log_size)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
    int (*cubin_size)(void *program, size_t *bytes);
} compiler;

static void find(void *library, const char *name, void *to)
{
    void *f = dlsym(library, name);
    memcpy(to, &f, sizeof f);
}

static bool open_compiler(compiler *c)
{
    static const char *const files[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                         "/usr/local/cuda/lib64/libnvrtc.so" };
    void *library = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    find(library, "nvrtcCreateProgram", &c->create);
    find(library, "nvrtcCompileProgram", &c->compile);
    find(library, "nvrtcDestroyProgram", &c->destroy);
    find(library, "nvrtcGetProgramLogSize", &c->log_size);
    find(library, "nvrtcGetProgramLog", &c->log);
    find(library, "nvrtcGetCUBINSize", &c->cubin_size);
    return c->create && c->compile && c->destroy && c->log_size && c->log && c->cubin_size;
}

/* Compiles for an architecture with an empty include path; NULL, or the compiler's message. */
static const char *compile(const compiler *c, const char *source, const char *arch)
{
    static char why[2000];
    char options[] = ARIL_CUDA_FUSED_OPTIONS, *rest = NULL;
    const char *list[8] = { arch };
    int n = 1;
    void *p = NULL;
    size_t bytes = 0;
    for (char *o = strtok_r(options, " ", &rest); o; o = strtok_r(NULL, " ", &rest)) list[n++] = o;
    if (c->create(&p, source, "fused.cu", 0, NULL, NULL) != 0) return "no program";
    bool good = c->compile(p, n, list) == 0 && c->cubin_size(p, &bytes) == 0 && bytes > 0;
    why[0] = '\0';
    if (!good && c->log_size(p, &bytes) == 0) {
        char *log = malloc(bytes + 1);
        if (log && c->log(p, log) == 0) snprintf(why, sizeof why, "%s", log);
        free(log);
    }
    c->destroy(&p);
    return good ? NULL : why;
}

static const char *const archs[] = { "--gpu-architecture=sm_75", "--gpu-architecture=sm_90" };

/* Compiles for archs[first] to archs[last]. */
static void check_compiles_for(const aril_fused *f, const aril_cuda_fused_types *t, int first,
                               int last)
{
    compiler c;
    if (!open_compiler(&c)) {
        test_skip("NVRTC was not found");
        return;
    }
    char *source = aril_cuda_fused_source(f, t);
    CHECK(source != NULL);
    CHECK(strstr(source, "#include") == NULL);
    for (int i = first; i <= last; i++) {
        const char *why = compile(&c, source, archs[i]);
        CHECK_MSG(!why, "%s: %s: %s", f->step[0].op, archs[i], why);
    }
    free(source);
}

static void check_compiles(const aril_fused *f, const aril_cuda_fused_types *t)
{
    check_compiles_for(f, t, 0, 1);
}

/* ---- recipes ---- */

/* Whether the formula is computed in that dtype, and cannot fail there. */
static bool applies(const aril__formula *f, aril_dtype type)
{
    bool real = type == ARIL_F32 || type == ARIL_F64 || type == ARIL_F16 || type == ARIL_BF16;
    switch (f->rule) {
    case ARIL__EW_REAL:
    case ARIL__EW_FLT: return real;
    case ARIL__EW_INT:
    case ARIL__EW_INTX: return !real;
    default: return real || !f->is_grad;
    }
}

static aril_fused_step step_of(const aril__op *op, aril_dtype type)
{
    static const char *const plain[] = { "", "a", "ab", "abc" };
    static const char *const gradient[] = { "", "", "", "gay", "gaby", "gabcy" };
    const aril__formula *f = op->formula;
    aril_fused_step s = { .op = op->name,
                          .formula = f->text,
                          .names = f->is_grad ? gradient[f->arity] : plain[f->arity],
                          .n_in = f->arity,
                          .type = (uint8_t)type,
                          .dtype = (uint8_t)(f->rule == ARIL__EW_CMP ? ARIL_BOOL : type),
                          .compares = f->rule == ARIL__EW_CMP,
                          .p = { 0.5, 2, 3 } };
    for (int k = 0; k < s.n_in; k++) s.in[k] = (uint8_t)ARIL_FUSED_INPUT(k);
    return s;
}

static aril_fused recipe_begin(aril_dtype type, aril_cuda_fused_types *t)
{
    memset(t, 0, sizeof *t);
    memset(t->dtype, type, sizeof t->dtype);
    t->number[4] = true;
    return (aril_fused){ .n_in = 5, .n_out = 1 };
}

/* The sum of what the steps compute keeps all of them in the kernel. */
static void add_step(aril_fused *f, const aril__op *op, aril_dtype type)
{
    aril_fused_step sum = step_of(aril__op_find("add"), type);
    int before = f->n_steps - 1;
    f->step[f->n_steps++] = step_of(op, type);
    if (before < 0) return;
    sum.in[0] = (uint8_t)ARIL_FUSED_STEP(before);
    sum.in[1] = (uint8_t)ARIL_FUSED_STEP(before + 1);
    f->step[f->n_steps++] = sum;
}

/* Each formula compiles for one of the two architectures, with ARIL_TEST_ALL for both, which takes
 * half a minute. */
static void finish(aril_fused *f, const aril_cuda_fused_types *t, int nth)
{
    if (!f->n_steps || test_failed()) return;
    f->out[0] = (aril_fused_output){ .step = (uint8_t)(f->n_steps - 1),
                                     .dtype = f->step[f->n_steps - 1].dtype };
    CHECK(aril_cuda_fused_refuses(f, t) == NULL);
    bool all = getenv("ARIL_TEST_ALL") != NULL;
    check_compiles_for(f, t, all ? 0 : nth % 2, all ? 1 : nth % 2);
}

static void check_all(aril_dtype type)
{
    aril_cuda_fused_types t, single;
    aril_fused f = recipe_begin(type, &t), one = recipe_begin(type, &single);
    int n = 0, kernels = type == ARIL_F32; /* f32 and f64 begin with another architecture */
    for (int k = 0; k < aril__n_ops && !test_failed(); k++) {
        const aril__op *op = aril__ops[k];
        if (!op->formula || !applies(op->formula, type)) continue;
        one.n_steps = 1;
        one.step[0] = step_of(op, type);
        if (aril_cuda_fused_refuses(&one, &single)) continue;
        n++;
        if (f.n_steps + 2 > ARIL_FUSED_STEPS) {
            finish(&f, &t, kernels++);
            f = recipe_begin(type, &t);
        }
        add_step(&f, op, type);
    }
    finish(&f, &t, kernels);
    CHECK(test_failed() || n > 40);
}

TEST(every_formula_compiles_in_f32)
{
    check_all(ARIL_F32);
}

TEST(every_formula_compiles_in_f64)
{
    check_all(ARIL_F64);
}

TEST(every_formula_compiles_in_i64)
{
    check_all(ARIL_I64);
}

TEST(every_formula_compiles_in_u64)
{
    check_all(ARIL_U64);
}

/* Adds casts of all inputs to a dtype, and their sum. */
static void add_casts(aril_fused *f, const aril_dtype *from, int n, aril_dtype to)
{
    for (int i = 0; i < n; i++) {
        f->step[f->n_steps++] = (aril_fused_step){ .op = "cast",
                                                   .formula = "a",
                                                   .names = "a",
                                                   .n_in = 1,
                                                   .in = { (uint8_t)ARIL_FUSED_INPUT(i) },
                                                   .type = (uint8_t)from[i],
                                                   .dtype = (uint8_t)to };
        if (i == 0) continue;
        aril_fused_step sum = step_of(aril__op_find("add"), to);
        sum.in[0] = (uint8_t)(f->n_steps - 2);
        sum.in[1] = (uint8_t)(f->n_steps - 1);
        f->step[f->n_steps++] = sum;
    }
    f->out[f->n_out++] =
        (aril_fused_output){ .step = (uint8_t)(f->n_steps - 1), .dtype = (uint8_t)to };
}

/* Casts from every dtype to every other: two results for each kernel. */
TEST(every_cast_compiles)
{
    static const aril_dtype all[] = { ARIL_BOOL, ARIL_U8,  ARIL_U16, ARIL_U32, ARIL_U64,
                                      ARIL_I8,   ARIL_I16, ARIL_I32, ARIL_I64, ARIL_F16,
                                      ARIL_BF16, ARIL_F32, ARIL_F64 };
    enum { N = sizeof all / sizeof *all };
    aril_cuda_fused_types t = { 0 };
    for (int i = 0; i < N; i++) t.dtype[i] = (uint8_t)all[i];
    for (int to = 0; to < N && !test_failed(); to += 2) {
        aril_fused f = { .n_in = N };
        add_casts(&f, all, N, all[to]);
        if (to + 1 < N) add_casts(&f, all, N, all[to + 1]);
        /* sm_75 converts to f16 and bf16 in another way. */
        bool both = (to + 1 < N && all[to + 1] == ARIL_F16) || all[to] == ARIL_BF16;
        int nth = to / 2 % 2;
        check_compiles_for(&f, &t, both ? 0 : nth, both ? 1 : nth);
    }
}

TEST(what_cannot_be_compiled_is_refused)
{
    aril_cuda_fused_types t;
    aril_fused f = recipe_begin(ARIL_I32, &t);
    add_step(&f, aril__op_find("floor_div"), ARIL_I32);
    CHECK_STR(aril_cuda_fused_refuses(&f, &t), "a formula that may fail");
    f = recipe_begin(ARIL_F8E8M0, &t);
    add_step(&f, aril__op_find("add"), ARIL_F32);
    CHECK_STR(aril_cuda_fused_refuses(&f, &t), "a dtype that only stores");
}

/* ---- rows ---- */

static aril_fused_step row_step(const char *op, aril_dtype type, int a, int b)
{
    static const char *const names[] = { "sum", "mean", "amax" };
    static const uint8_t reduces[] = { ARIL_FUSED_SUM, ARIL_FUSED_MEAN, ARIL_FUSED_MAX };
    for (int i = 0; i < 3; i++)
        if (strcmp(op, names[i]) == 0)
            return (aril_fused_step){ .op = op,
                                      .names = "a",
                                      .n_in = 1,
                                      .in = { (uint8_t)a },
                                      .type = (uint8_t)type,
                                      .dtype = (uint8_t)type,
                                      .reduce = reduces[i],
                                      .by_row = true };
    if (strcmp(op, "dropout") == 0)
        return (aril_fused_step){ .op = op,
                                  .formula = "u >= p0 ? a * p1 + p2 : K(0)",
                                  .names = "ua",
                                  .n_in = 2,
                                  .in = { (uint8_t)a, (uint8_t)b },
                                  .type = (uint8_t)type,
                                  .dtype = (uint8_t)type,
                                  .p = { 0.1, 1.1 } };
    aril_fused_step s = step_of(aril__op_find(op), type);
    s.in[0] = (uint8_t)a;
    s.in[1] = (uint8_t)b;
    return s;
}

/* A chain as softmax, normalization, dropout and sums over rows make it: inputs are x, statistics
 * by rows, a weight, a key. */
static aril_fused rows_recipe(aril_dtype dtype, aril_dtype wide, aril_cuda_fused_types *t)
{
    enum { X = ARIL_FUSED_INPUT(0), STAT = ARIL_FUSED_INPUT(1), WEIGHT = ARIL_FUSED_INPUT(2) };
    aril_fused f = { .n_in = 4, .n_out = 4, .ndim = 3, .dim = { 2, 3, 768 }, .rows = true };
    int n = 0;
    memset(t, 0, sizeof *t);
    memset(t->dtype, dtype, sizeof t->dtype);
    t->dtype[1] = (uint8_t)wide;
    t->dtype[3] = ARIL_U64;
    f.by_row[1] = t->by_row[1] = true;
    f.is_key[3] = true;
    f.step[n++] = (aril_fused_step){ .op = "cast",
                                     .formula = "a",
                                     .names = "a",
                                     .n_in = 1,
                                     .in = { X },
                                     .type = (uint8_t)dtype,
                                     .dtype = (uint8_t)wide };
    f.step[n++] = row_step("amax", wide, 0, 0);
    f.step[n++] = row_step("sub", wide, 0, 1);
    f.step[n++] = row_step("exp", wide, 2, 0);
    f.step[n++] = row_step("sum", wide, 3, 0);
    f.step[n++] = row_step("reciprocal", wide, 4, 0);
    f.step[n - 1].by_row = true;
    f.step[n++] = row_step("mul", wide, 3, 5);
    f.step[n++] = row_step("mean", wide, 6, 0);
    f.step[n++] = row_step("sub", wide, 6, 7);
    f.step[n++] = row_step("mul", wide, 8, STAT);
    f.step[n++] = row_step("dropout", wide, ARIL_FUSED_INPUT(3), 9);
    f.step[n++] = row_step("mul", wide, 10, WEIGHT);
    f.n_steps = n;
    f.out[0] = (aril_fused_output){ .step = 11, .dtype = (uint8_t)wide };
    f.out[1] = (aril_fused_output){
        .step = 7, .dtype = (uint8_t)wide, .reduce = ARIL_FUSED_EACH_ROW, .axes = 4
    };
    f.out[2] = (aril_fused_output){
        .step = 9, .dtype = (uint8_t)wide, .reduce = ARIL_FUSED_SUM, .axes = 3, .dropped = 3
    };
    f.out[3] = (aril_fused_output){
        .step = 6, .dtype = (uint8_t)wide, .reduce = ARIL_FUSED_MEAN, .axes = 7, .dropped = 7
    };
    return f;
}

static void check_rows(aril_dtype dtype, aril_dtype wide, int64_t length, int width, int threads)
{
    aril_cuda_fused_types t;
    aril_fused f = rows_recipe(dtype, wide, &t);
    CHECK(aril_cuda_fused_by_rows(&f));
    CHECK(aril_cuda_rows_class(&f, length, width, &t));
    CHECK_INT(t.threads, threads);
    CHECK(aril_cuda_fused_refuses(&f, &t) == NULL);
    check_compiles(&f, &t);
}

TEST(rows_of_a_warp_compile)
{
    check_rows(ARIL_BF16, ARIL_F32, 256, 8, 32);
}

TEST(rows_of_a_block_compile)
{
    check_rows(ARIL_F32, ARIL_F32, 2048, 4, 192);
}

TEST(rows_in_double_compile)
{
    check_rows(ARIL_F64, ARIL_F64, 100, 1, 32);
}

/* Classes: few threads first, at most 32 elements for each, and what they hold fits in
 * registers. */
TEST(rows_have_classes)
{
    aril_cuda_fused_types t;
    aril_fused f = rows_recipe(ARIL_BF16, ARIL_F32, &t);
    static const struct {
        int64_t n;
        int width, outputs, threads, chunks;
    } want[] = { { 64, 8, 1, 32, 1 },     { 768, 8, 1, 32, 3 },    { 1024, 8, 1, 32, 4 },
                 { 1032, 8, 1, 64, 3 },   { 3072, 8, 1, 96, 4 },   { 16384, 8, 1, 512, 4 },
                 { 999, 1, 1, 32, 32 },   { 768, 8, 3, 64, 2 },    { 3072, 8, 3, 192, 2 },
                 { 16384, 8, 3, 512, 4 }, { 16384, 2, 1, 512, 16 } };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        f.n_out = want[i].outputs;
        CHECK(aril_cuda_rows_class(&f, want[i].n, want[i].width, &t));
        CHECK_INT(t.threads, want[i].threads);
        CHECK_INT(t.chunks, want[i].chunks);
        CHECK_INT(t.width, want[i].width);
    }
    CHECK(!aril_cuda_rows_class(&f, 16385, 1, &t));
}

TEST(what_rows_cannot_do_is_refused)
{
    aril_cuda_fused_types t;
    aril_fused f = rows_recipe(ARIL_F32, ARIL_F32, &t);
    f.out[2].axes = 2;
    CHECK_STR(aril_cuda_fused_refuses(&f, &t), "a reduction");
    f = rows_recipe(ARIL_F32, ARIL_F32, &t);
    f.dim[2] = 1;
    CHECK_STR(aril_cuda_fused_refuses(&f, &t), "rows of one element");
    f = rows_recipe(ARIL_F32, ARIL_F32, &t);
    f.step[7].in[0] = 1;
    CHECK_STR(aril_cuda_fused_refuses(&f, &t), "a reduction of what has one element for each row");
}

/* Widths: 16 bytes of the widest element, 8 elements at the most. */
TEST(threads_read_sixteen_bytes)
{
    aril_cuda_fused_types t;
    aril_fused f = recipe_begin(ARIL_BF16, &t);
    add_step(&f, aril__op_find("add"), ARIL_BF16);
    f.out[0].dtype = ARIL_BF16;
    CHECK_INT(aril_cuda_fused_width(&f, &t), 8);
    t.dtype[1] = ARIL_F32;
    CHECK_INT(aril_cuda_fused_width(&f, &t), 4);
    t.number[1] = true;
    CHECK_INT(aril_cuda_fused_width(&f, &t), 8);
    f.out[0].dtype = ARIL_F64;
    CHECK_INT(aril_cuda_fused_width(&f, &t), 2);
}
