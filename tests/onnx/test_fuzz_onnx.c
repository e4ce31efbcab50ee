/* Models that are corrupted at random: each gives a program or an error, and each run of it a
 * result or an error. Mutations come from a fixed seed; ARIL_FUZZ_SECONDS makes it run longer. */
#include "onnx/small_models.h"

#include <stdio.h>
#include <time.h>

static uint64_t state;

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
        state = (uint64_t)ran * 977 + 13;
        mutate(&wire[draw(MODELS)], &bad);
        bool was_ok = run_model(bad.at, bad.n);
        refused += !was_ok;
        aril_clear_error();
    }
    printf("%ld models, %ld of them refused\n", ran, refused);
    CHECK(ran > 100 && refused > 10);
    for (int i = 0; i < MODELS; i++) aril__bytes_free(&wire[i]);
    aril__bytes_free(&bad);
}
