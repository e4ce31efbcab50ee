/* Products of matrices with sizes that are not multiples of 16 bytes: a vocabulary of 50257 words
 * in bf16. cuBLASLt has only slow kernels for them, several times slower than the others, so
 * operands are copied to the workspace with larger sizes, and a result is copied back. Large
 * products are cut along m or n, which bounds the workspace. */
#include "backend/cuda/linalg/blas.cuh"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linalg/pad.cuh"

#include <new>

enum { A, B, C, SIDES };

static const int64_t ROW_BYTES = 128;                  /* sizes become multiples of it */
static const int64_t PIECE_BYTES = (int64_t)256 << 20; /* about the size of a piece */
static const int64_t PIECE_STEP = 256;                 /* pieces are multiples of it */

/* One matrix in memory: rows of `columns` elements that are `ld` apart. */
struct side {
    bool padded, cut;
    bool across;               /* cut: pieces are columns, not rows */
    bool transposed;           /* rows in memory are columns of the matrix */
    int64_t rows, columns, ld; /* of the whole matrix */
    int64_t tall, wide;        /* rows and columns in the workspace, of a piece if it is cut */
    size_t offset;             /* in the workspace */
};

struct aril_cuda_padded {
    aril__product p, large; /* large: m, n and k of the copies */
    int size;               /* of an element */
    bool along_n;           /* how it is cut */
    int64_t extent, piece;
    side of[SIDES];
    bool copies_bias;
    size_t bias_offset;
    aril_cuda_gemm whole, last; /* of all pieces but the last, and of that */
};

/* ---- geometry ---- */

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static side side_of(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    aril_cuda_stored s = aril_cuda_stored_as(rows, columns, row, column);
    side d = {};
    d.transposed = s.transposed;
    d.rows = s.transposed ? columns : rows;
    d.columns = s.transposed ? rows : columns;
    d.ld = s.ld;
    return d;
}

/* Sizes that are contiguous in some matrix are made multiples of 16 bytes, in all matrices that
 * have them: alignment of rows alone is not enough. */
static void choose_sizes(aril_cuda_padded *d)
{
    const aril__product &p = d->p;
    aril__product *q = &d->large;
    const int64_t step = ROW_BYTES / d->size;
    *q = p;
    if (p.m * d->size % 16 && d->of[A].transposed) q->m = round_up(p.m, step);
    if (p.n * d->size % 16) q->n = round_up(p.n, step);
    if (p.k * d->size % 16 && (!d->of[A].transposed || d->of[B].transposed))
        q->k = round_up(p.k, step);
    d->of[A].padded = q->m != p.m || q->k != p.k;
    d->of[B].padded = q->k != p.k || q->n != p.n;
    d->of[C].padded = q->m != p.m || q->n != p.n;
    for (side &s : d->of) s.padded |= s.rows > 1 && s.ld * d->size % 16 != 0;
}

/* Bytes of the copy of a whole matrix; 0 if none is made. */
static int64_t bytes_of(const side &s, int size)
{
    return s.padded ? s.rows * s.columns * size : 0;
}

/* Whether copies take less time than is gained: rates as seen on an H200. */
static bool pays(const aril_cuda_padded *d)
{
    const double slow = 120e12, fast = 600e12, memory = 4e12, launch = 4e-6;
    const aril__product &p = d->p;
    double work = 2.0 * (double)p.m * (double)p.n * (double)p.k, bytes = 0;
    int copies = 0;
    for (const side &s : d->of) {
        bytes += 2.0 * (double)bytes_of(s, d->size);
        copies += s.padded;
    }
    return copies && work / slow - work / fast > bytes / memory + launch * copies;
}

/* Whether the matrix has the dimension along which the product is cut, and how. */
static void cut_side(aril_cuda_padded *d, int i)
{
    side *s = &d->of[i];
    s->cut = i == C || i == (d->along_n ? B : A);
    bool is_columns = i == C ? d->along_n : i == B; /* of the matrix */
    s->across = is_columns != s->transposed;
}

