/* Renders a table of options as help, man pages and bash completion. */
#include "commands.h"

#include <aril/base.h>
#include <aril/datasets.h>
#include <aril/metrics.h>
#include <aril/transform.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_width(FILE *to)
{
    struct winsize size;
    int fd = fileno(to);
    if (fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

/* ---- topics ---- */

const topic help_topics[] = {
    { "datasets", "what --data takes", aril_dataset_help },
    { "metrics", "what --metrics takes", aril_metric_help },
    { "transforms", "what --augment takes", aril_transform_help },
    { 0 },
};

/* ---- help ---- */

/* Wraps words at `width` columns, the first line starting at `column`, the others at `indent`. Line
 * breaks in the text are kept. */
static void wrap(FILE *to, const char *text, int column, int indent, int width)
{
    for (bool first = true; *text; first = false) {
        if (*text == '\n') {
            fprintf(to, "\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
            column = indent;
            text++;
            first = true;
            if (!*text) return;
            first = true;
        }
        int length = (int)strcspn(text, " \n");
        if (!first || column > indent) {
            if (column + 1 + length > width && column > indent) {
                fprintf(to, "\n%*s", indent, "");
                column = indent;
            } else if (column > indent) {
                fputc(' ', to);
                column++;
            }
        }
        fprintf(to, "%.*s", length, text);
        column += length;
        text += length;
        while (*text == ' ') text++;
    }
}

void print_wrapped(FILE *to, const char *text, int indent)
{
    int width = isatty(fileno(to)) ? terminal_width(to) : INT_MAX, column = 0;
    if (width - indent < 24) indent = 6;
    while (*text) {
        int gap = (int)strspn(text, " "), length = (int)strcspn(text + gap, " ");
        if (column > indent && length > width - column - gap)
            column = fprintf(to, "\n%*s", indent, "") - 1;
        else
            column += fprintf(to, "%*s", gap, "");
        column += fprintf(to, "%.*s", length, text + gap);
        text += gap + length;
    }
    fputc('\n', to);
}

/* The column where the last part of a table's row starts, behind two or more spaces. */
static int last_column(const char *line)
{
    int column = 0;
    for (const char *gap = line; (gap = strstr(gap, "  ")); gap += strspn(gap, " "))
        column = (int)(gap - line) + (int)strspn(gap, " ");
    return column;
}

void print_topic(FILE *to, const topic *t)
{
    char *text = NULL;
    size_t size = 0;
    FILE *lines = isatty(fileno(to)) ? open_memstream(&text, &size) : NULL;
    t->print(lines ? lines : to);
    if (!lines) return;
    fclose(lines);
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            print_wrapped(to, line, last_column(line));
        else if (rest)
            fputc('\n', to);
    free(text);
}

static int option_text(const option *o, char *buf, size_t size)
{
    return snprintf(buf, size, o->value ? "--%s %s" : "--%s", o->name, o->value);
}

/* "(default 5)": as the option says, or the number in the command's defaults; "" if neither. */
static void default_text(const command *c, const option *o, char *buf, size_t size)
{
    double number = 0;
    buf[0] = '\0';
    if (o->by_default) {
        snprintf(buf, size, " (default %s)", o->by_default);
        return;
    }
    if (!c->defaults || (o->kind != OPTION_INTEGER && o->kind != OPTION_FLOAT)) return;
    const char *at = (const char *)c->defaults + o->at;
    if (o->kind == OPTION_INTEGER)
        number = (double)*(const int64_t *)(const void *)at;
    else
        number = *(const double *)(const void *)at;
    if (number != 0 && !isnan(number)) snprintf(buf, size, " (default %.10g)", number);
}

/* Description, default and choices of an option. */
static const char *option_about(const command *c, const option *o, char *buf, size_t size)
{
    char otherwise[128];
    default_text(c, o, otherwise, sizeof otherwise);
    size_t n = (size_t)snprintf(buf, size, "%s%s", o->help, otherwise);
    if (!o->only_choices || !o->choices) return buf;
    for (const char *const *w = o->choices(), *const *first = w; *w && n < size; w++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", w == first ? "; one of " : ", ", *w);
    return buf;
}

static int widest_option(const command *c)
{
    char text[128];
    int widest = 0;
    for (const option *o = c->options; o && o->name; o++) {
        if (!*o->name || o->hidden) continue;
        int length = option_text(o, text, sizeof text);
        if (length > widest) widest = length;
    }
    return widest;
}

static void print_options(const command *c, FILE *to, int width)
{
    char text[128];
    int indent = widest_option(c) + 5;
    for (const option *o = c->options; o && o->name; o++) {
        if (o->hidden) continue;
        if (!*o->name) {
            fprintf(to, "\n%s\n", o->help);
            continue;
        }
        char about[2048];
        option_text(o, text, sizeof text);
        fprintf(to, "  %-*s", indent - 2, text);
        wrap(to, option_about(c, o, about, sizeof about), indent, indent, width);
        fputc('\n', to);
    }
}

static void usage_line(const command *c, FILE *to)
{
    fprintf(to, "aril %s", c->name);
    if (c->arguments) fprintf(to, " %s", c->arguments);
    if (c->options && c->options->name) fputs(" [OPTIONS]", to);
}

void help_print(const command *c, FILE *to, int width)
{
    if (width > 100) width = 100; /* longer lines are hard to read */
    fprintf(to, "aril %s: %s\n\nusage: ", c->name, c->summary);
    usage_line(c, to);
    fputs("\n\n", to);
    if (c->about) {
        wrap(to, c->about, 0, 0, width);
        fputs("\n", to);
    }
    if (c->options && c->options->name) {
        if (c->about && *c->options->name) fputs("\n", to);
        print_options(c, to, width);
    }
    for (const example *e = c->examples; e && e->line; e++) {
        if (e == c->examples) fputs("\nExamples:\n", to);
        fprintf(to, "  %s\n      ", e->line);
        wrap(to, e->about, 6, 6, width);
        fputc('\n', to);
    }
}

/* ---- man pages ---- */

static void man_text(FILE *to, const char *text)
{
    bool start = true; /* of a line: a dot there would start a request */
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", to);
        start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", to);
        else if (*text == '-')
            fputs("\\-", to);
        else if (start && text[1] == '\n')
            fputs("\n.PP", to);
        else
            fputc(*text, to);
    }
}

static void man_head(FILE *to, const char *name)
{
    fputs(".TH \"", to);
    for (; *name; name++) fputc(*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name, to);
    fprintf(to, "\" 1 \"\" \"aril %s\" \"Aril\"\n", aril_version());
}

static void man_body(const command *c, FILE *to)
{
    if (c->about) {
        man_text(to, c->about);
        fputs("\n", to);
    }
    for (const option *o = c->options; o && o->name; o++) {
        if (o->hidden) continue;
        if (!*o->name) {
            fputs(".SS ", to);
            man_text(to, o->help);
            fputs("\n", to);
            continue;
        }
        fputs(".TP\n\\fB\\-\\-", to);
        man_text(to, o->name);
        fputs("\\fR", to);
        if (o->value) fprintf(to, " \\fI%s\\fR", o->value);
        fputs("\n", to);
        char about[2048];
        man_text(to, option_about(c, o, about, sizeof about));
        fputs("\n", to);
    }
}

void help_man(const command *c, FILE *to)
{
    char name[64];
    snprintf(name, sizeof name, "aril-%s", c->name);
    man_head(to, name);
    fprintf(to, ".SH NAME\naril\\-%s \\- ", c->name);
    man_text(to, c->summary);
    fputs("\n.SH SYNOPSIS\n", to);
    usage_line(c, to);
    fputs("\n.SH DESCRIPTION\n", to);
    man_body(c, to);
    for (const example *e = c->examples; e && e->line; e++) {
        if (e == c->examples) fputs(".SH EXAMPLES\n", to);
        fputs(".TP\n\\fB", to);
        man_text(to, e->line);
        fputs("\\fR\n", to);
        man_text(to, e->about);
        fputs("\n", to);
    }
    fputs(".SH \"EXIT STATUS\"\n0 on success, 1 on failure, 2 if the "
          "arguments are invalid.\n.SH \"SEE ALSO\"\n.BR aril (1)\n",
          to);
}

void help_man_of_all(const command *const *all, int n, FILE *to)
{
    man_head(to, "aril");
    fputs(".SH NAME\naril \\- train, evaluate and run neural networks\n.SH SYNOPSIS\naril COMMAND "
          "[ARGUMENTS]\n.SH COMMANDS\n",
          to);
    for (int i = 0; i < n; i++) {
        fprintf(to, ".TP\n.BR aril\\-%s (1)\n", all[i]->name);
        man_text(to, all[i]->summary);
        fputs("\n", to);
    }
    fputs(".SH TABLES\n", to);
    for (const topic *t = help_topics; t->name; t++) {
        fprintf(to, ".TP\n\\fBaril help %s\\fR\n", t->name);
        man_text(to, t->about);
        fputs("\n", to);
    }
    fputs(".SH ENVIRONMENT\n", to);
    static const example variables[] = {
        { "ARIL_DATA", "folders with datasets, separated by colons" },
        { "ARIL_THREADS", "number of threads that compute (default all CPUs)" },
        { "ARIL_LOG", "what to log, such as dispatch" },
        { "ARIL_PLUGINS",
          "plug-ins to look in for devices: files and folders, separated by colons" },
        { "NO_COLOR", "if set, do not print colors" },
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        fprintf(to, ".TP\n\\fB%s\\fR\n%s\n", variables[i].line, variables[i].about);
    fputs(".SH \"EXIT STATUS\"\n0 on success, 1 on failure, 2 if the "
          "arguments are invalid.\n",
          to);
}

/* ---- bash completion ---- */

static void print_choices(const char *const *(*choices)(void), FILE *to)
{
    for (const char *const *w = choices ? choices() : NULL; w && *w; w++) fprintf(to, " %s", *w);
}

void help_completion(const command *const *all, int n, FILE *to)
{
    fputs("# Completion of the command aril for bash.\n"
          "_aril() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= "
          "files=\n"
          "    COMPREPLY=()\n"
          "    # --data=PATH comes as three words\n"
          "    [ \"$word\" != = ] || word=\n"
          "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words=\"--help --version",
          to);
    for (int i = 0; i < n; i++) fprintf(to, " %s", all[i]->name);
    fputs("\"\n    else\n        case ${COMP_WORDS[1]} in\n", to);
    for (int i = 0; i < n; i++) {
        const command *c = all[i];
        fprintf(to, "        %s)\n            case $before in\n", c->name);
        for (const option *o = c->options; o && o->name; o++) {
            if (!*o->name || o->kind == OPTION_FLAG || o->hidden) continue;
            fprintf(to, "            --%s)", o->name);
            if (o->kind == OPTION_FILE || o->kind == OPTION_DATASET) fputs(" files=-f;", to);
            if (o->kind == OPTION_FOLDER) fputs(" files=-d;", to);
            fputs(" words=\"", to);
            print_choices(o->choices, to);
            fputs("\" ;;\n", to);
        }
        fprintf(to, "            *)%s words=\"--help", c->max ? " files=-f;" : "");
        for (const option *o = c->options; o && o->name; o++)
            if (*o->name && !o->hidden) fprintf(to, " --%s", o->name);
        print_choices(c->choices, to);
        fputs("\" ;;\n            esac ;;\n", to);
    }
    fputs("        help) words=\"", to);
    for (int i = 0; i < n; i++) fprintf(to, " %s", all[i]->name);
    for (const topic *t = help_topics; t->name; t++) fprintf(to, " %s", t->name);
    fputs("\" ;;\n        esac\n    fi\n"
          "    while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(compgen -W \"$words\" "
          "$files -- \"$word\")\n"
          "}\n"
          "complete -o filenames -F _aril aril\n",
          to);
}
