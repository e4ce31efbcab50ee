/* Datasets in files: by name, by path, and the errors when they are missing or malformed. */
#include "aril/aril.h"
#include "data/open.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "support/device.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Datasets are searched for only in `folder` and in the system's folders. */
static void look_in(const char *folder)
{
    setenv("ARIL_DATA", folder, 1);
    setenv("HOME", "/no/such/home", 1);
}

static const char *test_data(void)
{
    const char *data = getenv("ARIL_TEST_DATA");
    return data && *data ? data : "../shared/data";
}

static bool absent(const char *path)
{
    return access(path, R_OK) != 0;
}

/* The call returned NULL with an error of that code and text; clears the error. */
static bool refused(aril_dataset *d, aril_status code, const char *says)
{
    bool good = !d && aril_error_code() == code && strstr(aril_error(), says);
    if (!good) fprintf(stderr, "  %s\n", d ? "was opened" : aril_ok() ? "no error" : aril_error());
    aril_clear_error();
    aril_dataset_release(d);
    return good;
}

static int64_t label(aril_dataset *d, int64_t i)
{
    ARIL_SCOPE;
    aril_sample s;
    return aril_dataset_get(d, i, &s) == ARIL_OK ? aril_item_int(s.y) : -1;
}

/* ---- IDX ---- */

static aril_status write_idx(const char *path, int type, int ndim, const int *dim, const void *data,
                             size_t n)
{
    unsigned char head[4 + 4 * 8] = { 0, 0, (unsigned char)type, (unsigned char)ndim };
    for (int i = 0; i < ndim; i++) aril__put_be32(head + 4 + 4 * i, (uint32_t)dim[i]);
    aril__bytes b = { 0 };
    aril__bytes_add(&b, head, 4 + 4 * (size_t)ndim);
    aril__bytes_add(&b, data, n);
    aril_status status = aril__file_replace(path, b.at, b.n);
    aril__bytes_free(&b);
    return status;
}

TEST(idx_of_every_type)
{
    ARIL_SCOPE;
    const char *path = temp_path("x.idx");
    static const unsigned char one[] = { 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0 };
    CHECK_INT(write_idx(path, 0x0d, 1, (int[]){ 2 }, one, 8), ARIL_OK);
    aril_tensor *t = aril_idx_read(path);
    CHECK_INT(aril_dtype_of(t), ARIL_F32);
    CHECK_NEAR(aril_item(aril_select(t, 0, 1)), -2, 0);
    CHECK_INT(write_idx(path, 0x0b, 2, (int[]){ 2, 2 }, "\1\2\xff\xff\0\0\0\1", 8), ARIL_OK);
    t = aril_idx_read(path);
    CHECK_INT(aril_dtype_of(t), ARIL_I16);
    CHECK_INT(aril_item_int(aril_amax(t, ARIL_ALL)), 258);
    CHECK_INT(aril_item_int(aril_amin(t, ARIL_ALL)), -1);
    CHECK_INT(write_idx(path, 0x08, 2, (int[]){ 0, 2 }, "", 0), ARIL_OK);
    CHECK_INT(aril_numel(aril_idx_read(path)), 0);
    CHECK(aril_ok());
}

TEST(malformed_idx)
{
    ARIL_SCOPE;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } bad[] = {
        { "", 0, "not an IDX file" },
        { "\0\0\x08", 3, "not an IDX file" },
        { "\0\0\x07\1\0\0\0\1.", 9, "not an IDX file" },
        { "\1\0\x08\1\0\0\0\1.", 9, "not an IDX file" },
        { "\0\0\x08\x09........", 12, "9 dimensions" },
        { "\0\0\x08\2\0\0\0\1", 8, "2 dimensions in 8 bytes" },
        { "\0\0\x08\1\0\0\0\2.", 9, "fewer" },
        { "\0\0\x08\1\0\0\0\1..", 10, "more" },
        { "\0\0\x08\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff.", 17, "fewer" },
    };
    const char *path = temp_path("bad.idx");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(aril__file_replace(path, bad[i].bytes, bad[i].n), ARIL_OK);
        CHECK_INT(aril_tensor_status(aril_idx_read(path)), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), bad[i].says), "%zu: %s", i, aril_error());
        aril_clear_error();
    }
    CHECK_INT(aril__file_replace(path, "\x1f\x8b\x08\0garbage", 11), ARIL_OK);
    aril_status status = aril_tensor_status(aril_idx_read(path));
    CHECK(status == ARIL_ERR_FORMAT || status == ARIL_ERR_UNSUPPORTED);
    CHECK(strstr(aril_error(), "bad.idx"));
    aril_clear_error();
}

