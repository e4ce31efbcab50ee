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
    bool l1, gpu, test_initialization, test_compute_loss, snapshot_after_train, hdf5, snapshot_diff,
        debug;
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

typedef struct aril__caffe_debug aril__caffe_debug;

/* A net with its data. */
typedef struct aril__caffe_part {
    aril_module *net;
    aril_caffe_feed *feed;
    aril__compiled *program;
    int64_t iterations; /* of a test */
    int n_in, n_out, n_written;
    aril_caffe_sink *sink; /* of HDF5Output layers, which get n_written values in each run */
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
    aril_tensor **before; /* the blobs before the last update, for their changes; NULL: not kept */
    bool updated;         /* there was one since the last snapshot that was restored */
    bool debugs;          /* this iteration prints what debug_info does, and runs eagerly */
};

/* Prints a line to the log. */
void aril__caffe_log(const aril_caffe_solver *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A value to print: a NaN without a sign. */
double aril__caffe_shown(double value);
/* Prints the shapes of all tops, and what they take. */
void aril__caffe_log_shapes(const aril_caffe_solver *s, const aril_module *net);
/* Prints the layers of the last file of weights that the net does not have; those of the net that
 * no file had. */
void aril__caffe_log_ignored(const aril_caffe_solver *s);
void aril__caffe_log_missing(const aril_caffe_solver *s);

/* One pass forward and backward, which adds to the gradients; with `updates` also the step. The
 * outputs belong to the scope. */
aril_status aril__caffe_pass(aril_caffe_solver *s, bool updates, double *loss,
                             aril_tensor **outputs);

/* Keeps the blobs as they are, before an update. */
aril_status aril__caffe_keep_before(aril_caffe_solver *s);
/* What the last update subtracted from blob k; zeros if there was none. Owned by the scope. */
aril_tensor *aril__caffe_diff(const aril_caffe_solver *s, int k);

/* From begin to end runs of a net print the means of its blobs (debug_info). NULL, with an error,
 * when out of memory. _backward prints those of the gradients of the run, _update those of the
 * update. */
aril__caffe_debug *aril__caffe_debug_begin(const aril_caffe_solver *s, aril_module *net);
void aril__caffe_debug_backward(const aril__caffe_debug *d);
void aril__caffe_debug_update(const aril_caffe_solver *s);
aril_status aril__caffe_debug_end(aril__caffe_debug *d);

/* Runs a net and returns its loss: zero if it has none. outputs[] gets the outputs, and after them
 * what HDF5Output layers get. */
aril_tensor *aril__caffe_outputs(aril__caffe_part *p, aril_list in, aril_tensor **outputs);
/* Writes the files of HDF5Output layers with the values of one such run. */
aril_status aril__caffe_write(aril__caffe_part *p, aril_tensor *const *outputs);

/* One run of a test net; *loss: NULL if it has none. What HDF5Output layers get is collected. */
aril_status aril__caffe_forward(aril__caffe_part *p, aril_tensor **outputs, aril_tensor **loss);

/* Creates the optimizer for the parameters of the net, once it is built. */
aril_status aril__caffe_optimizer(aril_caffe_solver *s);
/* Sets the learning rates of the current iteration. */
void aril__caffe_set_rate(aril_caffe_solver *s);
/* Clears the gradients of all parameters, which an iteration starts from: the caller's own backward
 * passes are no part of it. */
void aril__caffe_clear_grads(aril_caffe_solver *s);

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

/* Where a file that is written has its place: below root, if paths start there. Allocated; NULL
 * with an error. */
char *aril__caffe_output_path(const aril_caffe_solver *s, const char *path);

/* ---- sinks ---- */

/* Values that HDF5Output layers get in each run: the results of aril_forward_all after the outputs
 * and the total loss. _keep collects those of a run, _clear forgets them. _place gives the files
 * their places for a solver. s may be NULL. */
int aril__caffe_sink_values(const aril_caffe_sink *s);
aril_status aril__caffe_sink_keep(aril_caffe_sink *s, aril_tensor *const *values);
void aril__caffe_sink_clear(aril_caffe_sink *s);
aril_status aril__caffe_sink_place(aril_caffe_sink *s, const aril_caffe_solver *solver);

/* ---- feeds ---- */

/* The next batch, for its shapes: MemoryData layers without data give zeros. */
aril_status aril__caffe_feed_first(aril_caffe_feed *f, aril_tensor **in);

/* The positions of its loaders: three numbers each. `from` names their file in errors. */
int aril__caffe_feed_loaders(const aril_caffe_feed *f);
void aril__caffe_feed_tell(const aril_caffe_feed *f, int64_t *numbers);
aril_status aril__caffe_feed_seek(aril_caffe_feed *f, const int64_t *numbers, const char *from);

#endif
