/* Protocol buffers of other programs: every stored ONNX and Caffe model, test value and prototxt is
 * read, written and printed. Prints how many came back byte by byte. */
#include "formats/atomic_file.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <aril/aril.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int files, same_bytes;

static const char *data_folder(void)
{
    const char *data = getenv("ARIL_TEST_DATA");
    return data ? data : "../shared/data";
}

/* ---- round trips ---- */

/* Text -> message: the same as the message it was printed from. */
static void check_text(const char *path, const aril__message *m)
{
    aril__bytes text = { 0 };
    CHECK_INT(aril__message_print(m, &text), ARIL_OK);
    aril__message *back = aril__message_parse(m->type, (const char *)text.at, text.n,
                                              (aril__message_opts){ .name = path });
    CHECK_MSG(back, "%s", aril_error());
    CHECK_MSG(aril__message_equal(m, back), "%s: text", path);
    aril__message_free(back);
    aril__bytes_free(&text);
}

/* Wire -> message -> wire -> message. */
static void check_wire(const char *path, const aril__proto_type *type, bool text)
{
    aril__bytes b = { 0 }, out = { 0 };
    CHECK_INT(aril__read_file("test", path, 0, &b), ARIL_OK);
    aril__message *m = aril__message_read(type, b.at, b.n, (aril__message_opts){ .name = path });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_write(m, &out), ARIL_OK);
    aril__message *back = aril__message_read(type, out.at, out.n, (aril__message_opts){ 0 });
    CHECK_MSG(back && aril__message_equal(m, back), "%s", path);
    files++;
    same_bytes += out.n == b.n && memcmp(out.at, b.at, b.n) == 0;
    if (text) check_text(path, m);
    aril__message_free(m);
    aril__message_free(back);
    aril__bytes_free(&b);
    aril__bytes_free(&out);
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

/* The message in .../test_data_set_N/input_K.pb, by the type of input K of the model above it. */
static const aril__proto_type *type_of_value(const char *path)
{
    char model[1024];
    const char *set = strstr(path, "/test_data_set_"), *name = strrchr(path, '/') + 1;
    if (!set) return &aril__onnx_TensorProto;
    snprintf(model, sizeof model, "%.*s/model.onnx", (int)(set - path), path);
    aril__bytes b = { 0 };
    aril__read_file("test", model, 0, &b);
    aril__message *m = aril__message_read(&aril__onnx_ModelProto, b.at, b.n,
                                          (aril__message_opts){ .name = model });
    const aril__proto_type *type = NULL;
    if (m) {
        bool input = strncmp(name, "input", 5) == 0;
        const aril__message *value =
            aril__message_sub_at(aril__message_sub(m, "graph"), input ? "input" : "output",
                                 strtoul(strchr(name, '_') + 1, NULL, 10));
        value = value ? aril__message_sub(value, "type") : &aril__onnx_TypeProto.empty;
        type = aril__message_has(value, "sequence_type")   ? &aril__onnx_SequenceProto
               : aril__message_has(value, "optional_type") ? &aril__onnx_OptionalProto
                                                           : &aril__onnx_TensorProto;
    }
    aril__message_free(m);
    aril__bytes_free(&b);
    return type;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)f;
    const aril__proto_type *type = NULL;
    if (kind != FTW_F || test_failed()) return 0;
    if (ends(path, ".onnx")) type = &aril__onnx_ModelProto;
    if (ends(path, ".caffemodel")) type = &aril__caffe_NetParameter;
    if (ends(path, ".solverstate")) type = &aril__caffe_SolverState;
    if (ends(path, ".binaryproto")) type = &aril__caffe_BlobProto;
    if (ends(path, ".pb")) type = type_of_value(path);
    if (type) check_wire(path, type, st->st_size < 3 << 20);
    return 0;
}

static bool visit_all(const char *folder)
{
    files = same_bytes = 0;
    return nftw(folder, visit, 16, FTW_PHYS) == 0 && files > 0;
}

TEST(stored_models)
{
    if (!visit_all(data_folder())) SKIP("no models in %s", data_folder());
    printf("      %d files, %d of them written byte by byte the same\n", files, same_bytes);
    CHECK(files >= 15);
}

