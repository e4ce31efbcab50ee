/* The kinds of files that aril_dataset_open knows: the end of a name, and what opens such a file. */
#ifndef ARIL_DATA_OPEN_H
#define ARIL_DATA_OPEN_H

#include "aril/datasets.h"

#define ARIL__FILE_KINDS
#define ARIL__FILE_KIND_NAMES "pictures in folders of their classes"

#endif
