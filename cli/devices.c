#include "commands.h"

#include <aril/aril.h>

#include <string.h>

/* Says why there are no GPUs. */
static void explain_cuda(void)
{
    if (aril_device_available(aril_cuda(0))) return;
    char why[400];
    explain_missing(aril_cuda(0), why, sizeof why);
    if (*why) printf("cuda: not available: %s\n", why);
}

static int run(void *values, int n, char **argument)
{
    (void)values, (void)n, (void)argument;
    char text[1100];
    for (int i = 0; i < aril_device_count(); i++)
        puts(aril_device_describe(aril_device_at(i), text, sizeof text));
    if (!aril_ok()) return report("devices");
    explain_cuda();
    return EXIT_DONE;
}

const command command_devices = { .name = "devices",
                                  .summary = "list the available devices",
                                  .about = "This opens all plug-ins: those in the folder aril/ "
                                           "beside the library, and those listed in "
                                           "ARIL_PLUGINS (files and folders, separated by colons). "
                                           "If there is no GPU to use, the last "
                                           "line says what is missing.",
                                  .run = run };