/* Rows and columns of the copy of matrix i, of `piece` rows or columns of the product if it is
 * cut. */
static void measure(aril_cuda_padded *d, int i, int64_t piece)
{
    side *s = &d->of[i];
    aril__product q = d->large;
    (d->along_n ? q.n : q.m) = piece;
    int64_t rows = i == B ? q.k : q.m, columns = i == A ? q.k : q.n;
    s->tall = s->transposed ? columns : rows;
    s->wide = round_up(s->transposed ? rows : columns, ROW_BYTES / d->size);
}

/* Sets the size of pieces, then the copies of matrices or of their pieces in the workspace. Returns
 * its size. */
static size_t place(aril_cuda_padded *d, bool bias)
{
    int64_t each = 1; /* bytes that one more row or column takes */
    size_t bytes = 0;
    d->along_n = bytes_of(d->of[B], d->size) > bytes_of(d->of[A], d->size);
    d->extent = d->along_n ? d->p.n : d->p.m;
    for (int i = 0; i < SIDES; i++) {
        side *s = &d->of[i];
        cut_side(d, i);
        if (s->padded && s->cut) each += (s->across ? s->rows : s->columns) * d->size;
    }
    d->piece = PIECE_BYTES / each / PIECE_STEP * PIECE_STEP;
    if (d->piece < PIECE_STEP) d->piece = PIECE_STEP;
    bool whole = d->piece >= d->extent; /* in one piece, of the size of the copies */
    if (whole) d->piece = d->extent;
    for (int i = 0; i < SIDES; i++) {
        side *s = &d->of[i];
        measure(d, i, whole ? (d->along_n ? d->large.n : d->large.m) : d->piece);
        if (!s->padded) continue;
        s->offset = bytes;
        bytes += (size_t)round_up(s->tall * s->wide * d->size, 256);
    }
    d->copies_bias = bias && d->large.n != d->p.n;
    d->bias_offset = bytes;
    if (d->copies_bias) bytes += (size_t)round_up(d->large.n * d->size, 256);
    return bytes;
}

static void set_strides(const side &s, int64_t *row, int64_t *column)
{
    if (!s.padded) return;
    *row = s.transposed ? 1 : s.wide;
    *column = s.transposed ? s.wide : 1;
}

/* The product of a piece of `size` rows or columns. */
static bool make_gemm(const aril_cuda_padded *d, const aril_cuda_gemm *like, int64_t size,
                      aril_cuda_gemm *g)
{
    bool grows = d->along_n ? d->large.n != d->p.n : d->large.m != d->p.m;
    g->lt = like->lt;
    g->handle = like->handle;
    g->type = like->type;
    g->has_bias = like->has_bias;
    g->count = 1;
    g->p = d->large;
    g->p.ndim = 0;
    g->p.batch = 1;
    (d->along_n ? g->p.n : g->p.m) = grows ? round_up(size, ROW_BYTES / d->size) : size;
    set_strides(d->of[A], &g->p.a_row, &g->p.a_col);
    set_strides(d->of[B], &g->p.b_row, &g->p.b_col);
    set_strides(d->of[C], &g->p.c_row, &g->p.c_col);
    return !aril_cuda_gemm_begin(g) && (!g->has_bias || g->at[0].bias);
}

/* ---- making it ---- */

static bool is_slow_type(aril_dtype type)
{
    return type == ARIL_F16 || type == ARIL_BF16 || (type == ARIL_F32 && aril_cuda_tf32());
}

void aril_cuda_padded_free(aril_cuda_padded *d)
{
    if (!d) return;
    aril_cuda_gemm_end(&d->whole);
    aril_cuda_gemm_end(&d->last);
    delete d;
}

