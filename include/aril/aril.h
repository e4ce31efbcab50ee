/* Aril: deep learning in C. This header includes all others. */
#ifndef ARIL_H
#define ARIL_H

#include "aril/autograd.h"
#include "aril/base.h"
#include "aril/data.h"
#include "aril/device.h"
#include "aril/dlpack.h"
#include "aril/draw.h"
#include "aril/dtype.h"
#include "aril/error.h"
#include "aril/formats.h"
#include "aril/log.h"
#include "aril/memory.h"
#include "aril/metrics.h"
#include "aril/module.h"
#include "aril/named.h"
#include "aril/nn.h"
#include "aril/nn_loss.h"
#include "aril/nn_sequence.h"
#include "aril/ops.h"
#include "aril/optable.h"
#include "aril/parallel.h"
#include "aril/plugin.h"
#include "aril/profile.h"
#include "aril/rng.h"
#include "aril/scope.h"
#include "aril/summary.h"
#include "aril/tensor.h"
#include "aril/tensorboard.h"
#include "aril/zoo.h"

#endif
