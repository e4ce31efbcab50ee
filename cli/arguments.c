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

enum { MOST_WORDS = 128 };

static const option *find(const command *c, const char *name, size_t length)
{
    for (const option *o = c->options; o && o->name; o++)
        if (*o->name && strlen(o->name) == length && memcmp(o->name, name, length) == 0) return o;
    return NULL;
}

static void unknown(const command *c, const char *name)
{
    const char *names[MOST_WORDS];
    int n = 0;
    for (const option *o = c->options; o && o->name && n < MOST_WORDS; o++)
        if (*o->name && !o->hidden) names[n++] = o->name;
    const char *near = aril_nearest(name, names, n);
    fprintf(stderr, "aril %s: no option '--%s'", c->name, name);
    if (near) fprintf(stderr, "; did you mean --%s?", near);
    fprintf(stderr, "\naril %s --help shows them\n", c->name);
}

static bool refuse(const command *c, const option *o, const char *text, const char *wants)
{
    fprintf(stderr, "aril %s: --%s takes %s", c->name, o->name, wants);
    if (text) {
        fputs(", not '", stderr);
        print_text(stderr, text);
        fputs("'", stderr);
    }
    fputs("\n", stderr);
    return false;
}

static bool read_number(const command *c, const option *o, const char *text, char *place)
{
    char wants[96], *end = NULL;
    bool whole = o->kind == OPTION_WHOLE;
    double most = o->most > 0 ? o->most : HUGE_VAL;
    const char *what = whole ? "an integer" : "a number";
    if (o->most > 0)
        snprintf(wants, sizeof wants, "%s from %.10g to %.10g", what, o->least, o->most);
    else
        snprintf(wants, sizeof wants, "%s from %.10g up", what, o->least);
    errno = 0;
    if (whole) {
        intmax_t n = strtoimax(text, &end, 10);
        if (end == text || *end || errno || (double)n < o->least || (double)n > most)
            return refuse(c, o, text, wants);
        *(int64_t *)(void *)place = (int64_t)n;
    } else {
        double x = strtod(text, &end);
        if (end == text || *end || !isfinite(x) || x < o->least || x > most)
            return refuse(c, o, text, wants);
        *(double *)(void *)place = x;
    }
    return true;
}

static bool read_word(const command *c, const option *o, const char *text, char *place)
{
    if (o->only_words && o->words) {
        const char *const *words = o->words();
        int n = 0;
        bool found = false;
        for (; words[n]; n++) found |= strcmp(words[n], text) == 0;
        if (!found) {
            const char *near = aril_nearest(text, words, n);
            fprintf(stderr, "aril %s: no %s '%s'", c->name, o->name, text);
            if (near)
                fprintf(stderr, "; did you mean %s?", near);
            else
                for (int i = 0; i < n; i++)
                    fprintf(stderr, "%s%s", i ? ", " : "; there are ", words[i]);
            fputs("\n", stderr);
            return false;
        }
    }
    *(const char **)(void *)place = text;
    return true;
}

/* Parses one option at argv[*i]; advances *i past its value. */
static bool read_option(const command *c, int argc, char **argv, int *i, char *values)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    const option *o = find(c, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o) {
        char word[64];
        snprintf(word, sizeof word, "%.*s", equals ? (int)(equals - name) : 62, name);
        unknown(c, word);
        return false;
    }
    char *place = values + o->at;
    if (o->kind == OPTION_FLAG) {
        if (equals) return refuse(c, o, equals + 1, "no value");
        *(bool *)(void *)place = true;
        return true;
    }
    const char *text = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (!text || !*text)
        return refuse(c, o, NULL,
                      o->kind == OPTION_FILE     ? "a file"
                      : o->kind == OPTION_FOLDER ? "a folder"
                      : o->kind == OPTION_DATA   ? "a dataset"
                                                 : "a value");
    return o->kind == OPTION_WHOLE || o->kind == OPTION_REAL ? read_number(c, o, text, place)
                                                             : read_word(c, o, text, place);
}

bool arguments_read(const command *c, int argc, char **argv, void *values, int *n)
{
    bool only_arguments = false;
    *n = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_arguments && strcmp(argv[i], "--") == 0) {
            only_arguments = true;
        } else if (!only_arguments && argv[i][0] == '-' && argv[i][1] == '-') {
            if (!read_option(c, argc, argv, &i, values)) return false;
        } else if (!only_arguments && argv[i][0] == '-' && argv[i][1]) {
            fprintf(stderr, "aril %s: no option '%s'; options begin with two dashes\n", c->name,
                    argv[i]);
            return false;
        } else {
            argv[1 + (*n)++] = argv[i];
        }
    }
    if (c->most >= 0 && *n > c->most) {
        fprintf(stderr, "aril %s: %s '%s'\n", c->name,
                c->most ? "too many arguments, from" : "takes no argument", argv[1 + c->most]);
        return false;
    }
    if (*n < c->least) {
        fprintf(stderr, "aril %s: takes %s; aril %s --help tells more\n", c->name, c->arguments,
                c->name);
        return false;
    }
    return true;
}

void use_threads(int64_t n)
{
    if (n) aril_set_threads(n < 1024 ? (int)n : 1024);
}
