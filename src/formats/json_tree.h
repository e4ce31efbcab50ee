/* JSON as a tree, for files whose parts are needed in any order. */
#ifndef ARIL_FORMATS_JSON_TREE_H
#define ARIL_FORMATS_JSON_TREE_H

#include "aril/base.h"

/* A value. All functions accept NULL, which is a value that is missing. */
typedef struct aril__json_node {
    char kind;     /* '{', '[', '"', '0' (a number), 't', 'f', or 'n' (null) */
    int n;         /* the number of elements */
    char *key;     /* of a member of an object; NULL: an array's element */
    char *text;    /* of a string */
    double number; /* of a number */
    struct aril__json_node *first, *next; /* the first element; the next one of the same parent */
} aril__json_node;

typedef struct aril__json_tree {
    aril__json_node *root;
    struct aril__json_chunk *chunks;
} aril__json_tree;

/* Parses text; `what` names it in messages. On failure there is nothing to free. */
aril_status aril__json_parse(aril__json_tree *t, const char *what, const char *text, size_t size);
void aril__json_tree_free(aril__json_tree *t);

/* A member of an object; an element of an array. NULL: there is none. */
const aril__json_node *aril__json_get(const aril__json_node *v, const char *key);
const aril__json_node *aril__json_at(const aril__json_node *v, int i);

/* The kind of a value, 0 if it is missing; the text of a string, else `otherwise`; an integer that
 * fits, else `otherwise`; a number; a boolean. */
char aril__json_kind(const aril__json_node *v);
const char *aril__json_text(const aril__json_node *v, const char *otherwise);
int64_t aril__json_integer(const aril__json_node *v, int64_t otherwise);
double aril__json_real(const aril__json_node *v, double otherwise);
bool aril__json_bool(const aril__json_node *v, bool otherwise);

#endif
