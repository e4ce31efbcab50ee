#include "backend/cuda/fused/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef aril_cuda_text text;
#define append aril_cuda_text_append
#define print  aril_cuda_text_print
#define types  aril_cuda_fused_type

/* ---- text ---- */

void aril_cuda_text_append(text *t, const char *from, size_t n)
{
    if (t->failed) return;
    if (t->n + n + 1 > t->room) {
        size_t room = 2 * t->room + n + 4096;
        char *wider = realloc(t->at, room);
        t->failed = !wider;
        if (!wider) return;
        t->at = wider;
        t->room = room;
    }
    memcpy(t->at + t->n, from, n);
    t->n += n;
    t->at[t->n] = '\0';
}

void aril_cuda_text_print(text *t, const char *format, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line)
        t->failed = true;
    else
        append(t, line, (size_t)n);
}

/* ---- the parts that do not depend on a recipe ---- */

/* Files of the source tree, as the build put them into the plug-in. */
extern const char aril_cuda_fused_prelude_text[], aril_cuda_convert_text[],
    aril_cuda_special_text[], aril_cuda_special_inc_text[], aril_cuda_formulas_text[],
    aril_cuda_fused_arguments_text[], aril_cuda_fused_loop_text[], aril_cuda_fused_row_text[],
    aril_cuda_block_text[], aril_cuda_philox_text[];

/* Appends a file: an #include of `inner` becomes that text, and others are left out. */
static void append_file(text *t, const char *file, const char *inner, const char *inner_text)
{
    while (*file) {
        size_t n = strcspn(file, "\n");
        n += file[n] == '\n';
        bool includes = strncmp(file, "#include", 8) == 0;
        if (!includes)
            append(t, file, n);
        else if (inner && strstr(file, inner) && strstr(file, inner) < file + n)
            append(t, inner_text, strlen(inner_text));
        file += n;
    }
}

const aril_cuda_type_names aril_cuda_fused_type[] = {
    [ARIL_BOOL] = { "aril_cuda_bool", "int64_t", 1 },
    [ARIL_U8] = { "uint8_t", "int64_t", 1 },
    [ARIL_U16] = { "uint16_t", "int64_t", 2 },
    [ARIL_U32] = { "uint32_t", "int64_t", 4 },
    [ARIL_U64] = { "uint64_t", "uint64_t", 8 },
    [ARIL_I8] = { "int8_t", "int64_t", 1 },
    [ARIL_I16] = { "int16_t", "int64_t", 2 },
    [ARIL_I32] = { "int32_t", "int64_t", 4 },
    [ARIL_I64] = { "int64_t", "int64_t", 8 },
    [ARIL_F16] = { "aril_cuda_f16", "float", 2 },
    [ARIL_BF16] = { "aril_cuda_bf16", "float", 2 },
    [ARIL_F32] = { "float", "float", 4 },
    [ARIL_F64] = { "double", "double", 8 }
};
enum { TYPES = sizeof types / sizeof *types };

static bool is_known(int dtype)
{
    return dtype >= 0 && dtype < TYPES && types[dtype].storage;
}

bool aril_cuda_is_float(int dtype)
{
    return dtype == ARIL_F16 || dtype == ARIL_BF16 || dtype == ARIL_F32 || dtype == ARIL_F64;
}

