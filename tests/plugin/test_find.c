/* Where plug-ins are found, and when they are opened. Each test runs in a process of its own: what
 * a process has found stays. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *mirror(void)
{
    static char path[4096];
    const char *folder = getenv("ARIL_TEST_PLUGINS");
    snprintf(path, sizeof path, "%s/mirror.so", folder ? folder : "build/plugins");
    return path;
}

/* Whether the process has opened a file of that name. */
static bool is_open(const char *name)
{
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found = found || strstr(line, name);
    if (maps) fclose(maps);
    return found;
}

/* Runs a test of `program` in another process, with ARIL_PLUGINS set; true if it passed. */
static bool passes(const char *program, const char *test, const char *plugins)
{
    pid_t child = fork();
    if (child == 0) {
        setenv("ARIL_PLUGINS", plugins, 1);
        setenv("ARIL_TEST_INNER", "1", 1);
        execl(program, program, test, (char *)NULL);
        _exit(99);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* True in the process that `passes` starts; others start it. */
static bool inner(void)
{
    return getenv("ARIL_TEST_INNER") != NULL;
}

static void itself(char path[4096])
{
    ssize_t n = readlink("/proc/self/exe", path, 4095);
    path[n > 0 ? n : 0] = '\0';
}

TEST(opened_when_its_kind_is_asked_for)
{
    char program[4096], folder[4096], link[4200];
    if (!inner()) {
        itself(program);
        snprintf(folder, sizeof folder, "%s", temp_path("plugins"));
        CHECK(mkdir(folder, 0700) == 0);
        snprintf(link, sizeof link, "%s/libaril_mirror.so", folder);
        CHECK(symlink(mirror(), link) == 0);
        bool passed = passes(program, test_name(), folder);
        unlink(link);
        rmdir(folder);
        CHECK(passed);
        return;
    }
    ARIL_SCOPE;
    CHECK_NEAR(aril_item(aril_zeros(ARIL_SHAPE(1), ARIL_F32, aril_cpu())), 0, 0);
    CHECK(!aril_device_available(aril_cuda(0))); /* another kind */
    CHECK(!is_open("mirror.so"));
    aril_device d = aril_device_named("mirror:0");
    CHECK(aril_ok() && aril_device_available(d) && is_open("mirror.so"));
    CHECK_NEAR(aril_item(aril_ones(ARIL_SHAPE(1), ARIL_F32, d)), 1, 0);
    CHECK_INT(aril_device_count(), 2);
}

TEST(opened_when_devices_are_listed)
{
    char program[4096];
    if (!inner()) {
        itself(program);
        CHECK(passes(program, test_name(), mirror()));
        return;
    }
    CHECK(aril_device_available(aril_cpu()) && !is_open("mirror.so"));
    CHECK_INT(aril_device_count(), 2);
    CHECK(is_open("mirror.so"));
}

TEST(found_beside_the_program)
{
    char program[4096], folder[4096], copy[4200], beside[4200], link[4300], command[9000];
    if (!inner()) {
        itself(program);
        snprintf(folder, sizeof folder, "%s", temp_path("beside"));
        snprintf(copy, sizeof copy, "%s/program", folder);
        snprintf(beside, sizeof beside, "%s/aril", folder);
        snprintf(link, sizeof link, "%s/libaril_mirror.so", beside);
        CHECK(mkdir(folder, 0700) == 0 && mkdir(beside, 0700) == 0);
        CHECK(symlink(mirror(), link) == 0);
        snprintf(command, sizeof command, "cp '%s' '%s'", program, copy);
        char libraries[4200]; /* that the build found for the original */
        snprintf(libraries, sizeof libraries, "%.*s/../deps/lib",
                 (int)(strrchr(program, '/') - program), program);
        setenv("LD_LIBRARY_PATH", libraries, 1);
        bool passed = system(command) == 0 && passes(copy, test_name(), "");
        unlink(link);
        unlink(copy);
        rmdir(beside);
        rmdir(folder);
        CHECK(passed);
        return;
    }
    CHECK(!is_open("mirror.so"));
    CHECK(aril_device_available(aril_device_named("mirror")));
}

TEST(one_that_cannot_be_opened_is_no_error)
{
    char program[4096];
    if (!inner()) {
        itself(program);
        CHECK(passes(program, test_name(), "/nowhere/libaril_none.so"));
        return;
    }
    CHECK_INT(aril_device_count(), 1);
    CHECK(aril_ok());
    CHECK_INT(aril_device_named("none:0").kind, -1);
    CHECK(strstr(aril_error(), "no device 'none:0'; expected \"cpu\""));
    aril_clear_error();
}

/* What a user reads: the path once, the reason, and no source location. */
TEST(one_that_cannot_be_opened_is_reported)
{
    char program[4096], text[400] = "";
    if (!inner()) {
        itself(program);
        CHECK(passes(program, test_name(), "/nowhere/libaril_none.so"));
        return;
    }
    FILE *log = tmpfile();
    int before = dup(STDERR_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    aril_device_count();
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(log);
    CHECK(fgets(text, sizeof text, log) != NULL);
    fclose(log);
    CHECK_STR(text, "aril: ARIL_PLUGINS: /nowhere/libaril_none.so: cannot open shared object file: "
                    "No such file or directory\n");
}

/* Things that are no plug-ins, each with a name like one. */
static void fill_with_junk(const char *folder)
{
    char path[4300];
    snprintf(path, sizeof path, "%s/a_pipe.so", folder);
    CHECK(mkfifo(path, 0600) == 0);
    snprintf(path, sizeof path, "%s/b_loop.so", folder);
    CHECK(symlink(path, path) == 0);
    snprintf(path, sizeof path, "%s/c_folder.so", folder);
    CHECK(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/d_empty.so", folder);
    FILE *f = fopen(path, "w");
    CHECK(f && fclose(f) == 0);
    char command[9000];
    snprintf(command, sizeof command, "head -c 8192 '%s' > '%s/e_truncated.so'", mirror(), folder);
    CHECK_INT(system(command), 0);
    snprintf(path, sizeof path, "%s/libaril_mirror.so", folder);
    CHECK(symlink(mirror(), path) == 0);
}

static void remove_all(const char *folder)
{
    char command[4300];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    CHECK_INT(system(command), 0);
}

TEST(a_folder_of_junk_does_not_hide_a_plugin)
{
    char program[4096], folder[4096];
    if (!inner()) {
        itself(program);
        snprintf(folder, sizeof folder, "%s", temp_path("junk"));
        CHECK(mkdir(folder, 0700) == 0);
        fill_with_junk(folder);
        bool passed = passes(program, test_name(), folder);
        remove_all(folder);
        CHECK(passed);
        return;
    }
    alarm(60); /* opening a pipe would wait for a writer */
    CHECK_INT(aril_device_count(), 2);
    CHECK(aril_ok() && aril_device_available(aril_device_named("mirror")));
}

TEST(a_file_of_the_current_folder_needs_no_slash)
{
    char program[4096], folder[4096], link[4200];
    if (!inner()) {
        itself(program);
        snprintf(folder, sizeof folder, "%s", temp_path("here"));
        snprintf(link, sizeof link, "%s/mirror.so", folder);
        CHECK(mkdir(folder, 0700) == 0 && symlink(mirror(), link) == 0);
        setenv("ARIL_TEST_FOLDER", folder, 1);
        bool passed = passes(program, test_name(), "mirror.so");
        remove_all(folder);
        CHECK(passed);
        return;
    }
    CHECK(chdir(getenv("ARIL_TEST_FOLDER")) == 0);
    CHECK_INT(aril_device_count(), 2);
}
