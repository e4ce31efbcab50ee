#ifndef ARIL_CLI_PROTOTYPES_H
#define ARIL_CLI_PROTOTYPES_H

/* Public functions as declared in the headers. scripts/prototypes generates both tables at build
 * time; each ends with a row of NULL. */
typedef struct prototype {
    const char *name;   /* "aril_sum" */
    const char *header; /* "aril/reduce.h" */
    const char *text;   /* "aril_tensor *aril_sum(aril_tensor *x, aril_axes axes);" */
} prototype;
extern const prototype prototypes[];

/* Functions that run an op, directly or through an internal function. */
typedef struct op_function {
    const char *op, *function;
} op_function;
extern const op_function op_functions[];

#endif
