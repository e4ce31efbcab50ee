/* Plug-ins: devices and kernels that are loaded at run time.
 *
 * A plug-in is a shared object that exports one symbol, aril_plugin_open. It does not link against
 * Aril: everything it calls is in the host table it receives, so it works with libaril.so and with
 * programs that link libaril.a statically. docs/plugins.md walks through
 * examples/plugin/mirror.c. */
#ifndef ARIL_PLUGIN_H
#define ARIL_PLUGIN_H

#include "aril/device.h"
#include "aril/error.h"
#include "aril/tensor.h"

ARIL_C_BEGIN

/* The version of the interface below; a plug-in built for another version is rejected. */
#define ARIL_PLUGIN_VERSION 4

/* One run of an op's kernel. Opaque: read it through the host table. */
typedef struct aril__run aril_run;

/* The memory order of an operand. */
typedef enum aril_order {
    ARIL_ORDER_ANY, /* as it is; a row that is not `strided` gets it contiguous */
    ARIL_ORDER_CONTIGUOUS,
    ARIL_ORDER_CHANNELS_LAST, /* [N,C,spatial...] stored as N, spatial, C */
    ARIL_ORDER_SAMPLES_LAST,  /* the same stored as spatial, C, N */
    ARIL_ORDER_HEADS_INNER    /* [...,heads,rows,columns] stored as ..., rows, heads, columns */
} aril_order;

/* What a row asks of an input, and in which form it gives an output. */
typedef struct aril_operand {
    uint8_t dtype; /* 1 + aril_dtype; 0: as it is, or staged as `native` says */
    uint8_t order; /* aril_order */
} aril_operand;

enum { ARIL_PLAN_INPUTS = 16, ARIL_PLAN_OUTPUTS = 8 };

/* What a row's prepare decides for one set of shapes, memory orders and attributes. Aril allocates
 * new results in the orders given here, converts inputs (and results that are already in memory)
 * that differ, and allocates the workspace: run sees only what it asked for. */
typedef struct aril_plan {
    void *prepared;   /* the row's private data: algorithm, library object ... */
    size_t workspace; /* bytes of device memory that the row needs at each run */
    uint32_t overlay; /* bit i: result 0 may be in the memory of input i */
    uint32_t packs;   /* bit i: of input i, a weight, the row keeps a form of its own at its first
                         run and reads nothing else later: its memory can be freed */
    size_t reserve;   /* bytes of the op's reserve, if it has one: what this row keeps for the
                         gradient, in a format of its own */
    aril_operand in[ARIL_PLAN_INPUTS], out[ARIL_PLAN_OUTPUTS];
} aril_plan;

/* In place of an op's name: the row serves every elementwise op, by the formula of each run. */
#define ARIL_ROW_FORMULAS "*"

/* A kernel for one op. Rows are tried in list order, fastest first. */
typedef struct aril_row {
    const char *op;     /* the op's name, or ARIL_ROW_FORMULAS */
    const char *name;   /* the row's, for ARIL_LOG=dispatch */
    uint32_t dtypes;    /* bit t for each aril_dtype t that the row accepts */
    uint32_t native;    /* those it computes in; others are converted to f32, f64, i64 or u64 for
                           it (0: all of dtypes) */
    bool strided;       /* accepts any strides; otherwise it receives contiguous tensors */
    const char *layout; /* the attribute layout that the row was built for ("stride I64 3; ..."), or
                           NULL when it reads attributes by name */
    /* Ops with a reserve: the name of the format of the one that this row writes, or, in a row of
     * the gradient, of the only one that it accepts: "cudnn". Each format has one name. NULL: the
     * row writes none, or does not read it. */
    const char *reserve;
    /* NULL: the row accepts everything. Otherwise returns NULL to accept, or the reason for
     * declining. The plan is shared by threads and cached for later calls with the same
     * description; it must not hold pointers to tensors. */
    const char *(*prepare)(const aril_run *r, aril_plan *plan);
    /* Bytes of device memory that a run needs, if they depend on sizes alone; a row with `prepare`
     * answers in its plan. NULL: none. A kernel allocates nothing itself. */
    size_t (*workspace)(const aril_run *r);
    aril_status (*run)(aril_run *r);
    void (*destroy)(void *prepared); /* optional */
} aril_row;

/* ---- devices ---- */

/* Objects of a plug-in that Aril only passes around. */
typedef struct aril_queue aril_queue;         /* work that a device does in order: a stream */
typedef struct aril_event aril_event;         /* a mark in a queue */
typedef struct aril_program aril_program;     /* compiled source */
typedef struct aril_recording aril_recording; /* what was captured from a queue */

