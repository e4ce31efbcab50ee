#include "support/modules.h"

#include "aril/aril.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static bool printed_as(aril_module *m, const char *shown)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return false;
    aril_module_print(m, to);
    fclose(to);
    if (size) text[size - 1] = 0; /* the newline */
    bool same = test_check_str(__FILE__, __LINE__, "printed form", text, shown);
    free(text);
    return same;
}

/* Replaces the state by x[0], x[1], ...; the state must have these names. */
static bool take_state(aril_module *m, const char *names, aril_tensor **x)
{
    const aril_named *state = aril_state(m);
    if (!state) return false;
    char have[2000] = "";
    for (int i = 0; i < state->n; i++) {
        size_t at = strlen(have);
        snprintf(have + at, sizeof have - at, i ? ",%s" : "%s", state->name[i]);
    }
    if (!test_check_str(__FILE__, __LINE__, "names of the state", have, names)) return false;
    int n = state->n;
    for (int i = 0; i < n; i++) {
        state = aril_state(m); /* sharing changes the list */
        if (aril_module_share(m, state->name[i], x[i]) < 0) return false;
    }
    return true;
}

void test_module(aril_module *m, const char *shown, const char *names, int n_in, bool eval,
                 int n_out, aril_tensor **x, aril_tensor **y)
{
    aril_list in = { n_in, x };
    const aril_named *buffers = NULL;
    if (m && aril_dtype_of(x[0]) == ARIL_F64) aril_module_cast(m, ARIL_F64);
    if (m && aril_module_build_n(m, in) == ARIL_OK && printed_as(m, shown) &&
        take_state(m, names, x + n_in)) {
        if (eval) aril_module_eval(m);
        aril_forward_all(m, in, n_out, y);
        if (!eval) buffers = aril_buffers(m);
        for (int i = 0; buffers && i < buffers->n; i++) y[n_out + i] = aril_copy(buffers->at[i]);
    }
    if (!aril_ok()) test_fail(__FILE__, __LINE__, "%s", aril_error());
    aril_module_release(m);
}
