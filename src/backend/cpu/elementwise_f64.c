/* Elementwise formulas in double. */
#include "backend/cpu/elementwise.h"

#include <float.h>
#include <math.h>

#define T        double
#define T_MAX    DBL_MAX
#define NAME(op) op##_f64
#define TABLE    aril__ew_f64
#define M(fn)    fn

#include "backend/cpu/elementwise_real.inc"
