/* A program of a model that was read. */
#ifndef ARIL_ONNX_PROGRAM_H
#define ARIL_ONNX_PROGRAM_H

#include "onnx/onnx.h"

/* Owns the model, also on failure. */
aril_program *aril__onnx_program(onnx_model *m);

/* draw.c: the model in Graphviz's language; costs.c: what its nodes cost in an interpreted run. */
aril_status aril__onnx_dot(const onnx_model *m, FILE *to);
aril_status aril__onnx_costs(onnx_model *m, aril_list in, FILE *to);

/* The model of a program or module that was loaded, with the tensors that the module has now; NULL:
 * it was not. */
const onnx_model *aril__onnx_of_program(const aril_program *p);
const onnx_model *aril__onnx_of_module(const aril_module *m);

#endif
