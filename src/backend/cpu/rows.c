#include "backend/cpu/rows.h"

#include "backend/cpu/elementwise.h"
#include "ops/rows.h"

/* Elementwise ops all run on one engine. */
#define ROW(op_)                                                                                   \
    {.op = #op_, .name = "cpu_elementwise", .dtypes = DT_COMPUTE, .strided = true,                 \
     .run = aril__cpu_elementwise},
static const aril__row elementwise_rows[] = {
#define EW1(name, ...) ROW(name) ROW(name##_grad)
#define EW1N(name, ...) ROW(name)
#define EW2(name, ...) ROW(name) ROW(name##_grad_a) ROW(name##_grad_b)
#define EW2N(name, ...) ROW(name)
#define EW3(name, ...) ROW(name) ROW(name##_grad_a) ROW(name##_grad_b) ROW(name##_grad_c)
#include "ops/elementwise.def"
};

aril_status aril__cpu_start(void)
{
    return aril__rows_register(ARIL__CPU, elementwise_rows,
                               sizeof elementwise_rows / sizeof *elementwise_rows);
}
