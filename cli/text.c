/* Text from files and folders on its way to a terminal. A class name may contain anything, even
 * escape sequences: nothing that came from a file is printed unescaped. */
#include "commands.h"

#include <string.h>

/* The length of the UTF-8 character at p, and its code point; 0: invalid. */
static int character(const unsigned char *p, unsigned *code)
{
    static const unsigned min[] = { 0, 0, 0x80, 0x800, 0x10000 };
    int n = *p < 0x80 ? 1 : *p >= 0xF0 && *p < 0xF8 ? 4 : *p >= 0xE0 ? 3 : *p >= 0xC0 ? 2 : 0;
    if (n == 0 || *p >= 0xF8) return 0;
    *code = n == 1 ? *p : *p & (0xFFU >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        *code = *code << 6 | (p[i] & 0x3F);
    }
    bool surrogate = *code >= 0xD800 && *code < 0xE000;
    return *code < min[n] || *code > 0x10FFFF || surrogate ? 0 : n;
}

bool is_utf8(const char *text)
{
    unsigned code;
    for (int n; *text; text += n)
        if ((n = character((const unsigned char *)text, &code)) == 0) return false;
    return true;
}

/* Control characters, and those that change the text direction. */
static bool is_control(unsigned code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* The next character of a text, escaped for printing, in to[16]; advances *text past it. */
static void next_printable(const char **text, char *to)
{
    unsigned code = 0;
    int n = character((const unsigned char *)*text, &code);
    if (n == 0)
        snprintf(to, 16, "\\x%02x", (unsigned char)**text);
    else if (is_control(code))
        snprintf(to, 16, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
    else
        snprintf(to, 16, "%.*s", n, *text);
    *text += n ? n : 1;
}

const char *printable(const char *text, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (const char *p = text ? text : ""; *p;) {
        char one[16];
        next_printable(&p, one);
        size_t n = strlen(one);
        if (used + n + 1 > size) break;
        memcpy(buf + used, one, n + 1);
        used += n;
    }
    return buf;
}

void print_text(FILE *to, const char *text)
{
    for (const char *p = text ? text : ""; *p;) {
        char one[16];
        next_printable(&p, one);
        fputs(one, to);
    }
}

static int columns_of(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

int printed_width(const char *text)
{
    int n = 0;
    for (const char *p = text; *p;) {
        char one[16];
        next_printable(&p, one);
        n += columns_of(one);
    }
    return n;
}

const char *bytes_text(double bytes, char *buf, size_t size)
{
    static const char *const units[] = { "B", "KB", "MB", "GB", "TB" };
    int unit = 0;
    /* A value that would print as 1000 becomes 1 of the next unit. */
    for (; unit < 4 && bytes >= (unit ? 999.5 : 1023.5); unit++) bytes /= 1024;
    int digits = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    snprintf(buf, size, "%.*f %s", digits, bytes, units[unit]);
    return buf;
}

void print_padded(const char *text, int width)
{
    int n = 0;
    for (const char *p = text; *p;) {
        char one[16];
        next_printable(&p, one);
        if (n + columns_of(one) > width) break;
        fputs(one, stdout);
        n += columns_of(one);
    }
    printf("%*s", width - n, "");
}

void print_json_text(const char *text)
{
    putchar('"');
    for (const char *p = text; *p;) {
        unsigned code = 0;
        int n = character((const unsigned char *)p, &code);
        if (n == 0)
            fputs("\\ufffd", stdout);
        else if (code == '"' || code == '\\')
            printf("\\%c", *p);
        else if (is_control(code))
            printf("\\u%04x", code);
        else
            printf("%.*s", n, p);
        p += n ? n : 1;
    }
    putchar('"');
}
