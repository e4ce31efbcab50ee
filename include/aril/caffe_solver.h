/* Caffe's solvers: training from a solver's prototxt.
 *
 *     aril_caffe_solver *s = aril_caffe_solver_open("lenet_solver.prototxt",
 *                                                   (aril_caffe_solver_opts){ .log = stdout });
 *     aril_caffe_solver_solve(s);
 *     aril_caffe_solver_free(s);
 *
 * Training is as Caffe's: updates, learning rates, tests, output and snapshots follow the fields of
 * SolverParameter. Steps run compiled. Snapshots are PREFIX_iter_N.caffemodel and
 * PREFIX_iter_N.solverstate, as Caffe reads them (in HDF5, if snapshot_format says so, with the
 * ending .h5), and beside the latter a file with the ending .aril, with what Caffe does not save:
 * positions in the data, random numbers, the solver's type, digests of the other two files, and the
 * losses that are averaged. A file .aril that was written with another solverstate is an error.
 * With it a training that was killed and resumed ends with the same bits as one that was not;
 * without it, as with snapshots of Caffe, the data start over.
 *
 * Paths in the solver and its nets start in the current folder. Where the net (or, of a net within
 * the solver, its first source of data) is not found there, they start in the closest folder above
 * the solver's file in which it is; or else in the folder of the solver's file, leaving out leading
 * folders of a path where that is needed to find a file: then a copy of one of Caffe's examples
 * runs where it is. What a net that is found in the current folder names may be beside the net in
 * the same way. Nets with Python layers run eagerly. */
#ifndef ARIL_CAFFE_SOLVER_H
#define ARIL_CAFFE_SOLVER_H

#include "aril/caffe.h"

ARIL_C_BEGIN

typedef struct aril_caffe_solver aril_caffe_solver;

/* What aril_caffe_solver_opts.action asks for. */
typedef enum aril_caffe_action {
    ARIL_CAFFE_GO_ON = 0,
    ARIL_CAFFE_SNAPSHOT, /* writes a snapshot, and goes on */
    ARIL_CAFFE_STOP      /* stops, after a snapshot unless snapshot_after_train is off */
} aril_caffe_action;

typedef struct aril_caffe_solver_opts {
    const char *weights; /* caffemodels to start from, separated by commas */
    /* A solverstate to resume from. Its weights are those it names, beside it or where they were
     * written; or `weights`, if that is set. Others than those written with it are an error. */
    const char *snapshot;
    /* Where the training runs. Default: as solver_mode says, on the first GPU or on the CPU; GPU
     * where there is none: on the CPU, with one warning. */
    aril_device device;
    bool has_device; /* `device` is set */
    bool eager;      /* steps do not run compiled */
    int workers;     /* threads that load data ahead for each data layer; default 1, negative: 0 */
    FILE *log;       /* output as Caffe's; NULL: none */
    bool glog;       /* lines of the log begin with glog's prefix: date, time, thread, source */
    /* Level (0: as the solver says) and stages for the net in training, beside those of its
     * train_state, as -level and -stage of `caffe train`. */
    int level;
    const char *const *stages;
    int n_stages;
    /* Called after each iteration and each iteration of a test; NULL: never asks for anything. */
    aril_caffe_action (*action)(void *ctx);
    void *ctx;
} aril_caffe_solver_opts;

/* Reads a solver and creates its nets. The caller owns it. NULL, with an error, on failure. */
ARIL_API aril_caffe_solver *aril_caffe_solver_open(const char *path, aril_caffe_solver_opts opts);
/* The same for text in memory, whose paths start in `root` (NULL: the current folder). */
ARIL_API aril_caffe_solver *aril_caffe_solver_parse(const char *text, size_t size, const char *root,
                                                    aril_caffe_solver_opts opts);
ARIL_API void aril_caffe_solver_free(aril_caffe_solver *s);

/* Trains until max_iter, with tests and snapshots, as `caffe train` does. */
ARIL_API aril_status aril_caffe_solver_solve(aril_caffe_solver *s);
/* The same for n iterations, without what happens at the end. */
ARIL_API aril_status aril_caffe_solver_step(aril_caffe_solver *s, int64_t n);

/* Iterations so far; max_iter; the learning rate of the next iteration; the loss of the last one,
 * averaged over average_loss iterations (NaN before the first). */
ARIL_API int64_t aril_caffe_solver_iter(const aril_caffe_solver *s);
ARIL_API int64_t aril_caffe_solver_max_iter(const aril_caffe_solver *s);
ARIL_API double aril_caffe_solver_lr(const aril_caffe_solver *s);
ARIL_API double aril_caffe_solver_loss(const aril_caffe_solver *s);

