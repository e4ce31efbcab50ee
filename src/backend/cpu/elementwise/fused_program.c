/* From a recipe to the program of a tile: in which form each value is needed, where it is, and
 * which buffers can be used again. */
#include "backend/cpu/elementwise/fused.h"

#include "core/loops.h"
#include "core/parallel.h"
#include "core/stream.h"
#include "ops/shape/copy.h"

#include <stdlib.h>
#include <string.h>

enum {
    VALUES = ARIL_FUSED_STEPS + ARIL_FUSED_INPUTS + ARIL_FUSED_CONSTANTS,
    FORMS = 1 + ARIL__C_COUNT, /* of a value: its dtype, and each compute type */
    PLACES = VALUES * (2 * FORMS + 1) + 2 * ARIL_FUSED_STEPS,
    TILE_STEPS = PLACES + 2 * ARIL_FUSED_OUTPUTS,
    BUFFERS = PLACES,
    PREFETCH_FROM = 2048 * 1024, /* elements: beyond the caches */
    MIN_CHUNK = 8192,            /* elements below which a second thread does not pay */
    MAX_CHUNK = 256 * 1024,      /* so that threads stay balanced */
};

static const uint8_t native_dtype[ARIL__C_COUNT] = { [ARIL__C_F32] = ARIL_F32,
                                                     [ARIL__C_F64] = ARIL_F64,
                                                     [ARIL__C_I64] = ARIL_I64,
                                                     [ARIL__C_U64] = ARIL_U64 };

/* While a program is made. */
typedef struct maker {
    const aril_fused *f;
    const aril__run *r;
    aril__tile_program *p;
    aril__place place[PLACES];
    aril__tile_step step[TILE_STEPS];
    int last[PLACES];                    /* the last step that reads a place */
    uint16_t form[VALUES][FORMS];        /* places of values; 0 is none, k is place k - 1 */
    uint16_t raw[ARIL_FUSED_STEPS];      /* the same of results that are not rounded yet, */
    uint16_t repeated[VALUES][FORMS];    /* of values by rows, for each element, */
    uint16_t firsts[VALUES][FORMS];      /* and of inputs by rows, for each row */
    uint8_t output_of[ARIL_FUSED_STEPS]; /* 1 + the output that a step may be written to as it is */
} maker;

/* ---- places ---- */

static int value_of(int operand)
{
    int i = ARIL_FUSED_INDEX(operand);
    switch (ARIL_FUSED_KIND(operand)) {
    case ARIL_FUSED_STEP(0): return i;
    case ARIL_FUSED_INPUT(0): return ARIL_FUSED_STEPS + i;
    default: return ARIL_FUSED_STEPS + ARIL_FUSED_INPUTS + i;
    }
}

static uint16_t new_place(maker *m, aril__place like)
{
    m->place[m->p->n_places] = like;
    return (uint16_t)m->p->n_places++;
}

static aril__tile_step *new_step(maker *m, int kind, uint16_t to)
{
    aril__tile_step *s = &m->step[m->p->n_steps++];
    memset(s, 0, sizeof *s);
    s->kind = (uint8_t)kind;
    s->to = to;
    s->by_row = to != ARIL__NO_PLACE && m->place[to].by_row;
    return s;
}

static void read_place(maker *m, aril__tile_step *s, uint16_t place)
{
    s->in[s->n_in++] = place;
    if (place != ARIL__NO_PLACE) m->last[place] = (int)(s - m->step);
}

static uint16_t loaded(maker *m, uint16_t from, aril__ctype c)
{
    aril__place like = { .kind = ARIL__PLACE_BUFFER,
                         .dtype = native_dtype[c],
                         .by_row = m->place[from].by_row };
    uint16_t to = new_place(m, like);
    aril__tile_step *s = new_step(m, ARIL__TILE_LOAD, to);
    s->fn.load = aril__dtypes[m->place[from].dtype].load[c];
    read_place(m, s, from);
    return to;
}

static aril__loops loops_of(const aril__tile_program *p, int operand)
{
    aril__loops one = { .ndim = p->ndim, .n = 1 };
    memcpy(one.dim, p->dim, sizeof one.dim);
    memcpy(one.stride[0], p->stride[operand], sizeof one.stride[0]);
    return one;
}

