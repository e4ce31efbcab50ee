#include "train/terminal.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool aril__is_terminal(FILE *to)
{
    int fd = fileno(to);
    if (fd < 0 || isatty(fd) == 0) return false;
    const char *kind = getenv("TERM");
    return kind != NULL && *kind != '\0' && strcmp(kind, "dumb") != 0;
}

int aril__terminal_width(FILE *to)
{
    struct winsize size;
    int fd = fileno(to);
    if (fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    long n = columns != NULL ? strtol(columns, NULL, 10) : 0;
    return n > 0 && n < 10000 ? (int)n : 0;
}

/* Reads the environment instead of calling setlocale, which is up to the program. */
bool aril__utf8_locale(void)
{
    const char *const name[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(name[i]);
        if (value == NULL || *value == '\0') continue;
        const char *dot = strchr(value, '.');
        return dot != NULL &&
               (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
    }
    return false;
}

bool aril__wants_color(FILE *to)
{
    const char *no = getenv("NO_COLOR");
    return (no == NULL || *no == '\0') && aril__is_terminal(to);
}

int aril__number_text(char *buf, size_t size, char form, int digits, double v)
{
    int n = form == 'f' ? snprintf(buf, size, "%.*f", digits, v)
                        : snprintf(buf, size, "%.*g", digits, v);
    const char *point = localeconv()->decimal_point;
    char *at = point[0] != '.' && point[0] != '\0' ? strstr(buf, point) : NULL;
    if (at == NULL) return n;
    size_t length = strlen(point);
    *at = '.';
    memmove(at + 1, at + length, strlen(at + length) + 1);
    return n - (int)length + 1;
}

void aril__value_text(char *buf, size_t size, double v)
{
    double a = fabs(v);
    if (isnan(v))
        snprintf(buf, size, "nan");
    else if (isinf(v))
        snprintf(buf, size, v > 0 ? "inf" : "-inf");
    else if (a == 0 || (a >= 1e-3 && a < 10))
        aril__number_text(buf, size, 'f', 4, v);
    else if (a < 1e-3 || a >= 1e8)
        aril__number_text(buf, size, 'g', 3, v);
    else
        aril__number_text(buf, size, 'f', a < 100 ? 3 : a < 1000 ? 2 : a < 1e5 ? 1 : 0, v);
}
