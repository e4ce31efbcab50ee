#include "ops/elementwise/special.h"

#include <float.h>
#include <math.h>

#define SPECIAL(name)  local_##name
#define SPECIAL_INLINE static
#define SPECIAL_CALLED static
#define SPECIAL_LOOP
#include "ops/elementwise/special.inc"

double aril__lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

double aril__digamma(double x)
{
    return local_digamma(x);
}

double aril__zeta(double s, double q)
{
    return local_zeta(s, q);
}
