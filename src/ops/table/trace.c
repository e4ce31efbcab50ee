/* What code calls that may be traced: nothing happens outside a trace. */
#include "ops/table/apply.h"

aril__tracer *aril__trace(aril__tracer *t)
{
    aril__thread *th = aril__self();
    aril__tracer *before = th->tracer;
    th->tracer = t;
    th->sizes = t ? &t->sizes : NULL;
    return before;
}

aril__pause aril__trace_pause(void)
{
    aril__thread *th = aril__self();
    aril__pause p = { th->tracer, th->generator.calls };
    th->tracer = NULL;
    return p;
}

void aril__trace_resume(aril__pause p)
{
    aril__thread *th = aril__self();
    th->tracer = p.tracer;
    if (p.tracer && th->generator.calls != p.calls) p.tracer->drawn_outside = true;
}

aril_status aril__trace_watch(void *at, size_t bytes)
{
    aril__tracer *t = aril__self()->tracer;
    return t && t->watch ? t->watch(t, at, bytes) : ARIL_OK;
}

aril_status aril__trace_depend(const void *at, size_t bytes)
{
    aril__tracer *t = aril__self()->tracer;
    return t && t->depend ? t->depend(t, at, bytes) : ARIL_OK;
}

aril_status aril__trace_reads(aril__lifetime_slot *of, const char *what)
{
    aril__tracer *t = aril__self()->tracer;
    if (!t || !t->reads) return ARIL_OK;
    aril__lifetime *l = aril__lifetime_of(of, what);
    aril_status s = l ? t->reads(t, l) : ARIL_ERR_MEMORY;
    aril__lifetime_release(l);
    return s;
}

void aril__trace_name(const aril_tensor *t, const char *name)
{
    aril__tracer *to = aril__self()->tracer;
    if (to && to->name) to->name(to, t, name);
}

aril_status aril__trace_after(void (*fn)(void *ctx, const void *data), void *ctx, const void *data,
                              size_t bytes)
{
    aril__tracer *t = aril__self()->tracer;
    return t && t->after ? t->after(t, fn, ctx, data, bytes) : ARIL_OK;
}
