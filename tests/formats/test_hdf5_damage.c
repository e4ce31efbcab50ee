/* Damaged HDF5 files, of h5py and of Keras: opened and read, or refused with a message. The HDF5
 * library, which does not read them, crashed on some. ARIL_FUZZ_TIMES=100 runs longer. */
#include "aril/aril.h"
#include "files/hdf5.h"
#include "formats/hdf5.h"
#include "formats/hdf5/inside.h"
#include "models/keras_files.h"
#include "support/test.h"

#include <stdlib.h>
#include <time.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

/* Where numbers of the format begin: damage is drawn there more often than in data. */
static size_t somewhere(const unsigned char *at, size_t n)
{
    static const char *const marks[] = { "TREE", "SNOD", "HEAP", "GCOL", "OHDR",   "OCHK", "FRHP",
                                         "FHDB", "FHIB", "BTHD", "BTLF", "BTIN",   "FAHD", "FADB",
                                         "EAHD", "EAIB", "EASB", "EADB", "\211HDF" };
    const char *mark = marks[draw(sizeof marks / sizeof *marks)];
    const unsigned char *found = NULL;
    if (draw(2)) {
        size_t from = draw(n);
        found = memmem(at + from, n - from, mark, 4);
        if (!found) found = memmem(at, n, mark, 4);
    }
    size_t i = found ? (size_t)(found - at) + draw(96) : draw(n);
    return i < n ? i : n - 1;
}

static void damage(unsigned char *at, size_t *n)
{
    static const unsigned char values[] = { 0, 1, 2, 8, 0x10, 0x7f, 0x80, 0xfe, 0xff };
    if (draw(30) == 0) *n = 1 + draw(*n);
    for (uint64_t times = 1 + draw(8); times > 0; times--) {
        size_t i = somewhere(at, *n);
        switch (draw(4)) {
        case 0: at[i] = (unsigned char)(at[i] ^ 1u << draw(8)); break;
        case 1: at[i] = values[draw(sizeof values)]; break;
        case 2: at[i] = (unsigned char)(at[i] + draw(16) - 8); break;
        default: { /* an address, a size or a count becomes that of another place */
            size_t from = somewhere(at, *n), size = (size_t)1 << draw(4);
            if (from + size <= *n && i + size <= *n) memmove(at + i, at + from, size);
        }
        }
    }
}

/* Lists the file and reads all of it. True if it was opened. */
static bool reads(const unsigned char *at, size_t n)
{
    static const char *const attributes[] = { "one", "many",        "long",
                                              "a11", "layer_names", "weight_names" };
    aril__hdf5 *f = aril__hdf5_open_memory(at, n, "damaged");
    if (!f) return false;
    aril__hdf5_texts t;
    for (int i = 0; i < aril__hdf5_count(f); i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril__hdf5_array(f, i);
        if (aril_tensor_status(x) == ARIL_OK && aril_numel(x) < 1 << 16)
            aril_sum(aril_cast(x, ARIL_F64), ARIL_ALL);
        aril__hdf5_attribute(f, aril__hdf5_array_name(f, i), "MATLAB_class", &t);
        aril__hdf5_texts_free(&t);
    }
    for (int i = 0; i < aril__hdf5_refused(f); i++) {
        const char *problem;
        aril__hdf5_text_array(f, aril__hdf5_refused_name(f, i, &problem), &t);
        aril__hdf5_texts_free(&t);
    }
    static const char *const groups[] = { "/", "model_weights", "group/back", "many" };
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (size_t a = 0; a < sizeof attributes / sizeof *attributes; a++) {
            aril__hdf5_attribute(f, groups[g], attributes[a], &t);
            aril__hdf5_texts_free(&t);
        }
        aril__hdf5_group(f, groups[g], &t);
        aril__hdf5_texts_free(&t);
    }
    aril__hdf5_close(f);
    return true;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fuzz(const char *name, bool (*file)(const char *, aril__bytes *), bool blind)
{
    const char *longer = getenv("ARIL_FUZZ_TIMES");
    int rounds = 2000 * (longer ? atoi(longer) : 1), opened = 0;
    state = longer ? (uint64_t)atoi(longer) : 1;
    aril__bytes whole = { 0 };
    if (!file(name, &whole) && strstr(aril_error(), "without zlib")) SKIP("without zlib");
    CHECK(whole.n > 0);
    CHECK_MSG(reads(whole.at, whole.n), "%s: %s", name, aril_error());
    aril_clear_error(); /* attributes that are not text */
    aril__h5_ignore_checksums = blind;
    for (int i = 0; i < rounds; i++) {
        size_t n = whole.n;
        unsigned char *copy = malloc(n); /* so that a sanitizer sees its end */
        if (copy) memcpy(copy, whole.at, n);
        if (copy) damage(copy, &n);
        if (copy && n < whole.n) copy = realloc(copy, n);
        aril_memory_reset_peak(aril_cpu());
        int64_t live = aril_memory(aril_cpu()).live;
        double begin = seconds();
        bool good = copy && reads(copy, n);
        double took = seconds() - begin;
        int64_t peak = aril_memory(aril_cpu()).peak - live;
        free(copy);
        CHECK_MSG(good || !aril_ok(), "%s: round %d: no message", name, i);
        CHECK_MSG(took < 5, "%s: round %d: %.1f s", name, i, took);
        CHECK_MSG(peak <= 512 << 20, "%s: round %d: %lld MB", name, i, (long long)peak >> 20);
        opened += good;
        aril_clear_error();
    }
    aril__h5_ignore_checksums = false;
    aril__bytes_free(&whole);
    CHECK(opened > 0 && opened < rounds);
}

TEST(damaged_files_of_the_oldest_format)
{
    fuzz("old.h5", hdf5_file, false);
}

TEST(damaged_files_of_the_newest_format)
{
    fuzz("new.h5", hdf5_file, false);
}

/* As if whoever damaged the file had computed its checksums. */
TEST(damaged_files_without_checksums)
{
    fuzz("new.h5", hdf5_file, true);
}

TEST(damaged_models_of_keras)
{
    fuzz("functional.h5", keras_file, false);
    fuzz("keras2.h5", keras_file, false);
    fuzz("text.weights.h5", keras_file, false);
}
