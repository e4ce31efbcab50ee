/* Floating-point operations that profiles and summaries report: each row has its own rule, or
 * follows the general one. */
#include "aril/aril.h"
#include "ops/table/apply.h"
#include "ops/table/flops.h"
#include "support/run_op.h"
#include "support/test.h"

#include <string.h>

typedef struct counter {
    aril__meter meter; /* must be first: note() casts its pointer */
    const aril__op *op;
    double flop;
    int runs;
} counter;

static void note(aril__meter *meter, const aril__run *r)
{
    counter *c = (counter *)meter;
    if (r->op != c->op) return;
    c->flop += aril__flops(r);
    c->runs++;
}

/* The operations of an op's first sample, -1 when it does not run exactly once. */
static double flops_of(const char *name, aril_dtype dtype)
{
    static test_sample samples[TEST_SAMPLES];
    ARIL_SCOPE;
    const aril__op *op = aril__op_find(name);
    aril_tensor *in[TEST_INPUTS] = { 0 }, *out[ARIL__MAX_OUT] = { 0 };
    if (!op || test_samples(op, samples) < 1 || !test_sample_inputs(&samples[0], dtype, 0, in))
        return -1;
    counter c = { .meter = { note }, .op = op };
    aril__meter *before = aril__meter_set(&c.meter);
    aril_status s = test_run(&samples[0], in, out);
    aril__meter_set(before);
    return s == ARIL_OK && c.runs == 1 ? c.flop : -1;
}

/* 2 per multiply-add of the shapes in the rows' first samples. */
static const struct {
    const char *op;
    double flop;
} products[] = {
    { "matmul", 48 },           { "linear", 48 },        { "outer_sum", 48 },
    { "conv", 1944 },           { "conv_dgrad", 1944 },  { "conv_wgrad", 1296 },
    { "conv_transpose", 3456 }, { "attention", 360 },    { "attention_grad", 900 },
    { "rnn_seq", 432 },         { "rnn_seq_grad", 240 }, { "lstm_seq", 480 },
    { "lstm_seq_grad", 960 },   { "gru_seq", 360 },      { "gru_seq_grad", 720 },
};

TEST(products_have_a_flop_rule)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const aril__op *op = aril__op_find(products[i].op);
        CHECK_MSG(op && op->flops, "the row of %s has no .flops", products[i].op);
        double got = flops_of(products[i].op, ARIL_F32);
        CHECK_MSG(got == products[i].flop, "%s: %g operations, expected %g", products[i].op, got,
                  products[i].flop);
    }
}

TEST(other_ops_count_their_elements)
{
    static const struct {
        const char *op;
        aril_dtype dtype;
        double flop;
    } other[] = {
        { "add", ARIL_F32, 6 },  { "add", ARIL_F64, 6 },  { "add", ARIL_I64, 0 },
        { "tanh", ARIL_F32, 6 }, { "sum", ARIL_F32, 24 }, { "roll", ARIL_F32, 0 },
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        double got = flops_of(other[i].op, other[i].dtype);
        CHECK_MSG(got == other[i].flop, "%s of %s: %g operations, expected %g", other[i].op,
                  aril_dtype_name(other[i].dtype), got, other[i].flop);
    }
}

TEST(rules_take_every_sample)
{
    static test_sample samples[TEST_SAMPLES];
    for (int i = 0; i < aril__n_ops; i++) {
        const aril__op *op = aril__ops[i];
        for (int k = op->flops ? test_samples(op, samples) - 1 : -1; k >= 0; k--) {
            ARIL_SCOPE;
            aril_tensor *in[TEST_INPUTS] = { 0 }, *out[ARIL__MAX_OUT] = { 0 };
            if (!test_sample_inputs(&samples[k], ARIL_F32, 0, in)) continue;
            counter c = { .meter = { note }, .op = op };
            aril__meter *before = aril__meter_set(&c.meter);
            test_run(&samples[k], in, out);
            aril__meter_set(before);
            CHECK_MSG(c.flop >= 0, "%s: %g operations", samples[k].name, c.flop);
        }
    }
}
