#include "backend/cpu/linalg/product_int.h"

#include "core/parallel.h"
#include "ops/linalg/matmul.h"
#include "ops/shape/copy.h"

enum { BLOCK = 64, GRAIN = 64 * 1024 };

typedef struct job {
    aril__product p;
    bool add; /* accumulate into c */
} job;

/* Computes a row of results in blocks, all of k for each block, so that B is read along its rows.
 * Signed and unsigned integers wrap around alike. */
static void run_rows(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const aril__product *p = &j->p;
    for (int64_t row = begin; row < end; row++) {
        int64_t at[3], i = row % p->m;
        aril__product_at(p, row / p->m, at);
        const uint64_t *a = (const uint64_t *)(const void *)p->a + at[0] + i * p->a_row;
        uint64_t *c = (uint64_t *)(void *)p->c + at[2] + i * p->c_row;
        for (int64_t first = 0; first < p->n; first += BLOCK) {
            int64_t n = p->n - first < BLOCK ? p->n - first : BLOCK;
            const uint64_t *b = (const uint64_t *)(const void *)p->b + at[1] + first * p->b_col;
            uint64_t sum[BLOCK];
            for (int64_t x = 0; x < n; x++) sum[x] = j->add ? c[(first + x) * p->c_col] : 0;
            for (int64_t k = 0; k < p->k; k++) {
                uint64_t v = a[k * p->a_col];
                const uint64_t *bk = b + k * p->b_row;
                if (p->b_col == 1)
                    for (int64_t x = 0; x < n; x++) sum[x] += v * bk[x];
                else
                    for (int64_t x = 0; x < n; x++) sum[x] += v * bk[x * p->b_col];
            }
            for (int64_t x = 0; x < n; x++) c[(first + x) * p->c_col] = sum[x];
        }
    }
}

aril_status aril__cpu_product_int(aril__run *r)
{
    job j = { .p = aril__product_of(r) };
    if (r->op == &aril__op_linear && r->n_in > 2 && r->in[2]) {
        aril__copy_elements(r->out[0], r->in[2]);
        j.add = true;
    }
    if (r->out[0]->numel == 0) return ARIL_OK;
    int64_t work = j.p.n * (j.p.k > 0 ? j.p.k : 1), grain = work < GRAIN ? GRAIN / work : 1;
    aril__parallel_for(j.p.batch * j.p.m, grain, run_rows, &j);
    return ARIL_OK;
}
