/* HDF5 files that stay open, from a path and from memory; JSON as a tree; Keras' files as
 * weights. */
#include "aril/aril.h"
#include "formats/hdf5.h"
#include "formats/json_tree.h"
#include "models/keras_files.h"
#include "support/temp.h"
#include "support/test.h"

static bool written(const char *path)
{
    ARIL_SCOPE;
    aril_tensor *a = aril_arange(0, 6, 1, ARIL_F32, aril_cpu()),
                *b = aril_reshape(a, ARIL_SHAPE(2, 3));
    aril_tensor *const at[] = { a, b, aril_ones(ARIL_SHAPE(2), ARIL_I64, aril_cpu()) };
    const char *const name[] = { "z", "group/inner/b", "group/a" };
    if (aril_hdf5_write(path, &(aril_named){ 3, at, name }) == ARIL_OK) return true;
    if (strstr(aril_error(), "HDF5")) test_skip("without the HDF5 library");
    return false;
}

static void check_file(aril__hdf5 *f)
{
    ARIL_SCOPE;
    CHECK_INT(aril__hdf5_count(f), 3);
    CHECK_STR(aril__hdf5_array_name(f, 0), "group/a");
    CHECK_STR(aril__hdf5_array_name(f, 1), "group/inner/b");
    CHECK_STR(aril__hdf5_array_name(f, 2), "z");
    CHECK_INT(aril__hdf5_find(f, "group/inner/b"), 1);
    CHECK_INT(aril__hdf5_find(f, "group"), -1);
    CHECK_INT(aril__hdf5_array_dtype(f, 0), ARIL_I64);
    aril_shape s = aril__hdf5_array_shape(f, 1);
    CHECK(s.ndim == 2 && s.dim[0] == 2 && s.dim[1] == 3);
    aril_tensor *b = aril__hdf5_array(f, 1);
    CHECK_INT(aril_tensor_status(b), ARIL_OK);
    CHECK_NEAR(aril_item(aril_sum(b, ARIL_ALL)), 15, 0);
    aril__hdf5_texts t;
    CHECK_INT(aril__hdf5_attribute(f, "/", "missing", &t), ARIL_OK);
    CHECK_INT(t.n, 0);
}

TEST(hdf5_file_from_a_path)
{
    const char *path = temp_path("a.h5");
    if (!written(path)) return;
    aril__hdf5 *f = aril__hdf5_open(path);
    CHECK(f);
    check_file(f);
    aril__hdf5_close(f);
    CHECK(!aril__hdf5_open(temp_path("missing.h5")));
}

TEST(hdf5_file_from_memory)
{
    const char *path = temp_path("a.h5");
    aril__bytes b = { 0 };
    if (!written(path)) return;
    CHECK_INT(aril__read_file("HDF5", path, 0, &b), ARIL_OK);
    aril__hdf5 *f = aril__hdf5_open_memory(b.at, b.n, "memory");
    if (f) check_file(f);
    aril__hdf5_close(f);
    aril_clear_error();
    aril__hdf5 *bad = aril__hdf5_open_memory(b.at, b.n / 2, "half");
    aril__bytes_free(&b);
    aril__hdf5_close(bad);
    CHECK(f);
    CHECK(!bad);
    CHECK_MSG(strstr(aril_error(), "half is not a valid HDF5 file"), "%s", aril_error());
}

TEST(text_attributes)
{
    const char *path = temp_path("keras2.h5");
    aril__bytes b = { 0 };
    if (!written(temp_path("a.h5"))) return;
    CHECK(keras_file("keras2.h5", &b));
    aril__hdf5 *f = aril__hdf5_open_memory(b.at, b.n, path);
    aril__hdf5_texts layers = { 0 }, version = { 0 }, none = { 0 };
    bool good = f && aril__hdf5_attribute(f, "model_weights", "layer_names", &layers) == ARIL_OK &&
                aril__hdf5_attribute(f, "/", "keras_version", &version) == ARIL_OK &&
                aril__hdf5_attribute(f, "no/such/group", "x", &none) == ARIL_OK;
    bool names = false;
    for (int i = 0; i < layers.n; i++) names |= strcmp(layers.at[i], "body") == 0;
    bool two = version.n == 1 && version.at[0][0] == '2';
    aril__hdf5_texts_free(&layers);
    aril__hdf5_texts_free(&version);
    aril__hdf5_close(f);
    aril__bytes_free(&b);
    CHECK_MSG(good, "%s", aril_error());
    CHECK(names && two && none.n == 0);
}