/* An error of work that was queued earlier. */
typedef struct aril_late_error {
    aril_status code;
    char op[48];    /* the op whose work failed (host->op of its run), or "" if unknown */
    char text[256]; /* what went wrong */
} aril_late_error;

/* What a device's own pool holds, in bytes. */
typedef struct aril_pool_info {
    size_t cached;  /* from the system, but not in use */
    int64_t misses; /* requests that went to the system */
    int n_largest;  /* entries of `largest`: the largest sizes in use, and how often */
    struct {
        size_t bytes;
        int64_t count;
    } largest[8];
} aril_pool_info;

typedef enum aril_work_kind {
    ARIL_WORK_KERNEL,
    ARIL_WORK_COPY, /* also to and from the host */
    ARIL_WORK_FILL
} aril_work_kind;

/* Work that a device has done while it was profiled. */
typedef struct aril_work {
    aril_work_kind kind;
    const char *name;  /* of the kernel, or what was done: "copy to device"; it stays valid */
    uint64_t mark;     /* that the thread which queued it had set (profile_mark) */
    int64_t begin, ns; /* in nanoseconds of CLOCK_MONOTONIC */
    int queue;         /* a number for each queue */
    double bytes;      /* that were copied or filled; 0 for kernels */
} aril_work;

/* The functions of a device. Those of the first group are required; the others are optional, but
 * come in groups: one of a group requires the rest of it. Work is put into a queue and done later,
 * in order; every function may be called from any thread. `queue` is NULL on devices without
 * queues: they finish the work before they return. */
typedef struct aril_device_ops {
    uint32_t size; /* sizeof(aril_device_ops) */
    /* The device caches freed blocks itself: Aril passes every request on and only counts. Without
     * it Aril caches blocks, and rarely calls alloc and free. */
    bool own_pool;

    /* Memory, aligned to 64 bytes; NULL when it runs out. A freed block may still be read and
     * written by work that was queued before: it is reused for work that is queued later. */
    void *(*alloc)(void *self, aril_queue *queue, size_t bytes);
    void (*free)(void *self, aril_queue *queue, void *p, size_t bytes);
    /* Copies between the host and the device, and within the device. They are done in the order of
     * the queue. async: return at once; the host's memory is pinned and stays valid until the queue
     * has passed the copy. Otherwise the host's memory may be reused (read) when they return. */
    aril_status (*from_host)(void *self, aril_queue *queue, void *dst, const void *src,
                             size_t bytes, bool async);
    aril_status (*to_host)(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes,
                           bool async);
    aril_status (*copy)(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes);

    /* Single optional functions. */
    void (*describe)(void *self, char *buf, size_t size); /* one line for people */
    void (*close)(void *self);                            /* at the end of the process */
    void (*trim)(void *self); /* own_pool: returns cached memory to the system */
    void (*pool_info)(void *self, aril_pool_info *info); /* own_pool: for aril_memory */
    void (*limits)(void *self, aril_limits *limits);
    /* Copies from `other`, another device of this kind, in the order of this device's queue. The
     * queue of the other is ordered around it with events. */
    aril_status (*copy_from)(void *self, aril_queue *queue, void *dst, void *other, const void *src,
                             size_t bytes);

    /* Queues. `queue_wait` and `synchronize` block until the work of a queue, or of the device, is
     * done. `poll` returns ARIL_OK, or writes the first error of queued work and forgets it; Aril
     * calls it after it has waited, and reports "OP: TEXT (reported late)". */
    aril_queue *(*queue_new)(void *self);
    void (*queue_free)(void *self, aril_queue *queue);
    aril_status (*queue_wait)(void *self, aril_queue *queue);
    aril_status (*synchronize)(void *self);
    aril_status (*poll)(void *self, aril_late_error *error);

    /* Events. `event_wait` makes a queue, which may be another device's, wait for the work before
     * the mark; `event_query` returns 1 when that is done, 0 when not yet. An event that was never
     * recorded counts as done, and one may be freed while queues still wait for it. */
    aril_event *(*event_new)(void *self);
    void (*event_free)(void *self, aril_event *event);
    aril_status (*event_record)(void *self, aril_event *event, aril_queue *queue);
    aril_status (*event_wait)(void *self, aril_event *event, aril_queue *queue);
    int (*event_query)(void *self, aril_event *event);

    /* Pinned host memory: asynchronous copies need it. */
    void *(*pinned_alloc)(void *self, size_t bytes);
    void (*pinned_free)(void *self, void *p, size_t bytes);

    /* Compiling source of the device's own language, and launching what was compiled: `entry` is
     * the function, `args` point to its arguments. */
    aril_program *(*compile)(void *self, const char *source, const char *options);
    void (*program_free)(void *self, aril_program *program);
    aril_status (*launch)(void *self, aril_queue *queue, aril_program *program, const char *entry,
                          const uint32_t grid[3], const uint32_t block[3], size_t shared_bytes,
                          void *const *args, int n_args);

    /* Capturing: what the calling thread puts into the queue between begin and end is recorded
     * instead of done, and each replay queues all of it; work of other threads is done as always.
     * Memory that the thread allocates meanwhile has the same addresses in each replay, and nothing
     * else gets it, also when it was freed, until the recording is. Bytes from the host are kept as
     * they are. Functions that would make the host wait, or order queues, fail while the thread
     * records. `capture_end` returns NULL, with an error, if the work cannot be recorded. */
    aril_status (*capture_begin)(void *self, aril_queue *queue);
    aril_recording *(*capture_end)(void *self, aril_queue *queue);
    aril_status (*replay)(void *self, aril_queue *queue, aril_recording *recording);
    void (*recording_free)(void *self, aril_recording *recording);

    /* Small runs. `is_small` tells, from shapes, dtypes and attributes, whether a run of a row of
     * this device takes less time than its launch; Aril asks when it plans. `record_small` gets
     * those that have several such neighbours, in place of their rows. While the thread records, it
     * may take them over: they are done, in order, before anything that is put into the queue
     * later. At other times it may do them itself, so that they have the bits which they have in a
     * recording. Without *recorded, the row runs as always. */
    bool (*is_small)(void *self, const aril_run *r);
    aril_status (*record_small)(void *self, const aril_run *r, bool *recorded);

    /* Named, nested ranges in the device's profiler. */
    void (*range_begin)(void *self, const char *name);
    void (*range_end)(void *self);

    /* Measuring when the device does its work, for aril_profile_begin. `profile_begin` returns
     * NULL, or the reason why that is impossible. Afterwards, `profile_mark` sets the number that
     * work queued by the calling thread belongs to, and 0 that it belongs to none. `profile_end`
     * waits for the device, passes on what it has done since the begin, and stops measuring. */
    const char *(*profile_begin)(void *self);
    void (*profile_mark)(void *self, uint64_t mark);
    void (*profile_end)(void *self, void (*found)(void *ctx, const aril_work *work), void *ctx);
} aril_device_ops;

