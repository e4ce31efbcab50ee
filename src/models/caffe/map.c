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
