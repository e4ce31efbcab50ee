/* Switches in environment variables. Here is all of it, since plug-ins use it too. */
#ifndef ARIL_CORE_ENVIRONMENT_H
#define ARIL_CORE_ENVIRONMENT_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* 1 or 0, if the variable says yes or no in one of the usual words; `otherwise` if it is not set or
 * empty, and after a warning, the first in each file, if it says anything else. `also`: what else
 * is expected, "" or ", ...", which the caller has looked for. */
static inline int aril__env_switch_or(const char *name, int otherwise, const char *also)
{
    static const char *const word[2][4] = { { "0", "no", "off", "false" },
                                            { "1", "yes", "on", "true" } };
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *value = getenv(name);
    if (!value || !*value) return otherwise;
    for (int on = 0; on < 2; on++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(value, word[on][i]) == 0) return on;
    if (!atomic_flag_test_and_set(&warned))
        fprintf(stderr, "aril: %s=%.32s ignored: expected 1 or 0 (yes or no, on or off)%s\n", name,
                value, also);
    return otherwise;
}

static inline int aril__env_switch(const char *name, int otherwise)
{
    return aril__env_switch_or(name, otherwise, "");
}

#endif