/* What a run does with an input. */
typedef enum aril_access {
    ARIL_ACCESS_NONE, /* its elements are not used, it is missing, or comes by value */
    ARIL_ACCESS_READ,
    ARIL_ACCESS_CHANGE
} aril_access;

/* What kind of number an input is. */
typedef enum aril_number_kind {
    ARIL_NUMBER_CONSTANT, /* the same in every call that repeats this one */
    ARIL_NUMBER_STATE,    /* may differ: a learning rate, a step count, a loss scale */
    ARIL_NUMBER_KEY       /* of a random op */
} aril_number_kind;

/* An input that comes by value. */
typedef struct aril_host_number {
    aril_number_kind kind;
    double f64;
    int64_t i64;     /* saturated where the value is out of range; 0 for NaN */
    uint64_t key[2]; /* ARIL_NUMBER_KEY: seed and call number (f64 and i64 are 0) */
} aril_host_number;

/* ---- fused ops ----
 *
 * The graph's pass `fuse` replaces neighbouring elementwise ops by one op that computes all of them
 * in one loop: "fused", or "fused_2" to "fused_4" with as many results. A row of these ops reads
 * the recipe (host->fused). Without a row, a device runs the steps of a recipe one by one.
 * The loop goes over `dim`, the shape to which all inputs broadcast. Step s computes its formula on
 * its operands, converted to `type`, in float for f16, bf16 and f32, double for f64, uint64_t for
 * u64, int64_t for other integers and bool (host->formula), and rounds the result to `dtype`: so
 * the bits are those of the single ops. */

/* How many parts a recipe has at most. */
enum {
    ARIL_FUSED_INPUTS = 16,
    ARIL_FUSED_CONSTANTS = 16,
    ARIL_FUSED_STEPS = 64,
    ARIL_FUSED_OUTPUTS = 4,
    ARIL_FUSED_OPERANDS = 5
};

