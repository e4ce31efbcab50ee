/* Plug-ins: devices and kernels that are loaded at run time.
 *
 * A plug-in is a shared object that exports one symbol, aril_plugin_open. It does not link against
 * Aril: everything it calls is in the host table it receives, so it works with libaril.so and with
 * programs that link libaril.a statically. docs/plugins.md walks through
 * examples/plugin/mirror.c. */
#ifndef ARIL_PLUGIN_H
#define ARIL_PLUGIN_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* The version of the interface below; a plug-in built for another version is rejected. */
#define ARIL_PLUGIN_VERSION 3

/* One run of an op's kernel. Opaque: read it through the host table. */
typedef struct aril__run aril_run;

/* The memory order of an operand. */
typedef enum aril_order {
    ARIL_ORDER_ANY, /* as it is; a row that is not `strided` gets it contiguous */
    ARIL_ORDER_CONTIGUOUS,
    ARIL_ORDER_CHANNELS_LAST, /* [N,C,spatial...] stored as N, spatial, C */
    ARIL_ORDER_SAMPLES_LAST   /* the same stored as spatial, C, N */
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
    size_t reserve;   /* bytes of the op's reserve, if it has one: what this row keeps for the
                         gradient, in a format of its own */
    aril_operand in[ARIL_PLAN_INPUTS], out[ARIL_PLAN_OUTPUTS];
} aril_plan;

/* A kernel for one op. Rows are tried in list order, fastest first. */
typedef struct aril_row {
    const char *op;     /* the op's name */
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

/* The functions of a device. All are required unless marked optional. */
typedef struct aril_device_ops {
    void *(*alloc)(void *self, size_t bytes); /* aligned to 64 bytes; NULL when memory runs out */
    void (*free)(void *self, void *p, size_t bytes);
    aril_status (*from_host)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*to_host)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*copy)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*synchronize)(void *self);               /* optional */
    void (*describe)(void *self, char *buf, size_t size); /* optional */
    void (*close)(void *self);                            /* optional */
} aril_device_ops;

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
 * nothing is registered. ARIL_PLUGINS=path:path loads plug-ins at startup. */
ARIL_API aril_status aril_plugin_load(const char *path);

ARIL_C_END

#endif
