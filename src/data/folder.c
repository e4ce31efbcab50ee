/* Images in files: a folder per class, or a list of files. */
#include "aril/datasets.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/files.h"
#include "data/open.h"
#include "data/image_sample.h"
#include "formats/bytes.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

struct folder {
    char *root; /* NULL: names are full paths */
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
    aril_status status = aril__read_file("image", path, 0, &b);
    if (status != ARIL_OK) return status;
    status = aril__sample_image(s, path, b.at, b.n, d->channels);
    aril__bytes_free(&b);
    if (status != ARIL_OK || !d->label) return status;
    int64_t label = d->label[i];
    s->y = aril_from(&label, ARIL_SHAPE(), ARIL_I64, aril_cpu());
    return aril_tensor_status(s->y);
}

static const aril_dataset_class folder_class = {
    .type = "Images",
    .data_size = sizeof(struct folder),
    .size = folder_size,
    .get = folder_get,
    .destroy = folder_destroy,
    .images = true,
};

static aril_dataset *make(aril_folder_opts opts)
{
    if (opts.channels != 0 && opts.channels != 1 && opts.channels != 3) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_folder: expected 1 or 3 channels, got %d",
                   opts.channels);
        return NULL;
    }
    aril_dataset *self = aril_dataset_make(&folder_class);
    if (!self) return NULL;
    struct folder *d = aril_dataset_data(self);
    d->channels = opts.channels ? opts.channels : 3;
    return self;
}

bool aril__is_image_name(const char *name)
{
    static const char *const endings[] = { ".jpg", ".jpeg", ".png", ".bmp", ".pgm", ".ppm" };
    const char *dot = strrchr(name, '.');
    bool is = false;
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        is |= strcasecmp(dot, endings[i]) == 0;
    return is && *name != '.';
}

/* ---- directory traversal ---- */

/* A traversal of a folder. Symbolic links are handled with care, since data may be untrusted: they
 * may leave the folder, form cycles, or reach one folder by many paths. */
struct walk {
    const char *root;
    char real[PATH_MAX]; /* the root with links resolved */
    bool follow;
    struct id {
        dev_t device;
        ino_t inode;
    } * seen; /* visited folders of this class; tracked only when following links */
    int64_t n, capacity;
};

static aril_status walk_begin(struct walk *w, const char *root, bool follow)
{
    *w = (struct walk){ .root = root, .follow = follow };
    if (realpath(root, w->real)) return ARIL_OK;
    return aril__fail(ARIL_ERR_IO, "cannot read folder %s: %s", root, strerror(errno));
}

static bool is_inside(const struct walk *w, const char *real)
{
    size_t n = strlen(w->real);
    if (n == 1) return true; /* "/" */
    return strncmp(real, w->real, n) == 0 && (real[n] == '/' || real[n] == '\0');
}

/* Sets *again to whether the folder was visited before, and marks it visited. */
static aril_status visit(struct walk *w, const struct stat *st, bool *again)
{
    *again = false;
    if (!w->follow) return ARIL_OK; /* without links there is only one path to each folder */
    for (int64_t i = 0; i < w->n && !*again; i++)
        *again = w->seen[i].device == st->st_dev && w->seen[i].inode == st->st_ino;
    if (*again) return ARIL_OK;
    if (w->n == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 16;
        struct id *more = aril__realloc(w->seen, (size_t)capacity * sizeof *more);
        if (!more) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading folder %s", w->root);
        w->seen = more;
        w->capacity = capacity;
    }
    w->seen[w->n++] = (struct id){ st->st_dev, st->st_ino };
    return ARIL_OK;
}

/* What a path is: a folder to enter, an image to add, or neither. */
enum found { NEITHER, FOLDER, IMAGE };

static aril_status look(struct walk *w, const char *path, enum found *found)
{
    struct stat st;
    char real[PATH_MAX];
    const char *name = strrchr(path, '/') + 1;
    *found = NEITHER;
    if (lstat(path, &st) != 0) return ARIL_OK;
    bool link = S_ISLNK(st.st_mode);
    if (link && (!realpath(path, real) || stat(real, &st) != 0)) return ARIL_OK; /* dangling link */
    enum found is = S_ISDIR(st.st_mode)                                ? FOLDER
                    : S_ISREG(st.st_mode) && aril__is_image_name(name) ? IMAGE
                                                                       : NEITHER;
    if (link && is != NEITHER && !w->follow && !is_inside(w, real))
        return aril__fail(ARIL_ERR_IO,
                          "%s is a symbolic link to %s, outside the folder %s; move the target "
                          "there, or set .follow_links of aril_dataset_folder",
                          path, real, w->root);
    if (link && is == FOLDER && !w->follow) return ARIL_OK; /* found at its real path */
    bool again = false;
    aril_status status = is == FOLDER ? visit(w, &st, &again) : ARIL_OK;
    if (status == ARIL_OK && !again) *found = is;
    return status;
}