void aril_cuda_append_prelude(text *t)
{
    append_file(t, aril_cuda_fused_prelude_text, NULL, NULL);
    print(t, "enum aril_dtype {\n");
    static const struct {
        const char *name;
        int value;
    } dtypes[] = {
#define DTYPE(name) { #name, name }
        DTYPE(ARIL_BOOL), DTYPE(ARIL_U8),  DTYPE(ARIL_U16), DTYPE(ARIL_U32), DTYPE(ARIL_U64),
        DTYPE(ARIL_I8),   DTYPE(ARIL_I16), DTYPE(ARIL_I32), DTYPE(ARIL_I64), DTYPE(ARIL_F16),
        DTYPE(ARIL_BF16), DTYPE(ARIL_F32), DTYPE(ARIL_F64),
#undef DTYPE
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        print(t, "    %s = %d,\n", dtypes[i].name, dtypes[i].value);
    print(t, "};\n");
    append_file(t, aril_cuda_convert_text, NULL, NULL);
    append_file(t, aril_cuda_special_text, "ops/elementwise/special.inc",
                aril_cuda_special_inc_text);
    append_file(t, aril_cuda_formulas_text, NULL, NULL);
    append_file(t, aril_cuda_fused_arguments_text, NULL, NULL);
    append_file(t, aril_cuda_fused_loop_text, NULL, NULL);
    print(t, "#define K(x) ((T)(x))\n#define NOGRAD K(0)\n");
}

void aril_cuda_append_rows(text *t, bool draws)
{
    append_file(t, aril_cuda_block_text, NULL, NULL);
    append_file(t, aril_cuda_fused_row_text, NULL, NULL);
    if (!draws) return;
    append_file(t, aril_cuda_philox_text, NULL, NULL);
    print(t,
          "template <int W>\n"
          "static __device__ __forceinline__ void draw(aril_cuda_key key, uint64_t i, float *u)\n"
          "{\n"
          "    if (W %% 4 == 0) {\n"
          "#pragma unroll\n"
          "        for (int k = 0; k < W; k += 4) {\n"
          "            uint4 w = aril_cuda_philox(key, i / 4 + k / 4);\n"
          "            u[k] = aril_cuda_uniform_f32(w.x);\n"
          "            u[k + 1] = aril_cuda_uniform_f32(w.y);\n"
          "            u[k + 2] = aril_cuda_uniform_f32(w.z);\n"
          "            u[k + 3] = aril_cuda_uniform_f32(w.w);\n"
          "        }\n"
          "    } else {\n"
          "        for (int k = 0; k < W; k++)\n"
          "            u[k] = aril_cuda_uniform_f32(aril_cuda_u32(key, i + k));\n"
          "    }\n"
          "}\n");
}

/* ---- a recipe ---- */

/* Whether a formula may fail midway: then single ops run, which report the element. */
static bool may_fail(const aril_fused_step *s)
{
    static const char *const functions[] = { "k_fmod(", "k_remainder(", "k_floor_div(", "k_pow(" };
    for (size_t i = 0; i < sizeof functions / sizeof *functions && !aril_cuda_is_float(s->type);
         i++)
        if (s->formula && strstr(s->formula, functions[i])) return true;
    return false;
}

bool aril_cuda_fused_uses(const aril_fused *f, int input)
{
    for (int s = 0; s < f->n_steps; s++)
        for (int k = 0; k < f->step[s].n_in; k++)
            if (f->step[s].in[k] == ARIL_FUSED_INPUT(input)) return true;
    return false;
}

const char *aril_cuda_fused_refuses(const aril_fused *f, const aril_cuda_fused_types *t)
{
    for (int i = 0; i < f->n_in; i++)
        if (!is_known(t->dtype[i])) return "a dtype that only stores";
    const char *why = aril_cuda_fused_by_rows(f) ? aril_cuda_rows_refuse(f) : NULL;
    if (why) return why;
    for (int s = 0; s < f->n_steps; s++) {
        if (!is_known(f->step[s].type) || !is_known(f->step[s].dtype))
            return "a dtype that only stores";
        if (may_fail(&f->step[s])) return "a formula that may fail";
    }
    return NULL;
}

/* Whether an input is read from memory, by elements. */
static bool is_read(const aril_fused *f, const aril_cuda_fused_types *t, int input)
{
    return !t->number[input] && !f->is_key[input] && aril_cuda_fused_uses(f, input);
}

int aril_cuda_fused_width(const aril_fused *f, const aril_cuda_fused_types *t)
{
    int most = 2; /* of the sizes of elements: 8 of them at the most */
    for (int i = 0; i < f->n_in; i++)
        if (is_read(f, t, i) && !f->by_row[i] && types[t->dtype[i]].size > most)
            most = types[t->dtype[i]].size;
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce == ARIL_FUSED_EACH && types[f->out[k].dtype].size > most)
            most = types[f->out[k].dtype].size;
    return 16 / most;
}

