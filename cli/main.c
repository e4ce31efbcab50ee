#include "commands.h"

#include <aril/aril.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const command *const commands[] = {
    &command_train,   &command_test,  &command_predict, &command_show,     &command_data,
    &command_zoo,     &command_bench, &command_devices, &command_ops,      &command_test_onnx,
    &command_convert, &command_draw,  &command_time,    &command_generate, &command_features,
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *to)
{
    fputs("usage: aril COMMAND [ARGUMENTS]\n\n", to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  aril COMMAND --help   options of a command\n", to);
    for (const topic *t = help_topics; t->name; t++)
        fprintf(to, "  aril help %-11s %s\n", t->name, t->about);
    fputs("  aril --version        version of Aril\n", to);
}

static const command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

/* The topic with that name; NULL if there is none. */
static const topic *find_topic(const char *name)
{
    for (const topic *t = help_topics; t->name; t++)
        if (strcmp(t->name, name) == 0) return t;
    return NULL;
}

/* topics: help was asked for, so that those are names too. */
static int unknown(const char *name, bool topics)
{
    enum { TOPICS = 8 };
    const char *names[COMMANDS + 2 + TOPICS] = { "--help", "--version" };
    int n = 2;
    for (int i = 0; i < COMMANDS; i++) names[n++] = commands[i]->name;
    for (const topic *t = help_topics; topics && t->name && n < COMMANDS + 2 + TOPICS; t++)
        names[n++] = t->name;
    const char *near = aril_nearest(name, names, n);
    fprintf(stderr, "aril: no %s '%s'",
            *name == '-' ? "option"
            : topics     ? "command or topic"
                         : "command",
            name);
    if (near) fprintf(stderr, "; did you mean %s?", near);
    fputs("\n\n", stderr);
    usage(stderr);
    return EXIT_USAGE;
}

static bool is(const char *arg, const char *long_form, const char *short_form)
{
    return strcmp(arg, long_form) == 0 || strcmp(arg, short_form) == 0;
}

static int run(const command *c, int argc, char **argv)
{
    char *values = calloc(1, c->size ? c->size : 1);
    if (!values) {
        fputs("aril: out of memory\n", stderr);
        return EXIT_FAILED;
    }
    if (c->defaults) memcpy(values, c->defaults, c->size);
    int n, status = EXIT_USAGE;
    if (arguments_read(c, argc, argv, values, &n)) status = c->run(values, n, argv + 1);
    free(values);
    return status;
}

/* `aril help [COMMAND or topic]`, and the pages that the build installs: --man [COMMAND],
 * --completion. */
static int help(const char *kind, const char *name)
{
    const command *c = name ? find(name) : NULL;
    const topic *t = name && !c && strcmp(kind, "--man") != 0 ? find_topic(name) : NULL;
    if (t) {
        print_topic(stdout, t);
        return EXIT_DONE;
    }
    if (name && !c) return unknown(name, strcmp(kind, "help") == 0);
    if (strcmp(kind, "--completion") == 0)
        help_completion(commands, COMMANDS, stdout);
    else if (strcmp(kind, "--man") == 0)
        c ? help_man(c, stdout) : help_man_of_all(commands, COMMANDS, stdout);
    else
        c ? help_print(c, stdout, terminal_width(stdout)) : usage(stdout);
    return EXIT_DONE;
}

static int main_of(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (is(argv[1], "--version", "-V")) {
        printf("aril %s\n", aril_version());
        return EXIT_DONE;
    }
    if (is(argv[1], "--help", "-h") || is(argv[1], "help", "--man") ||
        is(argv[1], "--completion", "-h"))
        return help(argv[1], argc > 2 ? argv[2] : NULL);
    const command *c = find(argv[1]);
    if (!c) return unknown(argv[1], false);
    for (int k = 2; k < argc && strcmp(argv[k], "--") != 0; k++)
        if (is(argv[k], "--help", "-h")) return help("help", c->name);
    return run(c, argc - 1, argv + 1);
}

static bool is_limited(int resource)
{
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* OpenBLAS starts its own threads when it is loaded. A thread that cannot allocate its buffer
 * retries forever, and the process could not exit. Aril uses none of these threads, but only the
 * environment can disable them that early: when memory is limited, re-execute the command with it
 * set. */
static void leave_out_blas_threads(char **argv)
{
    static const char name[] = "OPENBLAS_NUM_THREADS";
    if (getenv(name) || !(is_limited(RLIMIT_AS) || is_limited(RLIMIT_DATA))) return;
    if (setenv(name, "1", 1) == 0) execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    leave_out_blas_threads(argv);
    signal(SIGXFSZ, SIG_IGN); /* beyond ulimit -f a write fails and is reported, like a full disk */
    aril_set_error_locations(false);
    int status = main_of(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fputs("aril: cannot write to standard output\n", stderr);
    return EXIT_FAILED;
}
