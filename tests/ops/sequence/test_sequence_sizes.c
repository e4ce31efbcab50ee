/* Attention, recurrent layers and Fourier transforms at sizes where kernels cut the work into
 * tiles, on the device of ARIL_TEST_DEVICE: compared with f64 on the CPU. */
#include <aril/aril.h>

#include "support/against.h"
#include "support/test.h"

/* ---- attention ---- */

typedef struct attention_how {
    bool causal, heads_inside; /* heads_inside: [B,L,H,E] in memory */
    int mask;                  /* 0: none, 1: boolean, 2: added */
    int64_t l, s;
} attention_how;

static aril_tensor *mask_for(const attention_how *h, const aril_tensor *q)
{
    if (!h->mask) return NULL;
    ARIL_SCOPE;
    aril_tensor *at = aril_arange(0, (double)(h->l * h->s), 1, ARIL_F32, aril_cpu());
    at = aril_reshape(at, ARIL_SHAPE(h->l, h->s));
    if (h->mask == 1) at = aril_ne_scalar(aril_remainder(at, aril_scalar(5)), 0);
    if (h->mask == 2) at = aril_cast(aril_sin(at), aril_dtype_of(q));
    return aril_escape(aril_to(at, aril_device_of(q)));
}

static aril_tensor *attend(aril_tensor *const *in, const void *how)
{
    const attention_how *h = how;
    aril_tensor *x[3];
    for (int i = 0; i < 3; i++) x[i] = h->heads_inside ? aril_transpose(in[i], 1, 2) : in[i];
    return aril_scaled_dot_product_attention(
        x[0], x[1], x[2], (aril_attention_opts){ .causal = h->causal, .mask = mask_for(h, in[0]) });
}

static void attention_case(attention_how h, int64_t e, int64_t ev, aril_dtype type, double tol)
{
    aril_shape shapes[3] = { ARIL_SHAPE(2, 3, h.l, e), ARIL_SHAPE(2, 3, h.s, e),
                             ARIL_SHAPE(2, 3, h.s, ev) };
    for (int i = 0; i < 3 && h.heads_inside; i++) {
        shapes[i].dim[1] = shapes[i].dim[2];
        shapes[i].dim[2] = 3;
    }
    test_against_f64(attend, 3, shapes, &h, type, ARIL_SHAPE(2, 3, h.l, ev), tol);
}

static void attention_cases(aril_dtype type, double tol)
{
    attention_case((attention_how){ .l = 150, .s = 150, .causal = true }, 64, 64, type, tol);
    attention_case((attention_how){ .l = 150, .s = 200 }, 64, 64, type, tol);
    attention_case((attention_how){ .l = 200, .s = 70, .causal = true }, 32, 16, type, tol);
    attention_case((attention_how){ .l = 70, .s = 130, .mask = 1 }, 64, 64, type, tol);
    attention_case((attention_how){ .l = 70, .s = 130, .mask = 2 }, 128, 128, type, tol);
    attention_case((attention_how){ .l = 130, .s = 130, .causal = true }, 128, 96, type, tol);
    attention_case((attention_how){ .l = 130, .s = 130, .heads_inside = true }, 64, 64, type, tol);
    attention_case((attention_how){ .l = 65, .s = 33 }, 20, 12, type, tol);
    attention_case((attention_how){ .l = 1, .s = 300 }, 64, 64, type, tol);
}

TEST(attention_f64)
{
    attention_cases(ARIL_F64, 1e-12);
}
TEST(attention_f32)
{
    attention_cases(ARIL_F32, 1e-5);
}
TEST(attention_f16)
{
    attention_cases(ARIL_F16, 4e-3);
}
TEST(attention_bf16)
{
    attention_cases(ARIL_BF16, 3e-2);
}

/* ---- recurrent layers ---- */

typedef struct recurrent_how {
    int kind; /* 0: RNN, 1: LSTM, 2: GRU */
    bool lengths;
} recurrent_how;

