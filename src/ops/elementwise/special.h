/* Special functions in double that the C library lacks, one value at a time, for kernels. At most a
 * few units in the last place from the exact value, except beside the zeros of digamma on the
 * negative axis, where the error is a few units of its terms. */
#ifndef ARIL_OPS_SPECIAL_H
#define ARIL_OPS_SPECIAL_H

/* log(|gamma(x)|): the C library's, which is exact beside the zeros on the negative axis too. It is
 * lgamma without its write to a global variable. */
__attribute__((const)) double aril__lgamma(double x);

/* The derivative of lgamma. NaN at the negative integers; at 0 the infinity of the other sign. */
__attribute__((const)) double aril__digamma(double x);

/* The Hurwitz zeta function, the sum of (q + k)^-s over k = 0, 1, ...: infinite for s = 1 and where
 * a term is (integers q <= 0), NaN for s < 1, and for other q < 0 unless s is an integer. */
__attribute__((const)) double aril__zeta(double s, double q);

#endif
