#include "commands.h"
#include "model_file.h"
#include "zoo_weights.h"

#include <string.h>

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

/* Networks of one publication are below its title. */
static void print_paper(const aril_zoo_entry *e, const aril_zoo_entry *before)
{
    const char *paper = e->paper ? e->paper : "Plain networks";
    if (before && strcmp(paper, before->paper ? before->paper : "Plain networks") == 0) return;
    printf(e->year ? "\n%s, %d\n" : "\n%s\n", paper, e->year);
}

static void print_entry(const aril_zoo_entry *e, const aril_cost *cost)
{
    char input[64], parameters[16], flops[16], path[4096];
    const char *weights = aril_zoo_weights_path(e, path, sizeof path) ? "here"
                          : e->weights.url                            ? "web"
                                                                      : "-";
    printf("  %-19s %8s %8s  %-9s  %-7s  %s\n", e->name,
           number_text((double)cost->parameters, " kMB", parameters, sizeof parameters),
           number_text(cost->flop, " kMGT", flops, sizeof flops),
           shape_text(e->input, input, sizeof input), weights, e->about);
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
    if (o->json)
        printf("[");
    else
        printf("  %-19s %8s %8s  %-9s  %-7s  %s\n", "name", "params", "FLOPs", "input", "weights",
               "description");
    for (int i = 0; i < aril_zoo_count(); i++) {
        ARIL_SCOPE;
        const aril_zoo_entry *e = aril_zoo_at(i);
        aril_cost cost;
        if (aril_zoo_cost(e, (aril_zoo_opts){ 0 }, &cost) < 0) return report("zoo");
        if (o->json) {
            print_json_entry(e, &cost, i == 0);
            continue;
        }
        print_paper(e, aril_zoo_at(i - 1));
        print_entry(e, &cost);
    }
    if (o->json) puts("\n]");
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
        "Below the title and the year of its publication, each network has a line: name, "
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
