/* Numbers as text with a unit. */
#ifndef ARIL_CORE_UNITS_H
#define ARIL_CORE_UNITS_H

#include <stddef.h>

/* Three digits and a unit: "4.58 MB", "896 B". Returns text. 1 KB is 1024 B. */
char *aril__bytes_text(char *text, size_t size, double n);

/* "896", "24.3 M". */
char *aril__count_text(char *text, size_t size, double n);

#endif
