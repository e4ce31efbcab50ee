/* Weights for networks of the zoo. */
#ifndef ARIL_MODELS_PRETRAINED_H
#define ARIL_MODELS_PRETRAINED_H

#include "aril/zoo.h"

/* Loads opts->weights into m, a network of e for opts: a file, or "default", the published ones in
 * the cache. Names of its publisher are translated. With `new_head`, what depends on the number of
 * classes stays as it is where the file has another number; auxiliary heads that m lacks are
 * ignored. Anything else that does not fit is an error. */
aril_status aril__zoo_load(const aril_zoo_entry *e, aril_module *m, const aril_zoo_opts *opts,
                           bool new_head);

/* Whether `name`, of n characters, is one of the names separated by spaces. */
bool aril__is_listed(const char *names, const char *name, size_t n);

#endif
