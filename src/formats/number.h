/* Numbers in text, whatever the program's locale is. */
#ifndef ARIL_FORMATS_NUMBER_H
#define ARIL_FORMATS_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* The number that n bytes of text are, blanks around it aside: decimal, with an exponent, "inf" or
 * "nan". Rounded as strtod does. False when they are no number, or a blank. */
bool aril__parse_number(const char *text, size_t n, double *value);

#endif
