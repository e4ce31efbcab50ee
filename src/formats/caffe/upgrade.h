/* The steps of an upgrade. */
#ifndef ARIL_FORMATS_CAFFE_UPGRADE_H
#define ARIL_FORMATS_CAFFE_UPGRADE_H

#include "formats/caffe/net.h"

/* Rewrites the V0 layers of a net, which lie inside V1 layers, to V1 layers. */
aril_status aril__caffe_upgrade_v0(aril__message *net, const char *name);

#endif
