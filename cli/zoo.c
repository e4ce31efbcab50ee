#include "commands.h"
#include "model_file.h"
#include "zoo_weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct options {
    bool json, offline, quiet;
} options;

/* "25.6 M" */
static const char *number_text(double value, const char *units, char *buf, size_t size)
{
    int unit = 0;
    for (; value >= 999.95 && units[unit + 1]; unit++) value /= 1000;
    if (unit)
        snprintf(buf, size, value < 99.95 ? "%.1f %c" : "%.0f %c", value, units[unit]);
    else
        snprintf(buf, size, "%.0f", value);
    return buf;
}

static const char *paper_of(const aril_zoo_entry *e)
{
    return e->paper ? e->paper : "Plain networks";
}

/* The title on a line of its own, wrapped on a terminal. */
static void print_paper(const aril_zoo_entry *e)
{
    char line[512];
    snprintf(line, sizeof line, e->year ? "%s, %d" : "%s", paper_of(e), e->year);
    puts("");
    print_wrapped(stdout, line, 0);
}

/* The description behind the other columns, word-wrapped on a terminal; below them on a narrow
 * one. */
static void print_about(const char *text)
{
    enum { COLUMNS = 61, BELOW = 6, NARROW = 100 };
    bool terminal = isatty(STDOUT_FILENO), narrow = terminal_width(stdout) < NARROW;
    int indent = terminal && narrow ? BELOW : COLUMNS, at = indent, width = terminal_width(stdout);
    if (indent == BELOW) printf("\n%*s", BELOW, "");
    for (bool first = true; *text; first = false) {
        int n = (int)strcspn(text, " ");
        if (!first && terminal && at + 1 + n > width)
            printf("\n%*s", at = indent, "");
        else if (!first)
            at += printf(" ");
        at += printf("%.*s", n, text);
        text += n + (text[n] == ' ');
    }
    puts("");
}

static void print_entry(const aril_zoo_entry *e, const aril_cost *cost)
{
    char input[64], parameters[16], flops[16], path[4096];
    const char *weights = aril_zoo_weights_path(e, path, sizeof path) ? "here"
                          : e->weights.url                            ? "web"
                                                                      : "-";
    printf("  %-19s %8s %8s  %-9s  %-7s  ", e->name,
           number_text((double)cost->parameters, " kMB", parameters, sizeof parameters),
           number_text(cost->flop, " kMGT", flops, sizeof flops),
           shape_text(e->input, input, sizeof input), weights);
    print_about(e->about);
}

/* Networks of one publication are below its title, publications by year. */
static int by_paper(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    const aril_zoo_entry *x = aril_zoo_at(i), *y = aril_zoo_at(j);
    if (x->year != y->year) return x->year < y->year ? -1 : 1;
    int order = strcmp(paper_of(x), paper_of(y));
    return order ? order : i - j;
}

static bool list_all(void)
{
    enum { MOST = 1024 };
    int at[MOST], n = aril_zoo_count() < MOST ? aril_zoo_count() : MOST;
    for (int i = 0; i < n; i++) at[i] = i;
    qsort(at, (size_t)n, sizeof *at, by_paper);
    bool narrow = isatty(STDOUT_FILENO) && terminal_width(stdout) < 100;
    printf("  %-19s %8s %8s  %-9s  %-7s%s\n", "name", "params", "FLOPs", "input", "weights",
           narrow ? "" : "  description");
    for (int i = 0; i < n; i++) {
        ARIL_SCOPE;
        const aril_zoo_entry *e = aril_zoo_at(at[i]);
        aril_cost cost;
        if (aril_zoo_cost(e, (aril_zoo_opts){ 0 }, &cost) < 0) return false;
        if (i == 0 || strcmp(paper_of(e), paper_of(aril_zoo_at(at[i - 1]))) != 0) print_paper(e);
        print_entry(e, &cost);
    }
    return true;
}

