/* CIFAR's binary files: records of one label (CIFAR-100: a coarse and a fine label) and 3 x 32 x 32
 * bytes. */
#include "aril/device.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/tensor.h"
#include "data/files.h"
#include "data/open.h"
#include "formats/gzip.h"

#include <limits.h>
#include <string.h>

enum { PIXELS = 3 * 32 * 32, MAX_CLASSES = 100 };

const char *const aril__classes_cifar10[10] = {
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
};

const char *const aril__classes_cifar100[100] = {
    "apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
    "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
    "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
    "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
    "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
    "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
    "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
    "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
    "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
    "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
    "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
    "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
    "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
    "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
    "table",       "tank",          "telephone", "television", "tiger",        "tractor",
    "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
    "willow_tree", "wolf",          "woman",     "worm",
};

static bool present(const char *folder, const char *name)
{
    char packed[64];
    snprintf(packed, sizeof packed, "%s.gz", name);
    return aril__is_file(folder, name) || aril__is_file(folder, packed);
}

/* CIFAR-100 has one file per split. */
static bool is_hundred(const char *folder)
{
    return present(folder, "train.bin") || present(folder, "test.bin");
}

bool aril__holds_cifar(const char *folder)
{
    return present(folder, "data_batch_1.bin") || present(folder, "test_batch.bin") ||
           is_hundred(folder);
}

static aril_status read_part(const char *folder, const char *name, size_t record, aril__bytes *b)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, aril__is_file(folder, name) ? "" : ".gz");
    aril_status status = aril__read_unpacked("CIFAR", path, b);
    if (status != ARIL_OK) return status;
    if (b->n % record == 0 && b->n > 0) return ARIL_OK;
    status = aril__fail(ARIL_ERR_FORMAT,
                        "%s is not a valid file of CIFAR: its %zu bytes are not a multiple of %zu",
                        path, b->n, record);
    aril__bytes_free(b);
    return status;
}

/* Splits a file's records into labels and images. */
static aril_status split_records(const char *name, const aril__bytes *b, size_t labels, int classes,
                                 unsigned char *x, int64_t *y)
{
    for (size_t at = 0; at < b->n; at += labels + PIXELS, x += PIXELS) {
        unsigned label = b->at[at + labels - 1];
        if (label >= (unsigned)classes)
            return aril__fail(ARIL_ERR_FORMAT,
                              "%s: label %u is out of range for %d classes, at byte %zu", name,
                              label, classes, at);
        *y++ = label;
        memcpy(x, b->at + at + labels, PIXELS);
    }
    return ARIL_OK;
}

/* Reads class names from a text file, one per line, if it exists and has at least n. */
static void name_classes(aril_dataset *d, const char *folder, const char *file, int n)
{
    char path[PATH_MAX];
    aril__bytes b = { 0 };
    const char *name[MAX_CLASSES];
    int found = 0;
    if (!aril__is_file(folder, file)) return;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (aril__read_file("CIFAR", path, 1 << 16, &b) == ARIL_OK) {
        char *rest = (char *)b.at;
        for (char *line; rest && found < n && (line = strsep(&rest, "\r\n"));)
            if (*line) name[found++] = line;
        if (found == n) aril_dataset_set_classes(d, n, name);
    }
    aril__bytes_free(&b);
}

static aril_dataset *load(const char *folder, int files, const char *const *names, bool hundred)
{
    ARIL_SCOPE;
    aril__bytes part[5] = { 0 };
    size_t labels = hundred ? 2 : 1, record = labels + PIXELS, total = 0;
    aril_status status = ARIL_OK;
    for (int i = 0; i < files && status == ARIL_OK; i++) {
        status = read_part(folder, names[i], record, &part[i]);
        total += part[i].n / record;
    }
    aril_dataset *d = NULL;
    if (status == ARIL_OK) {
        aril_tensor *x = aril_empty(ARIL_SHAPE((int64_t)total, 3, 32, 32), ARIL_U8, aril_cpu());
        aril_tensor *y = aril_empty(ARIL_SHAPE((int64_t)total), ARIL_I64, aril_cpu());
        status = aril_tensor_status(x) != ARIL_OK ? aril_tensor_status(x) : aril_tensor_status(y);
        unsigned char *to = status == ARIL_OK ? aril__ptr(x) : NULL;
        int64_t *label = status == ARIL_OK ? aril__ptr(y) : NULL;
        for (int i = 0; i < files && status == ARIL_OK; i++) {
            status = split_records(names[i], &part[i], labels, hundred ? 100 : 10, to, label);
            to += part[i].n / record * PIXELS;
            label += part[i].n / record;
        }
        if (status == ARIL_OK) d = aril_dataset_images(x, y);
    }
    for (int i = 0; i < files; i++) aril__bytes_free(&part[i]);
    if (d)
        name_classes(d, folder, hundred ? "fine_label_names.txt" : "batches.meta.txt",
                     hundred ? 100 : 10);
    return d;
}

aril_dataset *aril__open_cifar(const char *folder, const char *split, const aril_open_opts *opts)
{
    (void)opts;
    static const char *const batches[] = { "data_batch_1.bin", "data_batch_2.bin",
                                           "data_batch_3.bin", "data_batch_4.bin",
                                           "data_batch_5.bin" };
    static const char *const test[] = { "test_batch.bin" }, *const train100[] = { "train.bin" };
    static const char *const test100[] = { "test.bin" };
    bool hundred = is_hundred(folder), training = !split || strcmp(split, "train") == 0;
    if (!training && strcmp(split, "test") != 0)
        return aril__no_split(folder, split, "\"train\" and \"test\"");
    const char *const *names = training ? (hundred ? train100 : batches) : hundred ? test100 : test;
    int n = training && !hundred ? 5 : 1;
    for (int i = 0; i < n; i++)
        if (!present(folder, names[i])) {
            aril__fail(ARIL_ERR_IO, "%s: missing file %s (or the same with .gz)", folder, names[i]);
            return NULL;
        }
    return load(folder, n, names, hundred);
}
