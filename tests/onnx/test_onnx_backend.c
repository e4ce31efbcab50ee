/* ONNX's own backend tests, from the archives under ARIL_TEST_DATA. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Unpacks an archive into the test's folder and returns its path there; NULL after a skip. */
static const char *unpacked(const char *suite)
{
    const char *data = getenv("ARIL_TEST_DATA");
    static char archive[2000], path[4000];
    char line[6000];
    struct stat st;
    snprintf(archive, sizeof archive, "%s/onnx-tests/onnx_backend_test_%s.tar.zst",
             data ? data : "", suite);
    if (stat(archive, &st) != 0) {
        test_skip("no %s (set ARIL_TEST_DATA)", archive);
        return NULL;
    }
    if (system("zstd --version >/dev/null 2>&1 && tar --version >/dev/null 2>&1") != 0) {
        test_skip("zstd and tar are needed to unpack %s", archive);
        return NULL;
    }
    snprintf(line, sizeof line, "zstd -dcq '%s' | tar xf - -C '%s'", archive, temp_path(""));
    if (system(line) != 0) {
        test_fail(__FILE__, __LINE__, "cannot unpack %s", archive);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/onnx-test-data/%s", temp_path(""), suite);
    return path;
}

/* Cases that are known to fail: formats of images that Aril does not read, and what a build without
 * libjpeg, libpng or LAPACK lacks. */
static bool is_known(const char *name)
{
    static const char *const known[] = { "test_image_decoder_decode_", "test_det_" };
    for (int i = 0; i < 2; i++)
        if (strncmp(name, known[i], strlen(known[i])) == 0) return true;
    return false;
}

/* At least `passed` cases pass, and none fails that is not listed above. */
static void run_suite(const char *suite, int passed)
{
    const char *folder = unpacked(suite);
    if (!folder) return;
    char *text = NULL;
    size_t size;
    aril_onnx_results r;
    FILE *to = open_memstream(&text, &size);
    CHECK(to != NULL);
    aril_status s = aril_onnx_test(folder, to, (aril_onnx_test_opts){ 0 }, &r);
    fclose(to);
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "FAIL ", 5) == 0 && !is_known(line + 5))
            test_fail(__FILE__, __LINE__, "%s", line);
    free(text);
    printf("%s: %d passed (%d by shape and dtype), %d failed, %d skipped\n", suite, r.passed,
           r.random, r.failed, r.skipped);
    CHECK_INT(s, ARIL_OK);
    CHECK_INT(r.skipped, 0);
    CHECK_MSG(r.passed >= passed, "%d cases passed, expected at least %d", r.passed, passed);
}

TEST(node)
{
    run_suite("node", 1791);
}

TEST(simple)
{
    run_suite("simple", 23);
}

TEST(pytorch_operator)
{
    run_suite("pytorch-operator", 35);
}

TEST(pytorch_converted)
{
    run_suite("pytorch-converted", 82);
}

TEST(light)
{
#ifdef __SANITIZE_ADDRESS__
    test_skip("large networks take too long under AddressSanitizer");
    return;
#endif
    run_suite("light", 9);
}

/* A model of the zoo with its three sets of data. */
TEST(mnist)
{
    const char *data = getenv("ARIL_TEST_DATA");
    char path[2000];
    struct stat st;
    aril_onnx_results r;
    snprintf(path, sizeof path, "%s/onnx-models/mnist_8", data ? data : "");
    if (stat(path, &st) != 0) {
        test_skip("no %s (set ARIL_TEST_DATA)", path);
        return;
    }
    CHECK_INT(aril_onnx_test(path, stdout, (aril_onnx_test_opts){ .rtol = 1e-4 }, &r), ARIL_OK);
    CHECK_INT(r.passed, 1);
    CHECK_INT(r.failed, 0);
}

TEST(folders_without_cases_are_errors)
{
    aril_onnx_results r;
    CHECK(aril_onnx_test(temp_path(""), stdout, (aril_onnx_test_opts){ 0 }, &r) < 0);
    aril_clear_error();
    CHECK(aril_onnx_test("/nonexistent", stdout, (aril_onnx_test_opts){ 0 }, &r) < 0);
    aril_clear_error();
    CHECK(aril_onnx_test(NULL, stdout, (aril_onnx_test_opts){ 0 }, &r) < 0);
    aril_clear_error();
}
