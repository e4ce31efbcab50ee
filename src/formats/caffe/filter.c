/* The rules by which layers belong to a net of some phase, level and stages. */
#include "formats/caffe/net.h"

#include "core/error.h"

#include <string.h>

static bool has_stage(const aril__caffe_state *state, const char *stage)
{
    for (int i = 0; i < state->n_stages; i++)
        if (strcmp(state->stages[i], stage) == 0) return true;
    return false;
}

static bool meets(const aril__message *rule, const aril__caffe_state *state)
{
    const int64_t train = 0, test = 1;
    if (aril__message_has(rule, "phase") &&
        aril__message_int(rule, "phase") != (state->train ? train : test))
        return false;
    if (aril__message_has(rule, "min_level") && state->level < aril__message_int(rule, "min_level"))
        return false;
    if (aril__message_has(rule, "max_level") && state->level > aril__message_int(rule, "max_level"))
        return false;
    for (size_t i = 0; i < aril__message_count(rule, "stage"); i++)
        if (!has_stage(state, aril__message_text_at(rule, "stage", i))) return false;
    for (size_t i = 0; i < aril__message_count(rule, "not_stage"); i++)
        if (has_stage(state, aril__message_text_at(rule, "not_stage", i))) return false;
    return true;
}

int aril__caffe_layer_included(const aril__message *layer, const aril__caffe_state *state,
                               const char *name)
{
    size_t includes = aril__message_count(layer, "include"),
           excludes = aril__message_count(layer, "exclude");
    char place[40];
    if (includes && excludes)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: layer '%s' at %s has include and exclude rules; use one kind", name,
                          aril__message_text(layer, "name"),
                          aril__message_place(layer, place, sizeof place));
    for (size_t i = 0; i < includes; i++)
        if (meets(aril__message_sub_at(layer, "include", i), state)) return 1;
    for (size_t i = 0; i < excludes; i++)
        if (meets(aril__message_sub_at(layer, "exclude", i), state)) return 0;
    return includes == 0;
}