/* A constant, rounded to its dtype, in that dtype's compute type. */
static void print_constant(text *t, const aril_fused_constant *k)
{
    const aril_cuda_type_names *type = &types[k->dtype];
    uint64_t bits;
    if (aril_cuda_is_float(k->dtype)) {
        memcpy(&bits, &k->f64, sizeof bits);
        print(t, "aril_cuda_to<%s>(aril_cuda_from<%s>(__longlong_as_double(0x%llxLL)))",
              type->compute, type->storage, (unsigned long long)bits);
    } else {
        memcpy(&bits, &k->i64, sizeof bits);
        print(t, "(%s)0x%llxULL", type->compute, (unsigned long long)bits);
    }
}

void aril_cuda_print_operand(text *t, const aril_fused *f, const aril_cuda_fused_types *of,
                             int operand)
{
    int i = ARIL_FUSED_INDEX(operand);
    if (operand == ARIL_FUSED_NONE) {
        print(t, "T(0)");
    } else if (ARIL_FUSED_KIND(operand) == ARIL_FUSED_STEP(0)) {
        print(t, "s%d", i);
    } else if (ARIL_FUSED_KIND(operand) == ARIL_FUSED_CONSTANT(0)) {
        print_constant(t, &f->constant[i]);
    } else if (f->is_key[i]) {
        print(t, "u%d[k]", i);
    } else {
        const aril_cuda_type_names *type = &types[of->dtype[i]];
        print(t, "aril_cuda_to<%s>(", type->compute);
        if (of->number[i])
            print(t, "number<%s>(args.number[%d]))", type->storage, i);
        else
            print(t, "x%d)", i);
    }
}

void aril_cuda_print_step(text *t, const aril_fused *f, const aril_cuda_fused_types *of, int s)
{
    const aril_fused_step *step = &f->step[s];
    const aril_cuda_type_names *type = &types[step->dtype];
    print(t, "    %s s%d; /* %s */\n    {\n        typedef %s T;\n", type->compute, s, step->op,
          types[step->type].compute);
    for (int k = 0; k < step->n_in; k++) {
        print(t, "        T %c = aril_cuda_as<T>::of(", step->names[k]);
        aril_cuda_print_operand(t, f, of, step->in[k]);
        print(t, ");\n");
    }
    for (int k = 0; k < 3; k++) {
        uint64_t bits;
        memcpy(&bits, &step->p[k], sizeof bits);
        print(t, "        T p%d = (T)__longlong_as_double(0x%llxLL);\n", k,
              (unsigned long long)bits);
    }
    print(t, "        int bad = 0;\n        s%d = aril_cuda_to<%s>(aril_cuda_from<%s>((T)(", s,
          type->compute, type->storage);
    append(t, step->formula, strlen(step->formula));
    print(t, ")));\n    }\n");
}

/* The parameters of `compute`: elements of inputs, then of results. */
static void print_compute(text *t, const aril_fused *f, const aril_cuda_fused_types *of)
{
    print(t, "static __device__ __forceinline__ void compute(\n"
             "    const aril_cuda_fused_arguments &args");
    for (int i = 0; i < f->n_in; i++)
        if (is_read(f, of, i)) print(t, ", %s x%d", types[of->dtype[i]].storage, i);
    for (int k = 0; k < f->n_out; k++) print(t, ", %s &y%d", types[f->out[k].dtype].storage, k);
    print(t, ")\n{\n");
    for (int s = 0; s < f->n_steps; s++) aril_cuda_print_step(t, f, of, s);
    for (int k = 0; k < f->n_out; k++)
        print(t, "    y%d = aril_cuda_from<%s>(s%d);\n", k, types[f->out[k].dtype].storage,
              f->out[k].step);
    print(t, "}\n");
}

