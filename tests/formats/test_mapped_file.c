/* Mapped files that change under their reader. */
#include "core/parallel.h"
#include "formats/atomic_file.h"
#include "formats/mapped_file.h"
#include "formats/schemas.h"
#include "support/temp.h"
#include "support/test.h"

#include <aril/aril.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 100000 };

/* A file of ones. */
static const char *make_file(const char *name)
{
    static char ones[SIZE];
    memset(ones, 1, sizeof ones);
    const char *path = temp_path(name);
    if (aril__file_replace(path, ones, SIZE) != ARIL_OK) test_fail(__FILE__, __LINE__, "no file");
    return path;
}

static atomic_int not_zero; /* bytes that read_pages found */

static long sum_of(const aril__mapped *f)
{
    const volatile unsigned char *p = aril__mapped_data(f);
    long sum = 0;
    for (size_t i = 0; i < aril__mapped_size(f); i++) sum += p[i];
    return sum;
}

static void check_error(const aril__mapped *f, const char *text)
{
    CHECK_INT(aril__mapped_check(f), ARIL_ERR_IO);
    CHECK_MSG(strstr(aril_error(), text), "%s", aril_error());
    aril_clear_error();
}

TEST(a_file_that_stays)
{
    aril__mapped *f = aril__mapped_open("test", make_file("x"));
    CHECK_MSG(f, "%s", aril_error());
    CHECK_INT(aril__mapped_size(f), SIZE);
    CHECK_INT(sum_of(f), SIZE);
    CHECK_INT(aril__mapped_check(f), ARIL_OK);
    make_file("x"); /* replaced by a new file: the old one stays as it was */
    CHECK(unlink(temp_path("x")) == 0);
    CHECK_INT(sum_of(f), SIZE);
    CHECK_INT(aril__mapped_check(f), ARIL_OK);
    aril__mapped_close(f);
    CHECK_INT(aril__file_replace(temp_path("empty"), "", 0), ARIL_OK);
    f = aril__mapped_open("test", temp_path("empty"));
    CHECK(f && aril__mapped_size(f) == 0 && aril__mapped_data(f));
    aril__mapped_close(f);
    CHECK(!aril__mapped_open("test", temp_path("none")) && !aril__mapped_open("test", "/dev/zero"));
    aril_clear_error();
    aril__mapped_close(NULL);
}

TEST(a_file_that_shrinks)
{
    static const off_t sizes[] = { 0, 1, 4096, 50000, SIZE - 1 };
    for (int i = 0; i < 5; i++) {
        const char *path = make_file("x");
        aril__mapped *f = aril__mapped_open("test", path);
        CHECK_MSG(f, "%s", aril_error());
        if (i % 2) CHECK_INT(sum_of(f), SIZE);
        CHECK(truncate(path, sizes[i]) == 0);
        long sum = sum_of(f); /* not a signal */
        CHECK_MSG(sum >= (long)sizes[i] && sum < SIZE, "%ld of %ld", sum, (long)sizes[i]);
        check_error(f, "was truncated while it was in use");
        CHECK(truncate(path, SIZE) == 0); /* too late */
        aril__mapped_check(f);
        CHECK(i == 4 || aril_error_code() == ARIL_ERR_IO); /* the last page was not lost */
        aril_clear_error();
        aril__mapped_close(f);
    }
}

/* Reads a byte of each page, from the last to the first: each is beyond the end of the file. */
static void read_pages(void *ctx, int64_t begin, int64_t end)
{
    const aril__mapped *f = ctx;
    const volatile unsigned char *p = aril__mapped_data(f);
    for (int64_t i = begin; i < end; i++)
        if (p[aril__mapped_size(f) - 1 - (size_t)i * 4096] != 0) atomic_fetch_add(&not_zero, 1);
}

/* The workers run into the end of the file too, several at the same time. */
TEST(a_file_that_shrinks_under_several_threads)
{
    enum { PAGES = SIZE / 4096 - 1, ROUNDS = 100 };
    int threads = aril_threads();
    aril_set_threads(8);
    atomic_store(&not_zero, 0);
    for (int i = 0; i < ROUNDS; i++) {
        const char *path = make_file("x");
        aril__mapped *f = aril__mapped_open("test", path);
        CHECK_MSG(f, "%s", aril_error());
        CHECK(truncate(path, 0) == 0);
        aril__parallel_for(PAGES, 1, read_pages, f);
        check_error(f, "was truncated while it was in use");
        aril__mapped_close(f);
    }
    CHECK_INT(atomic_load(&not_zero), 0);
    aril_set_threads(threads);
}