/* An input in a compute type. */
static uint16_t input_place(maker *m, int i, aril__ctype c)
{
    const aril__tile_program *p = m->p;
    aril__loops loops = loops_of(p, i);
    uint8_t dtype = m->r->in[i]->dtype;
    aril__place like = { .kind = ARIL__PLACE_FIXED, .dtype = native_dtype[c], .index = (uint8_t)i };
    bool outer = false; /* varies along an outer dimension */
    for (int d = 0; d < p->ndim - 1; d++) outer = outer || p->stride[i][d] != 0;
    if (aril__loops_constant(&loops, 0)) {
        like.fill = ARIL__FILL_ONE;
        return new_place(m, like);
    }
    if (aril__loops_linear(&loops, 0) && aril__dtypes[dtype].bits >= 8) {
        like.kind = ARIL__PLACE_INPUT;
        like.dtype = dtype;
        uint16_t place = new_place(m, like);
        return dtype == native_dtype[c] ? place : loaded(m, place, c);
    }
    if (!outer && p->inner <= p->tile) {
        like.fill = ARIL__FILL_ROW;
        return new_place(m, like);
    }
    like.kind = ARIL__PLACE_BUFFER;
    uint16_t to = new_place(m, like);
    aril__tile_step *s = new_step(m, ARIL__TILE_GATHER, to);
    s->index = (uint8_t)i;
    s->ctype = (uint8_t)c;
    return to;
}

static uint16_t in_dtype(maker *m, int s);

/* The result of a step in a compute type: rounded there, or converted from its dtype. */
static uint16_t step_place(maker *m, int s, aril__ctype c)
{
    const aril_fused_step *step = &m->f->step[s];
    aril__store_fn *round = aril__tile_round((aril_dtype)step->dtype, c);
    if (!m->raw[s] || m->form[s][0] || !round || aril__dtypes[step->type].ctype != c)
        return loaded(m, in_dtype(m, s), c);
    aril__place like = { .kind = ARIL__PLACE_BUFFER,
                         .dtype = native_dtype[c],
                         .by_row = step->by_row };
    uint16_t to = new_place(m, like);
    aril__tile_step *t = new_step(m, ARIL__TILE_STORE, to);
    t->fn.store = round;
    read_place(m, t, (uint16_t)(m->raw[s] - 1));
    return to;
}

/* The place of an operand in a compute type; steps that make one are added. */
static uint16_t in_ctype(maker *m, int operand, aril__ctype c)
{
    if (operand == ARIL_FUSED_NONE) return ARIL__NO_PLACE;
    uint16_t *form = m->form[value_of(operand)];
    if (form[1 + c]) return (uint16_t)(form[1 + c] - 1);
    uint16_t place;
    int i = ARIL_FUSED_INDEX(operand);
    switch (ARIL_FUSED_KIND(operand)) {
    case ARIL_FUSED_INPUT(0): place = input_place(m, i, c); break;
    case ARIL_FUSED_CONSTANT(0):
        place = new_place(m, (aril__place){ .kind = ARIL__PLACE_FIXED,
                                            .dtype = native_dtype[c],
                                            .index = (uint8_t)i,
                                            .fill = ARIL__FILL_NUMBER });
        break;
    default: place = step_place(m, i, c); break;
    }
    form[1 + c] = (uint16_t)(place + 1);
    return place;
}

/* The same of a value by rows for a step of elements, which gets it for each of them; or of an
 * input by rows for a step by rows. */
static uint16_t operand_place(maker *m, int operand, aril__ctype c, bool by_row)
{
    uint16_t from = in_ctype(m, operand, c);
    if (from == ARIL__NO_PLACE || m->place[from].by_row == by_row ||
        (m->place[from].kind == ARIL__PLACE_FIXED && m->place[from].fill != ARIL__FILL_ROW))
        return from;
    uint16_t *done = &(by_row ? m->firsts : m->repeated)[value_of(operand)][1 + c];
    if (*done) return (uint16_t)(*done - 1);
    aril__place like = { .kind = ARIL__PLACE_BUFFER, .dtype = native_dtype[c], .by_row = by_row };
    uint16_t to = new_place(m, like);
    read_place(m, new_step(m, by_row ? ARIL__TILE_FIRST : ARIL__TILE_REPEAT, to), from);
    m->step[m->p->n_steps - 1].ctype = (uint8_t)c;
    *done = (uint16_t)(to + 1);
    return to;
}

/* ---- the steps of the recipe ---- */

