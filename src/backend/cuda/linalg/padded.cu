/* Products of matrices whose rows do not start at multiples of 16 bytes: a vocabulary of 50257
 * words in bf16. cuBLASLt has only slow kernels for them, several times slower than the others, so
 * operands are copied to the workspace with rows that are aligned, and a result is copied back.
 * Large products are cut along m or n, which bounds the workspace. */
#include "backend/cuda/linalg/blas.cuh"

#include "backend/cuda/dtype.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/linalg/pad.cuh"

#include <new>

enum { A, B, C, SIDES };

static const int64_t ROW_BYTES = 128;                  /* rows start at multiples of it */
static const int64_t PIECE_BYTES = (int64_t)256 << 20; /* about the size of a piece */
static const int64_t PIECE_STEP = 256;                 /* pieces are multiples of it */

/* One matrix in memory: rows of `columns` elements that are `ld` apart. */
struct side {
    bool padded, cut;
    bool across;               /* cut: pieces are columns, not rows */
    bool transposed;           /* rows in memory are columns of the matrix */
    int64_t rows, columns, ld; /* of the whole matrix */
    int64_t wide;              /* ld in the workspace */
    size_t offset;             /* in the workspace */
};

struct aril_cuda_padded {
    aril__product p;
    int size;     /* of an element */
    bool along_n; /* how it is cut */
    int64_t extent, piece;
    side of[SIDES];
    aril_cuda_gemm whole, last; /* of all pieces but the last, and of that */
};

/* ---- geometry ---- */

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static side side_of(int64_t rows, int64_t columns, int64_t row, int64_t column, int size)
{
    aril_cuda_stored s = aril_cuda_stored_as(rows, columns, row, column);
    side d = {};
    d.transposed = s.transposed;
    d.rows = s.transposed ? columns : rows;
    d.columns = s.transposed ? rows : columns;
    d.ld = s.ld;
    d.padded = d.rows > 1 && d.ld * size % 16 != 0;
    return d;
}

/* Bytes of the copy of a whole matrix; 0 if none is made. */
static int64_t bytes_of(const side &s, int size)
{
    return s.padded ? s.rows * s.columns * size : 0;
}