/* An operand is one of these: */
#define ARIL_FUSED_STEP(s)        (s)        /* the result of an earlier step */
#define ARIL_FUSED_INPUT(i)       (64 + (i)) /* input i of the op, broadcast; it may be a number */
#define ARIL_FUSED_CONSTANT(k)    (128 + (k))
#define ARIL_FUSED_NONE           255             /* absent, and not used by the formula */
#define ARIL_FUSED_KIND(operand)  ((operand)&192) /* of ARIL_FUSED_STEP(0), INPUT(0) ... */
#define ARIL_FUSED_INDEX(operand) ((operand)&63)

typedef struct aril_fused_step {
    const char *op;      /* its name: "mul"; "cast" */
    const char *formula; /* as host->formula: "a * b"; of a cast, "a"; NULL: it reduces a row */
    const char *names;   /* the variable of each operand: "ab"; in a gradient op "gay" */
    uint8_t in[ARIL_FUSED_OPERANDS];
    uint8_t n_in;
    uint8_t type, dtype; /* aril_dtype */
    bool compares;       /* the formula's result is a truth value */
    uint8_t reduce; /* aril_fused_reduce, over the last axis of the loop, which stays with size 1;
                            ARIL_FUSED_EACH: none */
    bool by_row;    /* has one element for each row of the last axis */
    double p[3];    /* p0, p1, p2 */
} aril_fused_step;

/* A number that is part of the recipe. */
typedef struct aril_fused_constant {
    uint8_t dtype;
    bool weak;   /* for Aril's own use */
    double f64;  /* the value of a float */
    int64_t i64; /* the value of an integer or bool; of u64, its bits */
} aril_fused_constant;

typedef enum aril_fused_reduce {
    ARIL_FUSED_EACH, /* an element for each element of the loop */
    ARIL_FUSED_SUM,
    ARIL_FUSED_MEAN,
    ARIL_FUSED_MAX,     /* NaN if one is NaN */
    ARIL_FUSED_EACH_ROW /* of a result: the value of a step that has one element for each row */
} aril_fused_reduce;

/* A result: the value of a step, or its reduction, in float or wider, over some axes. The axis of a
 * value by rows is the last. */
typedef struct aril_fused_output {
    uint8_t step, dtype;
    uint8_t reduce;   /* aril_fused_reduce */
    uint32_t axes;    /* bit d: reduced over axis d of the loop ... */
    uint32_t dropped; /* ... and the axis is dropped, otherwise it stays with size 1 */
} aril_fused_output;

typedef struct aril_fused {
    uint64_t id; /* the same in this process for the same steps; types and shapes may differ */
    int n_in, n_constants, n_steps, n_out;
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
    bool rows;                      /* a step reduces rows, or draws */
    bool by_row[ARIL_FUSED_INPUTS]; /* where rows is set: inputs with one element for each row, */
    bool is_key[ARIL_FUSED_INPUTS]; /* and keys of random numbers: the operand is a number from 0
                                        to 1, excluded, for each element of the loop in order */
    aril_fused_constant constant[ARIL_FUSED_CONSTANTS];
    aril_fused_step step[ARIL_FUSED_STEPS];
    aril_fused_output out[ARIL_FUSED_OUTPUTS];
} aril_fused;

/* The functions Aril provides to a plug-in. New entries are added at the end; `size` tells which
 * exist. */
