/* Parts of the text of a kernel, which source.c and source_rows.c share. */
#ifndef ARIL_CUDA_FUSED_PARTS_H
#define ARIL_CUDA_FUSED_PARTS_H

#include "backend/cuda/fused/source.h"

#include <stddef.h>

/* A text that grows; `failed`: out of memory. */
typedef struct aril_cuda_text {
    char *at;
    size_t n, room;
    bool failed;
} aril_cuda_text;

void aril_cuda_text_append(aril_cuda_text *t, const char *from, size_t n);
__attribute__((format(printf, 2, 3))) void aril_cuda_text_print(aril_cuda_text *t,
                                                                const char *format, ...);

/* The C++ types of a dtype. */
typedef struct aril_cuda_type_names {
    const char *storage, *compute;
    int size;
} aril_cuda_type_names;
extern const aril_cuda_type_names aril_cuda_fused_type[];

bool aril_cuda_is_float(int dtype);
bool aril_cuda_fused_uses(const aril_fused *f, int input);

/* What every kernel begins with; and what those of rows have besides. */
void aril_cuda_append_prelude(aril_cuda_text *t);
void aril_cuda_append_rows(aril_cuda_text *t, bool draws);

/* An operand in its compute type; and a step, as a variable s7 of its own. */
void aril_cuda_print_operand(aril_cuda_text *t, const aril_fused *f,
                             const aril_cuda_fused_types *of, int operand);
void aril_cuda_print_step(aril_cuda_text *t, const aril_fused *f, const aril_cuda_fused_types *of,
                          int s);

/* Why there is no kernel of rows for a recipe; NULL: there is. And its text. */
const char *aril_cuda_rows_refuse(const aril_fused *f);
void aril_cuda_print_rows(aril_cuda_text *t, const aril_fused *f, const aril_cuda_fused_types *of);

#endif