/* The place for the final form of a step: the memory of an output, or a buffer. */
static aril__place final_place(const maker *m, int s)
{
    int output = m->output_of[s];
    return (aril__place){ .kind = output ? ARIL__PLACE_OUTPUT : ARIL__PLACE_BUFFER,
                          .dtype = m->f->step[s].dtype,
                          .index = (uint8_t)(output ? output - 1 : 0),
                          .by_row = m->f->step[s].by_row };
}

/* Rounds a result in compute type c to the dtype of step s. */
static void add_store(maker *m, int s, uint16_t from, aril__ctype c)
{
    uint16_t to = new_place(m, final_place(m, s));
    aril__tile_step *store = new_step(m, ARIL__TILE_STORE, to);
    store->fn.store = aril__dtypes[m->f->step[s].dtype].store[c];
    read_place(m, store, from);
    m->form[s][0] = (uint16_t)(to + 1);
}

/* The place of a result in its dtype. */
static uint16_t in_dtype(maker *m, int s)
{
    if (!m->form[s][0])
        add_store(m, s, (uint16_t)(m->raw[s] - 1), aril__dtypes[m->f->step[s].type].ctype);
    return (uint16_t)(m->form[s][0] - 1);
}

/* Whether a result is an output as it is. */
static bool is_output(const maker *m, int s)
{
    for (int k = 0; k < m->f->n_out; k++)
        if (m->f->out[k].step == s && m->f->out[k].reduce == ARIL_FUSED_EACH) return true;
    return false;
}

/* Notes that the final form of a step is that of a compute type. */
static void note_native(maker *m, int s)
{
    for (int c = 0; c < ARIL__C_COUNT; c++)
        if (native_dtype[c] == m->f->step[s].dtype) m->form[s][1 + c] = m->form[s][0];
}

static void add_cast(maker *m, int s)
{
    const aril_fused_step *step = &m->f->step[s];
    aril__ctype c = aril__dtypes[step->type].ctype;
    add_store(m, s, operand_place(m, step->in[0], c, step->by_row), c);
    note_native(m, s);
}

/* The draws of a step, for each element. */
static uint16_t drawn(maker *m, int key)
{
    aril__place like = { .kind = ARIL__PLACE_BUFFER, .dtype = ARIL_F32 };
    uint16_t to = new_place(m, like);
    new_step(m, ARIL__TILE_DRAW, to)->index = (uint8_t)ARIL_FUSED_INDEX(key);
    return to;
}

static bool is_key(const maker *m, int operand)
{
    return operand != ARIL_FUSED_NONE && ARIL_FUSED_KIND(operand) == ARIL_FUSED_INPUT(0) &&
           m->f->is_key[ARIL_FUSED_INDEX(operand)];
}

static void add_kernel(maker *m, int s, const aril__op *op)
{
    const aril_fused_step *step = &m->f->step[s];
    aril__ctype c = aril__dtypes[step->type].ctype;
    uint16_t in[ARIL_FUSED_OPERANDS];
    for (int k = 0; k < step->n_in; k++)
        in[k] = is_key(m, step->in[k])
                    ? drawn(m, step->in[k])
                    : operand_place(m, step->in[k], c, step->by_row && !step->reduce);
    uint8_t gives = step->compares ? ARIL_BOOL : native_dtype[c];
    bool final = gives == step->dtype;
    aril__place like = { .kind = ARIL__PLACE_BUFFER, .dtype = gives, .by_row = step->by_row };
    uint16_t to = new_place(m, final ? final_place(m, s) : like);
    int kind = step->reduce ? ARIL__TILE_ROWS : op->formula ? ARIL__TILE_KERNEL : ARIL__TILE_DROP;
    aril__tile_step *k = new_step(m, kind, to);
    if (kind == ARIL__TILE_KERNEL) k->fn.kernel = aril__ew_kernel(op->formula->number, c);
    k->index = step->reduce;
    k->ctype = (uint8_t)c;
    k->step = (uint8_t)s;
    memcpy(k->p, step->p, sizeof k->p);
    for (int i = 0; i < step->n_in; i++) read_place(m, k, in[i]);
    if (final)
        m->form[s][0] = (uint16_t)(to + 1);
    else
        m->raw[s] = (uint16_t)(to + 1);
    if (is_output(m, s)) in_dtype(m, s);
    if (final) note_native(m, s);
}

/* ---- outputs ---- */

static bool is_linear_output(const maker *m, int k)
{
    aril__loops loops = loops_of(m->p, m->p->n_in + k);
    return m->f->out[k].reduce == ARIL_FUSED_EACH && aril__loops_linear(&loops, 0);
}