/* The net in training; the number of test nets, and the i-th (NULL: there is none), which shares
 * the weights. They belong to the solver. */
ARIL_API aril_module *aril_caffe_solver_net(const aril_caffe_solver *s);
ARIL_API int aril_caffe_solver_tests(const aril_caffe_solver *s);
ARIL_API aril_module *aril_caffe_solver_test_net(const aril_caffe_solver *s, int i);

/* The data of the net in training (i negative) or of the i-th test net, which belong to the solver.
 * Used to set those of MemoryData layers. NULL: there is no such net. */
typedef struct aril_caffe_feed aril_caffe_feed;
ARIL_API aril_caffe_feed *aril_caffe_solver_feed(const aril_caffe_solver *s, int i);

/* Tests the i-th test net over its test_iter batches: score[] gets the mean of each output, of
 * which there are aril_caffe_outputs of the net, over all batches and all of its elements. */
ARIL_API aril_status aril_caffe_solver_test(aril_caffe_solver *s, int i, double *score);

/* Writes a snapshot; path (may be NULL) gets the name of the solverstate, for which it is an error
 * to have no room. Restores one. */
ARIL_API aril_status aril_caffe_solver_snapshot(aril_caffe_solver *s, char *path, size_t size);
ARIL_API aril_status aril_caffe_solver_restore(aril_caffe_solver *s, const char *path);

/* Why steps do not run compiled; NULL: they do. Belongs to s. */
ARIL_API const char *aril_caffe_solver_eager_reason(const aril_caffe_solver *s);

/* ---- the data of a net ---- */

/* An aril_caffe_feed reads the data layers of a net, for tests and for training loops of your
 * own. */
typedef struct aril_caffe_feed_opts {
    /* Where paths start that are not found in the current folder, such as that of the net's file;
     * leading folders of such a path are left out where that is needed to find it. */
    const char *root;
    uint64_t seed; /* of order, crops and mirrors */
    int workers;   /* threads that load batches ahead, for each data layer */
    bool train;    /* crops are random, as in the training phase; otherwise in the center */
    aril_device device;
} aril_caffe_feed_opts;

/* Opens the data layers of a net, which must outlive the feed. It is an error if the net has inputs
 * that no data layer provides. NULL, with an error, on failure. */
ARIL_API aril_caffe_feed *aril_caffe_feed_new(const aril_module *net, aril_caffe_feed_opts opts);
ARIL_API void aril_caffe_feed_free(aril_caffe_feed *f);

/* The next batch: in[] gets the inputs of the net, of which there are aril_caffe_inputs. They are
 * valid until the next call. Batches never end: after the last sample comes the first one. */
ARIL_API aril_status aril_caffe_feed_next(aril_caffe_feed *f, aril_tensor **in);

/* Gives the MemoryData layer of that name (NULL: the only one) its samples and labels: x
 * [n,C,H,W], transformed by transform_param as by Caffe's AddMatVector and AddDatumVector, and
 * labels [n] (NULL: 0), which are copied; n is a multiple of batch_size. Batches start with the
 * first sample, go on to the last and start over, until other samples are set. In a solver that
 * resumes from a snapshot the first samples that are set continue where they were. */
ARIL_API aril_status aril_caffe_feed_set(aril_caffe_feed *f, const char *layer, aril_tensor *x,
                                         aril_tensor *labels);

/* What comes to the HDF5Output layers of a net, which must outlive the sink: _add runs the net on a
 * batch as aril_forward_all would and collects it; out[] (may be NULL) gets the outputs and the
 * total loss. _write writes what was collected to their files, as arrays data and label; all
 * batches are in memory until then. _files is the number of files. `aril test` does this. */
typedef struct aril_caffe_sink aril_caffe_sink;
ARIL_API aril_caffe_sink *aril_caffe_sink_new(aril_module *net);
ARIL_API void aril_caffe_sink_free(aril_caffe_sink *s);
ARIL_API int aril_caffe_sink_files(const aril_caffe_sink *s);
ARIL_API aril_status aril_caffe_sink_add(aril_caffe_sink *s, aril_list in, aril_tensor **out);
ARIL_API aril_status aril_caffe_sink_write(aril_caffe_sink *s);

/* Runs the net on `iterations` batches and writes the values of n blobs: blob i to to[i], an HDF5
 * file if it ends with .h5 (an array of the blob's name), which is put together in memory,
 * otherwise an LMDB in that folder, with a Datum for each sample, as extract_features does. A file
 * that exists is an error. */
ARIL_API aril_status aril_caffe_features(aril_module *net, aril_caffe_feed *f, int64_t iterations,
                                         int n, const char *const *blobs, const char *const *to);

ARIL_C_END

#endif
