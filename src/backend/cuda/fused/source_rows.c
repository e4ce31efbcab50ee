/* Kernels by rows: a warp or a block holds a row in registers, reads each input once, and goes over
 * the row in phases, between which it is reduced. Sums over all rows are taken by each thread for
 * its columns, then by the block, and by the kernel `finish` over blocks, always in the same
 * order. */
#include "backend/cuda/fused/parts.h"

#include <string.h>

typedef aril_cuda_text text;
#define print aril_cuda_text_print
#define types aril_cuda_fused_type

enum { ELEMENTS = 32 /* of a row that a thread holds, at the most */, DEEPEST = 3 };

bool aril_cuda_fused_by_rows(const aril_fused *f)
{
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce != ARIL_FUSED_EACH) return true;
    return f->rows;
}

static bool over_rows(const aril_fused_output *o)
{
    return o->reduce == ARIL_FUSED_SUM || o->reduce == ARIL_FUSED_MEAN;
}

/* Whether a reduction goes over all axes, and not only over all but the last. */
static bool over_all(const aril_fused *f, const aril_fused_output *o)
{
    return o->axes >> (f->ndim - 1) & 1;
}

int aril_cuda_rows_block(const aril_fused *f, const aril_cuda_fused_types *t)
{
    bool sums = false;
    for (int k = 0; k < f->n_out; k++) sums = sums || over_rows(&f->out[k]);
    return t->threads > 32 ? t->threads : sums ? 256 : 128;
}

const char *aril_cuda_rows_refuse(const aril_fused *f)
{
    uint32_t leading = f->ndim ? (1u << (f->ndim - 1)) - 1 : 0;
    if (f->ndim == 0 || f->dim[f->ndim - 1] < 2) return "rows of one element";
    for (int s = 0; s < f->n_steps; s++) {
        const aril_fused_step *step = &f->step[s];
        if (!step->reduce) continue;
        int kind = ARIL_FUSED_KIND(step->in[0]), i = ARIL_FUSED_INDEX(step->in[0]);
        bool by_row = kind == ARIL_FUSED_STEP(0)    ? f->step[i].by_row
                      : kind == ARIL_FUSED_INPUT(0) ? f->by_row[i]
                                                    : true;
        if (by_row) return "a reduction of what has one element for each row";
    }
    for (int k = 0; k < f->n_out; k++) {
        const aril_fused_output *o = &f->out[k];
        if (o->reduce == ARIL_FUSED_MAX) return "a maximum over rows";
        if (over_rows(o) && (!leading || (o->axes & leading) != leading)) return "a reduction";
        if (o->reduce != ARIL_FUSED_EACH_ROW && f->step[o->step].by_row)
            return "a result by rows of the wrong shape";
        if (o->reduce == ARIL_FUSED_EACH_ROW && !f->step[o->step].by_row)
            return "a result by rows of the wrong shape";
    }
    return NULL;
}

/* ---- phases ---- */

/* Element steps of phase p are computed in loop p over the elements of the row, steps by rows of
 * phase p before it. */
typedef struct rows {
    const aril_fused *f;
    const aril_cuda_fused_types *of;
    int phase[ARIL_FUSED_STEPS], n_phases;
    bool later[ARIL_FUSED_STEPS]; /* used in a later phase than its own, */
    bool again[ARIL_FUSED_STEPS]; /* where it is computed again, being cheap */
    int depth[ARIL_FUSED_STEPS];
} rows;

static bool is_step(int operand)
{
    return operand != ARIL_FUSED_NONE && ARIL_FUSED_KIND(operand) == ARIL_FUSED_STEP(0);
}

static void find_phases(rows *r)
{
    const aril_fused *f = r->f;
    r->n_phases = 1;
    for (int s = 0; s < f->n_steps; s++) {
        const aril_fused_step *step = &f->step[s];
        int phase = 0;
        for (int k = 0; k < step->n_in; k++)
            if (is_step(step->in[k]) && r->phase[step->in[k]] > phase)
                phase = r->phase[step->in[k]];
        r->phase[s] = phase + (step->reduce != ARIL_FUSED_EACH);
        if (!step->by_row && r->phase[s] + 1 > r->n_phases) r->n_phases = r->phase[s] + 1;
    }
}

static bool is_cheap(const aril_fused_step *s)
{
    static const char *const names[] = { "cast", "add", "sub", "mul" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(s->op, names[i]) == 0) return true;
    return false;
}