typedef struct aril_host {
    uint32_t size, version;
    uint64_t layout_hash; /* over the attribute layouts of all ops */
    const char *aril_version;

    /* Records an error and returns its code. */
    aril_status (*fail)(aril_status code, const char *fmt, ...);
    /* Writes a line when ARIL_LOG names "plugin". */
    void (*log)(const char *fmt, ...);

    /* A run: its tensors (NULL if an optional input is missing), its device, the prepared data, the
     * workspace, and its attributes by name (NULL if there is none of that name). */
    int (*n_in)(const aril_run *r);
    int (*n_out)(const aril_run *r);
    aril_tensor *(*in)(const aril_run *r, int i);
    aril_tensor *(*out)(const aril_run *r, int i);
    void *(*device)(const aril_run *r);
    void *(*prepared)(const aril_run *r);
    void *(*workspace)(const aril_run *r);
    const void *(*attrs)(const aril_run *r);
    const int64_t *(*attr_i64)(const aril_run *r, const char *name);
    const double *(*attr_f64)(const aril_run *r, const char *name);
    aril_dtype (*type)(const aril_run *r); /* the dtype the op computes in */

    /* Allocates an output whose size is only known after the run. */
    aril_status (*alloc_out)(aril_run *r, int i, aril_dtype dtype, int ndim, const int64_t *dim);

    /* Tensors: the address of the first element, and the shape. */
    void *(*data)(const aril_tensor *t);
    aril_dtype (*dtype)(const aril_tensor *t);
    int (*ndim)(const aril_tensor *t);
    const int64_t *(*dims)(const aril_tensor *t);
    const int64_t *(*strides)(const aril_tensor *t); /* in elements */
    int64_t (*numel)(const aril_tensor *t);

    /* True if input i is a number (aril_scalar, a learning rate, the key of a random op), with its
     * value; false if it is a tensor of the device, or missing. A number stays in host memory,
     * where host->data points to, whatever the device: read it in `run`, before work is queued,
     * never in `prepare`, whose plan serves calls with other values too. */
    bool (*number)(const aril_run *r, int i, aril_host_number *value);
    /* The queue of a run: its kernels, and nothing else, put work into it. NULL on devices without
     * queues. */
    aril_queue *(*queue)(const aril_run *r);
    /* The name of the op, for errors that are reported late; it stays valid. */
    const char *(*op)(const aril_run *r);
    /* The formula of an elementwise op as C tokens, such as "k_tanh(a)", for code generators; NULL
     * for other ops. a, b, c are the inputs, p0, p1, p2 the elements of the attribute "p"; in a
     * gradient op the inputs are g, a, b, c, y. docs/plugins.md lists the functions. */
    const char *(*formula)(const aril_run *r);
    /* Whether products and convolutions of f32 may be computed in TF32 (aril_allow_tf32). Plans may
     * depend on it: all are made anew when it changes. */
    bool (*tf32_allowed)(void);
    /* Whether the same call must give the same bits each time (aril_set_deterministic). Plans may
     * depend on it. */
    bool (*deterministic)(void);
    /* Tuning. `tuning`: rows may time their ways to do a call in `prepare`, on memory of their own
     * (aril_set_tuning). `tuned` copies the choice that was recorded under a key, in this process
     * or another, and is false if there is none; it is asked whether tuning is on or not. `tune`
     * records one. A key names everything that the times depend on: op, shapes, dtypes, orders,
     * device, versions of libraries. Keys and choices are printable text of less than 256 bytes
     * without tabs. */
    bool (*tuning)(void);
    bool (*tuned)(const char *key, char *choice, size_t size);
    void (*tune)(const char *key, const char *choice);
    /* The recipe of a run of a fused op, with the types that follow from its inputs. False for
     * other ops. */
    bool (*fused)(const aril_run *r, aril_fused *to);
    /* What a run does with input i: which work depends on which follows from this. */
    aril_access (*access)(const aril_run *r, int i);
    /* The bytes of its workspace. */
    size_t (*workspace_bytes)(const aril_run *r);
} aril_host;

/* Filled in by the plug-in. Everything it points to must stay valid for the life of the process. */
typedef struct aril_plugin {
    uint32_t size, version; /* sizeof(aril_plugin), ARIL_PLUGIN_VERSION */
    uint64_t layout_hash;   /* the host->layout_hash it was built for; 0 if each row gives its own
                               layout */
    const char *name;
    const char *kind; /* of its devices: "cuda" */
    bool host_memory; /* the host can read and write the devices' memory directly */
    int n_devices;
    const aril_device_ops *device_ops;
    void *const *devices; /* `self` of each device */
    int n_rows;
    const aril_row *rows;
} aril_plugin;

/* The symbol that a plug-in exports. Returns 0, or a negative status after host->fail. */
typedef aril_status aril_plugin_open_fn(const aril_host *host, aril_plugin *out);
#define ARIL_PLUGIN_SYMBOL "aril_plugin_open"

/* Loads a plug-in and registers its devices and rows. On failure (ARIL_ERR_PLUGIN, with a reason)
 * nothing is registered. Other threads may run ops meanwhile.
 *
 * Plug-ins are also found by themselves: files named libaril_KIND.so in the folder aril/ beside
 * libaril.so (or beside the program, if that contains libaril.a), and the files and folders of
 * ARIL_PLUGINS=path:path. They are opened when the first device of their kind is asked for
 * (aril_device_named, aril_device_available, or an op on aril_cuda(0)) or when devices are counted
 * or listed. */
ARIL_API aril_status aril_plugin_load(const char *path);

ARIL_C_END

#endif
