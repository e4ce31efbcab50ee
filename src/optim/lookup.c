/* Hash tables, so that adding or finding n tensors takes time proportional to n: parameters of an
 * optimizer by tensor and by name, and a list of tensors by name. */
#include "optim/optim.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

static size_t hash_tensor(const aril_tensor *p)
{
    uint64_t h = (uint64_t)(uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h ^ h >> 32);
}

static size_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *name; name++) h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32);
}

static void insert(int *slot, size_t slots, size_t hash, int entry)
{
    size_t mask = slots - 1, at = hash & mask;
    while (slot[at]) at = (at + 1) & mask;
    slot[at] = entry;
}

/* ---- the parameters of an optimizer ---- */

/* An entry is 2 i + 1 for the tensor of parameter i, 2 i + 2 for its name, 0 for a free slot. */

static void insert_param(aril__param_lookup *l, const aril__optim_param *p, int i)
{
    insert(l->slot, l->slots, hash_tensor(p->p), 2 * i + 1);
    insert(l->slot, l->slots, hash_name(p->name), 2 * i + 2);
}

void aril__lookup_reset(aril_optim *opt)
{
    aril__param_lookup *l = &opt->lookup;
    if (l->slots) memset(l->slot, 0, l->slots * sizeof *l->slot);
    for (int i = 0; i < opt->n_params; i++) insert_param(l, &opt->params[i], i);
}

bool aril__lookup_reserve(aril_optim *opt, size_t n)
{
    enum { SLOTS_PER_PARAM = 4 }; /* at most half full */
    aril__param_lookup *l = &opt->lookup;
    size_t slots = l->slots ? l->slots : 64;
    while (slots < SLOTS_PER_PARAM * n) slots *= 2;
    if (slots == l->slots) return true;
    int *slot = aril__malloc(slots * sizeof *slot);
    if (!slot) return false;
    free(l->slot);
    *l = (aril__param_lookup){ .slot = slot, .slots = slots };
    aril__lookup_reset(opt);
    return true;
}

void aril__lookup_add(aril_optim *opt, int i)
{
    insert_param(&opt->lookup, &opt->params[i], i);
}

int aril__lookup_tensor(const aril_optim *opt, const aril_tensor *p)
{
    const aril__param_lookup *l = &opt->lookup;
    size_t mask = l->slots - 1;
    for (size_t at = hash_tensor(p) & mask; l->slot[at]; at = (at + 1) & mask) {
        int i = (l->slot[at] - 1) / 2;
        if (l->slot[at] % 2 == 1 && opt->params[i].p == p) return i;
    }
    return -1;
}

int aril__lookup_name(const aril_optim *opt, const char *name)
{
    const aril__param_lookup *l = &opt->lookup;
    size_t mask = l->slots - 1;
    for (size_t at = hash_name(name) & mask; l->slot[at]; at = (at + 1) & mask) {
        int i = (l->slot[at] - 1) / 2;
        if (l->slot[at] % 2 == 0 && strcmp(opt->params[i].name, name) == 0) return i;
    }
    return -1;
}

/* ---- lists of named tensors ---- */

aril_status aril__names_index(aril__name_lookup *l, const char *what, const aril_named *list)
{
    char text[16];
    size_t slots = 64;
    while (slots < 2 * (size_t)list->n) slots *= 2; /* at most half full */
    *l = (aril__name_lookup){ list, aril__calloc(slots * sizeof *l->slot), slots };
    if (!l->slot) return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory", what);
    for (int i = 0; i < list->n; i++)
        insert(l->slot, slots, hash_name(aril__param_name(list, i, text, sizeof text)), 1 + i);
    return ARIL_OK;
}

void aril__names_index_free(aril__name_lookup *l)
{
    free(l->slot);
}

int aril__names_index_find(const aril__name_lookup *l, const char *name)
{
    char text[16];
    size_t mask = l->slots - 1;
    for (size_t at = hash_name(name) & mask; l->slot[at]; at = (at + 1) & mask) {
        int i = l->slot[at] - 1;
        if (strcmp(aril__param_name(l->list, i, text, sizeof text), name) == 0) return i;
    }
    return -1;
}
