/* External data in place: which files stay mapped, and files that change while they are in use. */
#include "aril/aril.h"
#include "support/compare.h"
#include "support/temp.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WIDTH = 96 };

/* x W' + b with W [96,96] beside net.onnx, where the export aligns it to 64 bytes; [4,96]. */
static const char *write_over(uint64_t seed, aril_tensor *x, aril_tensor **want)
{
    aril_seed(seed);
    aril_module *net = aril_nn_linear(WIDTH, WIDTH);
    const char *path = temp_path("net.onnx");
    if (aril_module_export(net, ARIL_LIST(x), path,
                           (aril_export_opts){ .external_data = true, .batch = true }) < 0)
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    *want = aril_forward(net, x);
    aril_module_release(net);
    return path;
}

/* The same in net.onnx.data. */
static const char *write_model(aril_tensor *x, aril_tensor **want)
{
    unlink(temp_path("net.onnx.data"));
    return write_over(5, x, want);
}

/* Whether this process has a file of that name mapped. */
static bool is_mapped(const char *name)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, name) != NULL;
    if (f) fclose(f);
    return found;
}

static aril_program *load(const char *path)
{
    aril_program *p = aril_program_load(path, (aril_load_opts){ 0 });
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return p;
}

static void check_run(aril_program *p, aril_tensor *x, aril_tensor *want)
{
    aril_tensor *y;
    CHECK_MSG(aril_program_run(p, ARIL_LIST(x), &y) == ARIL_OK, "%s", aril_error());
    char *why = test_difference_in_value(y, want, 1e-5, 1e-5);
    CHECK_MSG(!why, "%s", why);
}

/* The next run is an error that names what happened to the file, and gives no values. */
static void check_refused(aril_program *p, aril_tensor *x, const char *how)
{
    aril_tensor *y = NULL;
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), "net.onnx.data") && strstr(aril_error(), how), "%s",
              aril_error());
    CHECK(y && aril_tensor_status(y) < 0);
    aril_clear_error();
}

TEST(aligned_data_are_used_in_place)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want;
    const char *path = write_model(x, &want);
    aril_program *p = load(path);
    CHECK(is_mapped("net.onnx.data"));
    check_run(p, x, want);
    check_run(p, x, want);
    aril_program_free(p);
    CHECK(!is_mapped("net.onnx.data"));
    aril_module *m = aril_module_load(path, (aril_load_opts){ 0 }); /* may be trained: copied */
    CHECK(m != NULL && !is_mapped("net.onnx.data"));
    aril_module_release(m);
}

/* The same data four bytes later. */
TEST(other_data_are_copied)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want;
    const char *path = write_model(x, &want);
    static char model[1 << 16], data[WIDTH * WIDTH * 4];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(model, 1, sizeof model, f) : 0;
    if (f) fclose(f);
    f = fopen(temp_path("net.onnx.data"), "rb");
    CHECK(f && fread(data, 1, sizeof data, f) == sizeof data);
    if (f) fclose(f);
    bool moved = false; /* the entry offset: "0" becomes "4" */
    for (size_t i = 0; i + 12 < n; i++)
        if (memcmp(model + i, "\n\006offset\022\0010", 11) == 0) {
            model[i + 10] = '4';
            moved = true;
        }
    CHECK(moved);
    f = fopen(path, "wb");
    CHECK(f && fwrite(model, 1, n, f) == n && fclose(f) == 0);
    f = fopen(temp_path("net.onnx.data"), "wb");
    CHECK(f && fwrite("none", 1, 4, f) == 4 && fwrite(data, 1, sizeof data, f) == sizeof data &&
          fclose(f) == 0);
    aril_program *p = load(path);
    CHECK(!is_mapped("net.onnx.data"));
    check_run(p, x, want);
    aril_program_free(p);
}

static void check_change(bool ran, void (*change)(const char *path), const char *how)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want;
    aril_program *p = load(write_model(x, &want));
    if (ran) check_run(p, x, want);
    change(temp_path("net.onnx.data"));
    check_refused(p, x, how);
    check_refused(p, x, how);
    /* Nor are such values written. */
    const char *copy = temp_path("copy.onnx");
    CHECK_INT(aril_program_export(p, ARIL_LIST(x), copy, (aril_export_opts){ 0 }), ARIL_ERR_IO);
    aril_clear_error();
    CHECK(access(copy, F_OK) != 0);
    aril_program_free(p);
}

static void cut(const char *path)
{
    CHECK_INT(truncate(path, 100), 0);
}