/* Values of elements that a later phase needs are kept, or computed again from what is there. */
static void find_later(rows *r)
{
    const aril_fused *f = r->f;
    for (int s = 0; s < f->n_steps; s++)
        for (int k = 0; k < f->step[s].n_in; k++) {
            int from = f->step[s].in[k];
            /* A reduction reads its operand in the operand's phase. */
            if (is_step(from) && !f->step[from].by_row && !f->step[s].reduce &&
                r->phase[s] > r->phase[from])
                r->later[from] = true;
        }
    for (int s = 0; s < f->n_steps; s++) {
        const aril_fused_step *step = &f->step[s];
        bool again = !step->by_row && !step->reduce && is_cheap(step);
        for (int k = 0; k < step->n_in && again; k++) {
            int from = step->in[k];
            if (!is_step(from) || f->step[from].by_row) continue;
            if (r->later[from] && !r->again[from]) continue; /* kept */
            again = r->again[from];
            if (r->depth[from] + 1 > r->depth[s]) r->depth[s] = r->depth[from] + 1;
        }
        r->again[s] = again && r->depth[s] < DEEPEST;
    }
}

/* ---- declarations ---- */

static bool is_loaded(const rows *r, int i)
{
    return !r->of->number[i] && !r->f->is_key[i] && aril_cuda_fused_uses(r->f, i);
}

/* ---- classes ---- */

/* Bytes of registers that a thread needs for each of its elements: what it reads, keeps and
 * sums. */
static int bytes_of(const rows *r)
{
    const aril_fused *f = r->f;
    int bytes = 0;
    for (int i = 0; i < f->n_in; i++)
        if (is_loaded(r, i) && !f->by_row[i]) bytes += types[r->of->dtype[i]].size;
    for (int s = 0; s < f->n_steps; s++)
        if (r->later[s] && !r->again[s]) bytes += f->step[s].dtype == ARIL_F64 ? 8 : 4;
    for (int k = 0; k < f->n_out; k++)
        if (over_rows(&f->out[k]) && !over_all(f, &f->out[k]))
            bytes += f->out[k].dtype == ARIL_F64 ? 8 : 4;
    return bytes;
}

/* Sums over rows keep few blocks busy, each of which should have many threads. */
bool aril_cuda_rows_class(const aril_fused *f, int64_t n, int width, aril_cuda_fused_types *t)
{
    enum { ROOM = 384, ROOM_WITH_SUMS = 192 }; /* bytes of registers, of 1020 */
    static const int16_t threads[] = { 32, 64, 96, 128, 192, 256, 384, 512 };
    static const int16_t chunks[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
    rows r = { .f = f, .of = t };
    bool sums = false;
    find_phases(&r);
    find_later(&r);
    for (int k = 0; k < f->n_out; k++) sums = sums || over_rows(&f->out[k]);
    int bytes = bytes_of(&r), room = sums ? ROOM_WITH_SUMS : ROOM;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
            bool last = threads[i] == 512; /* spills, if it must */
            if (chunks[k] * width > ELEMENTS) break;
            if ((int64_t)threads[i] * chunks[k] * width < n) continue;
            if (!last && chunks[k] * width * bytes > room) break;
            t->threads = threads[i];
            t->chunks = chunks[k];
            t->width = (int16_t)width;
            return true;
        }
    return false;
}

static const char *storage_of(const rows *r, int input)
{
    return types[r->of->dtype[input]].storage;
}

static void print_loads(text *t, const rows *r)
{
    for (int i = 0; i < r->f->n_in; i++) {
        int j = ARIL_FUSED_OUTPUTS + i;
        const char *S = is_loaded(r, i) ? storage_of(r, i) : NULL;
        if (!S) continue;
        print(t,
              "        const %s *at%d = static_cast<const %s *>(args.base[%d])\n"
              "                         + row_offset(args, %d, row);\n",
              S, i, S, j, j);
        if (r->f->by_row[i])
            print(t, "        const %s x%d = *at%d;\n", S, i, i);
        else
            print(t,
                  "        vector<%s, W> v%d[P];\n"
                  "#pragma unroll\n"
                  "        for (int c = 0; c < P; c++)\n"
                  "            if ((c * THREADS + lane) * W < args.length)\n"
                  "                v%d[c] = read_row<%s, W>(at%d, (c * THREADS + lane) * W,\n"
                  "                                         args.stride[%d][0]);\n",
                  S, i, i, S, i, j);
    }
    for (int s = 0; s < r->f->n_steps; s++)
        if (r->later[s] && !r->again[s])
            print(t, "        %s kept%d[P * W];\n", types[r->f->step[s].dtype].compute, s);
}

