/* The devices of the plug-in: one aril_cuda_device per GPU, which is `self` of the interface. */
#ifndef ARIL_CUDA_DEVICE_H
#define ARIL_CUDA_DEVICE_H

#include "aril/error.h"
#include "aril/plugin.h"

#include <cuda_runtime_api.h>
#include <pthread.h>

ARIL_C_BEGIN

extern const aril_host *aril_cuda_host; /* set when the plug-in is opened */
extern bool aril_cuda_sync;             /* ARIL_SYNC=1: wait for the work of every launch */

/* What a kernel found wrong, in host memory that the device can write: errors.cuh. */
typedef struct aril_cuda_error_word {
    uint32_t set; /* written last */
    uint32_t op, kind;
    int32_t axis;
    int64_t index, bound, extra;
} aril_cuda_error_word;

typedef struct aril_cuda_pool aril_cuda_pool;
typedef struct aril_cuda_shelf aril_cuda_shelf;
typedef struct aril_cuda_staging aril_cuda_staging;

typedef struct aril_cuda_device {
    int index;               /* of the GPU */
    int sms;                 /* multiprocessors */
    int major, minor;        /* compute capability */
    int threads_per_sm;      /* the most that are resident */
    size_t shared_per_block; /* the most that a kernel can be allowed */
    size_t memory;           /* bytes */
    size_t l2_bytes;
    char name[256];
    const char *volatile last_op; /* of the last launch, for errors without a name */
    aril_cuda_error_word *word;   /* pinned; the device writes it at the same address */
    uint32_t *claim;              /* in device memory: 0 until a kernel has claimed the word */
    aril_cuda_pool *pool;
    aril_cuda_staging *staging;
    pthread_mutex_t lock; /* guards `late` and the list of queues */
    aril_late_error late; /* the first error since the last poll */
    aril_queue *queues;
} aril_cuda_device;

struct aril_queue {
    cudaStream_t stream;
    aril_cuda_device *device;
    aril_queue *next;
    pthread_mutex_t reading; /* guards the buffers below, through which the host reads */
    char *buffer[2];         /* pinned; NULL until they are needed */
    cudaEvent_t filled[2];
};

/* The stream that work of this thread goes to: that of the queue, or of what the thread records. */
cudaStream_t aril_cuda_queue_stream(const aril_queue *q);

/* Makes the device current for this thread. */
void aril_cuda_use(const aril_cuda_device *d);

/* ---- opening: open.c ---- */

/* Opens a shared library by the first of the files that is found. NULL if none is, with what to
 * install in `why`. */
void *aril_cuda_open_library(const char *name, const char *const *files, char *why, size_t size);

/* A function of a library, and where its address goes. */
typedef struct aril_cuda_function {
    const char *name;
    void *to; /* a pointer to a pointer to a function */
} aril_cuda_function;

/* Finds all functions of a list, which ends with {0}. False if one is missing, with its name in
 * `why`. */
bool aril_cuda_find_functions(void *handle, const char *library, const aril_cuda_function *list,
                              char *why, size_t size);
/* The file that holds a function, for descriptions; "" if unknown. */
const char *aril_cuda_file_of(void *function, char *buf, size_t size);

/* ---- memory: pool.c, pinned.c ---- */

aril_cuda_pool *aril_cuda_pool_new(aril_cuda_device *d);
void aril_cuda_pool_delete(aril_cuda_pool *p);
void *aril_cuda_alloc(void *self, aril_queue *queue, size_t bytes);
void aril_cuda_free(void *self, aril_queue *queue, void *memory, size_t bytes);
void aril_cuda_trim(void *self);
void aril_cuda_pool_info(void *self, aril_pool_info *info);
/* Memory freed by a queue that ends may be used by others. */
void aril_cuda_pool_forget(aril_cuda_pool *p, aril_queue *queue);
/* Memory for a recording, which nothing else gets until it is ended; NULL with an error. It is
 * ended when the work that used it is done. */
aril_cuda_shelf *aril_cuda_shelf_new(aril_cuda_pool *p);
void aril_cuda_shelf_end(aril_cuda_pool *p, aril_cuda_shelf *s);

/* What the pool holds, in bytes. */
typedef struct aril_cuda_pool_stats {
    size_t reserved, in_use, peak; /* from the driver; handed out; the most handed out */
    size_t cached;                 /* reserved - in_use */
    int64_t allocations, driver_allocations, trims;
} aril_cuda_pool_stats;

void *aril_cuda_pinned_alloc(void *self, size_t bytes);
void aril_cuda_pinned_free(void *self, void *memory, size_t bytes);
void aril_cuda_pinned_trim(void);

/* ---- copies: copy.c ---- */

aril_cuda_staging *aril_cuda_staging_new(void);
void aril_cuda_staging_delete(aril_cuda_staging *s);
/* A queue that ends: waits for copies that it has not finished. */
void aril_cuda_staging_forget(aril_cuda_staging *s, aril_queue *queue);
void aril_cuda_buffers_delete(aril_queue *queue);
aril_status aril_cuda_from_host(void *self, aril_queue *queue, void *dst, const void *src,
                                size_t bytes, bool async);
