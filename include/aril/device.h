/* Devices: where tensors live and operations run. */
#ifndef ARIL_DEVICE_H
#define ARIL_DEVICE_H

#include "aril/base.h"

ARIL_C_BEGIN

/* The host's own processors. */
ARIL_API aril_device aril_cpu(void);

/* The index-th NVIDIA GPU. Using it when there is none is an error. */
ARIL_API aril_device aril_cuda(int index);

/* A device by name: "cpu", "cuda:1", or a name that a plug-in registered. An unknown name is an
 * error and returns a device that no operation accepts. */
ARIL_API aril_device aril_device_named(const char *name);

/* Writes "cpu" or "cuda:0" to `buf` and returns `buf`. */
ARIL_API const char *aril_device_name(aril_device device, char *buf, size_t size);

/* True when both are the same device. */
ARIL_API bool aril_device_equal(aril_device a, aril_device b);

/* True when the device exists and can be used. */
ARIL_API bool aril_device_available(aril_device device);

/* The number of devices, and the i-th one; the CPU is the first. */
ARIL_API int aril_device_count(void);
ARIL_API aril_device aril_device_at(int i);

/* A one-line description of a device, such as "cpu: 2 threads, 24 GB". */
ARIL_API const char *aril_device_describe(aril_device device, char *buf, size_t size);

/* What a device can do at most, per second; 0 where that is unknown. A multiply-add counts as two
 * operations. */
typedef struct aril_limits {
    double bytes;           /* read from and written to its memory */
    double f64, f32;        /* operations of products in that dtype */
    double tf32, f16, bf16; /* the same with factors in that dtype, and sums in f32 */
    char source[120];       /* where the figures come from, for people */
} aril_limits;

/* The limits of a device; all 0 if it has none that are known. The CPU's f32 is
 * aril_machine_peak. */
ARIL_API aril_limits aril_device_limits(aril_device device);

/* Lets GPUs compute products and convolutions of f32 in TF32, whose factors have 11 significant
 * bits instead of 24: several times faster on NVIDIA's tensor cores, and less exact. Sums stay f32.
 * Off unless it is allowed here, or by ARIL_TF32=1 in the environment; for all threads of the
 * process, from the next operation on. */
ARIL_API void aril_allow_tf32(bool allow);
ARIL_API bool aril_tf32_allowed(void);

/* Lets operations on GPUs time the kernels that can serve them, when they first meet a combination
 * of shapes, and keep the fastest. This takes up to a second for each combination and writes the
 * choice to a file, which later processes use, with tuning or without: ARIL_TUNING_FILE, or
 * aril/tuning in the user's cache folder (XDG_CACHE_HOME, else ~/.cache). The choice may change
 * results in the last bits. Off unless it is switched on here, or by ARIL_TUNING=1 in the
 * environment; for all threads of the process, from the next operation on. */
ARIL_API void aril_set_tuning(bool on);
ARIL_API bool aril_tuning(void);

/* Waits until the device has finished all queued work; returns any error that occurred there. */
ARIL_API aril_status aril_synchronize(aril_device device);

ARIL_C_END

#endif