TEST(onnx_backend_tests)
{
    static const char *const sets[] = { "light", "node", "pytorch-converted", "pytorch-operator",
                                        "simple" };
    char command[2048];
    for (int i = 0; i < 5; i++) {
        snprintf(command, sizeof command,
                 "tar --zstd -xf '%s/onnx-tests/onnx_backend_test_%s.tar.zst' -C '%s' 2>/dev/null",
                 data_folder(), sets[i], temp_path(""));
        if (system(command) != 0) SKIP("no %s, or no zstd", sets[i]);
    }
    CHECK(visit_all(temp_path("")));
    printf("      %d files, %d of them written byte by byte the same\n", files, same_bytes);
    CHECK_MSG(files > 6000, "%d", files);
    CHECK_MSG(same_bytes > files * 9 / 10, "%d", same_bytes);
    snprintf(command, sizeof command, "rm -rf '%s'/onnx-test-data", temp_path(""));
    CHECK_INT(system(command), 0);
}

TEST(a_model_truncated_at_every_byte)
{
    char path[512];
    aril__bytes b = { 0 };
    snprintf(path, sizeof path, "%s/onnx-models/mnist_8/model.onnx", data_folder());
    if (aril__read_file("test", path, 0, &b) != ARIL_OK) {
        aril_clear_error();
        SKIP("no %s", path);
    }
    int whole = 0; /* cut between two fields: a shorter message */
    for (size_t n = 0; n < b.n; n++) {
        aril__message *m =
            aril__message_read(&aril__onnx_ModelProto, b.at, n, (aril__message_opts){ 0 });
        CHECK(m || aril_error_code() == ARIL_ERR_FORMAT);
        whole += m != NULL;
        aril__message_free(m);
        aril_clear_error();
    }
    CHECK_MSG(whole > 3 && whole < 20, "%d", whole);
    aril__bytes_free(&b);
}

/* ---- prototxt ---- */

static int visit_text(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st, (void)f;
    if (kind != FTW_F || !ends(path, ".prototxt") || test_failed()) return 0;
    bool solver = strstr(path, "solver");
    aril__bytes b = { 0 };
    aril__read_file("test", path, 0, &b);
    aril__message *m =
        aril__message_parse(solver ? &aril__caffe_SolverParameter : &aril__caffe_NetParameter,
                            (const char *)b.at, b.n, (aril__message_opts){ .name = path });
    if (m) {
        files++;
        same_bytes +=
            (int)(solver ? 0 : aril__message_count(m, "layer") + aril__message_count(m, "layers"));
        check_text(path, m);
    } else {
        test_fail(__FILE__, __LINE__, "%s", aril_error());
    }
    aril__message_free(m);
    aril__bytes_free(&b);
    return 0;
}

TEST(prototxts)
{
    char folder[512];
    files = same_bytes = 0;
    snprintf(folder, sizeof folder, "%s/caffe-prototxt", data_folder());
    if (nftw(folder, visit_text, 16, FTW_PHYS) != 0 || files == 0) SKIP("no %s", folder);
    CHECK_INT(files, 69);
    printf("      %d files with %d layers\n", files, same_bytes);
    snprintf(folder, sizeof folder, "%s/caffe-models", data_folder());
    CHECK_INT(nftw(folder, visit_text, 16, FTW_PHYS), 0);
    CHECK(files > 69);
}

/* ---- large files ---- */

TEST(large_blobs_are_read_in_place)
{
    enum { BLOBS = 8, FLOATS = 1 << 24 }; /* 512 MB */
    aril__message *net = aril__message_new(&aril__caffe_NetParameter);
    float *zeros = calloc(FLOATS, sizeof *zeros);
    CHECK(net && zeros);
    for (int i = 0; i < BLOBS; i++) {
        aril__message *layer = aril__message_add_sub(net, "layer");
        aril__message *blob = aril__message_add_sub(layer, "blobs");
        aril__message_add_int(aril__message_set_sub(blob, "shape"), "dim", FLOATS);
        if (i == 0) aril__message_set_floats(blob, "data", zeros, FLOATS);
    }
    aril__bytes one = { 0 }, all = { 0 };
    CHECK_INT(aril__message_write(net, &one), ARIL_OK);
    aril__message_free(net);
    for (int i = 0; i < BLOBS; i++) aril__bytes_add(&all, one.at, one.n); /* as nets merge */
    CHECK(!all.failed);
    aril__bytes_free(&one);
    free(zeros);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    net = aril__message_read(&aril__caffe_NetParameter, all.at, all.n,
                             (aril__message_opts){ .max_memory = 1 << 20 });
    clock_gettime(CLOCK_MONOTONIC, &b);
    CHECK_MSG(net, "%s", aril_error());
    CHECK_INT(aril__message_count(net, "layer"), BLOBS * BLOBS);
    double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
    printf("      %zu MB in %.3f ms\n", all.n >> 20, ms);
    CHECK(ms < 100);
    aril__message_free(net);
    aril__bytes_free(&all);
}
