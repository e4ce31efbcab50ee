/* Models that are corrupted at random: each gives a program or an error, and each run of it a
 * result or an error. Mutations come from a fixed seed; ARIL_FUZZ_SECONDS makes it run longer, and
 * ARIL_FUZZ_SEED gives others. */
#include "onnx/small_models.h"

#include "formats/atomic_file.h"

#include <stdio.h>
#include <time.h>

static uint64_t state;

/* The state for round `i`, which can be run alone. */
static void seed(long i, uint64_t step)
{
    const char *other = getenv("ARIL_FUZZ_SEED");
    state = (uint64_t)i * step + 13 + ((uint64_t)(other ? atoi(other) : 0) << 40);
}

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static void mutate(const aril__bytes *from, aril__bytes *to)
{
    static const unsigned char numbers[] = { 0, 1, 0x7f, 0x80, 0xff };
    aril__bytes_free(to);
    aril__bytes_add(to, from->at, from->n);
    for (uint64_t times = 1 + draw(3); times > 0 && to->n > 8; times--) {
        size_t at = draw(to->n), left = to->n - at, part = 1 + draw(left < 12 ? left : 12);
        switch (draw(6)) {
        case 0: to->at[at] ^= (unsigned char)(1u << draw(8)); break;
        case 1: to->at[at] = (unsigned char)draw(256); break;
        case 2: to->at[at] = numbers[draw(sizeof numbers)]; break;
        case 3: to->at[at] = to->at[draw(to->n)]; break;
        case 4: memmove(to->at + at, to->at + draw(to->n - part + 1), part); break;
        default: to->at[at] = (unsigned char)(to->at[at] + (draw(2) ? 1 : -1)); break;
        }
    }
}

/* Prints one in 16 of the models; their types are inferred again without large initializers. */
static void list_some(const aril__bytes *model, long i)
{
    const char *path = temp_path("listed.onnx");
    if (i % 16 || aril__file_replace(path, model->at, model->n) < 0) return;
    FILE *to = fopen("/dev/null", "w");
    if (to && aril_describe_file(path, to) < 0) aril_clear_error();
    if (to) fclose(to);
}

TEST(corrupted_models)
{
    const char *more = getenv("ARIL_FUZZ_SECONDS");
    double seconds = more ? atof(more) : 4;
    aril__bytes wire[MODELS] = { 0 }, bad = { 0 };
    for (int i = 0; i < MODELS; i++) {
        wire[i] = wire_of(i);
        CHECK_MSG(run_model(wire[i].at, wire[i].n), "model %d: %s", i, aril_error());
    }
    CHECK_INT(aril_memory_set_limit(aril_cpu(), 64 << 20), ARIL_OK);
    long ran = 0, refused = 0;
    for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end; ran++) {
        seed(ran, 977);
        mutate(&wire[draw(MODELS)], &bad);
        list_some(&bad, ran);
        bool was_ok = run_model(bad.at, bad.n);
        refused += !was_ok;
        aril_clear_error();
    }
    printf("%ld models, %ld of them refused\n", ran, refused);
    CHECK(ran > 100 && refused > 10);
    for (int i = 0; i < MODELS; i++) aril__bytes_free(&wire[i]);
    aril__bytes_free(&bad);
}

/* ---- the models of cases.bin: other domains, integers, recurrent layers ---- */

enum { MOST = 256 };

static uint32_t word_of(FILE *f)
{
    unsigned char b[4] = { 0 };
    if (fread(b, 1, 4, f) != 4) return 0;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The models among the files of cases.bin (test_onnx_cases.c). */
static int read_models(aril__bytes *to)
{
    static const char end[] = "/model.onnx";
    unsigned char data[1 << 16];
    char name[256];
    int n = 0;
    FILE *f = fopen(ONNX_CASES, "rb");
    for (uint32_t length; f && n < MOST && (length = word_of(f)) > 0;) {
        uint32_t size = word_of(f);
        if (length >= sizeof name || size > sizeof data || fread(name, 1, length, f) != length ||
            fread(data, 1, size, f) != size)
            break;
        name[length] = '\0';
        if (length < sizeof end || strcmp(name + length - (sizeof end - 1), end) != 0) continue;
        aril__bytes_add(&to[n++], data, size);
    }
    if (f) fclose(f);
    return n;
}

TEST(corrupted_models_of_other_domains)
{
    const char *more = getenv("ARIL_FUZZ_SECONDS");
    double seconds = more ? atof(more) : 2;
    static aril__bytes wire[MOST];
    aril__bytes bad = { 0 };
    int n = read_models(wire);
    CHECK_MSG(n > 100, "%d models in %s", n, ONNX_CASES);
    CHECK_INT(aril_memory_set_limit(aril_cpu(), 64 << 20), ARIL_OK);
    long ran = 0, refused = 0;
    for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end; ran++) {
        seed(ran, 1009);
        mutate(&wire[draw((uint64_t)n)], &bad);
        list_some(&bad, ran);
        refused += !run_model(bad.at, bad.n);
        aril_clear_error();
    }
    printf("%ld models, %ld of them refused\n", ran, refused);
    CHECK(ran > 50 && refused > 10);
    for (int i = 0; i < n; i++) aril__bytes_free(&wire[i]);
    aril__bytes_free(&bad);
}