/* Lets steps write to outputs directly. Result 0 may be in the memory of an input: then it has to
 * be written after all inputs are read. */
static void choose_outputs(maker *m)
{
    const aril_fused *f = m->f;
    int reads = 0; /* the last step that reads an input */
    for (int s = 0; s < f->n_steps; s++)
        for (int k = 0; k < f->step[s].n_in; k++)
            if (ARIL_FUSED_KIND(f->step[s].in[k]) == ARIL_FUSED_INPUT(0) &&
                f->step[s].in[k] != ARIL_FUSED_NONE)
                reads = s;
    for (int k = 0; k < f->n_out && !m->p->streams; k++) {
        int s = f->out[k].step;
        if (!is_linear_output(m, k) || (k == 0 && s < reads) || m->output_of[s]) continue;
        m->output_of[s] = (uint8_t)(k + 1);
    }
}

static void add_output(maker *m, int k)
{
    const aril_fused_output *o = &m->f->out[k];
    aril__ctype c = aril__dtypes[o->dtype].ctype;
    int kind = o->reduce == ARIL_FUSED_EACH_ROW ? ARIL__TILE_SET
               : o->reduce                      ? ARIL__TILE_REDUCE
               : is_linear_output(m, k)         ? ARIL__TILE_WRITE
                                                : ARIL__TILE_SPREAD;
    if (kind == ARIL__TILE_WRITE && m->output_of[o->step] == k + 1) return;
    uint16_t from =
        kind == ARIL__TILE_WRITE ? in_dtype(m, o->step) : in_ctype(m, ARIL_FUSED_STEP(o->step), c);
    aril__tile_step *s = new_step(m, kind, ARIL__NO_PLACE);
    s->index = (uint8_t)k;
    s->ctype = (uint8_t)c;
    read_place(m, s, from);
}

/* ---- buffers ---- */

typedef struct buffers {
    uint8_t size[BUFFERS]; /* bytes of an element */
    bool taken[BUFFERS];
    int n;
} buffers;

static int take_buffer(buffers *b, uint8_t size)
{
    int at = 0;
    while (at < b->n && (b->taken[at] || b->size[at] != size)) at++;
    if (at == b->n) b->size[b->n++] = size;
    b->taken[at] = true;
    return at;
}

static uint8_t element_size(const aril__place *p)
{
    return (uint8_t)(aril__dtypes[p->dtype].bits / 8);
}

/* Frees the buffers of operands that step i is the last to read: those with elements of that size,
 * or all (0). */
static void free_buffers(const maker *m, buffers *b, int i, uint8_t size)
{
    const aril__tile_step *s = &m->step[i];
    for (int k = 0; k < s->n_in; k++) {
        if (s->in[k] == ARIL__NO_PLACE || m->last[s->in[k]] != i) continue;
        const aril__place *from = &m->place[s->in[k]];
        if (from->kind == ARIL__PLACE_BUFFER && (!size || element_size(from) == size))
            b->taken[from->offset] = false;
    }
}

/* Gives each place a buffer; one whose value is not needed any more is used again, by a kernel also
 * for its own result. place.offset is the number of the buffer, until place_buffers. */
static void assign_buffers(maker *m, buffers *b)
{
    for (int i = 0; i < m->p->n_places; i++)
        if (m->place[i].kind == ARIL__PLACE_FIXED)
            m->place[i].offset = (uint32_t)take_buffer(b, element_size(&m->place[i]));
    for (int i = 0; i < m->p->n_steps; i++) {
        const aril__tile_step *s = &m->step[i];
        aril__place *to = s->to == ARIL__NO_PLACE ? NULL : &m->place[s->to];
        bool needs = to && to->kind == ARIL__PLACE_BUFFER;
        bool in_place = needs && s->kind == ARIL__TILE_KERNEL;
        if (in_place) free_buffers(m, b, i, element_size(to));
        if (needs) to->offset = (uint32_t)take_buffer(b, element_size(to));
        free_buffers(m, b, i, 0);
        if (needs) b->taken[to->offset] = m->last[s->to] > i;
    }
}

/* Bytes of buffer k: rows that are repeated may begin anywhere in their first copy. */
static size_t buffer_bytes(const maker *m, const buffers *b, int k)
{
    int64_t elements = m->p->tile;
    for (int i = 0; i < m->p->n_places; i++)
        if (m->place[i].kind == ARIL__PLACE_FIXED && m->place[i].fill == ARIL__FILL_ROW &&
            m->place[i].offset == (uint32_t)k)
            elements += m->p->inner;
    return ((size_t)elements * b->size[k] + 63) / 64 * 64;
}