static void print_json_entry(const aril_zoo_entry *e, const aril_cost *cost, bool first)
{
    char path[4096];
    printf("%s\n  {\"name\": ", first ? "" : ",");
    print_json_text(e->name);
    printf(", \"about\": ");
    print_json_text(e->about);
    printf(", \"paper\": ");
    if (e->paper)
        print_json_text(e->paper);
    else
        printf("null");
    printf(", \"year\": %d, \"parameters\": %lld, \"flops\": %.0f, \"input\": [", e->year,
           (long long)cost->parameters, cost->flop);
    for (int i = 0; i < e->input.ndim; i++)
        printf("%s%lld", i ? ", " : "", (long long)e->input.dim[i]);
    printf("], \"classes\": %lld, \"weights\": ", (long long)e->classes);
    if (e->weights.url)
        print_json_text(e->weights.url);
    else
        printf("null");
    printf(", \"present\": %s}", aril_zoo_weights_path(e, path, sizeof path) ? "true" : "false");
}

static int list(const options *o)
{
    if (!o->json) return list_all() ? EXIT_DONE : report("zoo");
    printf("[");
    for (int i = 0; i < aril_zoo_count(); i++) {
        ARIL_SCOPE;
        const aril_zoo_entry *e = aril_zoo_at(i);
        aril_cost cost;
        if (aril_zoo_cost(e, (aril_zoo_opts){ 0 }, &cost) < 0) return report("zoo");
        print_json_entry(e, &cost, i == 0);
    }
    puts("\n]");
    return EXIT_DONE;
}

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    if (n == 0) return list(o);
    const char *what = argument[0];
    if (strcmp(what, "where") == 0) return zoo_where(n - 1, argument + 1);
    bool get = strcmp(what, "get") == 0;
    if (!get && strcmp(what, "rm") != 0) {
        fprintf(stderr, "aril zoo: expected get, where or rm, got '%s'\n", what);
        return EXIT_USAGE;
    }
    if (n == 1) {
        fprintf(stderr, "aril zoo %s: expected the name of a network\n", what);
        return EXIT_USAGE;
    }
    return get ? zoo_get(n - 1, argument + 1, o->offline, o->quiet)
               : zoo_remove(n - 1, argument + 1, o->quiet);
}

/* For completion. */
static const char *const *words(void)
{
    enum { WORDS = 300 };
    static const char *names[WORDS] = { "get", "where", "rm" };
    int n = 3;
    for (const char *const *name = model_names(); *name && n < WORDS - 1; name++)
        names[n++] = *name;
    return names;
}

static const option table[] = {
    { .name = "json", OPTION_AT(json), .help = "print the list as JSON" },
    { .name = "offline",
      OPTION_AT(offline),
      .help = "get: do not connect; say which file to put where, if it is missing" },
    { .name = "quiet", OPTION_AT(quiet), .help = "get, rm: print errors only" },
    { 0 },
};

static const example examples[] = {
    { "aril zoo get resnet18", "download the published weights, or resume their download" },
    { "aril zoo where", "what is in the cache" },
    { "aril zoo rm resnet18", "remove it from the cache" },
    { 0 },
};

const command command_zoo = {
    .name = "zoo",
    .summary = "list the networks that have a name, download their weights",
    .arguments = "[get NAME... | where [NAME...] | rm NAME...]",
    .about =
        "Below the title and the year of its publication, oldest first, each network has a line: "
        "name, "
        "parameters, FLOPs of a forward pass of one sample (2 for each multiply-add), the "
        "default input shape, whether there are published weights (\"web\", or \"here\" if "
        "they are in the cache), and a description. `aril show NAME` prints the layers.\n\n"
        "`aril zoo get` downloads the published weights of networks to the cache: $ARIL_CACHE, "
        "or aril in $XDG_CACHE_HOME (~/.cache). Their hashes are checked, and what was "
        "interrupted is resumed. `aril zoo where` shows the files in the cache, `aril zoo rm` "
        "removes them.\n\n"
        "With ARIL_OFFLINE=1 nothing is downloaded. ARIL_ZOO_MIRROR is a URL to download from "
        "instead of the publishers' servers; files have the same names there as in the cache.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .max = -1,
    .choices = words,
    .run = run
};
