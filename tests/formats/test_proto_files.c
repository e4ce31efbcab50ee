/* Protocol buffers of other programs: every stored ONNX and Caffe model, test value and prototxt is
 * read, written and printed. Prints how many came back byte by byte. */
#include "formats/schemas.h"
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

/* Wire -> message -> wire -> message; text too, unless it would be long. */
static void check_wire(const char *path, const aril__proto_type *type, aril__slice b)
{
    aril__bytes out = { 0 };
    aril__message *m = aril__message_read(type, b.at, b.n, (aril__message_opts){ .name = path });
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_write(m, &out), ARIL_OK);
    aril__message *back = aril__message_read(type, out.at, out.n, (aril__message_opts){ 0 });
    CHECK_MSG(back && aril__message_equal(m, back), "%s", path);
    files++;
    same_bytes += out.n == b.n && memcmp(out.at, b.at, b.n) == 0;
    if (b.n < 1 << 18) check_text(path, m);
    aril__message_free(m);
    aril__message_free(back);
    aril__bytes_free(&out);
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);
    return n >= m && strcmp(text + n - m, with) == 0;
}

/* The message in a file of that name; NULL for other files. */
static const aril__proto_type *type_of_file(const char *path)
{
    if (ends(path, ".onnx")) return &aril__onnx_ModelProto;
    if (ends(path, ".caffemodel")) return &aril__caffe_NetParameter;
    if (ends(path, ".solverstate")) return &aril__caffe_SolverState;
    if (ends(path, ".binaryproto")) return &aril__caffe_BlobProto;
    if (ends(path, ".pb")) return &aril__onnx_TensorProto;
    return NULL;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *f)
{
    (void)st, (void)f;
    const aril__proto_type *type = kind == FTW_F ? type_of_file(path) : NULL;
    aril__bytes b = { 0 };
    if (!type || test_failed()) return 0;
    if (aril__read_file("test", path, 0, &b) == ARIL_OK)
        check_wire(path, type, (aril__slice){ b.at, b.n });
    aril__bytes_free(&b);
    return 0;
}

TEST(stored_models)
{
    files = same_bytes = 0;
    if (nftw(data_folder(), visit, 16, FTW_PHYS) != 0 || files == 0)
        SKIP("no models in %s", data_folder());
    printf("      %d files, %d of them written byte by byte the same\n", files, same_bytes);
    CHECK_INT(files, 16);
}

/* ---- ONNX's own tests ---- */

typedef struct entry {
    char path[320];
    aril__slice data;
} entry;

typedef struct archive {
    aril__bytes bytes;
    entry *at;
    size_t n;
} archive;

/* The files of a tar archive, which are not unpacked: it has thousands of small ones. */
static void list_entries(archive *a)
{
    a->at = calloc(a->bytes.n / 1024 + 1, sizeof *a->at);
    for (size_t i = 0; a->at && a->bytes.n - i >= 512 && a->bytes.at[i];) {
        const char *head = (const char *)a->bytes.at + i;
        size_t size = strtoul(head + 124, NULL, 8), room = a->bytes.n - i - 512;
        entry *e = &a->at[a->n];
        if (size > room) break;
        snprintf(e->path, sizeof e->path, "%.155s%s%.100s", head + 345, head[345] ? "/" : "", head);
        e->data = (aril__slice){ head + 512, size };
        a->n += head[156] == '0';
        i += 512 + (size + 511) / 512 * 512;
    }
}

static bool open_archive(const char *name, archive *a)
{
    char command[1024];
    snprintf(command, sizeof command,
             "zstd -dcq '%s/onnx-tests/onnx_backend_test_%s.tar.zst' 2>/dev/null", data_folder(),
             name);
    FILE *f = popen(command, "r");
    for (size_t n = 1; f && n > 0;) {
        unsigned char *to = aril__bytes_add(&a->bytes, NULL, 1 << 20);
        n = to ? fread(to, 1, 1 << 20, f) : 0;
        a->bytes.n -= to ? (1 << 20) - n : 0;
    }
    if (!f || pclose(f) != 0) return false;
    list_entries(a);
    return a->n > 0;
}

static void close_archive(archive *a)
{
    free(a->at);
    aril__bytes_free(&a->bytes);
}

/* The model above test_data_set_N/input_K.pb, which comes before or behind it. */
static const entry *model_of(const archive *a, const char *path)
{
    char model[400];
    snprintf(model, sizeof model, "%.*s/model.onnx", (int)(strstr(path, "/test_data_set_") - path),
             path);
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->at[i].path, model) == 0) return &a->at[i];
    return NULL;
}

/* The message in such a file, by the type of input or output K of the model. */
static const aril__proto_type *type_of_value(const archive *a, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    const entry *e = strstr(path, "/test_data_set_") ? model_of(a, path) : NULL;
    if (!e) return &aril__onnx_TensorProto;
    aril__message *m = aril__message_read(&aril__onnx_ModelProto, e->data.at, e->data.n,
                                          (aril__message_opts){ .name = e->path });
    if (!m) return NULL;
    bool input = strncmp(name, "input", 5) == 0;
    const aril__message *value =
        aril__message_sub_at(aril__message_sub(m, "graph"), input ? "input" : "output",
                             strtoul(strchr(name, '_') + 1, NULL, 10));
    value = value ? aril__message_sub(value, "type") : &aril__onnx_TypeProto.empty;
    const aril__proto_type *type =
        aril__message_has(value, "sequence_type")   ? &aril__onnx_SequenceProto
        : aril__message_has(value, "optional_type") ? &aril__onnx_OptionalProto
                                                    : &aril__onnx_TensorProto;
    aril__message_free(m);
    return type;
}

TEST(onnx_backend_tests)
{
    static const char *const sets[] = { "light", "node", "pytorch-converted", "pytorch-operator",
                                        "simple" };
    files = same_bytes = 0;
    for (int k = 0; k < 5; k++) {
        archive a = { 0 };
        bool opened = open_archive(sets[k], &a);
        for (size_t i = 0; opened && i < a.n && !test_failed(); i++) {
            const char *path = a.at[i].path;
            const aril__proto_type *type =
                ends(path, ".pb") ? type_of_value(&a, path) : type_of_file(path);
            if (type) check_wire(path, type, a.at[i].data);
        }
        close_archive(&a);
        if (!opened) SKIP("no %s, or no zstd", sets[k]);
    }
    printf("      %d files, %d of them written byte by byte the same\n", files, same_bytes);
    CHECK_INT(files, 8479);
    CHECK_INT(same_bytes, files);
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
