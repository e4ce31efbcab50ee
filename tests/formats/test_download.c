/* Downloads from a server on the loopback address: resumed, checked, several at once, refused. */
#include "aril/error.h"
#include "aril/memory.h"
#include "core/error.h"
#include "formats/download.h"
#include "formats/sha256.h"
#include "support/temp.h"
#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 300007 };

/* ---- the server ---- */

static int port;
static char log_path[4096], gate_path[4096], hash[65], version[20];
static unsigned char data[SIZE];

/* Starts tests/support/http_server.py, which ends with its standard input. */
static int start_server(const char *log, const char *folder)
{
    const char *root = getenv("ARIL_SOURCE_DIR");
    char script[4096], line[32] = "";
    int in[2], out[2];
    snprintf(script, sizeof script, "%s/tests/support/http_server.py",
             root ? root : ARIL_TEST_SOURCE);
    if (access(script, R_OK) != 0 || pipe(in) != 0 || pipe(out) != 0) return 0;
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execlp("python3", "python3", script, log, folder, (char *)NULL);
        _exit(127);
    }
    close(in[0]); /* in[1] stays open until this process ends */
    close(out[1]);
    size_t n = 0;
    while (child > 0 && n + 1 < sizeof line && !strchr(line, '\n')) {
        ssize_t got_now = read(out[0], line + n, sizeof line - 1 - n);
        if (got_now <= 0) break;
        n += (size_t)got_now;
    }
    close(out[0]);
    return atoi(line);
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (f) fwrite(bytes, 1, size, f);
    if (f) fclose(f);
}

/* Whether there is a server. Its folder holds "data" and an empty file, "none". */
static bool have_server(void)
{
    static char folder[4096];
    if (port > 0) return true;
    if (port < 0) return false;
    for (int i = 0; i < SIZE; i++) data[i] = (unsigned char)((unsigned)i * 2654435761u >> 13);
    snprintf(folder, sizeof folder, "/tmp/aril-download-XXXXXX");
    if (!mkdtemp(folder)) return false;
    snprintf(log_path, sizeof log_path, "%.4000s/log", folder);
    snprintf(gate_path, sizeof gate_path, "%.4000s/open", folder);
    char path[4200];
    snprintf(path, sizeof path, "%s/data", folder);
    write_file(path, data, SIZE);
    aril__file_sha256(path, hash);
    snprintf(version, sizeof version, "\"%.16s\"", hash);
    snprintf(path, sizeof path, "%s/none", folder);
    write_file(path, "", 0);
    setenv("no_proxy", "127.0.0.1", 1);
    port = start_server(log_path, folder);
    if (port <= 0) port = -1;
    return port > 0;
}