aril_cuda_padded *aril_cuda_padded_new(const aril_cuda_gemm *like, size_t *workspace)
{
    const aril__product &p = like->p;
    if (!is_slow_type(like->type)) return nullptr;
    aril_cuda_padded *d = new (std::nothrow) aril_cuda_padded();
    if (!d) return nullptr;
    pthread_mutex_init(&d->whole.lock, nullptr);
    pthread_mutex_init(&d->last.lock, nullptr);
    d->p = p;
    d->size = aril_cuda_size(like->type);
    d->of[A] = side_of(p.m, p.k, p.a_row, p.a_col);
    d->of[B] = side_of(p.k, p.n, p.b_row, p.b_col);
    d->of[C] = side_of(p.m, p.n, p.c_row, p.c_col);
    choose_sizes(d);
    size_t bytes = 0;
    bool ok = pays(d);
    if (ok) {
        bytes = place(d, like->has_bias);
        int64_t rest = d->extent % d->piece;
        ok = make_gemm(d, like, d->piece, &d->whole) &&
             make_gemm(d, like, rest ? rest : d->piece, &d->last);
    }
    if (!ok) {
        aril_cuda_padded_free(d);
        return nullptr;
    }
    size_t most = d->whole.workspace > d->last.workspace ? d->whole.workspace : d->last.workspace;
    size_t first = (size_t)round_up((int64_t)most, 256); /* what algorithms use */
    for (side &s : d->of) s.offset += first;
    d->bias_offset += first;
    *workspace = first + bytes;
    return d;
}

/* ---- running ---- */

/* The piece of a matrix that starts at `from`, in place. */
static aril_cuda_pitched stored_piece(const aril_cuda_padded *d, const side &s, char *base,
                                      int64_t from)
{
    int64_t at = !s.cut ? 0 : s.across ? from : from * s.ld;
    return { base + at * d->size, s.ld };
}

/* Copies the piece of `size` rows or columns from `from` on into the workspace, where zeros
 * surround it, or back. */
static aril_status copy_piece(aril_run *r, const aril_cuda_padded *d, int i, const char *base,
                              int64_t from, int64_t size)
{
    const side &s = d->of[i];
    int64_t rows = s.cut && !s.across ? size : s.rows;
    int64_t columns = s.cut && s.across ? size : s.columns;
    aril_cuda_pitched stored = stored_piece(d, s, const_cast<char *>(base), from);
    aril_cuda_pitched large = { static_cast<char *>(aril_cuda_host->workspace(r)) + s.offset,
                                s.wide };
    if (i == C) {
        aril_cuda_copy_rows(r, d->size, stored, large, rows, columns, columns);
        return ARIL_OK;
    }
    aril_cuda_copy_rows(r, d->size, large, stored, rows, columns, s.wide);
    if (rows == s.tall) return ARIL_OK;
    return aril_cuda_check(r,
                           cudaMemsetAsync(large.at + rows * s.wide * d->size, 0,
                                           (size_t)((s.tall - rows) * s.wide * d->size),
                                           aril_cuda_stream(r)),
                           "cudaMemsetAsync");
}

/* Where cuBLASLt finds or puts the piece of a matrix. */
static char *address_of(aril_run *r, const aril_cuda_padded *d, int i, const char *base,
                        int64_t from)
{
    const side &s = d->of[i];
    if (s.padded) return static_cast<char *>(aril_cuda_host->workspace(r)) + s.offset;
    return stored_piece(d, s, const_cast<char *>(base), from).at;
}

/* Copies the padded factors that are cut, or those that are not. */
static aril_status copy_factors(aril_run *r, const aril_cuda_padded *d,
                                const aril_cuda_gemm_call &at, bool cut, int64_t from, int64_t size)
{
    const char *base[] = { at.a, at.b };
    aril_status s = ARIL_OK;
    for (int i = A; i <= B && s == ARIL_OK; i++)
        if (d->of[i].padded && d->of[i].cut == cut) s = copy_piece(r, d, i, base[i], from, size);
    return s;
}

