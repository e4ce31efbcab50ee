#include "graph/tracing.h"

#include <stdlib.h>

static aril__cold void no_memory(void)
{
    aril__fail(ARIL_ERR_MEMORY, "trace: out of memory");
}

/* ---- cells ---- */

static void free_cells(aril__symbols *base)
{
    aril__cells *c = (aril__cells *)base;
    for (aril__cell_chunk *next; c->chunks; c->chunks = next) {
        next = c->chunks->next;
        free(c->chunks);
    }
    free(c);
}

aril__cell *aril__cell_new(aril__tracing *t, aril__value_id value)
{
    aril__cells *c = t->cells;
    if (!value) return NULL;
    if (!c->chunks || c->used == ARIL__CELL_CHUNK) {
        aril__cell_chunk *more = aril__malloc(sizeof *more);
        if (!more) {
            no_memory();
            return NULL;
        }
        more->next = c->chunks;
        c->chunks = more;
        c->used = 0;
    }
    aril__cell *made = &c->chunks->at[c->used++];
    *made =
        (aril__cell){ .symbol = { &c->base, &made->version }, .value = value, .initial = value };
    return made;
}

aril__cell *aril__cell_outside(aril__tracing *t, aril__value_id value,
                               enum aril__cell_origin origin, uint32_t index)
{
    aril__cell *c = aril__cell_new(t, value);
    if (!c) return NULL;
    c->origin = (uint8_t)origin;
    c->index = index;
    return c;
}

aril__cells *aril__cells_new(aril__tracer *tracer)
{
    aril__cells *c = aril__calloc(sizeof *c);
    if (!c) return NULL;
    c->base.tracer = tracer;
    c->base.free = free_cells;
    atomic_init(&c->base.refs, 1);
    return c;
}

/* ---- maps ---- */

static size_t slot_of(const aril__map *m, const void *key)
{
    size_t i = ((uintptr_t)key >> 6) * 0x9e3779b97f4a7c15u >> 20 & (m->slots - 1);
    while (m->key[i] && m->key[i] != key) i = (i + 1) & (m->slots - 1);
    return i;
}

aril__cell *aril__map_find(const aril__map *m, const void *key)
{
    return m->slots ? m->at[slot_of(m, key)] : NULL;
}

static bool grow_map(aril__map *m)
{
    aril__map to = { .slots = m->slots ? m->slots * 2 : 64, .n = m->n };
    to.key = aril__calloc(to.slots * sizeof *to.key);
    to.at = aril__calloc(to.slots * sizeof *to.at);
    if (!to.key || !to.at) {
        free(to.key);
        free(to.at);
        no_memory();
        return false;
    }
    for (size_t i = 0; i < m->slots; i++) {
        if (!m->key[i]) continue;
        size_t k = slot_of(&to, m->key[i]);
        to.key[k] = m->key[i];
        to.at[k] = m->at[i];
    }
    free(m->key);
    free(m->at);
    *m = to;
    return true;
}

bool aril__map_put(aril__map *m, const void *key, aril__cell *c)
{
    if (2 * (m->n + 1) > m->slots && !grow_map(m)) return false;
    size_t i = slot_of(m, key);
    m->n += !m->key[i];
    m->key[i] = key;
    m->at[i] = c;
    return true;
}

void aril__map_free(aril__map *m)
{
    free(m->key);
    free(m->at);
    *m = (aril__map){ 0 };
}
