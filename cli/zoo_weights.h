/* `aril zoo get`, `where` and `rm`: published weights in the cache. */
#ifndef ARIL_CLI_ZOO_WEIGHTS_H
#define ARIL_CLI_ZOO_WEIGHTS_H

#include <stdbool.h>

/* Downloads the files of networks; shows where they are (all that are there, if n is 0); removes
 * them. Each returns the exit status. */
int zoo_get(int n, char **name, bool offline, bool quiet);
int zoo_where(int n, char **name);
int zoo_remove(int n, char **name, bool quiet);

#endif
