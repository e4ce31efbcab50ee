/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/update/rows.h"

#include "backend/cpu/update/update.h"

#define UPDATE(op_)                                                           \
    {                                                                         \
        .op = #op_, .name = "cpu_" #op_, .dtypes = DT_FLOAT, .strided = true, \
        .run = aril__cpu_##op_                                                \
    }
const aril__row aril__cpu_update_rows[] = { UPDATE(update), UPDATE(update_norms), { 0 } };
