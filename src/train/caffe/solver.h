/* Caffe's solvers: what their parts share. */
#ifndef ARIL_TRAIN_CAFFE_SOLVER_H
#define ARIL_TRAIN_CAFFE_SOLVER_H

#include "aril/caffe_solver.h"
#include "aril/data.h"
#include "aril/optim.h"
#include "formats/schemas.h"
#include "graph/compiled.h"
#include "train/states.h"

enum { ARIL__CAFFE_OUTPUTS = 256 }; /* of a net that is trained or tested */

/* ---- settings ---- */

typedef enum aril__caffe_policy {
    ARIL__CAFFE_FIXED,
    ARIL__CAFFE_STEP,
    ARIL__CAFFE_EXP,
    ARIL__CAFFE_INV,
    ARIL__CAFFE_MULTISTEP,
    ARIL__CAFFE_POLY,
    ARIL__CAFFE_SIGMOID,
} aril__caffe_policy;

/* A SolverParameter, checked. Strings belong to its message. */
typedef struct aril__caffe_settings {
    const char *type, *prefix;
    aril__caffe_policy policy;
    double base_lr, gamma, power, momentum, momentum2, rms_decay, delta, weight_decay, clip;
    int64_t stepsize, max_iter, display, test_interval, snapshot, iter_size, average_loss;
    int64_t warmup;
    double warmup_lr;
    size_t n_steps;
    const aril__message *message; /* for step values, and for errors */
    const char *file;
    bool says_gpu; /* solver_mode is written; its default is GPU */
    bool l1, gpu, test_initialization, test_compute_loss, snapshot_after_train, hdf5, snapshot_diff;
    int64_t seed; /* negative: none */
    int device;
} aril__caffe_settings;

/* `file` (NULL: none) is named by errors, and belongs to the caller. */
aril_status aril__caffe_settings_read(const aril__message *m, const char *file,
                                      aril__caffe_settings *to);

/* An error in a field of a SolverParameter: "solver.prototxt: solver at line 7: ...". */
aril_status aril__caffe_solver_bad(const aril__message *m, const char *file, const char *field,
                                   const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The learning rate of an iteration; the step that a snapshot stores. */
double aril__caffe_rate(const aril__caffe_settings *c, int64_t iter);
int64_t aril__caffe_current_step(const aril__caffe_settings *c, int64_t iter);

/* ---- a solver ---- */

/* A net with its data. */
typedef struct aril__caffe_part {
    aril_module *net;
    aril_caffe_feed *feed;
    aril__compiled *program;
    int64_t iterations; /* of a test */
    int n_in, n_out;
    struct aril_caffe_solver *solver;
    /* What a trace is made for. */
    struct {
        bool update;
    } of;
} aril__caffe_part;

struct aril_caffe_solver {
    aril_caffe_solver_opts opts;
    aril__message *message;
    aril__caffe_settings settings;
    char *root, *prefix; /* root NULL: the current folder */
    char *folder;        /* of the net, where what is not found is looked for if root is NULL */
    aril__caffe_part train, *test;
    int n_tests;
    aril_optim *optim;
    double *lr_mult; /* of each group of the optimizer */
    int n_params;    /* blobs in Caffe's order */
    int *index;      /* of each blob in the optimizer, -1: it is not updated */
    double *decay;   /* of each blob, for L1 */
    aril_device device;
    int64_t iter;
    /* The losses of the last average_loss iterations, as a ring; n_losses: of all iterations. */
    double *loss;
    int64_t n_losses;
    bool stopped, warned_nan;
    /* Positions in the data of the test nets before the test that is running; NULL: none is. A
     * snapshot is of that time, as a resumed run tests again. */
    int64_t *before_test;
    double since; /* when the last line was printed, and of which iteration */
    int64_t since_iter;
};

/* Prints a line to the log. */
void aril__caffe_log(const aril_caffe_solver *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One pass forward and backward, which adds to the gradients; with `updates` also the step. The
 * outputs belong to the scope. */
aril_status aril__caffe_pass(aril_caffe_solver *s, bool updates, double *loss,
                             aril_tensor **outputs);

/* One run of a test net; *loss: NULL if it has none. */
aril_status aril__caffe_forward(aril__caffe_part *p, aril_tensor **outputs, aril_tensor **loss);

/* Creates the optimizer for the parameters of the net, once it is built. */
aril_status aril__caffe_optimizer(aril_caffe_solver *s);
/* Sets the learning rates of the current iteration. */
void aril__caffe_set_rate(aril_caffe_solver *s);

/* Whether snapshots can be written; creates their folder. */
aril_status aril__caffe_check_prefix(const aril_caffe_solver *s);

/* Tests all nets, with output; stops early, and sets s->stopped, when an action asks for it. */
aril_status aril__caffe_test_all(aril_caffe_solver *s);

/* Asks for an action, and writes a snapshot if that is it. */
aril_status aril__caffe_ask(aril_caffe_solver *s);

/* Prints the values of an output: "    Train net output #0: loss = 0.5 (* 1 = 0.5 loss)". *number
 * counts the lines. */
void aril__caffe_log_values(const aril_caffe_solver *s, const char *what, const char *name,
                            double weight, int64_t n, const double *values, int *number);

/* The positions in the data of all test nets, as one allocated list; NULL with an error. */
int64_t *aril__caffe_test_positions(const aril_caffe_solver *s, int *n);

/* ---- feeds ---- */

/* The next batch, for its shapes: MemoryData layers without data give zeros. */
aril_status aril__caffe_feed_first(aril_caffe_feed *f, aril_tensor **in);

/* The positions of its loaders: three numbers each. `from` names their file in errors. */
int aril__caffe_feed_loaders(const aril_caffe_feed *f);
void aril__caffe_feed_tell(const aril_caffe_feed *f, int64_t *numbers);
aril_status aril__caffe_feed_seek(aril_caffe_feed *f, const int64_t *numbers, const char *from);

#endif
