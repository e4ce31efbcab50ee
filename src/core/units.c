#include "core/units.h"

#include <stdio.h>

static char *short_number(char *text, size_t size, double n, double step, const char *const *units,
                          int n_units)
{
    int unit = 0;
    /* A value that would print as 1000 becomes 1 of the next unit. */
    for (; unit + 1 < n_units && n >= (unit ? 999.5 : step - 0.5); unit++) n /= step;
    int digits = unit == 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
    snprintf(text, size, "%.*f%s", digits, n, units[unit]);
    return text;
}

char *aril__bytes_text(char *text, size_t size, double n)
{
    static const char *const units[] = { " B", " KB", " MB", " GB", " TB" };
    return short_number(text, size, n, 1024, units, 5);
}

char *aril__count_text(char *text, size_t size, double n)
{
    static const char *const units[] = { "", " K", " M", " G", " T", " P" };
    return short_number(text, size, n, 1000, units, 6);
}
