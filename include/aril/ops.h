/* Every tensor operation, by family. */
#ifndef ARIL_OPS_H
#define ARIL_OPS_H

#include "aril/index.h"
#include "aril/embedding.h"
#include "aril/fft.h"
#include "aril/conv.h"
#include "aril/linalg.h"
#include "aril/loss.h"
#include "aril/create.h"
#include "aril/math.h"
#include "aril/neural.h"
#include "aril/reduce.h"
#include "aril/sort.h"
#include "aril/update.h"
#include "aril/view.h"

#endif
