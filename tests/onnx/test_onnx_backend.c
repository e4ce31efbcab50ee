/* ONNX's own backend tests, from the archives under ARIL_TEST_DATA. */
#include "aril/aril.h"
#include "onnx/backend_data.h"
#include "support/device.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    aril_status s =
        aril_onnx_test(folder, to, (aril_onnx_test_opts){ .device = test_device() }, &r);
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
    run_suite("node", 1793);
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
    const char *device = getenv("ARIL_TEST_DEVICE");
#ifdef __SANITIZE_ADDRESS__
    device = "strict";
#endif
    if (device && strncmp(device, "strict", 6) == 0) {
        test_skip("large networks take too long on a device without fast kernels");
        return;
    }
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

/* A program of a model under ARIL_TEST_DATA; NULL after a skip. */
static aril_program *program_of(const char *name)
{
    const char *data = getenv("ARIL_TEST_DATA");
    char path[2000];
    struct stat st;
    snprintf(path, sizeof path, "%s/onnx-models/%s", data ? data : "", name);
    if (stat(path, &st) != 0) {
        test_skip("no %s (set ARIL_TEST_DATA)", path);
        return NULL;
    }
    aril_program *p = aril_program_load(path, (aril_load_opts){ .device = test_device() });
    if (!p) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return p;
}

TEST(digits_are_classified)
{
    ARIL_SCOPE;
    char path[2000];
    struct stat st;
    enum { IMAGES = 200 };
    const char *data = getenv("ARIL_TEST_DATA");
    snprintf(path, sizeof path, "%s/mnist/t10k-images-idx3-ubyte.gz", data ? data : "");
    if (stat(path, &st) != 0) {
        test_skip("no %s", path);
        return;
    }
    aril_program *p = program_of("mnist_8/model.onnx");
    if (!p) return;
    aril_tensor *images = aril_idx_read(path); /* [10000,28,28] u8 */
    snprintf(path, sizeof path, "%s/mnist/t10k-labels-idx1-ubyte.gz", data);
    aril_tensor *labels = aril_idx_read(path);
    if (aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        test_skip("%s", aril_error());
        aril_clear_error();
        aril_program_free(p);
        return;
    }
    int right = 0;
    for (int i = 0; i < IMAGES; i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_cast(aril_select(images, 0, i), ARIL_F32), *y;
        x = test_there(aril_reshape(x, ARIL_SHAPE(1, 1, 28, 28)));
        CHECK_INT(aril_program_run(p, ARIL_LIST(x), &y), ARIL_OK);
        right +=
            aril_item_int(aril_argmax(y, ARIL_ALL)) == aril_item_int(aril_select(labels, 0, i));
    }
    CHECK_MSG(right >= 196, "%d of %d digits", right, IMAGES);
    CHECK_INT(aril_program_traces(p), 1);
    aril_program_free(p);
}

/* The best box of a detector is the face in a portrait. */
TEST(a_face_is_found)
{
    ARIL_SCOPE;
    const char *data = getenv("ARIL_TEST_DATA");
    char path[2000];
    struct stat st;
    snprintf(path, sizeof path, "%s/images/scikit-image/astronaut.png", data ? data : "");
    if (stat(path, &st) != 0) {
        test_skip("no %s (set ARIL_TEST_DATA)", path);
        return;
    }
    aril_tensor *image = aril_image_read(path, (aril_image_opts){ .channels = 3 }), *out[2], *at;
    if (aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        test_skip("%s", aril_error());
        aril_clear_error();
        return;
    }
    aril_program *p = program_of("ultraface/version-RFB-320.onnx");
    if (!p) return;
    aril_tensor *x = aril_unsqueeze(aril_cast(image, ARIL_F32), 0);
    x = aril_interpolate(x, (aril_interpolate_opts){ .size = { 240, 320 }, .mode = ARIL_LINEAR });
    x = test_there(aril_div_scalar(aril_sub_scalar(x, 127), 128));
    CHECK_INT(aril_program_run(p, ARIL_LIST(x), out), ARIL_OK);
    aril_tensor *score = aril_max(aril_select(aril_select(out[0], 0, 0), 1, 1), ARIL_AXES(0), &at);
    CHECK(aril_item(score) > 0.99);
    aril_tensor *box =
        aril_index_select(aril_select(out[1], 0, 0), aril_reshape(at, ARIL_SHAPE(1)), 0);
    float b[4];
    CHECK_INT(aril_read(box, b), ARIL_OK);
    CHECK_NEAR(b[0], 0.35, 0.03);
    CHECK_NEAR(b[1], 0.12, 0.03);
    CHECK_NEAR(b[2], 0.525, 0.03);
    CHECK_NEAR(b[3], 0.34, 0.03);
    aril_program_free(p);
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