__attribute__((destructor)) static void remove_server_files(void)
{
    static const char *const names[] = { "log", "data", "none", "" };
    char folder[4096];
    if (!*log_path) return;
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(log_path) - 4), log_path);
    for (int i = 0; i < 4; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

/* Skips the test without a server or libcurl. */
#define NEED_SERVER                                                 \
    do {                                                            \
        if (!have_server()) SKIP("no python3 for a server");        \
        if (!can_download()) SKIP("this is built without libcurl"); \
        remove(log_path);                                           \
        aril_clear_error();                                         \
    } while (0)

static const char *url_of(const char *path)
{
    static char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/%s", port, path);
    return url;
}

/* The lines of the server's log. */
static const char *requests(void)
{
    static char text[8192];
    FILE *f = fopen(log_path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    return text;
}

static int request_count(void)
{
    int n = 0;
    for (const char *p = requests(); *p; p++) n += *p == '\n';
    return n;
}

/* ---- downloading ---- */

static aril__downloaded got;

static aril_status get(const char *path, const char *to, aril__download_opts opts)
{
    aril_clear_error();
    got = (aril__downloaded){ 0 };
    if (opts.pause == 0) opts.pause = 0.02;
    return aril__download(url_of(path), to, opts, &got);
}

static bool can_download(void)
{
    static int can = -1;
    if (can < 0) can = get("plain/none", temp_path("probe"), (aril__download_opts){ 0 }) == ARIL_OK;
    remove(temp_path("probe"));
    return can || !strstr(aril_error(), "built without");
}

/* Whether the file at `path` is what the server has, and the only one there. */
static bool is_whole(const char *path)
{
    char text[65];
    return aril__file_sha256(path, text) == ARIL_OK && strcmp(text, hash) == 0 && temp_count() == 1;
}

static bool says(const char *part)
{
    bool yes = strstr(aril_error(), part) != NULL;
    if (!yes) test_fail(__FILE__, __LINE__, "'%s' is not in: %s", part, aril_error());
    return yes;
}

static bool stop_at_half(void *ctx, const aril__download_at *at)
{
    (void)ctx;
    return at->done < SIZE / 2;
}

/* Leaves what an interrupted download of `path` leaves: the first half. */
static void leave_part(const char *path, const char *to, const char *known, int total)
{
    char name[4200];
    snprintf(name, sizeof name, "%s.part", to);
    write_file(name, data, SIZE / 2);
    snprintf(name, sizeof name, "%s.part.from", to);
    FILE *f = fopen(name, "w");
    if (f) fprintf(f, "%s\n%s\n%d\n", url_of(path), known, total);
    if (f) fclose(f);
    remove(log_path);
}

TEST(a_file_arrives_whole)
{
    NEED_SERVER;
    const char *to = temp_path("a/b/data");
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(!got.was_there && got.size == SIZE && got.resumed == 0);
    CHECK_STR(files_in(temp_path("a/b")), "data ");
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(got.was_there);
    CHECK_INT(request_count(), 1);
    hash[8] = '\0'; /* as many digits as file names have */
    aril_status status = get("moved/data", temp_path("c"), (aril__download_opts){ .sha256 = hash });
    aril__file_sha256(to, hash);
    CHECK_INT(status, ARIL_OK);
    CHECK_INT(get("plain/none", temp_path("none"), (aril__download_opts){ 0 }), ARIL_OK);
    CHECK_INT(got.size, 0);
}

TEST(a_cut_connection_is_resumed)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("cut/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(request_count(), 3);
    CHECK(strstr(requests(), "bytes=100003- \""));
    CHECK(strstr(requests(), "bytes=200006- \""));
}

TEST(a_stopped_download_is_resumed)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("slow/data", to, (aril__download_opts){ .watch = stop_at_half }), ARIL_ERR_STATE);
    CHECK(says("run it again to resume"));
    int64_t part = aril__download_part_size(to);
    CHECK(part >= SIZE / 2 && part < SIZE && access(to, F_OK) != 0);
    CHECK_INT(get("slow/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(got.resumed, part);
    CHECK_INT(request_count(), 2);
    CHECK(strstr(requests(), "bytes=") && strstr(requests(), version));
}

TEST(a_stalled_connection_is_given_up)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("stall/data", to, (aril__download_opts){ .sha256 = hash, .stall = 1 }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(request_count(), 2);
}

TEST(another_version_is_not_appended)
{
    NEED_SERVER;
    static const char *const how[] = { "other/data", "shifted/data", "whole/data?1" };
    const char *to = temp_path("data");
    for (int i = 0; i < 3; i++) {
        leave_part(how[i], to, i == 0 ? "\"1\"" : version, SIZE);
        CHECK_INT(get(how[i], to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
        CHECK(is_whole(to) && got.resumed == 0);
        CHECK(strstr(requests(), "bytes=150003- \""));
        remove(to);
    }
    leave_part("plain/data", to, version, SIZE + 1); /* a file of another size is another one */
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to) && got.resumed == 0);
}

TEST(the_same_version_is_resumed)
{
    NEED_SERVER;
    const char *to = temp_path("data"), *date = "Wed, 21 Oct 2015 07:28:00 GMT";
    leave_part("date/data", to, date, SIZE);
    CHECK_INT(get("date/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to) && got.resumed == SIZE / 2);
    CHECK(strstr(requests(), date));
    remove(to);
    leave_part("elsewhere/data", to, "\"1\"", SIZE); /* versions differ between servers */
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to) && got.resumed == SIZE / 2);
}

TEST(a_server_without_ranges_starts_over)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("whole/data?2", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(request_count(), 2);
}

TEST(a_part_that_nothing_is_known_of_is_not_used)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    write_file(temp_path("data.part"), "something else", 14);
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to) && got.resumed == 0);
    CHECK(!strstr(requests(), "bytes="));
}

