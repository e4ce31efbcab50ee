/* What went wrong, for a person who did not write the program. */
#include "commands.h"

#include <aril/error.h>

#include <ctype.h>
#include <string.h>

/* The length of a message without " at FILE:LINE", which is a place in this command. */
static int without_place(const char *message)
{
    const char *at = NULL;
    for (const char *p = message; (p = strstr(p, " at ")) != NULL; p += 4) at = p;
    const char *colon = at ? strrchr(at, ':') : NULL;
    if (!colon || !isdigit((unsigned char)colon[1]) || strchr(at + 4, ' '))
        return (int)strlen(message);
    return (int)(at - message);
}

int report(const char *name)
{
    const char *message = aril_error();
    if (!message) return EXIT_FAILED;
    fprintf(stderr, "aril %s: %.*s\n", name, without_place(message), message);
    aril_clear_error();
    return EXIT_FAILED;
}
