/* Finding plug-ins: beside the library, and by ARIL_PLUGINS. They are opened when they are needed,
 * since opening one may load a vendor's libraries and start its driver. */
#include "ops/table/rows.h"

#include "core/error.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PATH = 4096 };

typedef struct candidate {
    struct candidate *next;
    bool tried;
    bool listed;   /* by ARIL_PLUGINS: the user wants it */
    char kind[24]; /* from its name, libaril_KIND.so; "": may have any */
    char why[400]; /* it could not be opened; "": it could */
    char path[];
} candidate;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static candidate *first, **end = &first;
static bool searched;
static atomic_bool all_tried;

/* ---- the list ---- */

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* KIND of ".../libaril_KIND.so"; "" for other names. */
static void kind_by_name(const char *path, char kind[24])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    kind[0] = '\0';
    if (strncmp(name, "libaril_", 8) != 0 || !ends_in(name, ".so")) return;
    size_t n = strlen(name + 8) - 3;
    if (n > 0 && n < 24) snprintf(kind, 24, "%.*s", (int)n, name + 8);
}

static void add(const char *path, bool listed)
{
    size_t n = strlen(path) + 1;
    candidate *c = aril__malloc(sizeof *c + n);
    if (!c) return; /* as if it were not there */
    *c = (candidate){ .listed = listed };
    memcpy(c->path, path, n);
    kind_by_name(path, c->kind);
    *end = c;
    end = &c->next;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A path of ARIL_PLUGINS that cannot be used is reported, as a plug-in that cannot be opened is. */
static void report(const char *path, const char *why)
{
    fprintf(stderr, "aril: ARIL_PLUGINS: %.200s: %s\n", path, why);
}

/* Adds the shared objects of a folder; unless it is listed, only those called libaril_KIND.so. */
static void add_folder(const char *folder, bool listed)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, by_name);
    if (n < 0 && listed) report(folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[MAX_PATH], kind[24];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        kind_by_name(path, kind);
        if (length < MAX_PATH && ends_in(path, ".so") && (kind[0] || listed)) add(path, listed);
        free(entry[i]);
    }
    if (n >= 0) free(entry);
}

/* The folder aril/ beside libaril.so, or beside the program that contains the library. */
static void add_beside_library(void)
{
    Dl_info info;
    char folder[MAX_PATH];
    static const char here; /* an address in the library */
    if (!dladdr(&here, &info) || !info.dli_fname) return;
    char *file = realpath(info.dli_fname, NULL);
    char *slash = file ? strrchr(file, '/') : NULL;
    if (slash && snprintf(folder, sizeof folder, "%.*s/aril", (int)(slash - file), file) < MAX_PATH)
        add_folder(folder, false);
    free(file);
}

static void add_path(const char *path)
{
    char here[MAX_PATH + 2];
    struct stat is;
    bool exists = stat(path, &is) == 0;
    /* The system would look for a name without a slash among its libraries only. */
    snprintf(here, sizeof here, "%s%s", exists && !strchr(path, '/') ? "./" : "", path);
    if (exists && S_ISDIR(is.st_mode))
        add_folder(here, true);
    else
        add(here, true);
}

static void add_listed(const char *list)
{
    char path[MAX_PATH];
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n >= sizeof path) {
            report(list, "the path is too long");
        } else if (n) {
            memcpy(path, list, n);
            path[n] = '\0';
            add_path(path);
        }
        list += n + (list[n] == ':');
    }
}

/* ---- opening ---- */

/* The thread's error, without the source location of the call. */
static void keep_reason(candidate *c)
{
    snprintf(c->why, sizeof c->why, "%s", aril_error());
    for (char *at = strstr(c->why, " at "); at; at = strstr(at + 1, " at "))
        if (!strchr(at + 4, ' ')) *at = '\0';
}

/* The reason without the path, which messages begin with, the system's once more. */
static const char *reason_alone(const candidate *c)
{
    const char *why = c->why;
    size_t n = strlen(c->path);
    if (strncmp(why, "plug-in ", 8) == 0 && strncmp(why + 8, c->path, n) == 0) why += 8 + n + 2;
    if (strncmp(why, c->path, n) == 0 && why[n] == ':') why += n + 2;
    return why;
}

/* A plug-in that cannot be opened is no error of the call that looked for it. One that the user
 * listed is reported; why an installed one could not be opened is said when its device is asked
 * for, since it may well be installed where there is no such device. */
static void try_open(candidate *c)
{
    aril__thread *th = aril__self();
    aril__error *error = th->error, *last = th->last_error;
    th->error = th->last_error = NULL;
    c->tried = true;
    if (aril_plugin_load(c->path) < 0) {
        keep_reason(c);
        if (c->listed) report(c->path, reason_alone(c));
        aril__log(ARIL__LOG_PLUGIN, "%s: not opened: %s", c->path, c->why);
    }
    aril_clear_error();
    th->error = error;
    th->last_error = last;
}

void aril__plugins_open(const char *kind)
{
    static _Thread_local bool busy; /* opening a plug-in may ask for devices */
    if (busy || atomic_load_explicit(&all_tried, memory_order_acquire)) return;
    busy = true;
    pthread_mutex_lock(&lock);
    if (!searched) {
        add_listed(getenv("ARIL_PLUGINS")); /* first: it may replace an installed one */
        add_beside_library();
        searched = true;
    }
    bool all = true;
    for (candidate *c = first; c; c = c->next) {
        if (!c->tried && (!kind || !c->kind[0] || strcmp(c->kind, kind) == 0)) try_open(c);
        all = all && c->tried;
    }
    atomic_store_explicit(&all_tried, all, memory_order_release);
    pthread_mutex_unlock(&lock);
    busy = false;
}

void aril__plugins_reason(const char *kind, char *buf, size_t size)
{
    bool there = false;
    buf[0] = '\0';
    pthread_mutex_lock(&lock);
    for (const candidate *c = first; c; c = c->next) {
        if (strcmp(c->kind, kind) != 0) continue;
        there = true;
        if (c->why[0]) snprintf(buf, size, "%s", c->why);
    }
    pthread_mutex_unlock(&lock);
    if (!there)
        snprintf(buf, size,
                 "there is no plug-in libaril_%s.so in the folder aril/ beside the library", kind);
}

void aril__plugins_shutdown(void)
{
    for (candidate *next; first; first = next) {
        next = first->next;
        free(first);
    }
    end = &first;
}