TEST(a_damaged_part_is_replaced)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    leave_part("plain/data", to, version, SIZE);
    FILE *f = fopen(temp_path("data.part"), "r+b");
    CHECK(f);
    fseek(f, 1000, SEEK_SET);
    fputs("damage", f);
    fclose(f);
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(request_count(), 2);
}

TEST(a_whole_part_is_only_checked)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    for (int known = 0; known < 2; known++) { /* if its size is not known, the server says so */
        leave_part("plain/data", to, version, known ? SIZE : -1);
        write_file(temp_path("data.part"), data, SIZE);
        CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
        CHECK(is_whole(to));
        CHECK_INT(request_count(), known ? 0 : 1);
        remove(to);
    }
    leave_part("plain/data", to, "", -1);
    write_file(temp_path("data.part"), hash, 64);
    CHECK_INT(truncate(temp_path("data.part"), SIZE + 1), 0); /* longer than the file */
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
}

TEST(a_wrong_hash_is_refused)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = "0123456789" }),
              ARIL_ERR_FORMAT);
    CHECK(says("has another hash than published: SHA-256 ") && says(hash));
    CHECK(says("expected one that begins with 0123456789; what came from http://127.0.0.1"));
    CHECK_INT(temp_count(), 0);
    CHECK_INT(get("wrong/data", to, (aril__download_opts){ 0 }), ARIL_ERR_FORMAT);
    CHECK_INT(temp_count(), 0);
    CHECK_INT(get("linked/data", to, (aril__download_opts){ 0 }), ARIL_OK);
    CHECK(is_whole(to));
}

TEST(failures_say_what_to_do)
{
    NEED_SERVER;
    static const struct {
        const char *path, *what;
    } cases[] = { { "plain/no-such-file", "HTTP status 404 (no such file)" },
                  { "secret/data", "HTTP status 403 (not allowed)" },
                  { "loop/data", "redirect" },
                  { "ftp/data", "ftp" } };
    char advice[4096];
    const char *to = temp_path("data");
    for (int i = 0; i < 4; i++) {
        CHECK_INT(get(cases[i].path, to, (aril__download_opts){ .size = 102400 }), ARIL_ERR_IO);
        snprintf(advice, sizeof advice,
                 "download %s (about 100 KB) by other means and save it as %s",
                 url_of(cases[i].path), to);
        CHECK(says(cases[i].what) && says(advice));
        CHECK_INT(temp_count(), 0);
    }
    CHECK_INT(get("busy/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    remove(to);
    int right = port;
    port = 1; /* nobody listens there */
    aril_status status = get("plain/data", to, (aril__download_opts){ 0 });
    port = right;
    CHECK_INT(status, ARIL_ERR_IO);
    CHECK(says("cannot download data: ") && says("save it as"));
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .offline = true }), ARIL_ERR_IO);
    CHECK(says("this is offline: download http://"));
    CHECK_INT(temp_count(), 0);
    CHECK_INT(aril__download("file:///etc/passwd", to, (aril__download_opts){ 0 }, &got),
              ARIL_ERR_IO);
    CHECK_INT(temp_count(), 0);
    CHECK_INT(get("plain/data", "/dev/null/data", (aril__download_opts){ 0 }), ARIL_ERR_IO);
}

/* ---- servers that break the rules ---- */

TEST(servers_that_never_finish_are_given_up)
{
    NEED_SERVER;
    static const char *const paths[] = { "refuses/data", "alternates/data" };
    for (int i = 0; i < 2; i++) {
        CHECK_INT(get(paths[i], temp_path("data"), (aril__download_opts){ 0 }), ARIL_ERR_IO);
        CHECK(says("cannot download data"));
        CHECK(request_count() < 20);
        remove(temp_path("data.part"));
        remove(temp_path("data.part.from"));
        CHECK_INT(temp_count(), 0);
        remove(log_path);
    }
}

