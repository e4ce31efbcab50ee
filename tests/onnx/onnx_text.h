/* Models for tests, written in the text form of protocol buffers. */
#ifndef ARIL_TESTS_ONNX_TEXT_H
#define ARIL_TESTS_ONNX_TEXT_H

#include "aril/aril.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* One tensor of floats as input or output: "x", "2,3". */
#define DIM(n) "dim { dim_value: " #n " } "
#define FLOATS(name, d) \
    "{ name: \"" name "\" type { tensor_type { elem_type: 1 shape { " d "} } } } "
#define ANY(name)      "{ name: \"" name "\" type { tensor_type { elem_type: 1 } } } "
#define TYPED(name, t) "{ name: \"" name "\" type { tensor_type { elem_type: " #t " } } } "

/* Writes a model to a file of the test's folder; returns its path. */
static inline const char *save_model(const char *text)
{
    const char *path = temp_path("model.onnx");
    aril__message *m = aril__message_parse(&aril__onnx_ModelProto, text, strlen(text),
                                           (aril__message_opts){ .name = "model" });
    if (!m) {
        test_fail(__FILE__, __LINE__, "%s", aril_error());
        return path;
    }
    if (aril__message_save(m, path) < 0) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril__message_free(m);
    return path;
}

/* A program of a model: its nodes, inputs and outputs, in an operator set. */
static inline aril_program *load_text(const char *head, const char *graph)
{
    size_t n = strlen(head) + strlen(graph) + 64;
    char *text = malloc(n);
    snprintf(text, n, "%s graph { %s }", head, graph);
    aril_program *p = aril_program_load(save_model(text), (aril_load_opts){ 0 });
    free(text);
    return p;
}

#define OPSET(v) "ir_version: 8 opset_import { version: " #v " } "

#endif
