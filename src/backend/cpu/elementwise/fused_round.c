#include "backend/cpu/elementwise/fused.h"

#define TEMPLATE "backend/cpu/elementwise/fused_round.inc"
#include "core/vector/each_target.inc"

aril__store_fn *aril__tile_round(aril_dtype to, aril__ctype c)
{
    if (c != ARIL__C_F32) return NULL;
    return to == ARIL_BF16  ? ARIL__PICK(round_bf16, false)
           : to == ARIL_F16 ? ARIL__PICK(round_f16, false)
                            : NULL;
}
