/* Error messages for users of the command. */
#include "commands.h"

#include <aril/aril.h>

#include <string.h>

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
    snprintf(text, sizeof text, "%s", aril_error());
    aril_clear_error();
    aril_fail(code, "%s: %s", what, text);
    return false;
}

int report(const char *name)
{
    if (aril_ok()) return EXIT_FAILED;
    fprintf(stderr, "aril %s: ", name);
    print_text(stderr, aril_error());
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