TEST(data_has_the_length_that_was_told)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    CHECK_INT(get("less/data", to, (aril__download_opts){ 0 }), ARIL_OK);
    CHECK(is_whole(to));
    remove(to);
    CHECK_INT(get("more/data", to, (aril__download_opts){ 0 }), ARIL_ERR_IO);
    CHECK(says("the server sends more than 293 KB, the size that it told"));
    CHECK_INT(temp_count(), 0);
}

TEST(a_limit_ends_a_download)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    aril__download_opts opts = { .limit = 1 << 20 };
    CHECK_INT(get("endless/data", to, opts), ARIL_ERR_IO);
    CHECK(says("the server sends more than 1.00 MB, which this file cannot have"));
    CHECK_INT(temp_count(), 0);
    opts.limit = SIZE - 1;
    CHECK_INT(get("plain/data", to, opts), ARIL_ERR_IO);
    CHECK_INT(temp_count(), 0);
    opts.limit = SIZE;
    CHECK_INT(get("plain/data", to, opts), ARIL_OK);
    CHECK(is_whole(to));
}

static aril_status refuse(void *ctx, const char *path)
{
    *(int64_t *)ctx += aril__download_part_size(temp_path("data")) == SIZE && *path == '/';
    return aril__fail(ARIL_ERR_FORMAT, "not what was wanted");
}

TEST(what_arrived_can_be_refused)
{
    NEED_SERVER;
    int64_t asked = 0;
    aril__download_opts opts = { .accept = refuse, .ctx = &asked };
    CHECK_INT(get("plain/data", temp_path("data"), opts), ARIL_ERR_FORMAT);
    CHECK(says("not what was wanted"));
    CHECK_INT(asked, 1);
    CHECK_INT(temp_count(), 0);
}

TEST(an_empty_file_is_not_there)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    write_file(to, "", 0);
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(!got.was_there && is_whole(to));
}

/* ---- a full disk ---- */

TEST(a_full_disk_leaves_what_can_be_resumed)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { .rlim_cur = 150000, .rlim_max = 150000 };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        bool right = get("plain/data", to, (aril__download_opts){ .sha256 = hash }) == ARIL_ERR_IO;
        _exit(right && says("cannot write") && says("File too large") &&
                      says("it resumes after 146 KB")
                  ? 0
                  : 1);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    CHECK_INT(aril__download_part_size(to), 150000);
    CHECK_STR(files_in(temp_path("")), "data.part data.part.from ");
    CHECK_INT(get("plain/data", to, (aril__download_opts){ .sha256 = hash }), ARIL_OK);
    CHECK(is_whole(to));
    CHECK_INT(got.resumed, 150000);
}

TEST(a_disk_that_is_too_small_is_noticed_at_once)
{
    NEED_SERVER;
    const char *folder = temp_path("disk");
    mkdir(folder, 0777);
    if (mount("none", folder, "tmpfs", 0, "size=128k") != 0)
        SKIP("no file system can be mounted: %s", strerror(errno));
    char to[4200];
    snprintf(to, sizeof to, "%s/data", folder);
    aril_status status = get("plain/data", to, (aril__download_opts){ .sha256 = hash });
    int n = (int)strlen(files_in(folder));
    bool told = says("it takes 293 KB more, and the disk has 12");
    get("whole/data?3", to, (aril__download_opts){ 0 });
    aril_status second = get("whole/data?3", to, (aril__download_opts){ 0 }); /* no size is told */
    told = told && says("No space left on device; free some space");
    umount(folder);
    rmdir(folder);
    CHECK_INT(status, ARIL_ERR_IO);
    CHECK_INT(second, ARIL_ERR_IO);
    CHECK_INT(n, 0);
    CHECK(told);
}

/* ---- several at once ---- */

/* A process that downloads data; its status says whether it was the one to do so. */
static pid_t start_download(const char *path, const char *to)
{
    pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    aril_status status = get(path, to, (aril__download_opts){ .sha256 = hash });
    _exit(status != ARIL_OK ? 9 : got.was_there ? 1 : 0);
}

