#include "import.h"

#include "datasets.h"

#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether a folder has files of CIFAR, whose images Caffe stores in their own order, under keys of
 * five digits. */
static bool is_cifar(const char *source)
{
    static const char *const files[] = { "data_batch_1.bin", "test_batch.bin", "train.bin",
                                         "test.bin" };
    char path[4096];
    struct stat st;
    if (strncmp(source, "cifar", 5) == 0 && stat(source, &st) != 0) return true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", source, files[i]);
        if (stat(path, &st) == 0) return true;
        snprintf(path, sizeof path, "%s/%s.gz", source, files[i]);
        if (stat(path, &st) == 0) return true;
    }
    return false;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n > k && strcmp(text + n - k, end) == 0;
}

/* Files that datasets are read from; any other file is an image list. */
static bool is_list(const char *source)
{
    static const char *const tables[] = { ".csv", ".tsv", ".npz", ".npy", ".h5", ".hdf5" };
    struct stat st;
    if (stat(source, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (ends_with(source, tables[i])) return false;
    return true;
}

static bool read_size(const char *text, int64_t *height, int64_t *width)
{
    aril_shape size;
    if (!shape_read(text, &size) || size.ndim > 2) {
        fprintf(stderr, "aril data: --size expects a size such as 256 or 240x320, got '%s'\n",
                text);
        return false;
    }
    *height = size.dim[0];
    *width = size.dim[size.ndim - 1];
    return true;
}

/* Transforms of a dataset that is not a list: size, gray, order. */
static aril_dataset *changed(aril_dataset *d, const import_options *o, int64_t height,
                             int64_t width)
{
    if (d && height) d = resize_images(d, height, width);
    if (d && o->gray) d = aril_dataset_transform(d, aril_transform_grayscale(1, 1));
    if (!d || !o->shuffle) return d;
    aril_dataset *part = NULL;
    double all = 1;
    return aril_dataset_split(d, 1, &all, (uint64_t)o->seed, &part) == ARIL_OK ? part : NULL;
}

/* An image of a list that cannot be read is left out, as by convert_imageset. */
static void skipped(const char *why, void *ctx)
{
    int64_t *n = ctx;
    ++*n;
    fputs("aril data: warning: left out: ", stderr);
    print_text(stderr, why);
    fputc('\n', stderr);
}

int import_data(const char *source, const char *split, const char *to, const import_options *o)
{
    int64_t height = 0, width = 0;
    if (o->size && !read_size(o->size, &height, &width)) return EXIT_USAGE;
    char file[4096];
    struct stat st;
    snprintf(file, sizeof file, "%s/data.mdb", to);
    if (!o->force && stat(file, &st) == 0) {
        aril_fail(ARIL_ERR_IO, "%s is a database already; --force replaces it", to);
        return report("data");
    }
    bool list = is_list(source), cifar = !list && is_cifar(source);
    aril_caffe_list_opts of_list = { .root = o->root,
                                     .height = height,
                                     .width = width,
                                     .gray = o->gray,
                                     .shuffle = o->shuffle,
                                     .seed = (uint64_t)o->seed };
    aril_open_opts open = { .name_classes = false };
    aril_dataset *d = list ? aril_caffe_image_list(source, of_list)
                           : changed(aril_dataset_open_with(source, split, open), o, height, width);
    aril_caffe_import_opts opts = { .encoded = o->encoded,
                                    .rgb = o->rgb || cifar,
                                    .key_digits = cifar ? 5 : 8,
                                    .name_keys = list,
                                    .same_shape = o->same_size,
                                    .only_new = !o->force };
    int64_t n_skipped = 0;
    if (list && !o->strict) opts.skipped = skipped, opts.ctx = &n_skipped;
    int64_t n = d ? aril_caffe_import(d, to, opts) : -1;
    aril_dataset_release(d);
    if (n < 0) return report("data");
    print_text(stdout, to);
    printf(": %lld samples", (long long)n);
    if (n_skipped) printf(", %lld left out", (long long)n_skipped);
    puts("");
    return o->mean ? import_mean(to, o->mean) : EXIT_DONE;
}

int import_mean(const char *folder, const char *to)
{
    if (aril_caffe_mean(folder, to) != ARIL_OK) return report("data");
    print_text(stdout, to);
    puts(": mean image");
    return EXIT_DONE;
}
