#ifndef ARIL_GRAPH_DRAW_H
#define ARIL_GRAPH_DRAW_H

#include "graph/inspect.h"

/* Writes a graph in Graphviz's language: small ones by operations in frames of their modules, with
 * `values` also the values and gradients on edges; large ones by modules. */
aril_status aril__graph_dot(const aril__graph *g, const aril__inspection *values, FILE *to);

/* ---- drawings of anything ---- */

/* Begins a graph: its name, and how nodes and edges look. direction: "TB" or "LR". */
void aril__dot_begin(FILE *to, const char *name, const char *direction);
/* At most n bytes of a text as a part of a quoted label. */
void aril__dot_text(FILE *to, const char *text, size_t n);

/* Saves what `write` writes to a path that ends in .dot or .gv, or as an image (.svg, .png, .pdf)
 * that Graphviz makes of it: ARIL_ERR_UNSUPPORTED without its program `dot`. */
typedef aril_status aril__dot_writer(FILE *to, const void *ctx);
aril_status aril__dot_save(const char *path, aril__dot_writer *write, const void *ctx);

#endif