/* ---- a phase ---- */

/* Which steps loop p has to compute: its own, and some of earlier phases again. */
static void find_needed(const rows *r, int p, bool *needed)
{
    const aril_fused *f = r->f;
    for (int s = f->n_steps - 1; s >= 0; s--) {
        const aril_fused_step *step = &f->step[s];
        if (!step->by_row && r->phase[s] == p) needed[s] = true;
        if (!needed[s]) continue;
        for (int k = 0; k < step->n_in; k++) {
            int from = step->in[k];
            if (is_step(from) && !f->step[from].by_row && r->again[from]) needed[from] = true;
        }
    }
}

static void print_reductions_begin(text *t, const rows *r, int p)
{
    for (int s = 0; s < r->f->n_steps; s++) {
        const aril_fused_step *step = &r->f->step[s];
        if (step->reduce && r->phase[s] == p + 1)
            print(t, "        %s r%d = %s;\n", types[step->type].compute, s,
                  step->reduce == ARIL_FUSED_MAX ? "-INFINITY" : "0");
    }
}

/* The inputs of the elements of a chunk that needed steps read, as x3. */
static void print_elements(text *t, const rows *r, const bool *needed, int p)
{
    const aril_fused *f = r->f;
    for (int i = 0; i < f->n_in; i++) {
        bool used = false;
        for (int s = 0; s < f->n_steps; s++)
            for (int k = 0; k < f->step[s].n_in; k++)
                used = used || (f->step[s].in[k] == ARIL_FUSED_INPUT(i) &&
                                (needed[s] || (f->step[s].reduce && r->phase[s] == p + 1)));
        if (used && is_loaded(r, i) && !f->by_row[i])
            print(t, "                const %s x%d = v%d[c].at[k];\n", storage_of(r, i), i, i);
    }
    for (int s = 0; s < f->n_steps; s++)
        if (r->later[s] && !r->again[s] && r->phase[s] < p)
            print(t, "                const %s s%d = kept%d[c * W + k];\n",
                  types[f->step[s].dtype].compute, s, s);
}

static void print_results(text *t, const rows *r, int p)
{
    const aril_fused *f = r->f;
    for (int s = 0; s < f->n_steps; s++) {
        const aril_fused_step *step = &f->step[s];
        if (r->later[s] && !r->again[s] && r->phase[s] == p)
            print(t, "                kept%d[c * W + k] = s%d;\n", s, s);
        if (!step->reduce || r->phase[s] != p + 1) continue;
        const char *C = types[step->type].compute;
        print(t,
              step->reduce == ARIL_FUSED_MAX
                  ? "                r%d = aril_cuda_largest<%s>::of(r%d, "
                  : "                r%d = aril_cuda_sum<%s>::of(r%d, ",
              s, C, s);
        aril_cuda_print_operand(t, f, r->of, step->in[0]);
        print(t, ");\n");
    }
    for (int k = 0; k < f->n_out; k++) {
        const aril_fused_output *o = &f->out[k];
        if (o->reduce == ARIL_FUSED_EACH_ROW || r->phase[o->step] != p) continue;
        if (o->reduce == ARIL_FUSED_EACH)
            print(t, "                y%d.at[k] = aril_cuda_from<%s>(s%d);\n", k,
                  types[o->dtype].storage, o->step);
        else
            print(t, "                sum%d%s += s%d;\n", k, over_all(f, o) ? "" : "[c * W + k]",
                  o->step);
    }
}

