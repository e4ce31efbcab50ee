/* A program of a model that was read. */
#ifndef ARIL_ONNX_PROGRAM_H
#define ARIL_ONNX_PROGRAM_H

#include "onnx/onnx.h"

/* Owns the model, also on failure. */
aril_program *aril__onnx_program(onnx_model *m);

#endif
