#include "zoo_weights.h"

#include "commands.h"

#include <aril/error.h>
#include <aril/published.h>
#include <aril/train.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
    caught = number;
    signal(number, SIG_DFL); /* a second one ends the command at once */
}

static bool stop(void *ctx)
{
    (void)ctx;
    return caught != 0;
}

/* One line for each file of a network: where it is, or that it is not there. */
static void print_files(const aril_zoo_entry *e, bool missing_too)
{
    char size[32];
    aril_published_file file;
    for (int i = 0; i < aril_published_count(e); i++) {
        if (aril_published_at(e, i, &file) != ARIL_OK) return;
        if (!file.size && !file.part && !missing_too) continue;
        printf("%-14s %9s  ", e->name,
               bytes_text((double)(file.size + file.part), size, sizeof size));
        print_text(stdout, file.path);
        puts(file.size ? "" : file.part ? ".part (unfinished)" : " (not there)");
    }
}

/* The error names the first missing file; a network for text has others. */
static void print_missing(const aril_zoo_entry *e)
{
    aril_published_file file;
    int n = aril_published_count(e);
    if (n < 2) return;
    fprintf(stderr, "aril zoo: %s has %d files:\n", e->name, n);
    for (int i = 0; i < n && aril_published_at(e, i, &file) == ARIL_OK; i++) {
        fprintf(stderr, "  %s\n    %s ", file.url, file.size ? "is at" : "as");
        print_text(stderr, file.path);
        fputs("\n", stderr);
    }
}

int zoo_get(int n, char **name, bool offline, bool quiet)
{
    int status = EXIT_DONE;
    struct sigaction act = { .sa_handler = catch_signal }, before[2];
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &before[0]);
    sigaction(SIGTERM, &act, &before[1]);
    for (int i = 0; i < n && !caught; i++) {
        aril_zoo_download_opts opts = {
            .offline = offline, .check = true, .verbose = quiet ? ARIL_SILENT : 0, .stop = stop
        };
        if (aril_zoo_download(name[i], opts) != ARIL_OK) {
            aril_status code = aril_error_code();
            status = report("zoo");
            if (code == ARIL_ERR_IO) print_missing(aril_zoo_find(name[i]));
        } else if (!quiet)
            print_files(aril_zoo_find(name[i]), true);
        fflush(stdout);
    }
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    return caught ? 128 + caught : status;
}

int zoo_where(int n, char **name)
{
    for (int i = 0; i < aril_zoo_count() && n == 0; i++) print_files(aril_zoo_at(i), false);
    for (int i = 0; i < n; i++) {
        const aril_zoo_entry *e = aril_zoo_find(name[i]);
        if (e && aril_published_count(e) == 0)
            aril_fail(ARIL_ERR_ARG, "no weights are published for %s", name[i]);
        if (e) print_files(e, true);
        if (!aril_ok()) return report("zoo");
    }
    return aril_ok() ? EXIT_DONE : report("zoo");
}

int zoo_remove(int n, char **name, bool quiet)
{
    int status = EXIT_DONE;
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        char size[32];
        if (aril_zoo_remove(name[i], &bytes) != ARIL_OK)
            status = report("zoo");
        else if (!quiet)
            printf("%s: removed %s\n", name[i], bytes_text((double)bytes, size, sizeof size));
    }
    return status;
}