TEST(a_file_that_is_written_to)
{
    const char *path = make_file("x");
    aril__mapped *f = aril__mapped_open("test", path);
    CHECK_MSG(f, "%s", aril_error());
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL); /* beyond a tick of file times */
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 10) == 1);
    check_error(f, "was written to");
    CHECK(ftruncate(fd, SIZE + 5000) == 0);
    CHECK_INT(close(fd), 0);
    check_error(f, "has grown");
    aril__mapped_close(f);
}

TEST(more_files_than_the_table_holds)
{
    enum { FILES = 1100 };
    const char *path = make_file("x");
    aril__mapped **all = calloc(FILES, sizeof *all);
    CHECK(all);
    int n = 0; /* the system may allow fewer open files */
    while (n < FILES && (all[n] = aril__mapped_open("test", path)) != NULL) n++;
    aril_clear_error();
    CHECK_MSG(n > 200, "%d", n);
    CHECK_INT(sum_of(all[n - 1]), SIZE);
    for (int i = 0; i < n; i++) {
        CHECK_INT(aril__mapped_check(all[i]), ARIL_OK);
        aril__mapped_close(all[i]);
    }
    free(all);
}

TEST(messages_of_a_file_that_shrinks)
{
    static float zeros[SIZE];
    aril__message *m = aril__message_new(&aril__caffe_BlobProto);
    aril__message_set_floats(m, "data", zeros, SIZE);
    aril__message_set_int(m, "num", 7);
    CHECK_INT(aril__message_save(m, temp_path("x.binaryproto")), ARIL_OK);
    aril__message_free(m);
    m = aril__message_load(&aril__caffe_BlobProto, temp_path("x.binaryproto"));
    CHECK_MSG(m, "%s", aril_error());
    CHECK_INT(aril__message_int(m, "num"), 7);
    CHECK_INT(aril__message_check(m), ARIL_OK);
    CHECK(truncate(temp_path("x.binaryproto"), 100) == 0);
    for (size_t i = 0; i < SIZE; i++) CHECK_NEAR(aril__message_number_at(m, "data", i), 0, 0);
    CHECK_INT(aril__message_check(m), ARIL_ERR_IO);
    aril_clear_error();
    aril__message_free(m);
    CHECK(!aril__message_load(&aril__caffe_BlobProto, temp_path("x.binaryproto")));
    CHECK_MSG(strstr(aril_error(), "x.binaryproto: byte "), "%s", aril_error());
    aril_clear_error();
    CHECK_INT(aril__file_replace(temp_path("x.txt"), "num: 3", 6), ARIL_OK);
    m = aril__message_load_text(&aril__caffe_BlobProto, temp_path("x.txt"));
    CHECK(m && aril__message_int(m, "num") == 3 && aril__message_check(m) == ARIL_OK);
    aril__message_free(m);
}

/* ---- signals of others ---- */

/* Maps a file without Aril, truncates it and reads it: a bus error that is none of Aril's. */
static void own_bus_error(const char *path)
{
    int fd = open(path, O_RDWR);
    volatile char *p = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (ftruncate(fd, 0) == 0) (void)p[SIZE / 2];
}

static void leave(int number)
{
    (void)number;
    _exit(42);
}

/* The exit status of a child that runs into a bus error of its own, with or without a handler. */
static int child_status(bool handler)
{
    const char *path = make_file("own"), *other = make_file("x");
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, handler ? leave : SIG_DFL);
        aril__mapped *f = aril__mapped_open("test", other);
        long sum = f && truncate(other, 0) == 0 ? sum_of(f) : -1;
        if (sum != 0) _exit(7);
        own_bus_error(path);
        _exit(8);
    }
    waitpid(child, &status, 0);
    return status;
}

TEST(bus_errors_of_others_go_where_they_went)
{
    /* In programs that have not opened a file before: children of one that has keep its handler. */
    if (!getenv("ARIL_MAPPED_CHILD")) {
        char command[512], self[256] = "";
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        CHECK(n > 0);
        snprintf(command, sizeof command,
                 "ARIL_MAPPED_CHILD=1 '%s' bus_errors_of_others_go_where_they_went > /dev/null",
                 self);
        CHECK_INT(system(command), 0);
        return;
    }
    int status = child_status(true);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%x", (unsigned)status);
    status = child_status(false);
    CHECK_MSG(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS, "%x", (unsigned)status);
}
