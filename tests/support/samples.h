/* Inputs for every op of the table: from its samples (src/ops/table/sample.h), or, for elementwise
 * ops, from the domain named in its row. */
#ifndef ARIL_TESTS_SUPPORT_SAMPLES_H
#define ARIL_TESTS_SUPPORT_SAMPLES_H

#include "ops/elementwise/elementwise.h"
#include "ops/table/sample.h"

/* The results of an op: its outputs, then the inputs of a list that it changed, then NULL. */
enum { TEST_INPUTS = 20, TEST_SAMPLES = 64, TEST_RESULTS = ARIL__MAX_OUT + TEST_INPUTS + 1 };

typedef struct test_sample {
    const aril__op *op;
    int n_in, index;
    char word[TEST_INPUTS][32];
    const void *attrs;
    struct ew_attrs params; /* elementwise ops: what attrs points to */
    unsigned flags;
    double tol;
    char name[160]; /* "sum[2] ([2,3,4])" */
} test_sample;

/* Reads the samples of an op; failing to is a test failure. Returns how many. */
int test_samples(const aril__op *op, test_sample samples[TEST_SAMPLES]);

/* Builds the inputs in `dtype`, always with the same values. Where batch > 0, it replaces the first
 * size of batch inputs. False when the sample makes no sense in that dtype. */
bool test_sample_inputs(const test_sample *s, aril_dtype dtype, int64_t batch, aril_tensor **in);

/* Whether input i has the dtype under test (rather than being indices, bool, a key); and whether
 * its gradient should be checked. */
bool test_sample_typed(const test_sample *s, int i);
bool test_sample_wants(const test_sample *s, int i);

/* Whether the first size of input i is the batch size. */
bool test_sample_batched(const test_sample *s, int i);

/* Calls fn for each sample of each op; the environment variable ARIL_TEST_OP selects a single op,
 * ARIL_TEST_PART=3/16 ops 3, 19, 35 ... of the table, for several processes, and
 * ARIL_TEST_SAMPLES=2 the first two samples of each. */
void test_each_sample(void (*fn)(const test_sample *s));

/* Records which sample is being tested, so that a crash can name it. */
void test_working_on(const char *what, const test_sample *s);

/* A reproducible random number: 0 <= x < 1. */
double test_random(uint64_t *state);

#endif