static void print_loop(text *t, const rows *r, int p)
{
    const aril_fused *f = r->f;
    bool needed[ARIL_FUSED_STEPS] = { false };
    find_needed(r, p, needed);
    print_reductions_begin(t, r, p);
    print(t, "#pragma unroll\n"
             "        for (int c = 0; c < P; c++) {\n"
             "            const uint32_t i = (c * THREADS + lane) * W;\n"
             "            if (i >= args.length) continue;\n");
    for (int i = 0; i < f->n_in; i++) {
        bool drawn = false;
        for (int s = 0; s < f->n_steps; s++)
            for (int k = 0; k < f->step[s].n_in; k++)
                drawn = drawn || (needed[s] && f->step[s].in[k] == ARIL_FUSED_INPUT(i));
        if (f->is_key[i] && drawn)
            print(t,
                  "            float u%d[W];\n"
                  "            draw<W>(key%d, (uint64_t)row * args.length + i, u%d);\n",
                  i, i, i);
    }
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce == ARIL_FUSED_EACH && r->phase[f->out[k].step] == p)
            print(t, "            vector<%s, W> y%d;\n", types[f->out[k].dtype].storage, k);
    print(t, "#pragma unroll\n            for (int k = 0; k < W; k++) {\n");
    print_elements(t, r, needed, p);
    for (int s = 0; s < f->n_steps; s++)
        if (needed[s]) aril_cuda_print_step(t, f, r->of, s);
    print_results(t, r, p);
    print(t, "            }\n");
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce == ARIL_FUSED_EACH && r->phase[f->out[k].step] == p) {
            const char *S = types[f->out[k].dtype].storage;
            print(t, "            write_row<%s, W>(to%d, i, args.stride[%d][0], y%d);\n", S, k, k,
                  k);
        }
    print(t, "        }\n");
}

/* Steps by rows that are known before loop p. */
static void print_by_row(text *t, const rows *r, int p)
{
    for (int s = 0; s < r->f->n_steps; s++) {
        const aril_fused_step *step = &r->f->step[s];
        if (!step->by_row || r->phase[s] != p) continue;
        if (!step->reduce) {
            aril_cuda_print_step(t, r->f, r->of, s);
            continue;
        }
        const aril_cuda_type_names *to = &types[step->dtype];
        print(t, "        const %s s%d = aril_cuda_to<%s>(aril_cuda_from<%s>(row_%s<THREADS>(r%d)",
              to->compute, s, to->compute, to->storage,
              step->reduce == ARIL_FUSED_MAX ? "max" : "sum", s);
        if (step->reduce == ARIL_FUSED_MEAN)
            print(t, " / (%s)args.length", types[step->type].compute);
        print(t, ")); /* %s */\n", step->op);
    }
}

/* ---- kernels ---- */

static void print_sums_begin(text *t, const rows *r)
{
    for (int k = 0; k < r->f->n_out; k++) {
        const aril_fused_output *o = &r->f->out[k];
        if (!over_rows(o)) continue;
        print(t, "    %s sum%d%s;\n", types[o->dtype].compute, k,
              over_all(r->f, o) ? " = 0" : "[P * W] = {}");
    }
}

/* What this block has of the sums over rows, to its part of the workspace. */
static void print_sums_end(text *t, const rows *r)
{
    for (int k = 0; k < r->f->n_out; k++) {
        const aril_fused_output *o = &r->f->out[k];
        const char *C = types[o->dtype].compute;
        if (!over_rows(o)) continue;
        if (over_all(r->f, o)) {
            print(t,
                  "    sum%d = aril_cuda_block_sum(sum%d);\n"
                  "    if (threadIdx.x == 0)\n"
                  "        static_cast<%s *>(args.partial[%d])[blockIdx.x] = sum%d;\n",
                  k, k, C, k, k);
            continue;
        }
        print(t,
              "    {\n"
              "        __shared__ %s all[BLOCK > THREADS ? W * P * THREADS : 1];\n"
              "        %s *to = static_cast<%s *>(args.partial[%d])\n"
              "                 + (uint64_t)blockIdx.x * args.length;\n"
              "        for (uint32_t group = 0; group < BLOCK / THREADS; group++) {\n"
              "            const bool last = group + 1 == BLOCK / THREADS;\n"
              "            if (threadIdx.x / THREADS == group) {\n"
              "#pragma unroll\n"
              "                for (int c = 0; c < P; c++) {\n",
              C, C, C, k);
        print(t,
              "                    const uint32_t i = (c * THREADS + lane) * W;\n"
              "                    vector<%s, W> v;\n"
              "                    if (i >= args.length) continue;\n"
              "#pragma unroll\n"
              "                    for (int k = 0; k < W; k++) {\n"
              "                        %s &cell = all[BLOCK > THREADS ? (k * P + c) * THREADS + "
              "lane : 0];\n"
              "                        %s x = sum%d[c * W + k];\n"
              "                        if (BLOCK > THREADS && group > 0) x += cell;\n"
              "                        if (BLOCK > THREADS && !last) cell = x;\n"
              "                        v.at[k] = x;\n"
              "                    }\n"
              "                    if (last) write_row<%s, W>(to, i, 1, v);\n"
              "                }\n"
              "            }\n"
              "            if (BLOCK > THREADS) __syncthreads();\n"
              "        }\n"
              "    }\n",
              C, C, C, k, C);
    }
}

