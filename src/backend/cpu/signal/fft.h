/* Fourier transforms of rows, several at a time. */
#ifndef ARIL_CPU_FFT_H
#define ARIL_CPU_FFT_H

#include "ops/table/op.h"

aril_status aril__cpu_fft_c2c(aril__run *r);
aril_status aril__cpu_fft_r2c(aril__run *r);
aril_status aril__cpu_fft_c2r(aril__run *r);

/* Frees the cached plans. */
void aril__cpu_fft_end(void);

/* Bytes of memory that they need. */
size_t aril__cpu_fft_c2c_scratch(const aril__run *r);
size_t aril__cpu_fft_r2c_scratch(const aril__run *r);
size_t aril__cpu_fft_c2r_scratch(const aril__run *r);

#endif
