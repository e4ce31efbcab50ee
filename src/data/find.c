/* Finds datasets by name or path: search folders and supported file kinds. */
#include "aril/dtype.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "data/files.h"
#include "data/open.h"
#include "formats/number.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- known datasets ---- */

static const char *const digits[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9" };
static const char *const clothes[] = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"
};
static const char *const cifar10[] = { "airplane", "automobile", "bird",  "cat",  "deer",
                                       "dog",      "frog",       "horse", "ship", "truck" };
static const char *const cifar100[] = {
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

/* MNIST and its variants use the same file names: the folder's name tells them apart. */
#define IDX_FILES                                                                            \
    "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and " \
    "t10k-labels-idx1-ubyte.gz"

static const struct known {
    const char *name;
    const char *folder[4]; /* possible subfolders of a search folder */
    aril_dataset *(*open)(const char *folder, const char *split);
    bool (*holds)(const char *folder);
    const char *package; /* Debian package; NULL: none */
    const char *files;
    int n_classes;
    const char *const *classes;
} known[] = {
    { "mnist",
      { "mnist", "MNIST/raw", "MNIST" },
      aril__idx_folder,
      aril__holds_idx,
      NULL,
      IDX_FILES,
      10,
      digits },
    { "fashion-mnist",
      { "fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST" },
      aril__idx_folder,
      aril__holds_idx,
      "dataset-fashion-mnist",
      IDX_FILES,
      10,
      clothes },
    { "cifar10",
      { "cifar10", "cifar-10-batches-bin", "cifar-10", "CIFAR10" },
      aril__cifar_folder,
      aril__holds_cifar,
      NULL,
      "data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version)",
      10,
      cifar10 },
    { "cifar100",
      { "cifar100", "cifar-100-binary", "cifar-100", "CIFAR100" },
      aril__cifar_folder,
      aril__holds_cifar,
      NULL,
      "train.bin and test.bin (the binary version)",
      100,
      cifar100 },
};
enum { KNOWN = sizeof known / sizeof *known };

int aril_dataset_names(const char *const **names)
{
    static const char *const all[] = { "mnist", "fashion-mnist", "cifar10", "cifar100" };
    _Static_assert(sizeof all / sizeof *all == KNOWN, "each is named");
    if (names) *names = all;
    return KNOWN;
}

/* Compares names ignoring case, '-' and '_'. */
static bool same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '-' || *a == '_') a++;
        while (*b == '-' || *b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

static const struct known *known_name(const char *name)
{
    for (int i = 0; i < KNOWN; i++)
        if (same_name(name, known[i].name)) return &known[i];
    return NULL;
}

/* ---- search folders ---- */

/* Calls fn for each search folder until it returns true. */
static bool each_place(bool (*fn)(const char *place, void *ctx), void *ctx)
{
    char place[PATH_MAX];
    for (const char *p = getenv("ARIL_DATA"); p && *p;) {
        size_t n = strcspn(p, ":");
        if (n > 0 && n < sizeof place) {
            memcpy(place, p, n);
            place[n] = 0;
            if (fn(place, ctx)) return true;
        }
        p += n + (p[n] == ':');
    }
    const char *home = getenv("HOME");
    int n = home ? snprintf(place, sizeof place, "%s/.local/share/datasets", home) : -1;
    if (n > 0 && (size_t)n < sizeof place && fn(place, ctx)) return true;
    return fn("/usr/local/share/datasets", ctx) || fn("/usr/share/datasets", ctx);
}

struct search {
    const struct known *k;
    const char *name;
    char path[PATH_MAX];
};

static bool join(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return n > 0 && n < PATH_MAX;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool known_is_here(const char *place, void *ctx)
{
    struct search *s = ctx;
    for (int i = 0; i < 4 && s->k->folder[i]; i++)
        if (join(s->path, place, s->k->folder[i]) && s->k->holds(s->path)) return true;
    /* ARIL_DATA may be the dataset's own folder. */
    for (int i = 0; i < 4 && s->k->folder[i]; i++)
        if (same_name(last_part(place), last_part(s->k->folder[i])) && s->k->holds(place)) {
            snprintf(s->path, sizeof s->path, "%s", place);
            return true;
        }
    return false;
}

static bool name_is_here(const char *place, void *ctx)
{
    struct search *s = ctx;
    return join(s->path, place, s->name) && access(s->path, F_OK) == 0;
}

/* ---- opening files and folders ---- */

static const char *extension(const char *path)
{
    const char *dot = strrchr(last_part(path), '.');
    return dot ? dot : "";
}

/* File kinds, by suffix. */
static const struct kind {
    const char *end;
    aril_dataset *(*open)(const char *path, const char *split);
    aril_dataset *(*open_table)(const char *path, const char *split, const aril_open_opts *opts);
} kinds[] = { ARIL__FILE_KINDS{ NULL, NULL, NULL } };

/* "x.csv.gz" is a .csv too: the readers decompress. */
static const struct kind *file_kind(const char *path)
{
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s", last_part(path));
    char *dot = strrchr(name, '.');
    if (dot && strcasecmp(dot, ".gz") == 0) *dot = 0;
    for (const struct kind *k = kinds; k->end; k++)
        if (strcasecmp(extension(name), k->end) == 0) return k;
    return NULL;
}

static aril_dataset *open_file(const char *path, const char *split, const aril_open_opts *o)
{
    const struct kind *k = file_kind(path);
    if (k) return k->open ? k->open(path, split) : k->open_table(path, split, o);
    aril__fail(ARIL_ERR_UNSUPPORTED,
               "%s: no dataset ends in \"%s\"; known are folders, " ARIL__FILE_KIND_NAMES, path,
               extension(path));
    return NULL;
}

/* Finds a split by name in a folder: "test", "test.csv", "mnist_test_lmdb". */
static bool split_in_folder(const char *folder, const char *split, char path[PATH_MAX])
{
    static const char *const same[][3] = { { "val", "valid", "validation" },
                                           { "test", "testing", "t10k" },
                                           { "train", "training", "train" } };
    const char *word[4] = { split };
    int words = 1;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        for (int k = 0; k < 3; k++)
            if (strcmp(split, same[i][k]) == 0)
                for (int j = 0; j < 3; j++) word[words < 4 ? words++ : 3] = same[i][j];
    aril__texts in = { 0 };
    if (aril__list_folder(folder, &in) != ARIL_OK) return false;
    bool found = false;
    for (int w = 0; w < words && !found; w++)
        for (int64_t i = 0; i < in.n && !found; i++) {
            const char *name = in.at[i];
            size_t n = strlen(name), m = strlen(word[w]);
            bool is_folder = aril__is_folder(folder, name);
            size_t end = is_folder ? n : n - strlen(extension(name));
            if (is_folder && n > 5 && strcmp(name + n - 5, "_lmdb") == 0) end = n - 5;
            if (!is_folder && !file_kind(name)) continue;
            bool whole = end == m && strncmp(name, word[w], m) == 0;
            bool last = end > m && (name[end - m - 1] == '_' || name[end - m - 1] == '-') &&
                        strncmp(name + end - m, word[w], m) == 0;
            found = (whole || last) && join(path, folder, name);
        }
    aril__texts_free(&in);
    return found;
}

static aril_dataset *open_path(const char *path, const char *split, const aril_open_opts *o,
                               int depth);

static aril_dataset *open_folder(const char *path, const char *split, const aril_open_opts *o,
                                 int depth)
{
    char part[PATH_MAX];
    if (aril__holds_idx(path)) return aril__idx_folder(path, split);
    if (aril__holds_cifar(path)) return aril__cifar_folder(path, split);
    if (aril__is_file(path, "data.mdb")) {
        if (split && strcmp(split, "train") != 0)
            return aril__no_split(path, split, "no parts: all of it is \"train\"");
        return aril_dataset_lmdb(path);
    }
    bool has_train = split_in_folder(path, "train", part);
    if (split && split_in_folder(path, split, part)) return open_path(part, NULL, o, depth + 1);
    if (!split && has_train && split_in_folder(path, "train", part))
        return open_path(part, NULL, o, depth + 1);
    if (split && (has_train || strcmp(split, "train") != 0)) {
        aril__fail(ARIL_ERR_ARG,
                   "%s has no part \"%s\": neither a folder nor a file of that name is in it", path,
                   split);
        return NULL;
    }
    return aril_dataset_folder(path, (aril_folder_opts){ 0 });
}

static aril_dataset *open_path(const char *path, const char *split, const aril_open_opts *o,
                               int depth)
{
    struct stat st;
    if (depth > 4 || stat(path, &st) != 0) {
        aril__fail(ARIL_ERR_IO, "cannot open dataset %s", path);
        return NULL;
    }
    return S_ISDIR(st.st_mode) ? open_folder(path, split, o, depth) : open_file(path, split, o);
}

static aril_dataset *open_known(const struct known *k, const char *folder, const char *split)
{
    aril_dataset *d = k->open(folder, split);
    const char *const *names;
    return d && aril_dataset_classes(d, &names) == 0
               ? aril__with_classes(d, k->n_classes, k->classes)
               : d;
}

static aril_dataset *missing(const struct known *k)
{
    const char *data = getenv("ARIL_DATA");
    char where[256];
    if (data && *data)
        snprintf(where, sizeof where, "%.*s/%s", (int)strcspn(data, ":"), data, k->name);
    else
        snprintf(where, sizeof where, "FOLDER/%s and set ARIL_DATA=FOLDER", k->name);
    if (k->package)
        aril__fail(ARIL_ERR_IO,
                   "dataset %s was not found. On Debian: apt-get install %s. Or put %s into %s",
                   k->name, k->package, k->files, where);
    else
        aril__fail(ARIL_ERR_IO, "dataset %s was not found. Put %s into %s", k->name, k->files,
                   where);
    return NULL;
}

static aril_dataset *unknown(const char *name)
{
    const char *const *names;
    int n = aril_dataset_names(&names);
    if (strchr(name, '/') || *extension(name)) {
        aril__fail(ARIL_ERR_IO, "no dataset '%s': there is no such file or folder", name);
        return NULL;
    }
    const char *near = aril_nearest(name, names, n);
    aril__fail(ARIL_ERR_ARG,
               near ? "no dataset '%s'; did you mean %s?"
                    : "no dataset '%s'; known are mnist, fashion-mnist, cifar10, cifar100, and "
                      "files and folders%.0s",
               name, near ? near : "");
    return NULL;
}

/* ---- options ---- */

static aril_status as_number(aril_sample *s, void *ctx)
{
    (void)ctx;
    if (s->y) s->y = aril_cast(s->y, ARIL_F32);
    return s->y ? aril_tensor_status(s->y) : ARIL_OK;
}

/* The dtype of the targets, from the first sample; false if it has no target. */
static bool target_dtype(aril_dataset *d, aril_dtype *y)
{
    ARIL_SCOPE;
    aril_sample s;
    if (aril_dataset_size(d) < 1 || aril_dataset_get(d, 0, &s) != ARIL_OK || !s.y) return false;
    *y = aril_dtype_of(s.y);
    return true;
}

/* The first class whose name is not its own index as a number, or NULL. MNIST's digits are; animal
 * names are not, and an age folder "21" may have index 0. */
static const char *class_without_number(aril_dataset *d)
{
    const char *const *names;
    int n = aril_dataset_classes(d, &names);
    for (int i = 0; i < n; i++) {
        double v;
        if (!aril__parse_number(names[i], strlen(names[i]), &v) || v != i) return names[i];
    }
    return NULL;
}

static aril_dataset *as_numbers(aril_dataset *d, const char *name)
{
    const char *class = class_without_number(d);
    if (!class) return aril_dataset_map(d, as_number, NULL, NULL);
    aril__fail(ARIL_ERR_DTYPE,
               "the targets of %s are classes (%s ...), not numbers: a regression needs a table or "
               "an array of numbers",
               name, class);
    aril_dataset_release(d);
    return NULL;
}

/* Applies the options to a dataset, which is taken over; tables already have them applied. */
static aril_dataset *as_asked(aril_dataset *d, const char *name, const aril_open_opts *o)
{
    if (!d || aril_dataset_columns(d, NULL, NULL)) return d;
    if (o->target || o->skip) {
        aril__fail(ARIL_ERR_ARG, "%s is not a table (.csv, .tsv): it has no column \"%s\"", name,
                   o->target ? o->target : o->skip);
        aril_dataset_release(d);
        return NULL;
    }
    aril_dtype y = ARIL_F32;
    bool has = (o->real_target || o->class_target) && target_dtype(d, &y);
    if (o->class_target && has && aril_dtype_is_float(y)) {
        aril__fail(ARIL_ERR_DTYPE, "the targets of %s are %s; classes are integers", name,
                   aril_dtype_name(y));
        aril_dataset_release(d);
        return NULL;
    }
    if (o->real_target && has && !aril_dtype_is_float(y)) return as_numbers(d, name);
    return o->classes && !o->real_target ? aril_dataset_match_classes(d, o->n_classes, o->classes)
                                         : d;
}

static aril_dataset *find(const char *name, const char *split, const aril_open_opts *o)
{
    struct search s = { .k = known_name(name), .name = name };
    if (s.k && each_place(known_is_here, &s)) return open_known(s.k, s.path, split);
    if (access(name, F_OK) == 0) {
        if (s.k && s.k->holds(name)) return open_known(s.k, name, split);
        return open_path(name, split, o, 0);
    }
    if (s.k) return missing(s.k);
    if (!strchr(name, '/') && each_place(name_is_here, &s)) return open_path(s.path, split, o, 0);
    return unknown(name);
}

/* Whether it is a table with unnamed integer targets. */
static bool has_unnamed_classes(aril_dataset *d)
{
    ARIL_SCOPE;
    const char *target = NULL;
    aril_sample s;
    return aril_dataset_columns(d, NULL, &target) > 0 && target && !aril_dataset_classes(d, NULL) &&
           aril_dataset_get(d, 0, &s) == ARIL_OK && s.y && !aril_dtype_is_float(aril_dtype_of(s.y));
}

aril_dataset *aril_dataset_open_with(const char *name, const char *split, aril_open_opts opts)
{
    if (!name || !*name) {
        aril__fail(ARIL_ERR_ARG, "aril_dataset_open: no name");
        return NULL;
    }
    if (split && !*split) split = NULL;
    aril_dataset *d = as_asked(find(name, split, &opts), name, &opts);
    if (!d || !opts.name_classes || !has_unnamed_classes(d)) return d;
    aril_dataset_release(d);
    opts.class_target = true;
    return as_asked(find(name, split, &opts), name, &opts);
}

aril_dataset *aril_dataset_open(const char *name, const char *split)
{
    return aril_dataset_open_with(name, split, (aril_open_opts){ 0 });
}

static aril_dataset *by_name(const char *name, const char *split)
{
    struct search s = { .k = known_name(name), .name = name };
    if (!each_place(known_is_here, &s)) return missing(s.k);
    return open_known(s.k, s.path, split && *split ? split : NULL);
}

aril_dataset *aril_mnist(const char *split)
{
    return by_name("mnist", split);
}

aril_dataset *aril_fashion_mnist(const char *split)
{
    return by_name("fashion-mnist", split);
}

aril_dataset *aril_cifar10(const char *split)
{
    return by_name("cifar10", split);
}

aril_dataset *aril_cifar100(const char *split)
{
    return by_name("cifar100", split);
}