aril_status aril_cuda_to_host(void *self, aril_queue *queue, void *dst, const void *src,
                              size_t bytes, bool async);
aril_status aril_cuda_copy(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes);
aril_status aril_cuda_copy_from(void *self, aril_queue *queue, void *dst, void *other,
                                const void *src, size_t bytes);

/* ---- queues and events: queue.c ---- */

aril_queue *aril_cuda_queue_new(void *self);
void aril_cuda_queue_free(void *self, aril_queue *queue);
aril_status aril_cuda_queue_wait(void *self, aril_queue *queue);
aril_status aril_cuda_synchronize(void *self);
aril_event *aril_cuda_event_new(void *self);
void aril_cuda_event_free(void *self, aril_event *event);
aril_status aril_cuda_event_record(void *self, aril_event *event, aril_queue *queue);
aril_status aril_cuda_event_wait(void *self, aril_event *event, aril_queue *queue);
int aril_cuda_event_query(void *self, aril_event *event);
void aril_cuda_range_begin(void *self, const char *name);
void aril_cuda_range_end(void *self);

/* ---- recordings: capture.c ---- */

aril_status aril_cuda_capture_begin(void *self, aril_queue *queue);
aril_recording *aril_cuda_capture_end(void *self, aril_queue *queue);
aril_status aril_cuda_replay(void *self, aril_queue *queue, aril_recording *recording);
void aril_cuda_recording_free(void *self, aril_recording *recording);
/* aril_device_ops.record_small. */
aril_status aril_cuda_record_small(void *self, const aril_run *r, bool *recorded);
/* The stream of a run. In a recording, what is put into it next waits only for what the run's
 * operands depend on; so do copies after aril_cuda_record_copy, which has no effect otherwise. */
cudaStream_t aril_cuda_run_stream(const aril_run *r);
void aril_cuda_record_copy(const void *to, const void *from, size_t bytes);
/* Fails if this thread records: "cuda: WHAT cannot be recorded". */
aril_status aril_cuda_not_recording(const char *what);
/* Where a recording of this thread for the queue allocates; NULL: it records nothing. */
aril_cuda_shelf *aril_cuda_recorded_shelf(const aril_queue *queue);
/* Copies the host's bytes to pinned memory that the recording of this thread keeps, since each
 * replay reads them; *src is set to the copy. Nothing to do without a recording. */
aril_status aril_cuda_keep_for_replay(void *self, const void **src, size_t bytes);

/* ---- limits and times of work: profile.c ---- */

void aril_cuda_limits(void *self, aril_limits *limits);
const char *aril_cuda_profile_begin(void *self);
void aril_cuda_profile_mark(void *self, uint64_t mark);
void aril_cuda_profile_end(void *self, void (*found)(void *ctx, const aril_work *work), void *ctx);

/* ---- errors: errors.c ---- */

aril_status aril_cuda_errors_new(aril_cuda_device *d);
void aril_cuda_errors_delete(aril_cuda_device *d);
aril_status aril_cuda_poll(void *self, aril_late_error *error);
/* A number for the name of an op, which must stay valid: host->op(r). */
uint32_t aril_cuda_op_number(const char *name);
/* Keeps an error of queued work for the next poll. Returns its status. */
aril_status aril_cuda_late(aril_cuda_device *d, cudaError_t e);
/* After a launch by `op`: reports its error; waits first under ARIL_SYNC. */
aril_status aril_cuda_check_launch(aril_cuda_device *d, aril_queue *queue, const char *op);
/* Fails with "cuda: WHAT: why" unless e is cudaSuccess. */
aril_status aril_cuda_expect(cudaError_t e, const char *what);

/* ---- compiling: compile.c ---- */

aril_program *aril_cuda_compile(void *self, const char *source, const char *options);
/* The same without an error: NULL with the reason in `why`. */
aril_program *aril_cuda_compile_or_say(void *self, const char *source, const char *options,
                                       char *why, size_t size);
void aril_cuda_program_free(void *self, aril_program *program);
aril_status aril_cuda_launch(void *self, aril_queue *queue, aril_program *program,
                             const char *entry, const uint32_t grid[3], const uint32_t block[3],
                             size_t shared_bytes, void *const *args, int n_args);

/* ---- compiled kernels in files: kernel_files.c ---- */

/* Machine code that was kept under a key, to be freed; NULL: there is none. */
char *aril_cuda_kernel_file_read(const char *key, size_t *bytes);
/* Keeps it. Failure is not an error. */
void aril_cuda_kernel_file_write(const char *key, const char *code, size_t bytes);

/* ---- rows: rows.cu ---- */

/* All rows, collected from the rooms. Exported for scripts/cuda-rows, which needs no GPU. */
__attribute__((visibility("default"))) const aril_row *aril_cuda_rows(int *n);

ARIL_C_END

#endif
