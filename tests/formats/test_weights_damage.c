/* Damaged files of weights of each kind that Aril writes: opened and read, or refused with a
 * message. PyTorch's have tests of their own. Writes that end halfway. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- files in parts ---- */

enum { PART_TENSORS = 6 };

/* Writes `name` in parts of one or two tensors, all of whose elements are `value`. */
static aril_status save_parts(const char *name, float value, int per_part)
{
    ARIL_SCOPE;
    static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
    aril_tensor *at[PART_TENSORS];
    for (int i = 0; i < PART_TENSORS; i++)
        at[i] = aril_full(ARIL_SHAPE(5000), value, ARIL_F32, aril_cpu());
    return aril_weights_save(temp_path(name), &(aril_named){ PART_TENSORS, at, names },
                             (aril_weights_save_opts){ .max_part = 20000 * per_part });
}

/* The value of all tensors, 0: the file cannot be opened, -1: they are of several networks. */
static float value_of_parts(const char *name)
{
    ARIL_SCOPE;
    aril_weights *w = aril_weights_open(temp_path(name), (aril_weights_opts){ 0 });
    float value = 0;
    for (int i = 0; i < aril_weights_count(w); i++) {
        const float *x = aril_data(aril_weights_tensor(w, i));
        if (i > 0 && x && x[0] != value) value = -1;
        if (i == 0 && x) value = x[0];
    }
    if (!w) aril_clear_error();
    aril_weights_close(w);
    return value;
}

TEST(parts_replace_those_of_before)
{
    const char *const kinds[] = { "x.safetensors", "x.pt" };
    for (int k = 0; k < 2; k++) {
        char index[64], expected[256];
        const char *ext = strchr(kinds[k], '.');
        const char *const parts[] = { "x-00001-of-00002", "x-00002-of-00002", "x.2-00001-of-00002",
                                      "x.2-00002-of-00002" };
        snprintf(index, sizeof index, "%s.index.json", kinds[k]);
        CHECK_INT(save_parts(kinds[k], 1, 2), ARIL_OK);
        CHECK_INT(save_parts(kinds[k], 2, 3), ARIL_OK);
        CHECK(value_of_parts(index) == 2);
        snprintf(expected, sizeof expected, "x-00001-of-00002%s x-00002-of-00002%s %s ", ext, ext,
                 index);
        CHECK_STR(files_in(temp_path("")), expected);
        CHECK_INT(save_parts(kinds[k], 3, 3), ARIL_OK);
        CHECK(value_of_parts(index) == 3);
        CHECK(value_of_parts("") == 3);
        /* The old names were in use until the new index was there. */
        snprintf(expected, sizeof expected, "x.2-00001-of-00002%s x.2-00002-of-00002%s %s ", ext,
                 ext, index);
        CHECK_STR(files_in(temp_path("")), expected);
        struct stat st, of_index;
        snprintf(expected, sizeof expected, "x.2-00001-of-00002%s", ext);
        CHECK(stat(temp_path(expected), &st) == 0 && stat(temp_path(index), &of_index) == 0);
        CHECK_INT(st.st_mode, of_index.st_mode);
        CHECK_INT(save_parts(kinds[k], 4, 3), ARIL_OK);
        CHECK(value_of_parts(index) == 4);
        snprintf(expected, sizeof expected, "x-00001-of-00002%s x-00002-of-00002%s %s ", ext, ext,
                 index);
        CHECK_STR(files_in(temp_path("")), expected);
        remove(temp_path(index));
        for (int i = 0; i < 4; i++) {
            snprintf(expected, sizeof expected, "%s%s", parts[i], ext);
            remove(temp_path(expected));
        }
        CHECK_INT(temp_count(), 0);
    }
}

/* An old index may name any file; only parts of the same name are removed. */
TEST(an_old_index_does_not_choose_what_is_removed)
{
    static const char index[] = "{\"weight_map\": {\"a\": \"notes.txt\", \"b\": "
                                "\"x-00001-of-00009.safetensors\", \"c\": \"../x\", \"d\": "
                                "\"y-00001-of-00009.safetensors\"}}";
    CHECK(write_whole(temp_path("notes.txt"), (const unsigned char *)"text", 4));
    CHECK(write_whole(temp_path("x-00001-of-00009.safetensors"), (const unsigned char *)"x", 1));
    CHECK(write_whole(temp_path("y-00001-of-00009.safetensors"), (const unsigned char *)"y", 1));
    CHECK(write_whole(temp_path("x.safetensors.index.json"), (const unsigned char *)index,
                      sizeof index - 1));
    CHECK_INT(save_parts("x.safetensors", 1, 6), ARIL_OK);
    CHECK_STR(files_in(temp_path("")),
              "notes.txt x-00001-of-00001.safetensors x.safetensors.index.json "
              "y-00001-of-00009.safetensors ");
}

