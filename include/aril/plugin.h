/* Plug-ins: kinds of devices and kernels that are opened at run time.
 *
 * A plug-in is a shared object that exports one symbol, aril_plugin_open. It links nothing of
 * Aril: all that it calls is in the table it is given, so it works with libaril.so and with
 * programs that hold libaril.a. docs/plugins.md walks through examples/plugin/mirror.c. */
#ifndef ARIL_PLUGIN_H
#define ARIL_PLUGIN_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* Counts changes of what stands below; a plug-in built for another number is refused. */
#define ARIL_PLUGIN_VERSION 2

/* One run of an op's kernel. Opaque: the host table reads it. */
typedef struct aril__run aril_run;

/* What a row's prepare decides for one set of shapes, orders and attributes. */
typedef struct aril_plan {
    void *prepared;   /* the row's own: algorithm, library object ... */
    size_t workspace; /* bytes of device memory that the row wants at each run */
} aril_plan;

/* A kernel for one op. Rows are tried in the order in which they are listed, fastest first. */
typedef struct aril_row {
    const char *op;     /* the op's name */
    const char *name;   /* the row's, for ARIL_LOG=dispatch */
    uint32_t dtypes;    /* bit t for each aril_dtype t that the row computes in */
    bool strided;       /* takes any strides; otherwise it is given dense tensors */
    bool channels_last; /* a result [N,C,spatial...] is best made channels-last, whatever the order
                            of the input (ops that keep the order of channels alone) */
    const char *layout; /* attributes as the row was built to read them ("stride I64 3; ..."), or
                            NULL when it reads them by name */
    /* NULL: the row takes everything. Else returns NULL to accept, or why it declines. What it
     * makes is shared by threads and kept for later calls of the same description; it must not
     * keep pointers to tensors. */
    const char *(*prepare)(const aril_run *r, aril_plan *plan);
    aril_status (*run)(aril_run *r);
    void (*destroy)(void *prepared); /* optional */
} aril_row;

/* What a device can do. Every slot is required unless marked optional. */
typedef struct aril_device_ops {
    void *(*alloc)(void *self, size_t bytes); /* aligned to 64; NULL when memory is out */
    void (*free)(void *self, void *p, size_t bytes);
    aril_status (*from_host)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*to_host)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*copy)(void *self, void *dst, const void *src, size_t bytes);
    aril_status (*synchronize)(void *self);               /* optional */
    void (*describe)(void *self, char *buf, size_t size); /* optional */
    void (*close)(void *self);                            /* optional */
} aril_device_ops;

/* What Aril offers to a plug-in. New entries are added at the end, and `size` tells how many. */
typedef struct aril_host {
    uint32_t size, version;
    uint64_t layout_hash; /* over the attribute layouts of all ops */
    const char *aril_version;

    /* Records an error and returns its code. */
    aril_status (*fail)(aril_status code, const char *fmt, ...);
    /* Writes a line when ARIL_LOG names "plugin". */
    void (*log)(const char *fmt, ...);

    /* A run: its tensors (NULL where an optional input is absent), its device, what prepare made,
     * the workspace, and its attributes by name (NULL when there is none of that name). */
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
    aril_dtype (*type)(const aril_run *r); /* what the op computes in */

    /* Gives an output whose size is known after the run its memory. */
    aril_status (*alloc_out)(aril_run *r, int i, aril_dtype dtype, int ndim, const int64_t *dim);

    /* Tensors: the address of the first element, and the shape. */
    void *(*data)(const aril_tensor *t);
    aril_dtype (*dtype)(const aril_tensor *t);
    int (*ndim)(const aril_tensor *t);
    const int64_t *(*dims)(const aril_tensor *t);
    const int64_t *(*strides)(const aril_tensor *t); /* in elements */
    int64_t (*numel)(const aril_tensor *t);
} aril_host;

/* What a plug-in fills in. Everything it points to must stay valid while the process lives. */
typedef struct aril_plugin {
    uint32_t size, version; /* sizeof(aril_plugin), ARIL_PLUGIN_VERSION */
    uint64_t layout_hash;   /* host->layout_hash it was built for; 0 where rows say it one by one */
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

/* Opens a plug-in and registers its devices and rows. Fails with ARIL_ERR_PLUGIN and a reason, and
 * then nothing is registered. ARIL_PLUGINS=path:path opens some at the start. */
ARIL_API aril_status aril_plugin_load(const char *path);

ARIL_C_END

#endif
