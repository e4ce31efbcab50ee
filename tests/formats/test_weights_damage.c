/* Damaged files of weights of each kind that Aril writes: opened and read, or refused with a
 * message. PyTorch's have tests of their own. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

static size_t read_whole(const char *path, unsigned char *to, size_t size)
{
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(to, 1, size, f) : 0;
    if (f) fclose(f);
    return n;
}

static bool write_whole(const char *path, const unsigned char *from, size_t n)
{
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(from, 1, n, f) == n;
    return f && fclose(f) == 0 && good;
}

static void damage(unsigned char *at, size_t *n)
{
    static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xff, '{', '"', ',', '9', '-', '.' };
    if (draw(8) == 0) *n = 1 + draw(*n);
    for (uint64_t times = 1 + draw(3); times > 0; times--) {
        size_t i = draw(*n);
        at[i] = draw(2) ? (unsigned char)(at[i] ^ 1u << draw(8)) : values[draw(sizeof values)];
    }
}

/* True if the file was opened; its tensors are read or refused. */
static bool opens(const char *path)
{
    aril_weights *w = aril_weights_open(path, (aril_weights_opts){ 0 });
    for (int i = 0; i < aril_weights_count(w); i++) {
        ARIL_SCOPE;
        aril_tensor *t = aril_weights_tensor(w, i);
        if (aril_tensor_status(t) == ARIL_OK && aril_numel(t) < 1 << 20)
            aril_sum(aril_cast(t, ARIL_F64), ARIL_ALL);
    }
    bool opened = w != NULL;
    aril_weights_close(w);
    return opened;
}

/* `name` is written, and `damaged` of what was written is damaged. */
static void fuzz(const char *name, const char *damaged, int64_t max_part)
{
    enum { MOST = 1 << 14 };
    static unsigned char whole[MOST], copy[MOST];
    const char *longer = getenv("ARIL_FUZZ_TIMES");
    int rounds = 300 * (longer ? atoi(longer) : 1), opened = 0;
    state = longer ? (uint64_t)atoi(longer) : 1;
    char path[512], target[512];
    snprintf(path, sizeof path, "%s", temp_path(name));
    snprintf(target, sizeof target, "%s", temp_path(damaged));
    ARIL_SCOPE;
    aril_tensor *at[] = { aril_rand(ARIL_SHAPE(3, 4), ARIL_F32, aril_cpu()),
                          aril_zeros(ARIL_SHAPE(5), ARIL_I64, aril_cpu()),
                          aril_zeros(ARIL_SHAPE(0, 2), ARIL_F16, aril_cpu()),
                          aril_ones(ARIL_SHAPE(), ARIL_BOOL, aril_cpu()) };
    const char *const names[] = { "conv.weight", "steps", "empty", "flag" };
    CHECK_INT(aril_weights_save(path, &(aril_named){ 4, at, names },
                                (aril_weights_save_opts){ .max_part = max_part }),
              ARIL_OK);
    CHECK_MSG(opens(target), "%s: %s", damaged, aril_error());
    size_t size = read_whole(target, whole, MOST);
    CHECK(size > 0 && size < MOST);
    for (int i = 0; i < rounds; i++) {
        size_t n = size;
        memcpy(copy, whole, size);
        damage(copy, &n);
        CHECK(write_whole(target, copy, n));
        aril_memory_reset_peak(aril_cpu());
        int64_t live = aril_memory(aril_cpu()).live;
        bool good = opens(target);
        CHECK_MSG(good || !aril_ok(), "%s: round %d: no message", damaged, i);
        CHECK(aril_memory(aril_cpu()).peak < live + (64 << 20));
        opened += good;
        aril_clear_error();
    }
    CHECK(opened < rounds);
}

TEST(damaged_safetensors)
{
    fuzz("a.safetensors", "a.safetensors", 0);
}

TEST(damaged_archives_of_numpy)
{
    fuzz("a.npz", "a.npz", 0);
}

TEST(damaged_indexes)
{
    fuzz("a.safetensors", "a.safetensors.index.json", 50);
}
