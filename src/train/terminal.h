/* What is known of the place where text goes: a terminal or not, its width, its characters. */
#ifndef ARIL_TRAIN_TERMINAL_H
#define ARIL_TRAIN_TERMINAL_H

#include "aril/base.h"

/* True for a terminal that understands more than plain lines. */
bool aril__is_terminal(FILE *to);

/* Its width now in columns, by asking it: it may have changed since the last time. 0: not known. */
int aril__terminal_width(FILE *to);

/* True when the environment's locale is in UTF-8. */
bool aril__utf8_locale(void);

/* True when a terminal is to be given colours: NO_COLOR is not set. */
bool aril__wants_colour(FILE *to);

/* Seconds on a clock that only goes forward. */
double aril__seconds(void);

/* A double as text, with a point whatever the program's locale is; snprintf with "%.*f" or
 * "%.*g". */
int aril__number_text(char *buf, size_t size, char form, int digits, double v);

/* A value as users read it: 0.0712, 12.35, 107124, 1.2e-05, nan. */
void aril__value_text(char *buf, size_t size, double v);

#endif