static void lengthen(const char *path)
{
    CHECK_INT(truncate(path, 1 << 20), 0);
}

static void touch(const char *path)
{
    const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
    CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
}

TEST(files_that_are_truncated)
{
    for (int ran = 0; ran < 2; ran++) check_change(ran, cut, "was truncated");
}

/* The kernels of a run read the weights on several threads. */
TEST(files_that_are_truncated_under_several_threads)
{
    enum { WIDE = 1024, ROUNDS = 10 };
    int threads = aril_threads();
    aril_set_threads(8);
    for (int i = 0; i < ROUNDS; i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_ones(ARIL_SHAPE(2, WIDE), ARIL_F32, aril_cpu());
        aril_module *net = aril_nn_linear(WIDE, WIDE);
        const char *path = temp_path("net.onnx"), *data = temp_path("net.onnx.data");
        unlink(data);
        CHECK_INT(aril_module_export(net, ARIL_LIST(x), path,
                                     (aril_export_opts){ .external_data = true }),
                  ARIL_OK);
        aril_module_release(net);
        aril_program *p = load(path);
        CHECK_INT(truncate(data, WIDE * WIDE), 0);
        check_refused(p, x, "was truncated");
        aril_program_free(p);
    }
    aril_set_threads(threads);
}

TEST(files_that_grow)
{
    for (int ran = 0; ran < 2; ran++) check_change(ran, lengthen, "has grown");
}

TEST(files_that_are_written_to)
{
    for (int ran = 0; ran < 2; ran++) check_change(ran, touch, "was written to");
}

/* Aril and others replace a file by renaming a new one: the old one stays as it was. */
TEST(files_that_are_replaced)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want;
    aril_program *p = load(write_model(x, &want));
    const char *other = temp_path("other");
    FILE *f = fopen(other, "wb");
    CHECK(f && fclose(f) == 0);
    CHECK_INT(rename(other, temp_path("net.onnx.data")), 0);
    check_run(p, x, want);
    aril_program_free(p);
}

TEST(models_that_are_truncated)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want, *y;
    const char *path = write_model(x, &want);
    aril_program *p = load(path);
    CHECK_INT(truncate(path, 10), 0);
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), "was truncated"), "%s", aril_error());
    aril_clear_error();
    aril_program_free(p);
}

/* A model that is there keeps its own data until it is replaced. */
TEST(data_of_a_model_that_is_replaced)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *first, *second;
    const char *path = write_model(x, &first);
    aril_program *p = load(path);
    write_over(6, x, &second);
    CHECK(access(temp_path("net.onnx.data1"), F_OK) == 0);
    CHECK(access(temp_path("net.onnx.data"), F_OK) != 0);
    check_run(p, x, first);
    aril_program *q = load(path);
    check_run(q, x, second);
    write_over(7, x, &first);
    CHECK(access(temp_path("net.onnx.data"), F_OK) == 0);
    CHECK(access(temp_path("net.onnx.data1"), F_OK) != 0);
    aril_program_free(q);
    aril_program_free(p);
    unlink(path);
}

static void write_plain(aril_tensor *x)
{
    aril_module *net = aril_nn_linear(WIDTH, WIDTH);
    CHECK_INT(aril_module_export(net, ARIL_LIST(x), temp_path("net.onnx"), (aril_export_opts){ 0 }),
              ARIL_OK);
    aril_module_release(net);
}

/* What the model that was replaced referred to goes with it; a file of that name stays if it is not
 * the model's. */
TEST(data_that_are_not_used_any_more)
{
    ARIL_SCOPE;
    aril_tensor *x = aril_randn(ARIL_SHAPE(4, WIDTH), ARIL_F32, aril_cpu()), *want;
    const char *path = write_model(x, &want);
    aril_program *p = load(path);
    write_plain(x);
    CHECK(access(temp_path("net.onnx.data"), F_OK) != 0);
    check_run(p, x, want);
    aril_program_free(p);
    FILE *f = fopen(temp_path("net.onnx.data"), "wb");
    CHECK(f && fputs("another's", f) >= 0 && fclose(f) == 0);
    write_plain(x);
    CHECK(access(temp_path("net.onnx.data"), F_OK) == 0);
    write_over(7, x, &want);
    CHECK(access(temp_path("net.onnx.data"), F_OK) == 0);
    CHECK(access(temp_path("net.onnx.data1"), F_OK) == 0);
    unlink(temp_path("net.onnx"));
}