static void place_buffers(maker *m)
{
    buffers b = { .n = 0 };
    uint32_t offset[BUFFERS];
    assign_buffers(m, &b);
    size_t at = 0;
    for (int k = 0; k < b.n; k++) {
        offset[k] = (uint32_t)at;
        at += buffer_bytes(m, &b, k);
    }
    for (int i = 0; i < m->p->n_places; i++)
        if (m->place[i].kind <= ARIL__PLACE_FIXED) m->place[i].offset = offset[m->place[i].offset];
    m->p->buffers = at;
}

/* ---- the loop ---- */

/* Strides of accumulators: those of a contiguous result, 0 along reduced axes. */
static void accumulator_strides(const aril_fused *f, const aril_fused_output *o, int64_t *stride)
{
    int64_t step = 1;
    for (int d = f->ndim - 1; d >= 0; d--) {
        bool varies = !(o->axes >> d & 1) && f->dim[d] > 1;
        stride[d] = varies ? step : 0;
        if (varies) step *= f->dim[d];
    }
}

/* The operand whose order in memory the loop follows: a result, or an input of its shape. */
static int leader(const aril_fused *f, const aril__run *r, int64_t n)
{
    for (int k = 0; k < f->n_out; k++)
        if (f->out[k].reduce == ARIL_FUSED_EACH) return f->n_in + k;
    for (int i = 0; i < f->n_in; i++)
        if (r->in[i]->numel == n) return i;
    return 0;
}

/* Strides of a result by rows: 0 along rows. */
static void row_strides(const aril_fused *f, const aril_tensor *t, int64_t *stride)
{
    for (int d = 0; d < f->ndim; d++)
        stride[d] = d < f->ndim - 1 && d < t->ndim && f->dim[d] > 1 ? t->stride[d] : 0;
}

static void set_loop(aril__tile_program *p, const aril__run *r, const aril_fused *f)
{
    p->n = 1;
    p->rows = f->rows;
    for (int d = 0; d < f->ndim; d++) p->n *= p->dim[d] = f->dim[d];
    for (int i = 0; i < f->n_in; i++)
        if (!f->is_key[i]) aril__broadcast_strides(f->ndim, f->dim, r->in[i], p->stride[i]);
    for (int k = 0; k < f->n_out; k++) {
        int64_t *stride = p->stride[f->n_in + k];
        if (f->out[k].reduce == ARIL_FUSED_EACH_ROW)
            row_strides(f, r->out[k], stride);
        else if (f->out[k].reduce)
            accumulator_strides(f, &f->out[k], stride);
        else
            aril__broadcast_strides(f->ndim, f->dim, r->out[k], stride);
    }
    p->ndim = f->ndim;
    if (!f->rows) /* those are taken in order */
        p->ndim =
            aril__strides_merge(f->ndim, p->dim, f->n_in + f->n_out, p->stride, leader(f, r, p->n));
    p->inner = p->ndim ? p->dim[p->ndim - 1] : 1;
}

static void set_reduces(aril__tile_program *p, const aril__run *r, const aril_fused *f)
{
    for (int k = 0; k < f->n_out; k++) {
        if (!f->out[k].reduce || f->out[k].reduce == ARIL_FUSED_EACH_ROW) continue;
        int64_t n = r->out[k]->numel;
        p->reduce[k] = (aril__tile_reduce){ .reduce = f->out[k].reduce,
                                            .wide = f->out[k].dtype == ARIL_F64,
                                            .offset = p->accumulators,
                                            .n = n,
                                            .per = n ? p->n / n : 0 };
        p->accumulators += (size_t)n;
        p->n_reduces++;
    }
}

/* Chunks of the parallel loop. A reduction has accumulators for each chunk, so there are few. */
static void set_grain(aril__tile_program *p)
{
    int64_t pieces = aril__parallel_pieces(p->n, MIN_CHUNK);
    p->grain = p->n ? p->n : 1;
    if (pieces <= 1) return;
    if (p->n_reduces == 0) pieces *= 2;
    p->grain = ((p->n + pieces - 1) / pieces + 255) & ~(int64_t)255;
    if (p->grain > MAX_CHUNK && p->n_reduces == 0) p->grain = MAX_CHUNK;
    if (p->rows) p->grain = (p->grain + p->inner - 1) / p->inner * p->inner;
}

