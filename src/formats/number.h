/* Locale-independent number parsing. */
#ifndef ARIL_FORMATS_NUMBER_H
#define ARIL_FORMATS_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/* Parses n bytes of text, with surrounding blanks, as a number: decimal, with an exponent, "inf" or
 * "nan". Rounded as strtod does. False if they are not a number, or blank. */
bool aril__parse_number(const char *text, size_t n, double *value);

#endif