/* ---- weights ---- */

TEST(files_of_keras_are_weights)
{
    static const struct {
        const char *file, *first, *root;
        int n;
    } cases[] = {
        { "sequential.keras", "layers/batch_normalization/vars/0", "", 8 },
        { "text.weights.h5", "layers/dense/vars/0", "", 6 },
        { "functional.h5", NULL, "model_weights", 23 },
    };
    if (!written(temp_path("a.h5"))) return;
    for (int i = 0; i < 3; i++) {
        ARIL_SCOPE;
        aril__bytes b = { 0 };
        const char *path = temp_path("weights");
        CHECK(keras_file(cases[i].file, &b));
        FILE *f = fopen(path, "wb");
        bool good = f && fwrite(b.at, 1, b.n, f) == b.n;
        if (f) fclose(f);
        aril__bytes_free(&b);
        CHECK(good);
        aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
        CHECK_MSG(w, "%s", aril_error());
        int n = aril_weights_count(w);
        bool first = !cases[i].first || strcmp(aril_weights_name(w, 0), cases[i].first) == 0;
        bool root = strcmp(aril_weights_root(w), cases[i].root) == 0;
        bool read = true;
        for (int k = 0; k < n; k++)
            read &= aril_tensor_status(aril_weights_tensor(w, k)) == ARIL_OK;
        aril_weights_close(w);
        CHECK_MSG(first && root && read, "%s", cases[i].file);
        CHECK_INT(n, cases[i].n);
    }
}

/* Text is listed, but cannot be read; numbers beside it can. */
TEST(arrays_that_cannot_be_read_are_listed)
{
    ARIL_SCOPE;
    const char *path = temp_path("text.h5");
    static const char *const name[] = { "x" }, *const text_name[] = { "note" },
                             *const text[] = { "hello" };
    aril_tensor *const at[] = { aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu()) };
    if (!written(temp_path("a.h5"))) return;
    aril__hdf5_contents c = {
        .arrays = { 1, at, name }, .n_texts = 1, .text_name = text_name, .text = text
    };
    CHECK_INT(aril__hdf5_write(path, &c), ARIL_OK);
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    CHECK_MSG(w, "%s", aril_error());
    CHECK_INT(aril_weights_count(w), 2);
    CHECK(!aril_weights_problem(w, aril_weights_find(w, "x")));
    CHECK_STR(aril_weights_problem(w, aril_weights_find(w, "note")), "text");
    CHECK_INT(aril_tensor_status(aril_weights_tensor(w, 1)), ARIL_ERR_UNSUPPORTED);
    aril_clear_error();
    aril_weights_close(w);
}

/* ---- JSON ---- */

TEST(json_tree)
{
    static const char text[] = "{\"a\": [1, -2.5, \"x\\ny\", null, true], \"b\": {}, \"c\": 1e300}";
    aril__json_tree t;
    CHECK_INT(aril__json_parse(&t, "text", text, sizeof text - 1), ARIL_OK);
    const aril__json_node *a = aril__json_get(t.root, "a");
    bool good = t.root->n == 3 && a && a->n == 5 && aril__json_integer(aril__json_at(a, 0), 9) == 1;
    good &= aril__json_real(aril__json_at(a, 1), 0) == -2.5;
    good &= aril__json_integer(aril__json_at(a, 1), 9) == 9; /* not an integer */
    good &= strcmp(aril__json_text(aril__json_at(a, 2), ""), "x\ny") == 0;
    good &=
        aril__json_kind(aril__json_at(a, 3)) == 'n' && aril__json_bool(aril__json_at(a, 4), false);
    good &= !aril__json_at(a, 5) && !aril__json_at(a, -1) && !aril__json_get(a, "a");
    good &= aril__json_integer(aril__json_get(t.root, "c"), 7) == 7; /* too large */
    good &= aril__json_kind(NULL) == 0 && aril__json_integer(NULL, 3) == 3;
    aril__json_tree_free(&t);
    CHECK(good);
    static const char *const broken[] = { "",      "{",   "[1,", "{\"a\" 1}",
                                          "[1] 2", "nul", "[",   "{\"a\":" };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        CHECK_INT(aril__json_parse(&t, "text", broken[i], strlen(broken[i])), ARIL_ERR_FORMAT);
        CHECK(!t.root && !t.chunks);
    }
}
