#include "formats/json_tree.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>

enum { NODES = 256 };

typedef struct aril__json_chunk {
    struct aril__json_chunk *next;
    int n;
    aril__json_node at[NODES];
} aril__json_chunk;

static aril__json_node *new_node(aril__json_tree *t)
{
    if (!t->chunks || t->chunks->n == NODES) {
        aril__json_chunk *c = aril__calloc(sizeof *c);
        if (!c) return NULL;
        c->next = t->chunks;
        t->chunks = c;
    }
    return &t->chunks->at[t->chunks->n++];
}

static aril__json_node *parse(aril__json_tree *t, aril__json *j);

/* The elements of an object or array. */
static void parse_inside(aril__json_tree *t, aril__json *j, aril__json_node *v)
{
    char end = v->kind == '{' ? '}' : ']';
    aril__json_node **last = &v->first;
    for (bool more = aril__json_enter(j, v->kind); more; more = aril__json_more(j, end)) {
        char *key = v->kind == '{' ? aril__json_key(j) : NULL;
        aril__json_node *e = j->wrong ? NULL : parse(t, j);
        if (!e) {
            free(key);
            aril__json_wrong(j, "a value was expected");
            return;
        }
        e->key = key;
        *last = e;
        last = &e->next;
        v->n++;
    }
}

/* NULL after an error, which j holds. The reader limits the depth. */
static aril__json_node *parse(aril__json_tree *t, aril__json *j)
{
    aril__json_node *v = new_node(t);
    if (!v) {
        j->memory = true;
        aril__json_wrong(j, "memory is out");
        return NULL;
    }
    char c = aril__json_peek(j);
    v->kind = strchr("{[\"tfn", c) && c ? c : '0';
    if (c == '{' || c == '[')
        parse_inside(t, j, v);
    else if (c == '"')
        v->text = aril__json_string(j);
    else if (v->kind != '0')
        aril__json_skip(j);
    else
        aril__json_number(j, &v->number);
    return j->wrong ? NULL : v;
}

aril_status aril__json_parse(aril__json_tree *t, const char *what, const char *text, size_t size)
{
    *t = (aril__json_tree){ 0 };
    aril__json j = { .text = text, .size = size };
    t->root = parse(t, &j);
    if (aril__json_end(&j)) return ARIL_OK;
    aril__json_tree_free(t);
    if (j.memory) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", what);
    return aril__fail(ARIL_ERR_FORMAT, "%s is not valid JSON: at byte %zu, %s", what, j.at,
                      j.wrong);
}

void aril__json_tree_free(aril__json_tree *t)
{
    for (aril__json_chunk *c = t->chunks, *next; c; c = next) {
        next = c->next;
        for (int i = 0; i < c->n; i++) {
            free(c->at[i].key);
            free(c->at[i].text);
        }
        free(c);
    }
    *t = (aril__json_tree){ 0 };
}

const aril__json_node *aril__json_get(const aril__json_node *v, const char *key)
{
    if (!v || v->kind != '{') return NULL;
    for (const aril__json_node *e = v->first; e; e = e->next)
        if (strcmp(e->key, key) == 0) return e;
    return NULL;
}

const aril__json_node *aril__json_at(const aril__json_node *v, int i)
{
    if (!v || (v->kind != '[' && v->kind != '{') || i < 0) return NULL;
    const aril__json_node *e = v->first;
    while (e && i-- > 0) e = e->next;
    return e;
}

char aril__json_kind(const aril__json_node *v)
{
    return v ? v->kind : 0;
}

const char *aril__json_text(const aril__json_node *v, const char *otherwise)
{
    return v && v->kind == '"' ? v->text : otherwise;
}

int64_t aril__json_integer(const aril__json_node *v, int64_t otherwise)
{
    const double most = 9007199254740992.0; /* 2^53: integers up to it are exact */
    if (!v || v->kind != '0' || !(v->number >= -most && v->number <= most)) return otherwise;
    return (double)(int64_t)v->number == v->number ? (int64_t)v->number : otherwise;
}

double aril__json_real(const aril__json_node *v, double otherwise)
{
    return v && v->kind == '0' ? v->number : otherwise;
}

bool aril__json_bool(const aril__json_node *v, bool otherwise)
{
    return v && (v->kind == 't' || v->kind == 'f') ? v->kind == 't' : otherwise;
}