/* Five images of 2 x 3 for training and one for testing, in a folder of that name. */
static bool make_mnist(const char *folder)
{
    unsigned char pixel[30];
    for (int i = 0; i < 30; i++) pixel[i] = (unsigned char)(i * 8);
    char path[4][600];
    static const char *const name[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte" };
    if (mkdir(folder, 0777) != 0) return false;
    for (int i = 0; i < 4; i++) snprintf(path[i], sizeof path[i], "%s/%s", folder, name[i]);
    return write_idx(path[0], 8, 3, (int[]){ 5, 2, 3 }, pixel, 30) == ARIL_OK &&
           write_idx(path[1], 8, 1, (int[]){ 5 }, "\0\1\2\3\4", 5) == ARIL_OK &&
           write_idx(path[2], 8, 3, (int[]){ 1, 2, 3 }, pixel, 6) == ARIL_OK &&
           write_idx(path[3], 8, 1, (int[]){ 1 }, "\7", 1) == ARIL_OK;
}

TEST(mnist_by_name_and_by_path)
{
    ARIL_SCOPE;
    CHECK(make_mnist(temp_path("MNIST")));
    look_in(temp_path(""));
    aril_dataset *d = aril_mnist("train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 5);
    CHECK_INT(label(d, 3), 3);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_OK);
    CHECK_INT(aril_ndim(s.x), 3);
    CHECK_INT(aril_size(s.x, 2), 3);
    CHECK_INT(aril_item_int(aril_amax(s.x, ARIL_ALL)), 88);
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 10);
    CHECK_STR(names[7], "7");
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = 5 });
    aril_batch b;
    CHECK(aril_loader_next(l, &b));
    CHECK_INT(aril_dtype_of(b.x), ARIL_F32);
    CHECK_INT(aril_ndim(b.x), 4);
    CHECK_NEAR(aril_item(aril_amax(b.x, ARIL_ALL)), 232 / 255.0, 1e-6);
    aril_loader_free(l);

    d = aril_dataset_open("MNIST", "test"); /* case does not matter */
    CHECK(d);
    CHECK_INT(label(d, 0), 7);
    aril_dataset_release(d);
    setenv("ARIL_DATA", temp_path("MNIST"), 1); /* the folder itself */
    d = aril_mnist("test");
    CHECK(d);
    aril_dataset_release(d);
    look_in("/no/such:/place");
    d = aril_dataset_open(temp_path("MNIST"), NULL);
    CHECK(d);
    CHECK_INT(aril_dataset_size(d), 5);
    aril_dataset_release(d);
    CHECK(refused(aril_dataset_open(temp_path("MNIST"), "other"), ARIL_ERR_ARG,
                  "\"train\" and \"test\""));
    char path[600];
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte", temp_path("MNIST"));
    CHECK_INT(write_idx(path, 8, 1, (int[]){ 4 }, "\0\1\2\3", 4), ARIL_OK);
    CHECK(refused(aril_dataset_open(temp_path("MNIST"), "train"), ARIL_ERR_FORMAT, "do not match"));
    CHECK(unlink(path) == 0);
    CHECK(refused(aril_dataset_open(temp_path("MNIST"), "train"), ARIL_ERR_IO,
                  "missing file train-labels-idx1"));
}

TEST(missing_datasets)
{
    look_in("/no/such/place");
    CHECK(refused(aril_cifar100("train"), ARIL_ERR_IO, "Put train.bin and test.bin"));
    CHECK(refused(aril_cifar10("train"), ARIL_ERR_IO, "into /no/such/place/cifar10"));
    unsetenv("ARIL_DATA");
    CHECK(refused(aril_cifar10("train"), ARIL_ERR_IO,
                  "into FOLDER/cifar10 and set ARIL_DATA=FOLDER"));
    if (absent("/usr/share/datasets/fashion-mnist") &&
        absent("/usr/local/share/datasets/fashion-mnist"))
        CHECK(refused(aril_fashion_mnist("train"), ARIL_ERR_IO,
                      "apt-get install dataset-fashion-mnist"));
    CHECK(refused(aril_dataset_open("fashon-mnist", "train"), ARIL_ERR_ARG,
                  "no dataset 'fashon-mnist'; did you mean fashion-mnist?"));
    CHECK(refused(aril_dataset_open("zebra", "train"), ARIL_ERR_ARG,
                  "expected mnist, fashion-mnist"));
    CHECK(refused(aril_dataset_open("/no/such/folder", "train"), ARIL_ERR_IO,
                  "no such file or folder"));
    CHECK(refused(aril_dataset_open("", "train"), ARIL_ERR_ARG, "the name is empty"));
    CHECK(refused(aril_dataset_open(NULL, NULL), ARIL_ERR_ARG, "the name is empty"));
    CHECK_INT(aril__file_replace(temp_path("x.doc"), "x", 1), ARIL_OK);
    CHECK(refused(aril_dataset_open(temp_path("x.doc"), NULL), ARIL_ERR_UNSUPPORTED,
                  "unknown file type \".doc\""));
}