static void print_outputs_by_row(text *t, const rows *r)
{
    const aril_fused *f = r->f;
    if (f->out[0].reduce == ARIL_FUSED_EACH_ROW) /* it may be in the memory of an input by rows */
        print(t, "        if (THREADS > 32) __syncthreads(); else __syncwarp();\n");
    for (int k = 0; k < f->n_out; k++) {
        const aril_fused_output *o = &f->out[k];
        if (o->reduce != ARIL_FUSED_EACH_ROW) continue;
        const char *S = types[o->dtype].storage;
        print(t,
              "        if (lane == 0)\n"
              "            static_cast<%s *>(args.base[%d])[row_offset(args, %d, row)] =\n"
              "                aril_cuda_from<%s>(s%d);\n",
              S, k, k, S, o->step);
    }
}

static void print_rows_kernel(text *t, const rows *r)
{
    const aril_fused *f = r->f;
    print(t, "extern \"C\" __global__ void __launch_bounds__(BLOCK) rows(\n"
             "    const __grid_constant__ aril_cuda_fused_arguments args)\n{\n"
             "    const uint32_t lane = threadIdx.x %% THREADS, step = gridDim.x * (BLOCK / "
             "THREADS);\n");
    for (int i = 0; i < f->n_in; i++)
        if (f->is_key[i])
            print(t,
                  "    const aril_cuda_key key%d = aril_cuda_key{ args.key[%d].seed,\n"
                  "        args.key[%d].call, args.key[%d].at }.read();\n",
                  i, i, i, i);
    print_sums_begin(t, r);
    print(t, "    for (uint32_t row = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;\n"
             "         row < args.rows; row += step) {\n");
    print_loads(t, r);
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce == ARIL_FUSED_EACH) {
            const char *S = types[f->out[k].dtype].storage;
            print(t,
                  "        %s *to%d = static_cast<%s *>(args.base[%d]) + row_offset(args, %d, "
                  "row);\n",
                  S, k, S, k, k);
        }
    for (int p = 0; p < r->n_phases; p++) {
        print_by_row(t, r, p);
        print_loop(t, r, p);
    }
    print_by_row(t, r, r->n_phases);
    print_outputs_by_row(t, r);
    print(t, "    }\n");
    print_sums_end(t, r);
    print(t, "}\n");
}

static void print_finish_kernel(text *t, const rows *r)
{
    const aril_fused *f = r->f;
    print(t, "extern \"C\" __global__ void __launch_bounds__(ARIL_CUDA_FINISH_THREADS) finish(\n"
             "    const __grid_constant__ aril_cuda_fused_arguments args)\n{\n");
    for (int k = 0; k < f->n_out; k++) {
        const aril_fused_output *o = &f->out[k];
        if (!over_rows(o)) continue;
        const aril_cuda_type_names *type = &types[o->dtype];
        print(t, "    if (blockIdx.y == %d) finish_columns<%s, %s>(args, %d, %s, (%s)%s%s);\n", k,
              type->storage, type->compute, k, over_all(f, o) ? "1" : "args.length", type->compute,
              o->reduce == ARIL_FUSED_MEAN ? "args.rows" : "1",
              o->reduce == ARIL_FUSED_MEAN && over_all(f, o) ? " * args.length" : "");
    }
    print(t, "}\n");
}

void aril_cuda_print_rows(text *t, const aril_fused *f, const aril_cuda_fused_types *of)
{
    rows r = { .f = f, .of = of };
    bool draws = false;
    for (int i = 0; i < f->n_in; i++) draws = draws || f->is_key[i];
    find_phases(&r);
    find_later(&r);
    print(t, "enum { THREADS = %d, P = %d, W = %d, BLOCK = %d };\n", of->threads, of->chunks,
          of->width, aril_cuda_rows_block(f, of));
    aril_cuda_append_rows(t, draws);
    print_rows_kernel(t, &r);
    print_finish_kernel(t, &r);
}
