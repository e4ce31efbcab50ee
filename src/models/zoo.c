#include "aril/zoo.h"

#include "core/error.h"
#include "models/models.h"

#include <string.h>

static const aril_zoo_entry entries[] = {
    { "lenet5", "LeNet-5 with ReLU and max pooling", { 3, { 1, 28, 28 } }, 10, aril__lenet5 },
    { "lenet5-1998",
      "LeNet-5 as published: tanh, trained average pooling, maps of partial connections",
      { 3, { 1, 28, 28 } },
      10,
      aril__lenet5_1998 },
    { "mlp",
      "three linear layers, 256 and 128 wide between them, with ReLU and dropout",
      { 3, { 1, 28, 28 } },
      10,
      aril__mlp },
    { "two_layer",
      "two linear layers, 100 wide between them, with ReLU",
      { 1, { 1000 } },
      1000,
      aril__two_layer },
    { "convnet",
      "four convolutions in the manner of VGG, with dropout",
      { 3, { 3, 100, 100 } },
      10,
      aril__convnet },
};
enum { ENTRIES = sizeof entries / sizeof *entries };

int aril_zoo_count(void)
{
    return ENTRIES;
}

const aril_zoo_entry *aril_zoo_at(int i)
{
    return i >= 0 && i < ENTRIES ? &entries[i] : NULL;
}

const aril_zoo_entry *aril_zoo_find(const char *name)
{
    const char *names[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        names[i] = entries[i].name;
        if (name && strcmp(name, names[i]) == 0) return &entries[i];
    }
    const char *near = aril_nearest(name, names, ENTRIES);
    aril__fail(ARIL_ERR_ARG, near ? "no model '%s'; did you mean %s?" : "no model '%s'",
               name ? name : "", near);
    return NULL;
}

aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    if (!e) return NULL;
    aril_shape input = opts.input.ndim ? opts.input : e->input;
    int64_t classes = opts.classes ? opts.classes : e->classes;
    if (classes < 1) {
        aril__fail(ARIL_ERR_ARG, "%s: expected at least 1 class, got %lld", name,
                   (long long)classes);
        return NULL;
    }
    aril_module *m = e->make(input, classes);
    if (m && aril_module_build(m, input) < 0) {
        aril_module_release(m);
        return NULL;
    }
    return m;
}
