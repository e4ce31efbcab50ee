/* The parsed file bench/cases. Its syntax is described at its top; cases.py reads the same file. */
#ifndef ARIL_BENCH_CASES_H
#define ARIL_BENCH_CASES_H

#include <aril/aril.h>

enum { BENCH_NAME = 40, BENCH_SLOTS = 48, BENCH_INPUTS = 3, BENCH_NUMBERS = 2 };
enum { BENCH_NETS = 64, BENCH_CASES = 256 };

typedef enum bench_layer_type {
    BENCH_CONV,
    BENCH_LINEAR,
    BENCH_BN,
    BENCH_RELU,
    BENCH_TANH,
    BENCH_DROPOUT,
    BENCH_FLATTEN,
    BENCH_AVGPOOL,
    BENCH_MAXPOOL,
    BENCH_RNN,
    BENCH_RNN_LOOP,
    BENCH_LSTM,
    BENCH_RESIDUAL,
    BENCH_SHORTCUT,
    BENCH_END,
} bench_layer_type;

typedef struct bench_layer {
    bench_layer_type type;
    double number[BENCH_NUMBERS]; /* in the order in the file */
    int64_t stride, pad;          /* stride 0: not given */
    bool nobias;
} bench_layer;

typedef struct bench_net {
    char name[BENCH_NAME];
    int n;
    bench_layer *layer; /* blocks are expanded */
} bench_net;

/* Operations of a case: name, number of inputs, and how many numbers may follow. */
#define BENCH_OPS(X)       \
    X(add, 2, 0)           \
    X(sub, 2, 0)           \
    X(mul, 2, 0)           \
    X(muladd, 3, 0)        \
    X(relu, 1, 0)          \
    X(exp, 1, 0)           \
    X(tanh, 1, 0)          \
    X(sigmoid, 1, 0)       \
    X(gelu, 1, 0)          \
    X(square, 1, 0)        \
    X(sum, 1, 1)           \
    X(mean, 1, 0)          \
    X(softmax, 1, 0)       \
    X(layer_norm, 3, 0)    \
    X(dropout, 1, 1)       \
    X(transpose, 1, 0)     \
    X(cat, 2, 1)           \
    X(matmul, 2, 0)        \
    X(matmul_nt, 2, 0)     \
    X(matmul_tn, 2, 0)     \
    X(mse, 2, 0)           \
    X(cross_entropy, 2, 0) \
    X(token_loss, 2, 0)

typedef enum bench_op {
#define BENCH_OP(name, inputs, numbers) BENCH_OP_##name,
    BENCH_OPS(BENCH_OP)
#undef BENCH_OP
        BENCH_OP_net, /* takes the name of a net, or of the zoo, before its input */
} bench_op;

typedef struct bench_call {
    bench_op op;
    const bench_net *net;
    char zoo[BENCH_NAME]; /* instead of a net: a network of the zoo */
    int n_in, n_numbers, n_dead;
    int in[BENCH_INPUTS], out; /* slots */
    int dead[BENCH_INPUTS];    /* slots of results that are not used after this call */
    double number[BENCH_NUMBERS];
} bench_call;

typedef enum bench_role { BENCH_INPUT, BENCH_PARAM, BENCH_LABELS, BENCH_RESULT } bench_role;

typedef struct bench_slot {
    char name[BENCH_NAME];
    bench_role role;
    int64_t classes; /* number of classes, for labels */
    aril_shape shape;
} bench_slot;

typedef struct bench_case {
    char name[BENCH_NAME], about[100];
    int priority;
    double want; /* ratio to reach; 0: not given */
    bool infer, modules;
    char task[BENCH_NAME]; /* empty: none */
    aril_dtype dtype;
    bool tf32; /* f32, with products in TF32 */
    int n_slots, n_calls;
    bench_slot slot[BENCH_SLOTS];
    bench_call call[BENCH_SLOTS];
    int backward; /* slot to call backward on, or -1 */
    double sgd;   /* learning rate; 0: no step */
} bench_case;

typedef struct bench_cases {
    int n_nets, n_cases, n_blocks;
    bench_net *net[BENCH_NETS];
    bench_case *at[BENCH_CASES];
    struct bench_block *block[BENCH_NETS]; /* used only while reading */
} bench_cases;

/* Parses a text; `file` is its name in messages. NULL on failure, with the location and the reason
 * in `error`. */
bench_cases *bench_cases_read(const char *text, const char *file, char *error, size_t size);
void bench_cases_free(bench_cases *c);

/* The text of bench/cases, embedded at build time. */
extern const char bench_cases_text[];

#endif