/* Whether outputs are better written past the caches. */
static bool is_streamed(const aril__run *r, const aril_fused *f)
{
    if (f->rows) return false;
    const aril__recipe *recipe = aril__fused_recipe(r->attrs);
    for (int s = 0; s < f->n_steps; s++)
        if (recipe->step[s].op->formula && !aril__formula_is_quick(recipe->step[s].op))
            return false;
    for (int k = 0; k < f->n_out; k++) {
        const aril_tensor *t = r->out[k];
        if (aril__dtype_bytes((aril_dtype)t->dtype, t->numel) >= ARIL__STREAM_COPIES_FROM)
            return true;
    }
    return false;
}

/* Elements of a tile: a buffer has 4 KB, so that several stay in L1; or it has a whole row. */
static int64_t choose_tile(const aril__tile_program *p, const aril_fused *f)
{
    bool wide = false; /* some step computes in 64 bits */
    for (int s = 0; s < f->n_steps; s++)
        wide = wide || aril__dtypes[f->step[s].type].ctype != ARIL__C_F32;
    int64_t tile = ARIL__TILE_BYTES / (wide ? 8 : 4);
    if (!p->rows || p->inner == 0) return tile;
    return tile < p->inner ? p->inner : tile / p->inner * p->inner;
}

/* Lists the inputs that are read where they are. */
static void list_direct(maker *m)
{
    aril__tile_program *p = m->p;
    for (int i = 0; i < p->n_places && p->n_direct < ARIL_FUSED_INPUTS; i++) {
        const aril__place *place = &m->place[i];
        if (place->kind != ARIL__PLACE_INPUT) continue;
        uint32_t bytes = (uint32_t)p->tile * element_size(place);
        uint32_t part = (bytes / (uint32_t)p->n_steps + 63) / 64 * 64;
        p->direct[p->n_direct++] = (aril__direct){ (uint16_t)i, bytes, part };
    }
}

/* ---- the program ---- */

static aril__tile_program *packed(const maker *m)
{
    size_t places = (size_t)m->p->n_places * sizeof *m->place;
    size_t steps = (size_t)m->p->n_steps * sizeof *m->step;
    aril__tile_program *p = aril__malloc(sizeof *p + steps + places);
    if (!p) return NULL;
    *p = *m->p;
    p->step = (aril__tile_step *)(void *)(p + 1);
    p->place = (aril__place *)(void *)((char *)(p + 1) + steps);
    memcpy(p->step, m->step, steps);
    memcpy(p->place, m->place, places);
    return p;
}

aril__tile_program *aril__tile_program_new(const aril__run *r, const aril_fused *f)
{
    const aril__recipe *recipe = aril__fused_recipe(r->attrs);
    aril__tile_program program = { .n_in = f->n_in, .n_out = f->n_out };
    maker *m = aril__calloc(sizeof *m);
    if (!m) return NULL;
    m->f = f;
    m->r = r;
    m->p = &program;
    for (int i = 0; i < PLACES; i++) m->last[i] = -1;
    memcpy(program.constant, f->constant, sizeof program.constant);
    set_loop(&program, r, f);
    set_reduces(&program, r, f);
    set_grain(&program);
    program.tile = choose_tile(&program, f);
    program.streams = is_streamed(r, f);
    program.prefetches = program.n >= PREFETCH_FROM;
    choose_outputs(m);
    for (int s = 0; s < f->n_steps; s++) {
        program.name[s] = recipe->step[s].op->name;
        if (recipe->step[s].op == &aril__op_cast)
            add_cast(m, s);
        else
            add_kernel(m, s, recipe->step[s].op);
    }
    for (int k = 0; k < f->n_out; k++) add_output(m, k);
    place_buffers(m);
    list_direct(m);
    aril__tile_program *p = packed(m);
    free(m);
    return p;
}

uint32_t aril__tile_overlay(const aril__tile_program *p, const aril__run *r)
{
    const aril_tensor *out = r->out[0];
    uint32_t mask = 0;
    for (int i = 0; i < p->n_in; i++) {
        const aril_tensor *in = r->in[i];
        if (in->dtype == out->dtype && aril__same_dims(in->ndim, in->dim, out->ndim, out->dim) &&
            aril__same_dims(in->ndim, in->stride, out->ndim, out->stride))
            mask |= 1u << i;
    }
    return mask;
}
