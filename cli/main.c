#include "commands.h"

#include <aril/aril.h>

#include <stdio.h>
#include <string.h>

static const command *const commands[] = { &command_bench, &command_devices, &command_ops };
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    fputs("usage: aril COMMAND [ARGUMENTS]\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  aril COMMAND --help   what a command takes\n"
          "  aril --version        the version\n",
          to);
}

/* How many letters must change to make one word the other; good enough to guess a slip. */
static int distance(const char *a, const char *b)
{
    int row[64];
    int n = (int)strlen(b);
    if (n > 62) return 64;
    for (int k = 0; k <= n; k++) row[k] = k;
    for (int i = 0; a[i]; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int k = 0; k < n; k++) {
            int change = corner + (a[i] != b[k]);
            corner = row[k + 1];
            int least = row[k] < row[k + 1] ? row[k] + 1 : row[k + 1] + 1;
            row[k + 1] = change < least ? change : least;
        }
    }
    return row[n];
}

static int unknown(const char *name)
{
    const char *near = NULL;
    int best = 3;
    for (int i = 0; i < COMMANDS; i++) {
        int d = distance(name, commands[i]->name);
        if (d < best) {
            best = d;
            near = commands[i]->name;
        }
    }
    fprintf(stderr, "aril: no command '%s'", name);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fputs("\n\n", stderr);
    usage(stderr);
    return EXIT_USAGE;
}

static bool is(const char *arg, const char *long_form, const char *short_form)
{
    return strcmp(arg, long_form) == 0 || strcmp(arg, short_form) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (is(argv[1], "--version", "-V")) {
        printf("aril %s\n", aril_version());
        return EXIT_DONE;
    }
    if (is(argv[1], "--help", "-h") || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return EXIT_DONE;
    }
    for (int i = 0; i < COMMANDS; i++) {
        const command *c = commands[i];
        if (strcmp(argv[1], c->name) != 0) continue;
        for (int k = 2; k < argc; k++) {
            if (is(argv[k], "--help", "-h")) {
                printf("%s\n\n%s", c->summary, c->help);
                return EXIT_DONE;
            }
        }
        int status = c->run(argc - 1, argv + 1);
        if (fflush(stdout) != 0 || ferror(stdout)) {
            fputs("aril: the output could not be written\n", stderr);
            return EXIT_FAILED;
        }
        return status;
    }
    return unknown(argv[1]);
}
