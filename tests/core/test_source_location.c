/* The source location of an error: the line in this file, found through Aril's own frames. */
#include "support/test.h"

#include "aril/error.h"
#include "aril/log.h"
#include "aril/parallel.h"
#include "core/source_location.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Prevents a tail call, which would leave no frame. */
#define NO_TAIL_CALL() __asm__ volatile("")

/* Named like a function of Aril, and so skipped. */
__attribute__((noinline)) size_t aril_test_outer(char *buf, size_t size);
__attribute__((noinline)) size_t aril__test_inner(char *buf, size_t size);

size_t aril__test_inner(char *buf, size_t size)
{
    size_t n = aril__location(buf, size);
    NO_TAIL_CALL();
    return n;
}

size_t aril_test_outer(char *buf, size_t size)
{
    size_t n = aril__test_inner(buf, size);
    NO_TAIL_CALL();
    return n;
}

static bool has_lines(void)
{
    char buf[64];
    aril__location(buf, sizeof buf);
    NO_TAIL_CALL();
    return strchr(buf, ':') != NULL;
}

#define NEED_LINES()                                              \
    do {                                                          \
        if (!has_lines()) SKIP("built without line information"); \
    } while (0)

TEST(skips_frames_of_the_library)
{
    NEED_LINES();
    char buf[64], want[64];
    snprintf(want, sizeof want, "test_source_location.c:%d", __LINE__ + 1);
    size_t n = aril_test_outer(buf, sizeof buf);
    CHECK_STR(buf, want);
    CHECK_INT(n, strlen(want));
}

__attribute__((noinline)) static size_t user_function(char *buf, size_t size, int *line)
{
    *line = __LINE__ + 1;
    size_t n = aril_test_outer(buf, size);
    NO_TAIL_CALL();
    return n;
}

TEST(finds_the_innermost_line)
{
    char buf[64], want[64];
    int line = 0;
    user_function(buf, sizeof buf, &line);
    if (!has_lines()) { /* then it is the function, unless symbols are stripped too */
        CHECK_MSG(!*buf || strstr(buf, "user_function+0x") == buf, "%s", buf);
        return;
    }
    snprintf(want, sizeof want, "test_source_location.c:%d", line);
    CHECK_STR(buf, want);
}

/* Real errors, through the library's static and global functions. */
TEST(errors_name_this_file)
{
    NEED_LINES();
    char want[64];
    snprintf(want, sizeof want, "at test_source_location.c:%d", __LINE__ + 1);
    CHECK_INT(aril_set_threads(-1), ARIL_ERR_ARG);
    CHECK(!aril_ok());
    CHECK_MSG(strstr(aril_error(), want), "'%s' lacks '%s'", aril_error(), want);
    aril_clear_error();
    snprintf(want, sizeof want, "at test_source_location.c:%d", __LINE__ + 1);
    CHECK_INT(aril_set_log("nonsense"), ARIL_ERR_ARG);
    CHECK_MSG(strstr(aril_error(), want), "'%s' lacks '%s'", aril_error(), want);
    aril_clear_error();
}

TEST(small_buffers)
{
    char full[64], buf[64];
    int line = 0;
    size_t length = user_function(full, sizeof full, &line);
    for (size_t size = 0; size < sizeof buf; size++) {
        memset(buf, '#', sizeof buf);
        size_t n = user_function(buf, size, &line);
        CHECK_INT(n, size == 0 ? 0 : size - 1 < length ? size - 1 : length);
        if (size > 0) CHECK(buf[n] == 0 && memcmp(buf, full, n) == 0);
        CHECK(buf[size] == '#');
    }
}

/* ---- errors that occur again and again ---- */

/* Calls whose addresses differ by multiples of 1024. */
#define SITE(name)                                                                    \
    __attribute__((noinline, aligned(1024))) static void name(char *buf, size_t size) \
    {                                                                                 \
        aril__test_inner(buf, size);                                                  \
        NO_TAIL_CALL();                                                               \
    }
SITE(site_0)
SITE(site_1)
SITE(site_2)
SITE(site_3)
SITE(site_4)
SITE(site_5)
SITE(site_6)
SITE(site_7)

