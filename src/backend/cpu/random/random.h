/* Random numbers. Bits depend on the key and the element's index alone. */
#ifndef ARIL_CPU_RANDOM_H
#define ARIL_CPU_RANDOM_H

#include "ops/table/op.h"

aril_status aril__cpu_rand(aril__run *r);
aril_status aril__cpu_randn(aril__run *r);
aril_status aril__cpu_randint(aril__run *r);
aril_status aril__cpu_randperm(aril__run *r);
size_t aril__cpu_randperm_scratch(const aril__run *r);
aril_status aril__cpu_bernoulli(aril__run *r);
aril_status aril__cpu_bernoulli_fill(aril__run *r);
aril_status aril__cpu_dropout(aril__run *r);

#endif
