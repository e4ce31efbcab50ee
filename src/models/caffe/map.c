/* Names and numbers. */
#include "models/caffe/inside.h"

#include <stdlib.h>

static size_t hash_of(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 29);
}

/* The slot of a name, or the empty one where it belongs. */
static size_t find(const caffe_map *map, const char *name)
{
    size_t i = hash_of(name) & (map->capacity - 1);
    while (map->at[i].name && strcmp(map->at[i].name, name) != 0) i = (i + 1) & (map->capacity - 1);
    return i;
}

int aril__caffe_map_get(const caffe_map *map, const char *name)
{
    size_t i = map->capacity ? find(map, name) : 0;
    return map->capacity && map->at[i].name ? map->at[i].value : -1;
}

static aril_status widen(caffe_map *map)
{
    caffe_map wider = { .n = map->n, .capacity = map->capacity ? 2 * map->capacity : 64 };
    wider.at = aril__calloc(wider.capacity * sizeof *wider.at);
    if (!wider.at) return aril__fail(ARIL_ERR_MEMORY, "caffe: out of memory for names");
    for (size_t i = 0; i < map->capacity; i++)
        if (map->at[i].name) wider.at[find(&wider, map->at[i].name)] = map->at[i];
    free(map->at);
    *map = wider;
    return ARIL_OK;
}

aril_status aril__caffe_map_set(caffe_map *map, const char *name, int value)
{
    if (2 * map->n >= map->capacity) {
        aril_status s = widen(map);
        if (s < 0) return s;
    }
    size_t i = find(map, name);
    map->n += !map->at[i].name;
    map->at[i].name = name;
    map->at[i].value = value;
    return ARIL_OK;
}

void aril__caffe_map_free(caffe_map *map)
{
    free(map->at);
    *map = (caffe_map){ 0 };
}

/* ---- layers by name ---- */

aril_status aril__caffe_names(const caffe_net *net, caffe_names *to)
{
    size_t size = ((size_t)net->n_nodes + 1) * sizeof(int);
    aril_status s = ARIL_OK;
    *to = (caffe_names){ .next = aril__calloc(size), .position = aril__calloc(size) };
    if (!to->next || !to->position)
        s = aril__fail(ARIL_ERR_MEMORY, "caffe: out of memory for names");
    /* From the last to the first, so that each finds the next one; with blobs after those without,
     * which they replace. */
    for (int with_blobs = 0; with_blobs < 2; with_blobs++)
        for (int i = net->n_nodes - 1; i >= 0 && s == ARIL_OK; i--) {
            const caffe_node *n = &net->node[i];
            if ((aril__caffe_layer_of(n)->n_blobs > 0) != with_blobs) continue;
            int next = aril__caffe_map_get(&to->at, n->name);
            bool leads = next >= 0 && with_blobs && to->position[next];
            to->next[i] = leads ? next : -1;
            to->position[i] = with_blobs;
            s = aril__caffe_map_set(&to->at, n->name, i);
        }
    for (int i = 0; i < net->n_nodes && s == ARIL_OK; i++)
        if (to->next[i] >= 0) to->position[to->next[i]] = to->position[i] + 1;
    if (s != ARIL_OK) aril__caffe_names_free(to);
    return s;
}

int aril__caffe_names_take(caffe_names *names, const char *name)
{
    size_t slot = names->at.capacity ? find(&names->at, name) : 0;
    if (!names->at.capacity || !names->at.at[slot].name) return -1;
    int *at = &names->at.at[slot].value, node = *at;
    if (node >= 0) *at = names->next[node];
    return node;
}

void aril__caffe_names_free(caffe_names *names)
{
    aril__caffe_map_free(&names->at);
    free(names->next);
    free(names->position);
    *names = (caffe_names){ 0 };
}