/* All pieces of one product. */
static aril_status run_pieces(aril_run *r, aril_cuda_padded *d, const aril_cuda_gemm_call &at,
                              const aril_cuda_gemm_variant *of_whole,
                              const aril_cuda_gemm_variant *of_last)
{
    aril_status s = copy_factors(r, d, at, false, 0, 0);
    for (int64_t from = 0; from < d->extent && s == ARIL_OK; from += d->piece) {
        bool is_last = d->extent - from <= d->piece;
        int64_t size = is_last ? d->extent - from : d->piece;
        s = copy_factors(r, d, at, true, from, size);
        aril_cuda_gemm_call one = { address_of(r, d, A, at.a, from),
                                    address_of(r, d, B, at.b, from), at.bias,
                                    address_of(r, d, C, at.c, from) };
        if (at.bias && d->along_n) one.bias += from * d->size;
        if (s == ARIL_OK)
            s = aril_cuda_gemm_run(r, is_last ? &d->last : &d->whole, is_last ? of_last : of_whole,
                                   one);
        if (s == ARIL_OK && d->of[C].padded) s = copy_piece(r, d, C, at.c, from, size);
    }
    return s;
}

/* Where cuBLASLt finds the bias. */
static const char *place_bias(aril_run *r, const aril_cuda_padded *d, const char *bias)
{
    if (!d->copies_bias) return bias;
    char *to = static_cast<char *>(aril_cuda_host->workspace(r)) + d->bias_offset;
    aril_cuda_copy_rows(r, d->size, { to, d->large.n }, { const_cast<char *>(bias), d->p.n }, 1,
                        d->p.n, d->large.n);
    return to;
}

/* The bits of all addresses that cuBLASLt gets. */
static uintptr_t bits_of(const aril_cuda_padded *d, const aril_cuda_gemm_call &at)
{
    const char *base[SIDES] = { at.a, at.b, at.c };
    const int64_t *steps[SIDES] = { d->p.a_step, d->p.b_step, d->p.c_step };
    uintptr_t bits = d->copies_bias ? 0 : (uintptr_t)at.bias;
    bool pieces = d->piece < d->extent;
    if (at.bias && d->along_n && pieces) bits |= (uintptr_t)(d->piece * d->size);
    for (int i = 0; i < SIDES; i++) {
        if (d->of[i].padded) continue;
        bits |= (uintptr_t)stored_piece(d, d->of[i], const_cast<char *>(base[i]), 0).at;
        if (pieces) bits |= (uintptr_t)stored_piece(d, d->of[i], nullptr, d->piece).at;
        for (int k = 0; k < d->p.ndim; k++) bits |= (uintptr_t)(steps[i][k] * d->size);
    }
    return bits;
}

aril_status aril_cuda_padded_run(aril_run *r, aril_cuda_padded *d, const aril_cuda_gemm_call &at,
                                 bool *done)
{
    uintptr_t bits = bits_of(d, at);
    const aril_cuda_gemm_variant *whole = aril_cuda_gemm_for(&d->whole, bits);
    const aril_cuda_gemm_variant *last = aril_cuda_gemm_for(&d->last, bits);
    bool biased = !at.bias || (whole->bias && last->bias);
    if (!whole->found || !last->found || !biased) return ARIL_OK;
    *done = true;
    const char *bias = at.bias ? place_bias(r, d, at.bias) : nullptr;
    for (int64_t i = 0; i < d->p.batch; i++) {
        int64_t offset[3];
        aril__product_at(&d->p, i, offset);
        aril_cuda_gemm_call one = { at.a + offset[0] * d->size, at.b + offset[1] * d->size, bias,
                                    at.c + offset[2] * d->size };
        aril_status s = run_pieces(r, d, one, whole, last);
        if (s < 0) return s;
    }
    return ARIL_OK;
}