/* Adds the images in folder `at` below the root, recursively. */
static aril_status add_images(struct walk *w, const char *at, int depth, aril__texts *to)
{
    char path[PATH_MAX];
    aril__texts in = { 0 };
    snprintf(path, sizeof path, "%s/%s", w->root, at);
    aril_status status = aril__list_folder(path, &in);
    for (int64_t i = 0; i < in.n && status == ARIL_OK; i++) {
        enum found found;
        int n = snprintf(path, sizeof path, "%s/%s%s%s", w->root, at, *at ? "/" : "", in.at[i]);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        status = look(w, path, &found);
        const char *name = path + strlen(w->root) + 1;
        if (status == ARIL_OK && found == IMAGE)
            status = aril__texts_add(to, name);
        else if (status == ARIL_OK && found == FOLDER && *at && depth < 16) {
            char below[PATH_MAX];
            snprintf(below, sizeof below, "%s", name);
            status = add_images(w, below, depth + 1, to);
        }
    }
    aril__texts_free(&in);
    return status;
}

/* Adds the images of the class folder `name`, if it is a folder. */
static aril_status add_class(struct walk *w, const char *name, aril__texts *to)
{
    char path[PATH_MAX];
    enum found found;
    int n = snprintf(path, sizeof path, "%s/%s", w->root, name);
    if (n < 0 || (size_t)n >= sizeof path) return ARIL_OK;
    struct stat root;
    bool again;
    w->n = 0;
    aril_status status = stat(w->root, &root) == 0 ? visit(w, &root, &again) : ARIL_OK;
    if (status == ARIL_OK) status = look(w, path, &found);
    return status == ARIL_OK && found == FOLDER ? add_images(w, name, 0, to) : status;
}

static aril_status read_folder(aril_dataset *self, const char *path, bool follow)
{
    struct folder *d = aril_dataset_data(self);
    aril__texts in = { 0 }, classes = { 0 };
    d->root = aril__strdup(path);
    if (!d->root) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading folder %s", path);
    struct walk w;
    aril_status status = walk_begin(&w, path, follow);
    if (status == ARIL_OK) status = aril__list_folder(path, &in);
    int64_t *ends = aril__malloc(((size_t)in.n + 1) * sizeof *ends); /* end of each class */
    if (status == ARIL_OK && !ends)
        status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading folder %s", path);
    for (int64_t i = 0; i < in.n && status == ARIL_OK; i++) {
        int64_t before = d->file.n;
        status = add_class(&w, in.at[i], &d->file);
        if (status != ARIL_OK || d->file.n == before)
            continue; /* folders without images are no classes */
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
            status = aril__fail(ARIL_ERR_MEMORY, "out of memory reading folder %s", path);
        }
    } else if (status == ARIL_OK) {
        status = add_images(&w, "", 0, &d->file);
    }
    if (status == ARIL_OK && d->file.n == 0)
        status = aril__fail(
            ARIL_ERR_IO,
            "%s has no images: expected .jpg, .jpeg or .png files in a subfolder for each class",
            path);
    free(ends);
    free(w.seen);
    aril__texts_free(&in);
    aril__texts_free(&classes);
    return status;
}

aril_dataset *aril_dataset_folder(const char *path, aril_folder_opts opts)
{
    if (!path || !*path) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_folder: the path is NULL");
        return NULL;
    }
    aril_dataset *self = make(opts);
    if (self && read_folder(self, path, opts.follow_links) == ARIL_OK) return self;
    aril_dataset_release(self);
    return NULL;
}

aril_dataset *aril_dataset_image_files(int64_t n, const char *const *paths, aril_folder_opts opts)
{
    if (n < 0 || (n > 0 && !paths)) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_image_files: no files");
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

aril_dataset *aril__open_images(const char *path, const char *split, const aril_open_opts *opts)
{
    (void)split, (void)opts;
    return aril_dataset_folder(path, (aril_folder_opts){ 0 });
}
