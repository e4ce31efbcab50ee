/* Basic types that all other headers of Aril use. */
#ifndef ARIL_BASE_H
#define ARIL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(ARIL_STATIC) || !defined(__GNUC__)
#define ARIL_API
#else
#define ARIL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define ARIL_C_BEGIN extern "C" {
#define ARIL_C_END   }
#else
#define ARIL_C_BEGIN
#define ARIL_C_END
#endif

/* The version of these headers; aril_version gives the library's. */
#define ARIL_VERSION_MAJOR 0
#define ARIL_VERSION_MINOR 1
#define ARIL_VERSION_PATCH 0

/* The most dimensions a tensor can have. */
#define ARIL_MAX_DIMS 8

/* In options where 0 selects a nonzero default: an actual 0. */
#define ARIL_ZERO INT32_MIN

ARIL_C_BEGIN

/* A strided, reference-counted array of numbers on one device. Opaque: use the functions. */
typedef struct aril_tensor aril_tensor;

/* Element types. Operations compute in the first thirteen; the rest can be created, copied, saved
 * and cast. */
typedef enum aril_dtype {
    ARIL_BOOL,
    ARIL_U8,
    ARIL_U16,
    ARIL_U32,
    ARIL_U64,
    ARIL_I8,
    ARIL_I16,
    ARIL_I32,
    ARIL_I64,
    ARIL_F16,
    ARIL_BF16,
    ARIL_F32,
    ARIL_F64,
    ARIL_F8E4M3FN, /* storage only from here */
    ARIL_F8E4M3FNUZ,
    ARIL_F8E5M2,
    ARIL_F8E5M2FNUZ,
    ARIL_F8E8M0,
    ARIL_F4E2M1,
    ARIL_I4,
    ARIL_U4,
    ARIL_I2,
    ARIL_U2,
} aril_dtype;

/* The device that holds a tensor's memory: kind 0 is the CPU, other kinds are assigned as devices
 * are registered. */
typedef struct aril_device {
    int16_t kind;
    int16_t index;
} aril_device;

/* Sizes of a tensor; -1 means "unknown" (placeholders) or "infer" (reshape). ARIL_SHAPE(2, 3). */
typedef struct aril_shape {
    int ndim;
    int64_t dim[ARIL_MAX_DIMS];
} aril_shape;

/* The status a function returns: 0 on success, or a negative error code (aril/error.h). */
typedef int aril_status;

/* The version of the library, such as "0.1.0". */
ARIL_API const char *aril_version(void);

ARIL_C_END

#endif
