#include "ops/random.h"

#include "aril/ops.h"

aril_tensor *aril__rng_draw(aril_generator *g)
{
    aril__thread *th = aril__self();
    aril__rng_key key = aril__rng_next(g ? g : &th->generator);
    int64_t dim[1] = {2};
    aril_tensor *t = aril__tensor_new(th, ARIL_U64, 1, dim, aril__cpu_device);
    if (t) {
        uint64_t *k = t->storage->data;
        k[0] = key.seed;
        k[1] = key.call;
    }
    return aril__give(th, t);
}

aril_status aril__rng_check_key(aril__call *c)
{
    const aril_tensor *k = c->in[0];
    if (k->dtype != ARIL_U64 || k->ndim != 1 || k->dim[0] != 2)
        return aril__fail(ARIL_ERR_ARG, "%s: the first input is not a random key", c->op->name);
    return ARIL_OK;
}
