#include "support/temp.h"

#include "support/test.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];
static const char *owner; /* the test that owns the folder */
static pid_t process;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    if (*folder && getpid() == process) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    *folder = 0;
}

static void make_folder(void)
{
    static bool at_end;
    if (!at_end) atexit(remove_folder);
    at_end = true;
    remove_folder();
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/aril-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(1);
    }
    process = getpid();
}

static void have_folder(void)
{
    if (!*folder || owner != test_name()) make_folder();
    owner = test_name();
}

const char *temp_path(const char *name)
{
    static char path[8][512];
    static int turn;
    have_folder();
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s%s%s", folder, *name ? "/" : "", name);
    return p;
}

int temp_count(void)
{
    int n = 0;
    have_folder();
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) n++;
    if (d) closedir(d);
    return n;
}

const char *files_in(const char *dir)
{
    static char all[1024];
    struct dirent **e;
    int n = scandir(dir, &e, NULL, alphasort);
    all[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (strcmp(e[i]->d_name, ".") != 0 && strcmp(e[i]->d_name, "..") != 0) {
            strncat(all, e[i]->d_name, sizeof all - strlen(all) - 2);
            strcat(all, " ");
        }
        free(e[i]);
    }
    if (n >= 0) free(e);
    return all;
}
