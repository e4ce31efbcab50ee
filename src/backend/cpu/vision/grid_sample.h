/* Sampling at the points of a grid, and its gradients. */
#ifndef ARIL_CPU_GRID_SAMPLE_H
#define ARIL_CPU_GRID_SAMPLE_H

#include "ops/table/op.h"

aril_status aril__cpu_grid_sample(aril__run *r);
aril_status aril__cpu_grid_sample_grad_x(aril__run *r);
aril_status aril__cpu_grid_sample_grad_grid(aril__run *r);

#endif
