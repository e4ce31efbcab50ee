/* Conversions of tiles: those of f16 and bf16 are compiled for each instruction set. */
#include "backend/cpu/elementwise/fused.h"

#define TEMPLATE "backend/cpu/elementwise/fused_convert.inc"
#include "core/vector/each_target.inc"

/* f16 or bf16, to or from float. */
static bool is_half(aril_dtype dtype, aril__ctype c)
{
    return c == ARIL__C_F32 && (dtype == ARIL_F16 || dtype == ARIL_BF16);
}

aril__load_fn *aril__tile_load(aril_dtype from, aril__ctype c)
{
    if (!is_half(from, c)) return aril__dtypes[from].load[c];
    return from == ARIL_BF16 ? ARIL__PICK(load_bf16, false) : ARIL__PICK(load_f16, false);
}

aril__store_fn *aril__tile_store(aril_dtype to, aril__ctype c)
{
    if (!is_half(to, c)) return aril__dtypes[to].store[c];
    return to == ARIL_BF16 ? ARIL__PICK(store_bf16, false) : ARIL__PICK(store_f16, false);
}

aril__store_fn *aril__tile_round(aril_dtype to, aril__ctype c)
{
    if (!is_half(to, c)) return NULL;
    return to == ARIL_BF16 ? ARIL__PICK(round_bf16, false) : ARIL__PICK(round_f16, false);
}
