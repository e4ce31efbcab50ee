/* Small runs: where several kernels in a row take less time than their launches, a device that
 * records them may make one of them (is_small and record_small of aril/plugin.h). A few gain
 * nothing: they can run side by side. ARIL_PASSES=-small switches it off. */
#include "graph/executor.h"
#include "graph/passes.h"

enum { FEWEST = 8 };

static bool is_small(const aril__action *a)
{
    const aril__device *d = a->run.device;
    return a->kind == ARIL__RUN_KERNEL && d->ops.is_small && d->ops.is_small(d->self, &a->run);
}

void aril__mark_small(aril__instance *n)
{
    uint32_t first = 0; /* of the small actions up to here */
    if (!aril__pass_is_on("small")) return;
    for (uint32_t i = 0; i < n->n_actions; i++) {
        aril__action *a = &n->actions[i];
        if (!is_small(a) || a->run.device != n->actions[first].run.device) {
            first = i + 1;
            continue;
        }
        if (i + 1 - first < FEWEST) continue;
        for (uint32_t k = i + 1 - first == FEWEST ? first : i; k <= i; k++)
            n->actions[k].small = true;
    }
}
