/* Elementwise formulas in float. */
#include "backend/cpu/elementwise.h"

#include <float.h>
#include <math.h>

#define T        float
#define T_MAX    FLT_MAX
#define NAME(op) op##_f32
#define TABLE    aril__ew_f32
#define M(fn)    fn##f

#include "backend/cpu/elementwise_real.inc"
