/* Parses the arguments of a command by its table of options. */
#include "commands.h"

#include <aril/error.h>
#include <aril/parallel.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_OPTIONS = 128 };

static const option *find(const command *c, const char *name, size_t length)
{
    for (const option *o = c->options; o && o->name; o++)
        if (*o->name && strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    return NULL;
}

/* Caffe's flags for GPUs; `value` is what follows, or NULL. False if it is another option. */
static bool says_gpu(const command *c, const char *name, const char *value)
{
    if (strcmp(name, "gpu") != 0 || !find(c, "device", strlen("device"))) return false;
    size_t digits = value ? strspn(value, "0123456789") : 0;
    bool number = digits > 0 && digits < 8 && !value[digits];
    fprintf(stderr, "; GPUs are devices: --device cuda:%s", number ? value : "0");
    return true;
}

static void unknown(const command *c, const char *name, const char *value)
{
    const char *names[MAX_OPTIONS];
    int n = 0;
    for (const option *o = c->options; o && o->name && n < MAX_OPTIONS; o++)
        if (*o->name && !o->hidden) names[n++] = o->name;
    const char *near = aril_nearest(name, names, n);
    fprintf(stderr, "aril %s: no option '--%s'", c->name, name);
    if (!says_gpu(c, name, value) && near) fprintf(stderr, "; did you mean --%s?", near);
    fprintf(stderr, "\nrun `aril %s --help` for the options\n", c->name);
}

/* Programs such as Caffe's have options with one dash and underscores. */
static void one_dash(const command *c, const char *text, const char *value)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 1, "="), text + 1);
    for (char *at = name; *at; at++)
        if (*at == '_') *at = '-';
    const char *equals = strchr(text, '=');
    fprintf(stderr, "aril %s: no option '%s'", c->name, text);
    if (find(c, name, strlen(name)))
        fprintf(stderr, "; options start with two dashes: --%s\n", name);
    else if (says_gpu(c, name, equals ? equals + 1 : value))
        fputs("\n", stderr);
    else
        fputs("; options start with two dashes\n", stderr);
}

static bool refuse(const command *c, const option *o, const char *text, const char *wants)
{
    fprintf(stderr, "aril %s: --%s expects %s", c->name, o->name, wants);
    if (text) {
        fputs(", got '", stderr);
        print_text(stderr, text);
        fputs("'", stderr);
    }
    fputs("\n", stderr);
    return false;
}

static bool read_number(const command *c, const option *o, const char *text, char *to)
{
    char wants[96], *end = NULL;
    bool integer = o->kind == OPTION_INTEGER;
    double max = o->max > 0 ? o->max : HUGE_VAL;
    const char *what = integer ? "an integer" : "a number";
    if (o->max > 0)
        snprintf(wants, sizeof wants, "%s from %.10g to %.10g", what, o->min, o->max);
    else
        snprintf(wants, sizeof wants, "%s of at least %.10g", what, o->min);
    errno = 0;
    if (integer) {
        intmax_t n = strtoimax(text, &end, 10);
        if (end == text || *end || errno || (double)n < o->min || (double)n > max)
            return refuse(c, o, text, wants);
        *(int64_t *)(void *)to = (int64_t)n;
    } else {
        double x = strtod(text, &end);
        if (end == text || *end || !isfinite(x) || x < o->min || x > max)
            return refuse(c, o, text, wants);
        *(double *)(void *)to = x;
    }
    return true;
}

static bool read_string(const command *c, const option *o, const char *text, char *to)
{
    if (o->only_choices && o->choices) {
        const char *const *choices = o->choices();
        int n = 0;
        const char *found = NULL;
        for (; choices[n]; n++)
            if (strcasecmp(choices[n], text) == 0) found = choices[n];
        if (found) {
            text = found;
        } else {
            const char *near = aril_nearest(text, choices, n);
            fprintf(stderr, "aril %s: no %s '%s'", c->name, o->name, text);
            if (near)
                fprintf(stderr, "; did you mean %s?", near);
            else
                for (int i = 0; i < n; i++)
                    fprintf(stderr, "%s%s", i ? ", " : "; expected one of ", choices[i]);
            fputs("\n", stderr);
            return false;
        }
    }
    *(const char **)(void *)to = text;
    return true;
}

/* Appends to the list that was given before. Lists stay until the process ends, as argv does. */
static bool join(const command *c, int k, const char *text, char *to)
{
    static char *lists[MAX_OPTIONS];
    const char *before = *(const char **)(void *)to;
    size_t n = strlen(before), size = n + strlen(text) + 2;
    bool first = before != lists[k];
    char *list = realloc(lists[k], size);
    if (!list) {
        fprintf(stderr, "aril %s: out of memory\n", c->name);
        return false;
    }
    if (first) memcpy(list, before, n);
    snprintf(list + n, size - n, ",%s", text);
    *(const char **)(void *)to = lists[k] = list;
    return true;
}