/* Seconds of this thread for some errors of each call. */
static double errors_of_all(int times)
{
    static void (*const sites[])(char *, size_t) = { site_0, site_1, site_2, site_3,
                                                     site_4, site_5, site_6, site_7 };
    char buf[64];
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (int i = 0; i < 8 * times; i++) sites[i % 8](buf, sizeof buf);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

TEST(locations_are_remembered)
{
    NEED_LINES();
    double first = errors_of_all(1), later = errors_of_all(20);
    CHECK_MSG(later < 5 * first, "%g s, then %g s for 20 times as many", first, later);
}

TEST(keeps_errno_and_survives_shutdown)
{
    char a[64], b[64];
    int line = 0;
    user_function(a, sizeof a, &line);
    aril__location_shutdown();
    aril__location_shutdown();
    errno = 4711;
    user_function(b, sizeof b, &line);
    CHECK_INT(errno, 4711);
    CHECK_STR(b, a);
}

static void *locate_thread(void *arg)
{
    char want[64], buf[64];
    int line = 0;
    user_function(want, sizeof want, &line);
    for (int i = 0; i < 10; i++) {
        user_function(buf, sizeof buf, &line);
        if (strcmp(buf, want) != 0) return arg;
    }
    return NULL;
}

TEST(several_threads)
{
    pthread_t thread[4];
    int n = 0, wrong = 0;
    while (n < 4 && pthread_create(&thread[n], NULL, locate_thread, &thread) == 0) n++;
    for (int i = 0; i < n; i++) {
        void *result;
        pthread_join(thread[i], &result);
        wrong += result != NULL;
    }
    CHECK_INT(n, 4);
    CHECK_INT(wrong, 0);
}

/* ---- Damaged files --------------------------------------------------------------------------- */

static int first_bias(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uintptr_t *)arg = info->dlpi_addr; /* the program comes first */
    return 1;
}

struct image {
    uint8_t *data;
    size_t size;
    uint64_t address; /* of user_function */
};

static bool image_load(struct image *m)
{
    uintptr_t bias = 0;
    dl_iterate_phdr(first_bias, &bias);
    m->address = (uintptr_t)&user_function - bias + 1;
    FILE *f = fopen("/proc/self/exe", "rb");
    if (!f) return false;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    m->size = size > 0 ? (size_t)size : 0;
    m->data = malloc(m->size + 1);
    bool good = m->data && fread(m->data, 1, m->size, f) == m->size;
    fclose(f);
    return good;
}

/* [first, first + size) of a section in the image; the whole image when there is none. */
static void section_of(const struct image *m, const char *name, size_t *first, size_t *size)
{
    Elf64_Ehdr h;
    Elf64_Shdr names, s;
    memcpy(&h, m->data, sizeof h);
    memcpy(&names, m->data + h.e_shoff + h.e_shstrndx * sizeof s, sizeof names);
    *first = 0;
    *size = m->size;
    for (size_t i = 0; i < h.e_shnum; i++) {
        memcpy(&s, m->data + h.e_shoff + i * sizeof s, sizeof s);
        if (strcmp((const char *)m->data + names.sh_offset + s.sh_name, name) == 0) {
            *first = s.sh_offset;
            *size = s.sh_size;
        }
    }
}

static uint32_t random_below(uint32_t *state, size_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*state * n) >> 32);
}

TEST(corrupt_files_do_not_crash)
{
    NEED_LINES();
    struct image m;
    CHECK(image_load(&m));
    char buf[64];
    CHECK(aril__location_of(m.data, m.size, m.address, buf, sizeof buf) > 0);
    CHECK(strncmp(buf, "test_source_location.c:", 13) == 0);
    CHECK_INT(aril__location_of(m.data, m.size, 0, buf, sizeof buf), 0);
    CHECK_INT(aril__location_of(m.data, m.size, UINT64_MAX, buf, sizeof buf), 0);

    static const char *const sections[] = { ".debug_line", ".debug_line_str", ".symtab", "none" };
    uint32_t state = 1;
    for (int round = 0; round < 400; round++) {
        size_t first, size;
        section_of(&m, sections[round % 4], &first, &size);
        size_t at[8];
        uint8_t old[8];
        for (int i = 0; i < 8; i++) {
            /* Corrupts headers more often than the rest: at the start, and where sections begin. */
            size_t reach = round % 3 == 0 && size > 200 ? 200 : size;
            at[i] = first + random_below(&state, reach);
            old[i] = m.data[at[i]];
            m.data[at[i]] = (uint8_t)(round % 2 ? random_below(&state, 256) : 255);
        }
        size_t n = aril__location_of(m.data, m.size, m.address, buf, sizeof buf);
        for (int i = 7; i >= 0; i--) m.data[at[i]] = old[i];
        CHECK(n < sizeof buf);
        CHECK_INT(buf[n], 0);
    }
    for (int round = 0; round < 100; round++) { /* truncated: a copy, so that tools see overruns */
        size_t size = round < 70 ? (size_t)round : random_below(&state, m.size);
        uint8_t *cut = malloc(size ? size : 1);
        CHECK(cut);
        memcpy(cut, m.data, size);
        size_t n = aril__location_of(cut, size, m.address, buf, sizeof buf);
        free(cut);
        CHECK(n < sizeof buf);
    }
    free(m.data);
}