/* ---- the table ---- */

static const char *help_text(void)
{
    static char text[16384];
    FILE *f = fmemopen(text, sizeof text, "w");
    aril_dataset_help(f);
    fclose(f);
    return text;
}

TEST(every_kind_is_complete)
{
    int n;
    const aril__data_kind *kind = aril__data_kinds(&n);
    CHECK_INT(aril__file_replace(temp_path("x.doc"), "x", 1), ARIL_OK);
    CHECK(!aril_dataset_open(temp_path("x.doc"), NULL));
    char message[512];
    snprintf(message, sizeof message, "%s", aril_error());
    aril_clear_error();
    int any = 0;
    for (int i = 0; i < n; i++) {
        const aril__data_kind *k = &kind[i];
        bool file = !k->holds && !k->any_folder;
        any += k->any_folder;
        CHECK_MSG(k->open && k->doc && *k->doc, "%s", k->name);
        CHECK_MSG(strstr(help_text(), k->doc), "the help lacks %s", k->name);
        CHECK_MSG(file ? k->ends[0] != NULL : k->shown != NULL, "%s is called nothing", k->name);
        for (int e = 0; e < 3 && k->ends[e]; e++) {
            if (!file) continue;
            CHECK_MSG(strstr(message, k->ends[e]), "\"%s\" lacks %s", message, k->ends[e]);
            CHECK_MSG(strstr(help_text(), k->ends[e]), "the help lacks %s", k->ends[e]);
            /* A file of the kind reaches its reader, and a split that it cannot have does not. */
            char name[64];
            snprintf(name, sizeof name, "x%s", k->ends[e]);
            CHECK_INT(aril__file_replace(temp_path(name), "x", 1), ARIL_OK);
            aril_dataset *d = aril_dataset_open(temp_path(name), "other");
            CHECK(!d && aril_error_code() != ARIL_ERR_UNSUPPORTED);
            if (k->unsplit)
                CHECK_MSG(strstr(aril_error(), "no split \"other\""), "%s", aril_error());
            aril_clear_error();
        }
    }
    CHECK_INT(any, 1);
}

TEST(every_dataset_by_name_is_complete)
{
    int n;
    const aril__known_dataset *known = aril__known_datasets(&n);
    const char *const *names;
    CHECK_INT(aril_dataset_names(&names), n);
    look_in("/no/such/place");
    CHECK(!aril_dataset_open("zebra", "train"));
    char message[512];
    snprintf(message, sizeof message, "%s", aril_error());
    aril_clear_error();
    for (int i = 0; i < n; i++) {
        const aril__known_dataset *d = &known[i];
        CHECK_STR(names[i], d->name);
        CHECK_MSG(strstr(message, d->name), "\"%s\" lacks %s", message, d->name);
        CHECK_MSG(d->doc && d->files && d->folders[0], "%s", d->name);
        CHECK_MSG(strstr(help_text(), d->doc) && strstr(help_text(), d->files) &&
                      strstr(help_text(), d->folders[0]),
                  "the help lacks %s", d->name);
        for (int k = 0; k < d->n_classes; k++)
            CHECK_MSG(d->classes[k] && *d->classes[k], "%s: class %d has no name", d->name, k);
    }
    aril_dataset_help(NULL);
    CHECK_INT(aril_error_code(), ARIL_ERR_ARG);
    aril_clear_error();
}

/* The real datasets, if present. */
static void check_digits(aril_dataset *d, int64_t size, int64_t first, const char *class_of_first)
{
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), size);
    CHECK_INT(label(d, 0), first);
    aril_shape shape = aril_dataset_shape(d);
    CHECK_INT(shape.ndim, 3);
    CHECK_INT(shape.dim[0], 1);
    CHECK_INT(shape.dim[2], 28);
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 10);
    CHECK_STR(names[first], class_of_first);
    int64_t count[10] = { 0 };
    for (int64_t i = 0; i < size; i += 10) count[label(d, i)]++;
    for (int i = 0; i < 10; i++) CHECK(count[i] > size / 150);
}

