/* Published weights of the networks of the zoo: downloaded by name, and kept in a cache.
 *
 *     aril_zoo_download("resnet50", (aril_zoo_download_opts){ 0 });
 *     aril_module *m = aril_zoo_make("resnet50", (aril_zoo_opts){ .weights = "default" });
 *
 * The cache is the folder ARIL_CACHE, or aril in the user's cache folder (XDG_CACHE_HOME, else
 * ~/.cache). Files can also be put there by hand. ARIL_ZOO_MIRROR is a URL to download from instead
 * of the publishers' servers, and ARIL_OFFLINE=1 keeps Aril from connecting to any. */
#ifndef ARIL_PUBLISHED_H
#define ARIL_PUBLISHED_H

#include "aril/zoo.h"

#include <stdio.h>

ARIL_C_BEGIN

/* A file of a network: its weights, or what else it needs, such as a vocabulary. */
typedef struct aril_published_file {
    char url[512];
    char path[4096];    /* in the cache */
    const char *sha256; /* hexadecimal digits, all or the first; NULL: only the server tells them */
    int64_t size;       /* in bytes; 0: it is not there */
    int64_t part;       /* bytes of an unfinished download */
} aril_published_file;

/* The number of files that are published for a network, its weights first; 0: none. */
ARIL_API int aril_published_count(const aril_zoo_entry *e);

/* The i-th file, and whether it is there. */
ARIL_API aril_status aril_published_at(const aril_zoo_entry *e, int i, aril_published_file *file);

typedef struct aril_zoo_download_opts {
    bool offline; /* do not connect: only see whether everything is there */
    bool check;   /* check the hashes of files that are there already */
    int verbose;  /* 0 and 1: a progress bar in a terminal, else a line per file; ARIL_ZERO:
                     nothing */
    FILE *output; /* NULL: stdout */
    /* Called several times a second: true stops the download, which a later call resumes. */
    bool (*stop)(void *ctx);
    void *ctx;
} aril_zoo_download_opts;

/* Downloads the published files of a network to the cache, unless they are there. Checks their
 * published hashes; resumes what was interrupted; waits for another process that downloads the
 * same. The error after a failure says which file to put where by hand. */
ARIL_API aril_status aril_zoo_download(const char *name, aril_zoo_download_opts opts);

/* Removes them from the cache, with unfinished downloads; *removed (may be NULL) is set to the
 * number of bytes. */
ARIL_API aril_status aril_zoo_remove(const char *name, int64_t *removed);

/* The cache folder, which need not exist yet, written to buf. */
ARIL_API aril_status aril_cache_folder(char *buf, size_t size);

ARIL_C_END

#endif
