/* Error messages for users of the command. */
#include "commands.h"

#include <aril/aril.h>

#include <ctype.h>
#include <string.h>

/* The length of a message without " at FILE:LINE", a source location in this command. */
static int without_location(const char *message)
{
    const char *at = NULL;
    for (const char *p = message; (p = strstr(p, " at ")) != NULL; p += 4) at = p;
    const char *colon = at ? strrchr(at, ':') : NULL;
    if (!colon || !isdigit((unsigned char)colon[1]) || strchr(at + 4, ' '))
        return (int)strlen(message);
    return (int)(at - message);
}

bool measures_known(const char *loss, const char *metrics)
{
    char names[512], *rest = NULL;
    snprintf(names, sizeof names, "%s", metrics ? metrics : "");
    if (loss) aril_module_release(aril_nn_loss(loss));
    for (char *name = strtok_r(names, ", ", &rest); name && aril_ok();
         name = strtok_r(NULL, ", ", &rest))
        aril_metric_free(aril_metric_new(name, (aril_metric_opts){ 0 }));
    return aril_ok();
}

int report(const char *name)
{
    char text[1200];
    const char *message = aril_error();
    if (!*message) return EXIT_FAILED;
    snprintf(text, sizeof text, "%.*s", without_location(message), message);
    fprintf(stderr, "aril %s: ", name);
    print_text(stderr, text);
    fputs("\n", stderr);
    aril_clear_error();
    return EXIT_FAILED;
}
