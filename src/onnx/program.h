/* A program of a model that was read. */
#ifndef ARIL_ONNX_PROGRAM_H
#define ARIL_ONNX_PROGRAM_H

#include "onnx/onnx.h"

/* Owns the model, also on failure. */
aril_program *aril__onnx_program(onnx_model *m);

/* The model of a program or module that was loaded; NULL: it was not. */
const onnx_model *aril__onnx_of_program(const aril_program *p);
const onnx_model *aril__onnx_of_module(const aril_module *m);

#endif
