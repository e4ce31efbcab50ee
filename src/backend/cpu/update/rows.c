/* Rows of this folder, fastest first for each op; the list ends with an empty row. */
#include "backend/cpu/kernel.h"

#include "backend/cpu/update/update.h"

const aril__row aril__cpu_update_rows[] = {
    KERNEL(update, cpu_update, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_update_scratch),
    KERNEL(update_norms, cpu_update_norms, .dtypes = DT_FLOAT, .strided = true,
           .workspace = aril__cpu_update_norms_scratch),
    { 0 },
};
