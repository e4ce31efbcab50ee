/* LMDB files of Caffe's Datum messages. */
#include "aril/datasets.h"

#include "core/memory.h"
#include "data/datum.h"
#include "data/files.h"
#include "data/open.h"
#include "formats/lmdb.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct pairs {
    aril__lmdb *file;
};

static int64_t pairs_size(aril_dataset *self)
{
    const struct pairs *d = aril_dataset_data(self);
    return aril__lmdb_count(d->file);
}

static aril_status pairs_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct pairs *d = aril_dataset_data(self);
    aril__bytes b = { 0 };
    s->name = aril__lmdb_key(d->file, i);
    aril_status status = aril__lmdb_read(d->file, i, &b);
    if (status == ARIL_OK) status = aril__datum_decode(s->name, b.at, b.n, s);
    aril__bytes_free(&b);
    return status;
}

static void pairs_destroy(aril_dataset *self)
{
    struct pairs *d = aril_dataset_data(self);
    aril__lmdb_close(d->file);
}

static const aril_dataset_class pairs_class = {
    .type = "LMDB",
    .data_size = sizeof(struct pairs),
    .size = pairs_size,
    .get = pairs_get,
    .destroy = pairs_destroy,
    .images = true,
};

aril_dataset *aril_dataset_lmdb(const char *path)
{
    char file[PATH_MAX];
    struct stat st;
    bool folder = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(file, sizeof file, "%s%s", path ? path : "", folder ? "/data.mdb" : "");
    aril__source source;
    if (aril__source_open(&source, "LMDB", file) != ARIL_OK) return NULL;
    aril__lmdb *f = aril__lmdb_open(source);
    aril_dataset *self = f ? aril_dataset_make(&pairs_class) : NULL;
    if (self)
        ((struct pairs *)aril_dataset_data(self))->file = f;
    else
        aril__lmdb_close(f);
    return self;
}

bool aril__holds_lmdb(const char *folder)
{
    return aril__is_file(folder, "data.mdb");
}

aril_dataset *aril__open_lmdb(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)split, (void)opts;
    return aril_dataset_lmdb(path);
}