/* Whether "NAME NAME " has a name. */
static bool has_word(const char *words, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = words; (at = strstr(at, name)); at += n)
        if ((at == words || at[-1] == ' ') && at[n] == ' ') return true;
    return false;
}

/* Options that have no meaning beside another that was given. */
static bool fit_together(const command *c, const bool *given)
{
    for (int i = 0; i < MAX_OPTIONS && c->options && c->options[i].name; i++)
        for (int k = 0; given[i] && c->options[i].beside && k < MAX_OPTIONS && c->options[k].name;
             k++) {
            const option *o = &c->options[i], *other = &c->options[k];
            if (k == i || !given[k] || has_word(o->beside, other->name)) continue;
            fprintf(stderr, "aril %s: --%s has no effect with --%s\n", c->name, other->name,
                    o->name);
            return false;
        }
    return true;
}

/* Parses one option at argv[*i]; advances *i past its value. */
static bool read_option(const command *c, int argc, char **argv, int *i, char *values, bool *given)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    const option *o = find(c, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", equals ? (int)(equals - name) : 62, name);
        unknown(c, word, equals ? equals + 1 : *i + 1 < argc ? argv[*i + 1] : NULL);
        return false;
    }
    char *to = values + o->at;
    int k = (int)(o - c->options);
    bool again = k < MAX_OPTIONS && given[k];
    if (k < MAX_OPTIONS) given[k] = true;
    if (o->kind == OPTION_FLAG) {
        if (equals) return refuse(c, o, equals + 1, "no value");
        *(bool *)(void *)to = true;
        return true;
    }
    const char *text = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!text || (!*text && !o->may_be_empty))
        return refuse(c, o, NULL,
                      o->kind == OPTION_FILE      ? "a file"
                      : o->kind == OPTION_FOLDER  ? "a folder"
                      : o->kind == OPTION_DATASET ? "a dataset"
                                                  : "a value");
    if (again && o->kind == OPTION_LIST) return join(c, k, text, to);
    return o->kind == OPTION_INTEGER || o->kind == OPTION_FLOAT ? read_number(c, o, text, to)
                                                                : read_string(c, o, text, to);
}

bool arguments_read(const command *c, int argc, char **argv, void *values, int *n)
{
    bool only_arguments = false, given[MAX_OPTIONS] = { false };
    *n = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_arguments && strcmp(argv[i], "--") == 0) {
            only_arguments = true;
        } else if (!only_arguments && argv[i][0] == '-' && argv[i][1] == '-') {
            if (!read_option(c, argc, argv, &i, values, given)) return false;
        } else if (!only_arguments && argv[i][0] == '-' && argv[i][1]) {
            one_dash(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            return false;
        } else {
            argv[1 + (*n)++] = argv[i];
        }
    }
    if (!fit_together(c, given)) return false;
    if (c->max >= 0 && *n > c->max) {
        fprintf(stderr, "aril %s: %s '%s'\n", c->name,
                c->max ? "too many arguments, starting at" : "unexpected argument",
                argv[1 + c->max]);
        return false;
    }
    if (*n < c->min) {
        fprintf(stderr, "aril %s: expected %s; run `aril %s --help` for details\n", c->name,
                c->arguments, c->name);
        return false;
    }
    return true;
}

static bool is_default(const command *c, const option *o, const void *values)
{
    static const size_t sizes[] = { [OPTION_FLAG] = sizeof(bool),
                                    [OPTION_INTEGER] = sizeof(int64_t),
                                    [OPTION_FLOAT] = sizeof(double) };
    size_t size = o->kind <= OPTION_FLOAT ? sizes[o->kind] : sizeof(char *);
    static const char zeros[sizeof(int64_t) + sizeof(double)];
    const char *before = c->defaults ? (const char *)c->defaults + o->at : zeros;
    return memcmp((const char *)values + o->at, before, size) == 0;
}

bool arguments_without(const command *c, const void *values, const char *names, bool these,
                       const char *what)
{
    for (const option *o = c->options; o && o->name; o++) {
        if (!*o->name || has_word(names, o->name) != these || is_default(c, o, values)) continue;
        fprintf(stderr, "aril %s: --%s has no effect on %s\n", c->name, o->name, what);
        return false;
    }
    return true;
}

void use_threads(int64_t n)
{
    if (n) aril_set_threads(n < 1024 ? (int)n : 1024);
}