TEST(real_mnist)
{
    char path[512];
    snprintf(path, sizeof path, "%s/mnist/t10k-images-idx3-ubyte.gz", test_data());
    if (absent(path)) SKIP("no %s", path);
    look_in(test_data());
    aril_dataset *d = aril_mnist("test");
    if (!d && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        CHECK(strstr(aril_error(), "zlib1g-dev"));
        aril_clear_error();
        SKIP("built without zlib");
    }
    check_digits(d, 10000, 7, "7");
    aril_dataset_release(d);
    d = aril_mnist("train");
    check_digits(d, 60000, 5, "5");
    aril_dataset_release(d);
}

TEST(real_fashion_mnist)
{
    if (absent("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"))
        SKIP("no dataset-fashion-mnist");
    look_in("/no/such/place");
    aril_dataset *d = aril_fashion_mnist("test");
    if (!d && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        SKIP("built without zlib");
    }
    check_digits(d, 10000, 9, "Ankle boot");
    aril_dataset_release(d);
    d = aril_dataset_open("fashion-mnist", "train");
    check_digits(d, 60000, 9, "Ankle boot");
    aril_dataset_release(d);
}

/* ---- CIFAR ---- */

static aril_status write_cifar(const char *folder, const char *name, int records, int labels,
                               int first)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    aril__bytes b = { 0 };
    for (int i = 0; i < records; i++) {
        unsigned char *to = aril__bytes_add(&b, NULL, (size_t)labels + 3072);
        if (!to) return ARIL_ERR_MEMORY;
        memset(to, 0, (size_t)labels);
        to[labels - 1] = (unsigned char)(first + i);
        for (int k = 0; k < 3072; k++) to[labels + k] = (unsigned char)(k / 1024 * 50 + first + i);
    }
    aril_status status = aril__file_replace(path, b.at, b.n);
    aril__bytes_free(&b);
    return status;
}

TEST(cifar10_and_cifar100)
{
    ARIL_SCOPE;
    char ten[512], hundred[512];
    snprintf(ten, sizeof ten, "%s", temp_path("cifar-10-batches-bin"));
    snprintf(hundred, sizeof hundred, "%s", temp_path("cifar100"));
    CHECK(mkdir(ten, 0777) == 0 && mkdir(hundred, 0777) == 0);
    for (int i = 1; i <= 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        CHECK_INT(write_cifar(ten, name, 2, 1, 2 * (i - 1)), ARIL_OK);
    }
    CHECK_INT(write_cifar(ten, "test_batch.bin", 3, 1, 7), ARIL_OK);
    CHECK_INT(write_cifar(hundred, "train.bin", 4, 2, 96), ARIL_OK);
    look_in(temp_path(""));
    aril_dataset *d = aril_cifar10("train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 10);
    for (int i = 0; i < 10; i++) CHECK_INT(label(d, i), i);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 9, &s), ARIL_OK);
    CHECK_INT(aril_item_int(aril_select(aril_select(aril_select(s.x, 0, 2), 0, 31), 0, 31)), 109);
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 10);
    CHECK_STR(names[9], "truck");
    aril_dataset_release(d);
    d = aril_dataset_open("cifar-10", "test");
    CHECK(d);
    CHECK_INT(aril_dataset_size(d), 3);
    aril_dataset_release(d);
    d = aril_cifar100("train");
    CHECK(d);
    CHECK_INT(label(d, 3), 99);
    CHECK_INT(aril_dataset_classes(d, &names), 100);
    CHECK_STR(names[99], "worm");
    aril_dataset_release(d);
    CHECK(refused(aril_cifar100("test"), ARIL_ERR_IO, "missing file test.bin"));
    CHECK_INT(write_cifar(hundred, "test.bin", 2, 2, 99), ARIL_OK);
    CHECK(refused(aril_cifar100("test"), ARIL_ERR_FORMAT, "label 100 is out of range"));
    CHECK_INT(write_cifar(hundred, "test.bin", 2, 1, 0), ARIL_OK);
    CHECK(refused(aril_cifar100("test"), ARIL_ERR_FORMAT, "not a multiple of 3074"));
    CHECK(refused(aril_cifar10("val"), ARIL_ERR_ARG, "has no split \"val\""));
}