static int status_of(pid_t child)
{
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* Waits until a part has begun. */
static bool wait_for_part(const char *to)
{
    for (int i = 0; i < 500 && aril__download_part_size(to) < SIZE / 10; i++) usleep(10000);
    return aril__download_part_size(to) >= SIZE / 10;
}

/* Opens the server's gate when this process waits for another. */
static bool open_gate(void *ctx, const aril__download_at *at)
{
    bool *waited = ctx;
    if (at->phase == ARIL__DOWNLOAD_WAITING && !*waited) write_file(gate_path, "", 0);
    *waited |= at->phase == ARIL__DOWNLOAD_WAITING;
    return true;
}

TEST(two_at_once_download_once)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    pid_t child = start_download("gate/data", to);
    bool began = wait_for_part(to), waited = false;
    int64_t removed;
    aril_status in_use = aril__download_remove(to, &removed);
    aril_status status =
        get("gate/data", to,
            (aril__download_opts){ .sha256 = hash, .watch = open_gate, .ctx = &waited });
    remove(gate_path);
    CHECK_INT(status_of(child), 0);
    CHECK_INT(in_use, ARIL_ERR_STATE);
    CHECK(began && status == ARIL_OK && got.was_there && waited);
    CHECK(is_whole(to));
    CHECK_INT(request_count(), 1);
    CHECK_INT(aril__download_remove(to, &removed), ARIL_OK);
    CHECK_INT(removed, SIZE);
    CHECK_INT(temp_count(), 0);
}

TEST(a_killed_download_is_taken_over)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    pid_t first = start_download("stall/data?2", to);
    bool began = wait_for_part(to);
    pid_t second = start_download("stall/data?2", to);
    usleep(50000);
    kill(first, SIGKILL);
    CHECK_INT(status_of(first), 100 + SIGKILL);
    CHECK_INT(status_of(second), 0);
    CHECK(began && is_whole(to));
    CHECK_INT(request_count(), 2);
    CHECK(strstr(requests(), "bytes="));
}

TEST(an_unfinished_download_is_removed)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    int64_t removed;
    leave_part("slow/data", to, version, SIZE);
    CHECK_INT(aril__download_remove(to, &removed), ARIL_OK);
    CHECK(removed > SIZE / 2);
    CHECK_INT(temp_count(), 0);
    CHECK_INT(aril__download_remove(to, &removed), ARIL_OK);
    CHECK_INT(removed, 0);
}

/* ---- out of memory, hashes ---- */

TEST(every_allocation_of_a_download_fails_in_turn)
{
    NEED_SERVER;
    const char *to = temp_path("data");
    for (int64_t n = 1; n < 100; n++) {
        int64_t removed;
        leave_part("plain/data", to, version, SIZE);
        aril_fail_allocation(n);
        aril_status status = get("plain/data", to, (aril__download_opts){ .sha256 = hash });
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_INT(status, failed ? ARIL_ERR_MEMORY : ARIL_OK);
        if (!failed) {
            CHECK(is_whole(to) && n > 1);
            return;
        }
        CHECK_INT(aril__download_remove(to, &removed), ARIL_OK);
    }
    CHECK(!"it ends");
}

TEST(hashes_are_those_of_the_standard)
{
    static const struct {
        const char *text, *hash;
    } cases[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    };
    char text[65];
    aril__sha256 h;
    for (int i = 0; i < 3; i++) {
        aril__sha256_start(&h);
        aril__sha256_add(&h, cases[i].text, strlen(cases[i].text));
        aril__sha256_text(&h, text);
        CHECK_STR(text, cases[i].hash);
    }
    aril__sha256_start(&h); /* a million times "a", in pieces of all lengths */
    for (size_t sum = 0, n = 1; sum < 1000000; n = n % 200 + 1) {
        char a[200];
        if (n > 1000000 - sum) n = 1000000 - sum;
        memset(a, 'a', sizeof a);
        aril__sha256_add(&h, a, n);
        sum += n;
    }
    aril__sha256_text(&h, text);
    CHECK_STR(text, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    CHECK(aril__sha256_matches(text, "CDC76E5C99") && aril__sha256_matches(text, text));
    CHECK(!aril__sha256_matches(text, "cdc76e5c98") && !aril__sha256_matches(text, "cdc76"));
}
