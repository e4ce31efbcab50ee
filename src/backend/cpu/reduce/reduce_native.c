#include "backend/cpu/reduce/reduce_native.h"

#include "core/vector/targets.h"

/* Elements of a line that accumulators of 32 bits hold: 2^15 numbers of 16 bits. */
enum { LINE = 1 << 15 };

#define T          uint8_t
#define KIND       u8
#define LOWEST     0
#define HIGHEST    UINT8_MAX
#define ROWS_SUM   uint16_t
#define SUM_ROWS   256
#define LINE_SUM   int32_t
#define PRODUCT    uint64_t
#define ROWS_COUNT uint8_t
#define COUNT_ROWS 252
#define LINE_COUNT int32_t
#include "backend/cpu/reduce/reduce_native_targets.inc"

#define T          int8_t
#define KIND       i8
#define LOWEST     INT8_MIN
#define HIGHEST    INT8_MAX
#define ROWS_SUM   int16_t
#define SUM_ROWS   256
#define LINE_SUM   int32_t
#define PRODUCT    int64_t
#define ROWS_COUNT uint8_t
#define COUNT_ROWS 252
#define LINE_COUNT int32_t
#include "backend/cpu/reduce/reduce_native_targets.inc"

#define T          int16_t
#define KIND       i16
#define LOWEST     INT16_MIN
#define HIGHEST    INT16_MAX
#define ROWS_SUM   int32_t
#define SUM_ROWS   (1 << 15)
#define LINE_SUM   int32_t
#define PRODUCT    int64_t
#define ROWS_COUNT uint16_t
#define COUNT_ROWS (1 << 15)
#define LINE_COUNT int32_t
#include "backend/cpu/reduce/reduce_native_targets.inc"

#define T          int32_t
#define KIND       i32
#define LOWEST     INT32_MIN
#define HIGHEST    INT32_MAX
#define ROWS_SUM   int64_t
#define SUM_ROWS   INT64_MAX
#define LINE_SUM   int64_t
#define PRODUCT    int64_t
#define ROWS_COUNT uint32_t
#define COUNT_ROWS (1 << 30)
#define LINE_COUNT int32_t
#include "backend/cpu/reduce/reduce_native_targets.inc"

#define T          int64_t
#define KIND       i64
#define LOWEST     INT64_MIN
#define HIGHEST    INT64_MAX
#define ROWS_SUM   int64_t
#define SUM_ROWS   INT64_MAX
#define LINE_SUM   int64_t
#define PRODUCT    int64_t
#define ROWS_COUNT int64_t
#define COUNT_ROWS INT64_MAX
#define LINE_COUNT int64_t
#include "backend/cpu/reduce/reduce_native_targets.inc"

#define BY_DTYPE(level)                                                                          \
    {                                                                                            \
        [ARIL_BOOL] = folds_u8##level, [ARIL_U8] = folds_u8##level, [ARIL_I8] = folds_i8##level, \
        [ARIL_I16] = folds_i16##level, [ARIL_I32] = folds_i32##level,                            \
        [ARIL_I64] = folds_i64##level,                                                           \
    }

static const aril__reduce_native *const folds[ARIL__CPU_LEVELS][ARIL_I64 + 1] = {
    [ARIL__CPU_BASELINE] = BY_DTYPE(),
#if ARIL__TARGETS
    [ARIL__CPU_AVX2] = BY_DTYPE(_avx2),
    [ARIL__CPU_AVX512] = BY_DTYPE(_avx512),
#endif
};

/* A bool is true wherever its byte is not 0: extremes are, too, but a sum counts, and a product may
 * wrap to 0. */
static const aril__native_fold of_bool[ARIL__NATIVE_FOLDS] = {
    [ARIL__NATIVE_SUM] = ARIL__NATIVE_COUNT,   [ARIL__NATIVE_PROD] = ARIL__NATIVE_NONE,
    [ARIL__NATIVE_MAX] = ARIL__NATIVE_MAX,     [ARIL__NATIVE_MIN] = ARIL__NATIVE_MIN,
    [ARIL__NATIVE_COUNT] = ARIL__NATIVE_COUNT,
};

const aril__reduce_native *aril__reduce_native_of(aril__native_fold fold, aril_dtype t)
{
    if (t == ARIL_F16 || t == ARIL_BF16) return aril__reduce_half_of(fold, t);
    if (fold == ARIL__NATIVE_NONE || t > ARIL_I64) return NULL;
    const aril__reduce_native *of = folds[aril__cpu()][t];
    if (t == ARIL_BOOL) fold = of_bool[fold];
    return of && fold != ARIL__NATIVE_NONE ? &of[fold] : NULL;
}
