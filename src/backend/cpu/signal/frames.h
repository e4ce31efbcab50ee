/* Frames of a signal and their overlap-add. */
#ifndef ARIL_CPU_FRAMES_H
#define ARIL_CPU_FRAMES_H

#include "ops/table/op.h"

aril_status aril__cpu_frames(aril__run *r);
aril_status aril__cpu_overlap_add(aril__run *r);

#endif
