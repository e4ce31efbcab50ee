/* Files of weights, of any framework: listed and converted. */
#ifndef ARIL_CLI_WEIGHTS_FILE_H
#define ARIL_CLI_WEIGHTS_FILE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weights_options {
    const char *root;   /* the part of a checkpoint; NULL: the weights of its model */
    bool all;           /* everything in it */
    int64_t depth;      /* of names that are listed; 0: all */
    const char *rename; /* "FROM=TO,FROM=TO" */
    const char *dtype;  /* floats are cast to it; NULL: as they are */
    const char *part;   /* the size of parts, such as "5GB"; NULL: one file */
} weights_options;

/* Whether a path is to be shown as a file of weights, rather than as a network: all but files
 * written by `aril train`. False with an error if it is a file of no known kind. */
bool weights_is_file(const char *path);

/* Whether weights can be written to a path, by its extension. */
bool weights_is_output(const char *path);

/* The exit status of `aril show` and `aril convert`. */
int weights_show(const char *path, const weights_options *o);
int weights_convert(const char *from, const char *to, const weights_options *o);

#endif
