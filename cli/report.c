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

aril_metric *next_metric(const char **list)
{
    char name[128];
    *list += strspn(*list, ", ");
    size_t n = strcspn(*list, ", ");
    if (n == 0) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, *list);
    *list += n;
    return aril_metric_new(name, (aril_metric_opts){ 0 });
}

bool measures_known(const char *loss, const char *metrics)
{
    if (loss) aril_module_release(aril_nn_loss(loss));
    if (!aril_ok()) return blame("--loss");
    for (aril_metric *m; metrics && (m = next_metric(&metrics));) aril_metric_free(m);
    return aril_ok() || blame("--metrics");
}

bool blame(const char *what)
{
    char text[1200];
    aril_status code = aril_error_code();
    const char *message = aril_error();
    snprintf(text, sizeof text, "%.*s", without_location(message), message);
    aril_clear_error();
    aril_fail(code, "%s: %s", what, text);
    return false;
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

void explain_missing(aril_device device, char *to, size_t size)
{
    char name[48];
    aril_synchronize(device); /* fails: the error names the cause before what is available */
    const char *why = strstr(aril_error(), "': "), *end = why ? strstr(why, " (available") : NULL;
    why = end ? why + 3 : "";
    size_t kind = strcspn(aril_device_name(device, name, sizeof name), ":");
    if (strncmp(why, name, kind) == 0 && strncmp(why + kind, ": ", 2) == 0) why += kind + 2;
    snprintf(to, size, "%.*s", end ? (int)(end - why) : 0, why);
    aril_clear_error();
}

bool check_device(const char *name)
{
    if (!name) return true;
    aril_device device = aril_device_named(name);
    if (aril_ok() && aril_device_available(device)) return true;
    char why[400] = "";
    if (aril_ok()) explain_missing(device, why, sizeof why);
    aril_clear_error();
    aril_fail(ARIL_ERR_ARG, "--device: no device '%s'%s%s; `aril devices` lists them", name,
              *why ? ": " : "", why);
    return false;
}

aril_device device_option(const char *name)
{
    return name ? aril_device_named(name) : aril_cpu();
}
