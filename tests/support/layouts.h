/* Tensors in memory of their own, in every way that strides allow. */
#ifndef ARIL_TESTS_SUPPORT_LAYOUTS_H
#define ARIL_TESTS_SUPPORT_LAYOUTS_H

#include "aril/base.h"

enum {
    TEST_CONTIGUOUS,
    TEST_OFFSET,     /* behind other elements */
    TEST_GAPS,       /* every second element of the last axis of a larger tensor */
    TEST_REVERSED,   /* with a negative stride of axis 0 */
    TEST_TRANSPOSED, /* the last two axes */
    TEST_EVERYTHING, /* all of these */
    TEST_LAYOUTS
};
extern const char *const test_layout_names[TEST_LAYOUTS];

/* A view with the values of t in memory of its own; what is around it is 77. It has no gradient
 * graph. A layout for which t has too few axes is the one that is most like it. */
aril_tensor *test_laid_out(aril_tensor *t, int layout);

/* The memory that t is in, as one row of elements. */
aril_tensor *test_memory_of(aril_tensor *t);

#endif