/* Parts that another index names, or that were not left by a killed writer, stay. */
TEST(parts_of_others_are_neither_replaced_nor_removed)
{
    static const char other[] = "{\"weight_map\": {\"a\": \"x-00001-of-00002.safetensors\"}}";
    CHECK_INT(save_parts("x.safetensors", 1, 3), ARIL_OK);
    CHECK(write_whole(temp_path("y.index.json"), (const unsigned char *)other, sizeof other - 1));
    CHECK(write_whole(temp_path("x-00007-of-00009.safetensors"), (const unsigned char *)"x", 1));
    CHECK_INT(save_parts("x.safetensors", 2, 3), ARIL_OK);
    CHECK(value_of_parts("x.safetensors.index.json") == 2);
    CHECK(value_of_parts("y.index.json") == 1);
    CHECK_STR(files_in(temp_path("")),
              "x-00001-of-00002.safetensors x-00007-of-00009.safetensors "
              "x.2-00001-of-00002.safetensors x.2-00002-of-00002.safetensors "
              "x.safetensors.index.json y.index.json ");
}

/* Replaces the C library's: what happens at the renames of a child process. */
static int renames_left = -1;
static bool then_fails;

__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    if (renames_left == 0 && !then_fails) _exit(7);
    if (renames_left == 0) {
        errno = EIO;
        return -1;
    }
    if (renames_left > 0) renames_left--;
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* Saves in a process that ends, or whose renames fail, after so many of them. */
static int save_interrupted(float value, int renames, bool fails)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        renames_left = renames;
        then_fails = fails;
        _exit(save_parts("x.safetensors", value, 2) == ARIL_ERR_IO ? 8 : 0);
    }
    bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    return ended ? WEXITSTATUS(status) : -1;
}

TEST(parts_that_are_interrupted_at_a_rename_leave_the_old_ones)
{
    /* The three parts, then the index. */
    for (int renames = 0; renames < 4; renames++) {
        CHECK_INT(save_parts("x.safetensors", 1, 2), ARIL_OK);
        CHECK_INT(temp_count(), 4);
        CHECK_INT(save_interrupted(2, renames, true), 8);
        CHECK(value_of_parts("x.safetensors.index.json") == 1);
        CHECK_INT(temp_count(), 4);
        CHECK_INT(save_interrupted(2, renames, false), 7);
        CHECK(value_of_parts("x.safetensors.index.json") == 1);
        CHECK_INT(save_interrupted(3, renames, false), 7);
        CHECK(value_of_parts("x.safetensors.index.json") == 1);
        /* Three old parts, three of the process that ended, and two indexes. */
        CHECK_INT(temp_count(), 8);
    }
    CHECK_INT(save_interrupted(4, 4, false), 0);
    CHECK(value_of_parts("x.safetensors.index.json") == 4);
    CHECK_INT(temp_count(), 4);
}

TEST(a_failed_write_of_parts_leaves_the_old_ones)
{
    CHECK_INT(save_parts("x.safetensors", 1, 2), ARIL_OK);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { .rlim_cur = 50000, .rlim_max = 50000 };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        bool failed = save_parts("x.safetensors", 2, 3) == ARIL_ERR_IO;
        _exit(failed && strstr(aril_error(), "x-00001-of-00002.safetensors") ? 0 : 1);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK(value_of_parts("x.safetensors.index.json") == 1);
    CHECK_INT(temp_count(), 4);
    /* A folder has the name of a part: the parts get other names. */
    CHECK(mkdir(temp_path("x-00006-of-00006.safetensors"), 0777) == 0);
    CHECK_INT(save_parts("x.safetensors", 2, 1), ARIL_OK);
    CHECK(value_of_parts("x.safetensors.index.json") == 2);
    CHECK_INT(temp_count(), 8);
    /* One has the name of the index. */
    CHECK(mkdir(temp_path("y.safetensors.index.json"), 0777) == 0);
    CHECK_INT(save_parts("y.safetensors", 2, 1), ARIL_ERR_IO);
    aril_clear_error();
    CHECK_INT(temp_count(), 9);
}

TEST(a_killed_write_of_parts_leaves_the_old_ones_or_the_new_ones)
{
    int old = 0, new = 0;
    CHECK_INT(save_parts("x.safetensors", 1, 2), ARIL_OK);
    for (int i = 0; i < 40; i++) {
        float before = value_of_parts("x.safetensors.index.json");
        pid_t child = fork();
        if (child == 0) {
            save_parts("x.safetensors", before + 1, 2);
            _exit(0);
        }
        CHECK(child > 0);
        usleep((useconds_t)(100 + 150 * i));
        kill(child, SIGKILL);
        CHECK(waitpid(child, NULL, 0) == child);
        float after = value_of_parts("x.safetensors.index.json");
        CHECK_MSG(after == before || after == before + 1, "%g after %g", (double)after,
                  (double)before);
        old += after == before;
        new += after == before + 1;
    }
    CHECK(old + new > 0);
    CHECK_INT(save_parts("x.safetensors", 100, 2), ARIL_OK);
    CHECK_INT(temp_count(), 4); /* what killed writers left is gone */
    CHECK_INT(save_parts("x.safetensors", 1, 1), ARIL_OK);
    CHECK_INT(aril_weights_save(temp_path("x.pt"),
                                ARIL_TENSORS(aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu())),
                                (aril_weights_save_opts){ .max_part = -1 }),
              ARIL_ERR_ARG);
    aril_clear_error();
    CHECK_INT(aril_weights_save(temp_path("x.npz"),
                                ARIL_TENSORS(aril_ones(ARIL_SHAPE(2), ARIL_F32, aril_cpu())),
                                (aril_weights_save_opts){ .max_part = -1 }),
              ARIL_ERR_ARG);
    aril_clear_error();
}