TEST(real_cifar)
{
    char command[1200];
    snprintf(command, sizeof command, "%s/cifar10/test_batch_first2000.bin.xz", test_data());
    if (absent(command)) SKIP("no %s", command);
    const char *folder = temp_path("cifar10");
    CHECK(mkdir(folder, 0777) == 0);
    snprintf(command, sizeof command,
             "xz -dc '%s/cifar10/test_batch_first2000.bin.xz' > '%s/test_batch.bin' 2>/dev/null",
             test_data(), folder);
    if (system(command) != 0) SKIP("no xz");
    look_in(temp_path(""));
    aril_dataset *d = aril_cifar10("test");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 2000);
    CHECK_INT(label(d, 0), 3); /* a cat */
    CHECK_INT(label(d, 1), 8);
    aril_dataset_release(d);
}

/* ---- images ---- */

static bool write_image(const char *name, int64_t h, int64_t w, int value)
{
    ARIL_SCOPE;
    char folder[600];
    snprintf(folder, sizeof folder, "%s", temp_path(name));
    for (char *slash = folder + strlen(temp_path("")) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(folder, 0777);
        *slash = '/';
    }
    aril_tensor *x = aril_full(ARIL_SHAPE(3, h, w), value, ARIL_U8, test_device());
    return aril_image_write(temp_path(name), x, (aril_image_write_opts){ 0 }) == ARIL_OK;
}

TEST(folder_of_images)
{
    ARIL_SCOPE;
    CHECK(write_image("set/train/dogs/b.png", 4, 6, 20));
    CHECK(write_image("set/train/dogs/a.png", 5, 7, 10));
    CHECK(write_image("set/train/cats/deep/er/x.PNG", 2, 3, 30));
    CHECK(write_image("set/train/cats/.hidden.png", 2, 3, 0));
    CHECK(write_image("set/test/dogs/c.png", 4, 4, 40));
    CHECK_INT(aril__file_replace(temp_path("set/train/dogs/notes.txt"), "x", 1), ARIL_OK);
    CHECK(mkdir(temp_path("set/train/empty"), 0777) == 0);
    aril_dataset *d = aril_dataset_open(temp_path("set"), "train");
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 3);
    const char *const *names;
    CHECK_INT(aril_dataset_classes(d, &names), 2);
    CHECK_STR(names[0], "cats");
    aril_sample s;
    aril_status status = aril_dataset_get(d, 1, &s);
    if (status == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        aril_dataset_release(d);
        SKIP("built without libpng");
    }
    CHECK_INT(status, ARIL_OK);
    CHECK_STR(s.name, "dogs/a.png");
    CHECK_INT(aril_size(s.x, 0), 3);
    CHECK_INT(aril_size(s.x, 1), 5);
    CHECK_INT(aril_size(s.x, 2), 7);
    CHECK_INT(aril_item_int(s.y), 1);
    CHECK_INT(aril_item_int(aril_amax(s.x, ARIL_ALL)), 10);
    CHECK_INT(aril_dataset_get(d, 0, &s), ARIL_OK);
    CHECK_STR(s.name, "cats/deep/er/x.PNG");
    CHECK_INT(aril_item_int(s.y), 0);
    aril_dataset_release(d);

    d = aril_dataset_open(temp_path("set"), "test");
    CHECK(d);
    CHECK_INT(aril_dataset_size(d), 1);
    aril_dataset_release(d);
    setenv("ARIL_DATA", temp_path(""), 1); /* custom folders can be opened by name, too */
    d = aril_dataset_open("set", NULL);
    CHECK(d);
    CHECK_INT(aril_dataset_size(d), 3);
    aril_dataset_release(d);
    CHECK(
        refused(aril_dataset_open(temp_path("set"), "val"), ARIL_ERR_ARG, "has no split \"val\""));
    CHECK(refused(aril_dataset_open(temp_path("set/train"), "test"), ARIL_ERR_ARG,
                  "has no split \"test\""));
    CHECK(refused(aril_dataset_folder(temp_path("set/train/empty"), (aril_folder_opts){ 0 }),
                  ARIL_ERR_IO, "has no images"));
    CHECK(refused(aril_dataset_folder("/no/such", (aril_folder_opts){ 0 }), ARIL_ERR_IO,
                  "cannot read folder"));
    CHECK(refused(aril_dataset_folder("/", (aril_folder_opts){ .channels = 2 }), ARIL_ERR_ARG,
                  "1 or 3"));

    d = aril_dataset_folder(temp_path("set/train/dogs"), (aril_folder_opts){ .channels = 1 });
    CHECK(d); /* no subfolders: no targets */
    CHECK_INT(aril_dataset_size(d), 2);
    CHECK_INT(aril_dataset_get(d, 0, &s), ARIL_OK);
    CHECK(!s.y);
    CHECK_INT(aril_size(s.x, 0), 1);
    aril_dataset_release(d);
}

