#include "commands.h"
#include "model_file.h"

static int run(void *values, int n, char **argument)
{
    (void)values, (void)n, (void)argument;
    char input[64];
    for (int i = 0; i < aril_zoo_count(); i++) {
        const aril_zoo_entry *e = aril_zoo_at(i);
        printf("%-14s %-11s %s%s\n", e->name, shape_text(e->input, input, sizeof input), e->about,
               e->dtype == ARIL_I64 ? "; takes tokens: for programs, not for `aril train`" : "");
    }
    return EXIT_DONE;
}

const command command_zoo = {
    .name = "zoo",
    .summary = "list the networks that have a name",
    .about = "Each line has the name, the default input shape and a description. `aril show NAME` "
             "prints the layers.",
    .run = run
};