/* in: x, h0, and the weights of both directions. */
static aril_tensor *recur(aril_tensor *const *in, const void *how)
{
    const recurrent_how *h = how;
    static const int64_t steps[] = { 5, 1, 7, 3, 7 };
    aril_tensor *w[8] = { in[2], in[3], in[4], in[5], in[2], in[3], in[4], in[5] };
    aril_list weights = { 8, w };
    aril_rnn_opts opts = { .bidirectional = true };
    if (h->lengths)
        opts.lengths =
            aril_to(aril_from(steps, ARIL_SHAPE(5), ARIL_I64, aril_cpu()), aril_device_of(in[0]));
    if (h->kind == 0) return aril_rnn(in[0], in[1], weights, opts, NULL);
    if (h->kind == 2) return aril_gru(in[0], in[1], weights, opts, NULL);
    return aril_lstm(in[0], in[1], aril_mul_scalar(in[1], 0.5), weights, opts, NULL, NULL);
}

static void recurrent_cases(int64_t h, aril_dtype type, double tol)
{
    static const int64_t gates[] = { 1, 4, 3 };
    for (int i = 0; i < 6; i++) {
        recurrent_how how = { i / 2, i % 2 };
        int64_t rows = gates[how.kind] * h;
        aril_shape shapes[6] = { ARIL_SHAPE(7, 5, 12), ARIL_SHAPE(2, 5, h), ARIL_SHAPE(rows, 12),
                                 ARIL_SHAPE(rows, h),  ARIL_SHAPE(rows),    ARIL_SHAPE(rows) };
        test_against_f64(recur, 6, shapes, &how, type, ARIL_SHAPE(7, 5, 2 * h), tol);
    }
}

TEST(recurrent_layers_of_few_states)
{
    recurrent_cases(20, ARIL_F32, 1e-4);
    recurrent_cases(20, ARIL_F64, 1e-12);
}
/* W_hh does not fit into a block's memory. */
TEST(recurrent_layers_of_many_states)
{
    recurrent_cases(272, ARIL_F32, 2e-3);
    recurrent_cases(180, ARIL_F64, 1e-11);
}

/* As many sequences as a block handles, one more, and states that a block reads in several turns.
 */
TEST(recurrent_layers_of_many_sequences)
{
    static const int64_t gates[] = { 1, 4, 3 },
                         sizes[][2] = { { 64, 132 }, { 65, 132 }, { 63, 130 }, { 3, 1100 } };
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < 3; kind++) {
            recurrent_how how = { kind, false };
            int64_t n = sizes[i][0], h = sizes[i][1], rows = gates[kind] * h;
            aril_shape shapes[6] = { ARIL_SHAPE(3, n, 12), ARIL_SHAPE(2, n, h),
                                     ARIL_SHAPE(rows, 12), ARIL_SHAPE(rows, h),
                                     ARIL_SHAPE(rows),     ARIL_SHAPE(rows) };
            test_against_f64(recur, 6, shapes, &how, ARIL_F32, ARIL_SHAPE(3, n, 2 * h), 2e-3);
        }
}

/* ---- Fourier transforms ---- */

static aril_tensor *there(aril_tensor *const *in, const void *how)
{
    (void)how;
    return aril_rfft(in[0], (aril_fft_opts){ .norm = ARIL_FFT_ORTHO });
}

static aril_tensor *back(aril_tensor *const *in, const void *how)
{
    return aril_irfft(in[0], (aril_fft_opts){ .n = *(const int64_t *)how });
}

static aril_tensor *full(aril_tensor *const *in, const void *how)
{
    (void)how;
    return aril_ifft(in[0], (aril_fft_opts){ .norm = ARIL_FFT_BACKWARD });
}

TEST(transforms)
{
    static const int64_t sizes[] = { 2, 64, 1000, 1009 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i], half = n / 2 + 1;
        aril_shape line = ARIL_SHAPE(3, n), spectrum = ARIL_SHAPE(3, half, 2);
        aril_shape whole = ARIL_SHAPE(3, n, 2);
        test_against_f64(there, 1, &line, NULL, ARIL_F32, spectrum, 1e-5);
        test_against_f64(back, 1, &spectrum, &n, ARIL_F32, line, 1e-5);
        test_against_f64(full, 1, &whole, NULL, ARIL_F32, whole, 1e-5);
        test_against_f64(full, 1, &whole, NULL, ARIL_F64, whole, 1e-12);
    }
}