TEST(corrupt_image_is_named)
{
    ARIL_SCOPE;
    CHECK(write_image("images/cats/a.png", 4, 6, 20));
    CHECK_INT(aril__file_replace(temp_path("images/cats/b.png"), "no image", 8), ARIL_OK);
    aril_dataset *d = aril_dataset_folder(temp_path("images"), (aril_folder_opts){ 0 });
    CHECK(d);
    aril_loader *l = aril_loader_new(d, (aril_loader_opts){ .batch = 1, .workers = 2 });
    aril_batch b;
    while (aril_loader_next(l, &b)) continue;
    CHECK(!aril_ok());
    if (aril_error_code() != ARIL_ERR_UNSUPPORTED) {
        CHECK_INT(aril_error_code(), ARIL_ERR_FORMAT);
        CHECK_MSG(strstr(aril_error(), "cats/b.png"), "%s", aril_error());
    }
    aril_clear_error();
    aril_loader_free(l);
    const char *files[] = { temp_path("images/cats/a.png"), "/no/such.png" };
    d = aril_dataset_image_files(2, files, (aril_folder_opts){ 0 });
    CHECK(d);
    aril_sample s;
    CHECK_INT(aril_dataset_get(d, 1, &s), ARIL_ERR_IO);
    CHECK(strstr(aril_error(), "/no/such.png"));
    aril_clear_error();
    aril_dataset_release(d);
}

/* An image of waves, as JPEG. False when the build has no libjpeg. */
static bool write_jpeg(const char *name, double phase)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_linspace(phase, phase + 9, 301, ARIL_F32, test_device());
    aril_tensor *y =
        aril_reshape(aril_linspace(0, 7, 3 * 203, ARIL_F32, test_device()), ARIL_SHAPE(3, 203, 1));
    aril_tensor *wave =
        aril_mul_scalar(aril_add_scalar(aril_sin(aril_mul(x, y)), 1), 0.5); /* [3,203,301] */
    bool good = aril_image_write(temp_path(name), wave, (aril_image_write_opts){ 0 }) == ARIL_OK;
    if (!good) aril_clear_error();
    return good;
}

/* Crops of partially decoded images against crops of fully decoded ones (a cache stores whole
 * images). */
static double largest_difference(const char *transform)
{
    aril_dataset *part = aril_dataset_folder(temp_path("jpeg"), (aril_folder_opts){ 0 });
    aril_dataset *full = aril_dataset_cache(aril_dataset_keep(part), 0);
    part = aril_dataset_transform(part, aril_transform_parse(transform));
    full = aril_dataset_transform(full, aril_transform_parse(transform));
    double largest = 0;
    for (int64_t i = 0; i < aril_dataset_size(part); i++) {
        ARIL_SCOPE;
        aril_sample a, b;
        if (aril_dataset_get(part, i, &a) != ARIL_OK || aril_dataset_get(full, i, &b) != ARIL_OK)
            return 1e9;
        aril_tensor *d = aril_sub(aril_cast(a.x, ARIL_F32), aril_cast(b.x, ARIL_F32));
        double mean = aril_item(aril_mean(aril_abs(d), ARIL_ALL));
        if (!(mean <= largest)) largest = mean;
    }
    aril_dataset_release(part);
    aril_dataset_release(full);
    return largest;
}

TEST(jpeg_crops_equal_crops_of_the_full_image)
{
    CHECK(mkdir(temp_path("jpeg"), 0777) == 0);
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "jpeg/%d.jpg", i);
        if (!write_jpeg(name, i)) SKIP("built without libjpeg");
    }
    CHECK_NEAR(largest_difference("random_resized_crop=224"), 0, 0);
    CHECK_NEAR(largest_difference("resize=180,center_crop=160"), 0, 0);
    CHECK_NEAR(largest_difference("random_crop=100"), 0, 0);
    /* Downscaled while decoding, with another filter: not the same bits. */
    double small = largest_difference("resize=48,center_crop=40");
    CHECK_MSG(small > 0 && small < 4, "%g", small);
}
