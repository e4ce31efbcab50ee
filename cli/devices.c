#include "commands.h"

#include <aril/aril.h>

static int run(void *values, int n, char **argument)
{
    (void)values, (void)n, (void)argument;
    char text[256];
    for (int i = 0; i < aril_device_count(); i++)
        puts(aril_device_describe(aril_device_at(i), text, sizeof text));
    return aril_ok() ? EXIT_DONE : report("devices");
}

const command command_devices = {
    .name = "devices",
    .summary = "list the available devices",
    .about = "Plug-ins listed in ARIL_PLUGINS (paths separated by colons) are loaded first.",
    .run = run
};
