/* Properties of an output stream: whether it is a terminal, its width, its character set. */
#ifndef ARIL_TRAIN_TERMINAL_H
#define ARIL_TRAIN_TERMINAL_H

#include "aril/base.h"

/* True for a terminal that supports escape sequences. */
bool aril__is_terminal(FILE *to);

/* The current width in columns, queried each time since it may change. 0: unknown. */
int aril__terminal_width(FILE *to);

/* True when the environment's locale uses UTF-8. */
bool aril__utf8_locale(void);

/* True for a terminal, unless NO_COLOR is set. */
bool aril__wants_color(FILE *to);

/* Formats a double as "%.*f" or "%.*g", with a decimal point regardless of the locale. */
int aril__number_text(char *buf, size_t size, char form, int digits, double v);

/* A value in user-friendly form: 0.0712, 12.35, 107124, 1.2e-05, nan. */
void aril__value_text(char *buf, size_t size, double v);

#endif
