/* Regular expressions in the syntax of RE2, without captures: time is linear in the text, whatever
 * the pattern. */
#ifndef ARIL_ONNX_REGEX_H
#define ARIL_ONNX_REGEX_H

#include <stdbool.h>
#include <stddef.h>

typedef struct aril__regex aril__regex;

/* NULL if the pattern is wrong, needs what is not supported, or is too large: *error says which, or
 * is NULL when out of memory. Patterns and texts are UTF-8. */
aril__regex *aril__regex_new(const char *pattern, size_t n, const char **error);
/* Whether the expression matches the whole text. One thread at a time. */
bool aril__regex_matches(aril__regex *r, const char *text, size_t n);
/* The bytes of the longest match that begins `at` bytes into the text; -1: there is none. */
ptrdiff_t aril__regex_longest(aril__regex *r, const char *text, size_t n, size_t at);
void aril__regex_free(aril__regex *r);

#endif
