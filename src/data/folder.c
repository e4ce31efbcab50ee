/* Pictures in files: a folder for each class, or a list of files. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/make.h"
#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/files.h"
#include "data/picture_sample.h"
#include "formats/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct folder {
    char *root; /* NULL: names are whole paths */
    aril__texts file;
    int *label; /* NULL: no targets */
    int channels;
};

static int64_t folder_size(aril_dataset *self)
{
    const struct folder *d = aril_dataset_data(self);
    return d->file.n;
}

static void folder_destroy(aril_dataset *self)
{
    struct folder *d = aril_dataset_data(self);
    aril__texts_free(&d->file);
    free(d->root);
    free(d->label);
}

static aril_status folder_get(aril_dataset *self, int64_t i, aril_sample *s)
{
    const struct folder *d = aril_dataset_data(self);
    char path[PATH_MAX];
    s->name = d->file.at[i];
    int n =
        snprintf(path, sizeof path, "%s%s%s", d->root ? d->root : "", d->root ? "/" : "", s->name);
    if (n < 0 || (size_t)n >= sizeof path)
        return aril__fail(ARIL_ERR_IO, "%s: the path is too long", s->name);
    aril__bytes b = { 0 };
    aril_status status = aril__read_file("picture", path, 0, &b);
    if (status != ARIL_OK) return status;
    status = aril__sample_picture(s, path, b.at, b.n, d->channels);
    aril__bytes_free(&b);
    if (status != ARIL_OK || !d->label) return status;
    int64_t label = d->label[i];
    s->y = aril_from(&label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return aril_tensor_status(s->y);
}

static const aril_dataset_class folder_class = {
    .type = "Pictures",
    .data_size = sizeof(struct folder),
    .size = folder_size,
    .get = folder_get,
    .destroy = folder_destroy,
    .pictures = true,
};

static aril_dataset *make(aril_folder_opts opts)
{
    if (opts.channels != 0 && opts.channels != 1 && opts.channels != 3) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_folder: %d channels; 1 or 3 there can be",
                   opts.channels);
        return NULL;
    }
    aril_dataset *self = aril_dataset_make(&folder_class);
    if (!self) return NULL;
    struct folder *d = aril_dataset_data(self);
    d->channels = opts.channels ? opts.channels : 3;
    return self;
}

bool aril__is_picture_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && *name != '.' &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

/* Adds the pictures in folder `at` below the root, and in those below it. */
static aril_status add_pictures(const char *root, const char *at, int depth, aril__texts *to)
{
    char path[PATH_MAX];
    aril__texts in = { 0 };
    snprintf(path, sizeof path, "%s/%s", root, at);
    aril_status status = aril__list_folder(path, &in);
    for (int64_t i = 0; i < in.n && status == ARIL_OK; i++) {
        struct stat st;
        int n = snprintf(path, sizeof path, "%s/%s%s%s", root, at, *at ? "/" : "", in.at[i]);
        if (n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0) continue;
        const char *name = path + strlen(root) + 1;
        if (S_ISREG(st.st_mode) && aril__is_picture_name(in.at[i]))
            status = aril__texts_add(to, name);
        else if (S_ISDIR(st.st_mode) && *at && depth < 16) {
            char below[PATH_MAX];
            snprintf(below, sizeof below, "%s", name);
            status = add_pictures(root, below, depth + 1, to);
        }
    }
    aril__texts_free(&in);
    return status;
}

static aril_status read_folder(aril_dataset *self, const char *path)
{
    struct folder *d = aril_dataset_data(self);
    aril__texts in = { 0 }, classes = { 0 };
    d->root = aril__strdup(path);
    if (!d->root) return aril__fail(ARIL_ERR_MEMORY, "no memory to read folder %s", path);
    aril_status status = aril__list_folder(path, &in);
    int64_t *ends = aril__malloc(((size_t)in.n + 1) * sizeof *ends); /* of each class's files */
    if (status == ARIL_OK && !ends)
        status = aril__fail(ARIL_ERR_MEMORY, "no memory to read folder %s", path);
    for (int64_t i = 0; i < in.n && status == ARIL_OK; i++) {
        if (!aril__is_folder(path, in.at[i])) continue;
        int64_t before = d->file.n;
        status = add_pictures(path, in.at[i], 0, &d->file);
        if (status != ARIL_OK || d->file.n == before)
            continue; /* folders without pictures are none */
        status = aril__texts_add(&classes, in.at[i]);
        ends[classes.n - 1] = d->file.n;
    }
    if (status == ARIL_OK && classes.n > 0) {
        d->label = aril__malloc((size_t)d->file.n * sizeof *d->label);
        if (d->label) {
            int64_t c = 0;
            for (int64_t i = 0; i < d->file.n; i++) {
                while (i >= ends[c]) c++;
                d->label[i] = (int)c;
            }
            status =
                aril_dataset_set_classes(self, (int)classes.n, (const char *const *)classes.at);
        } else {
            status = aril__fail(ARIL_ERR_MEMORY, "no memory to read folder %s", path);
        }
    } else if (status == ARIL_OK) {
        status = add_pictures(path, "", 0, &d->file);
    }
    if (status == ARIL_OK && d->file.n == 0)
        status = aril__fail(
            ARIL_ERR_IO,
            "%s holds no pictures: .jpg, .jpeg or .png files were expected, in one folder "
            "for each class",
            path);
    free(ends);
    aril__texts_free(&in);
    aril__texts_free(&classes);
    return status;
}

aril_dataset *aril_dataset_folder(const char *path, aril_folder_opts opts)
{
    if (!path || !*path) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_folder: no path");
        return NULL;
    }
    aril_dataset *self = make(opts);
    if (self && read_folder(self, path) == ARIL_OK) return self;
    aril_dataset_release(self);
    return NULL;
}

aril_dataset *aril_dataset_picture_files(int64_t n, const char *const *paths, aril_folder_opts opts)
{
    if (n < 0 || (n > 0 && !paths)) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_picture_files: no files");
        return NULL;
    }
    aril_dataset *self = make(opts);
    struct folder *d = self ? aril_dataset_data(self) : NULL;
    for (int64_t i = 0; i < n && d; i++)
        if (aril__texts_add(&d->file, paths[i] ? paths[i] : "") != ARIL_OK) {
            aril_dataset_release(self);
            return NULL;
        }
    return self;
}