/* A call of `compute`, with `suffix` after each element. */
static void print_call(text *t, const aril_fused *f, const aril_cuda_fused_types *of,
                       const char *suffix)
{
    print(t, "compute(args");
    for (int i = 0; i < f->n_in; i++)
        if (is_read(f, of, i)) print(t, ", x%d%s", i, suffix);
    for (int k = 0; k < f->n_out; k++) print(t, ", y%d%s", k, suffix);
    print(t, ");\n");
}

static void print_one(text *t, const aril_fused *f, const aril_cuda_fused_types *of)
{
    print(t, "static __device__ __forceinline__ void one(\n"
             "    const aril_cuda_fused_arguments &args, uint32_t i)\n{\n");
    for (int i = 0; i < f->n_in; i++)
        if (is_read(f, of, i))
            print(t,
                  "    %s x%d = static_cast<const %s *>(args.base[%d])[offset_of(args, %d, i)];\n",
                  types[of->dtype[i]].storage, i, types[of->dtype[i]].storage,
                  ARIL_FUSED_OUTPUTS + i, ARIL_FUSED_OUTPUTS + i);
    for (int k = 0; k < f->n_out; k++) print(t, "    %s y%d;\n", types[f->out[k].dtype].storage, k);
    print(t, "    ");
    print_call(t, f, of, "");
    for (int k = 0; k < f->n_out; k++)
        print(t, "    static_cast<%s *>(args.base[%d])[offset_of(args, %d, i)] = y%d;\n",
              types[f->out[k].dtype].storage, k, k, k);
    print(t, "}\n");
}

static void print_kernels(text *t, const aril_fused *f, const aril_cuda_fused_types *of)
{
    int width = aril_cuda_fused_width(f, of);
    print(t,
          "extern \"C\" __global__ void __launch_bounds__(ARIL_CUDA_FUSED_THREADS) any(\n"
          "    const __grid_constant__ aril_cuda_fused_arguments args)\n{\n"
          "    const uint32_t step = ARIL_CUDA_FUSED_THREADS * gridDim.x;\n"
          "    for (uint32_t i = blockIdx.x * ARIL_CUDA_FUSED_THREADS + threadIdx.x; i < args.n;\n"
          "         i += step)\n        one(args, i);\n}\n");
    print(t,
          "extern \"C\" __global__ void __launch_bounds__(ARIL_CUDA_FUSED_THREADS) vectors(\n"
          "    const __grid_constant__ aril_cuda_fused_arguments args)\n{\n"
          "    const uint32_t W = %d, step = W * ARIL_CUDA_FUSED_THREADS * gridDim.x;\n"
          "    uint32_t i = W * (blockIdx.x * ARIL_CUDA_FUSED_THREADS + threadIdx.x);\n"
          "    for (; i + W <= args.n; i += step) {\n",
          width);
    for (int i = 0; i < f->n_in; i++)
        if (is_read(f, of, i))
            print(t, "        vector<%s, W> x%d = read<%s, W>(args, %d, i);\n",
                  types[of->dtype[i]].storage, i, types[of->dtype[i]].storage,
                  ARIL_FUSED_OUTPUTS + i);
    for (int k = 0; k < f->n_out; k++)
        print(t, "        vector<%s, W> y%d;\n", types[f->out[k].dtype].storage, k);
    print(t, "#pragma unroll\n        for (int k = 0; k < W; k++) ");
    print_call(t, f, of, ".at[k]");
    for (int k = 0; k < f->n_out; k++)
        print(t, "        write<%s, W>(args, %d, i, y%d);\n", types[f->out[k].dtype].storage, k, k);
    print(t, "    }\n    for (; i < args.n; i++) one(args, i);\n}\n");
}

char *aril_cuda_fused_source(const aril_fused *f, const aril_cuda_fused_types *t)
{
    text source = { 0 };
    aril_cuda_append_prelude(&source);
    if (aril_cuda_fused_by_rows(f)) {
        aril_cuda_print_rows(&source, f, t);
    } else {
        print_compute(&source, f, t);
        print_one(&source, f, t);
        print_kernels(&source, f, t);
    }
    if (!source.failed) return source.at;
    free(source.at);
    return NULL;
}
