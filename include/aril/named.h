/* Named tensors: the parameters of a module, the state of an optimizer, the contents of a file. */
#ifndef ARIL_NAMED_H
#define ARIL_NAMED_H

#include "aril/tensor.h"

ARIL_C_BEGIN

/* n tensors, borrowed. name may be NULL: then the names are "0", "1", ... */
typedef struct aril_named {
    int n;
    aril_tensor *const *at;
    const char *const *name;
} aril_named;

ARIL_C_END

/* Unnamed tensors as an aril_named pointer, such as ARIL_TENSORS(w1, w2): for optimizers of
 * parameters that belong to no module. Lives until the end of the enclosing block, in C++ until the
 * end of the full expression. */
#ifdef __cplusplus
template <int N> struct aril__named_of {
    aril_tensor *at[N];
    aril_named self;
    operator const aril_named *()
    {
        self = { N, at, nullptr };
        return &self;
    }
};
template <class... P> inline aril__named_of<int(sizeof...(P))> aril__make_named(P... p)
{
    return { { p... }, {} };
}
#define ARIL_TENSORS(...) aril__make_named(__VA_ARGS__)
#else
#define ARIL_TENSORS(...)                                                                          \
    (&(const aril_named){ (int)(sizeof((aril_tensor *[]){ __VA_ARGS__ }) / sizeof(aril_tensor *)), \
                          (aril_tensor *[]){ __VA_ARGS__ }, NULL })
#endif

#endif