/* Whether copies take less time than is gained: rates as seen on an H200. */
static bool pays(const aril_cuda_padded *d)
{
    const double slow = 120e12, fast = 600e12, memory = 3e12, launch = 5e-6;
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

/* Sets the size of pieces, then the copies of matrices or of their pieces in the workspace, from
 * *workspace on. */
static void place(aril_cuda_padded *d, size_t *workspace)
{
    const int64_t step = ROW_BYTES / d->size;
    int64_t each = 1; /* bytes that one more row or column takes */
    d->along_n = bytes_of(d->of[B], d->size) > bytes_of(d->of[A], d->size);
    d->extent = d->along_n ? d->p.n : d->p.m;
    for (int i = 0; i < SIDES; i++) {
        side *s = &d->of[i];
        cut_side(d, i);
        if (s->padded && s->cut) each += (s->across ? s->rows : s->columns) * d->size;
    }
    d->piece = PIECE_BYTES / each / PIECE_STEP * PIECE_STEP;
    if (d->piece < PIECE_STEP) d->piece = PIECE_STEP;
    if (d->piece > d->extent) d->piece = d->extent;
    for (side &s : d->of) {
        int64_t rows = s.cut && !s.across ? d->piece : s.rows;
        if (!s.padded) continue;
        s.wide = round_up(s.cut && s.across ? d->piece : s.columns, step);
        s.offset = *workspace;
        *workspace += (size_t)round_up(rows * s.wide * d->size, 256);
    }
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
    g->lt = like->lt;
    g->handle = like->handle;
    g->type = like->type;
    g->has_bias = like->has_bias;
    g->count = 1;
    g->p = d->p;
    g->p.ndim = 0;
    g->p.batch = 1;
    (d->along_n ? g->p.n : g->p.m) = size;
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
    d->of[A] = side_of(p.m, p.k, p.a_row, p.a_col, d->size);
    d->of[B] = side_of(p.k, p.n, p.b_row, p.b_col, d->size);
    d->of[C] = side_of(p.m, p.n, p.c_row, p.c_col, d->size);
    size_t bytes = 0;
    bool ok = pays(d);
    if (ok) {
        place(d, &bytes);
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

/* Copies the piece of `size` rows or columns from `from` on into the workspace, or back. */
static void copy_piece(aril_run *r, const aril_cuda_padded *d, int i, const char *base,
                       int64_t from, int64_t size)
{
    const side &s = d->of[i];
    char *workspace = static_cast<char *>(aril_cuda_host->workspace(r));
    int64_t rows = s.cut && !s.across ? size : s.rows;
    int64_t columns = s.cut && s.across ? size : s.columns;
    aril_cuda_pitched stored = stored_piece(d, s, const_cast<char *>(base), from);
    aril_cuda_pitched aligned = { workspace + s.offset, s.wide };
    if (i == C)
        aril_cuda_copy_rows(r, d->size, stored, aligned, rows, columns, columns);
    else
        aril_cuda_copy_rows(r, d->size, aligned, stored, rows, columns, columns);
}

/* Where cuBLASLt finds or puts the piece of a matrix. */
static char *address_of(aril_run *r, const aril_cuda_padded *d, int i, const char *base,
                        int64_t from)
{
    const side &s = d->of[i];
    if (s.padded) return static_cast<char *>(aril_cuda_host->workspace(r)) + s.offset;
    return stored_piece(d, s, const_cast<char *>(base), from).at;
}

/* All pieces of one product. */
static aril_status run_pieces(aril_run *r, aril_cuda_padded *d, const aril_cuda_gemm_call &at,
                              const aril_cuda_gemm_variant *of_whole,
                              const aril_cuda_gemm_variant *of_last)
{
    const char *base[SIDES] = { at.a, at.b, at.c };
    for (int i = A; i <= B; i++)
        if (d->of[i].padded && !d->of[i].cut) copy_piece(r, d, i, base[i], 0, 0);
    for (int64_t from = 0; from < d->extent; from += d->piece) {
        bool is_last = d->extent - from <= d->piece;
        int64_t size = is_last ? d->extent - from : d->piece;
        for (int i = A; i <= B; i++)
            if (d->of[i].padded && d->of[i].cut) copy_piece(r, d, i, base[i], from, size);
        aril_cuda_gemm_call one = { address_of(r, d, A, at.a, from),
                                    address_of(r, d, B, at.b, from), at.bias,
                                    address_of(r, d, C, at.c, from) };
        if (at.bias && d->along_n) one.bias += from * d->size;
        aril_status s = aril_cuda_gemm_run(r, is_last ? &d->last : &d->whole,
                                           is_last ? of_last : of_whole, one);
        if (s < 0) return s;
        if (d->of[C].padded) copy_piece(r, d, C, at.c, from, size);
    }
    return ARIL_OK;
}

/* The bits of all addresses that cuBLASLt gets. */
static uintptr_t bits_of(const aril_cuda_padded *d, const aril_cuda_gemm_call &at)
{
    const char *base[SIDES] = { at.a, at.b, at.c };
    const int64_t *steps[SIDES] = { d->p.a_step, d->p.b_step, d->p.c_step };
    uintptr_t bits = (uintptr_t)at.bias;
    if (at.bias && d->along_n) bits |= (uintptr_t)(d->piece * d->size);
    for (int i = 0; i < SIDES; i++) {
        if (d->of[i].padded) continue;
        bits |= (uintptr_t)stored_piece(d, d->of[i], const_cast<char *>(base[i]), 0).at;
        bits |= (uintptr_t)stored_piece(d, d->of[i], nullptr, d->piece).at;
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
    for (int64_t i = 0; i < d->p.batch; i++) {
        int64_t offset[3];
        aril__product_at(&d->p, i, offset);
        aril_cuda_gemm_call one = { at.a + offset[0] * d->size, at.b + offset[1] * d->size, at.bias,
                                    at.c + offset[2] * d->size };
        aril_status s = run_pieces(r, d, one, whole, last);
        if (s < 0) return s;
    }
    return ARIL_OK;
}
