#include "commands.h"
#include "model_file.h"

#include <string.h>

typedef struct options {
    bool json;
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

static int run(void *values, int n, char **argument)
{
    (void)n, (void)argument;
    const options *o = values;
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

static const option table[] = {
    { .name = "json", OPTION_AT(json), .help = "print JSON" },
    { 0 },
};

const command command_zoo = {
    .name = "zoo",
    .summary = "list the networks that have a name",
    .about = "Below the title and the year of its publication, each network has a line: name, "
             "parameters, FLOPs of a forward pass of one sample (2 for each multiply-add), the "
             "default input shape, whether there are published weights (\"web\", or \"here\" if "
             "they are in the cache), and a description. `aril show NAME` prints the layers.",
    .options = table,
    .size = sizeof(options),
    .run = run
};
