/* The file of tuned choices: what is recorded is found again, by this process and others; whatever
 * the file holds, nothing fails. */
#include "support/test.h"

#include "aril/aril.h"
#include "ops/table/tuning.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], file[96];

/* An empty folder, in which ARIL_TUNING_FILE names a file that does not exist. */
static void start(void)
{
    strcpy(folder, "/tmp/aril-tuning-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/tuned", folder);
    setenv("ARIL_TUNING_FILE", file, 1);
    aril__tuning_shutdown();
}

static void finish(void)
{
    unlink(file);
    rmdir(folder);
    unsetenv("ARIL_TUNING_FILE");
    aril__tuning_shutdown();
}

static void write_text(const char *text)
{
    FILE *f = fopen(file, "w");
    CHECK(f != NULL);
    if (!f) return;
    fputs(text, f);
    fclose(f);
    aril__tuning_shutdown();
}

/* The text of the file; "" if there is none. */
static char *text_of_file(void)
{
    enum { SIZE = 1 << 20 };
    char *text = calloc(1, SIZE);
    FILE *f = fopen(file, "r");
    if (f && text) text[fread(text, 1, SIZE - 1, f)] = '\0';
    if (f) fclose(f);
    return text;
}

static bool is_tuned(const char *key, const char *value)
{
    char found[ARIL__TUNING_VALUE];
    return aril__tuned(key, found, sizeof found) && strcmp(found, value) == 0;
}

static bool is_unknown(const char *key)
{
    char found[ARIL__TUNING_VALUE];
    return !aril__tuned(key, found, sizeof found);
}

TEST(a_choice_is_found_again_by_a_later_process)
{
    start();
    CHECK(is_unknown("conv [1,2] card"));
    aril__tune("conv [1,2] card", "engine 3");
    aril__tune("conv [1,3] card", "engine 4");
    aril__tune("conv [1,2] card", "engine 5"); /* replaces the first */
    CHECK(is_tuned("conv [1,2] card", "engine 5"));
    aril__tuning_shutdown(); /* what a new process knows */
    CHECK(is_tuned("conv [1,2] card", "engine 5"));
    CHECK(is_tuned("conv [1,3] card", "engine 4"));
    CHECK(is_unknown("conv [1,2]"));
    char few[8];
    CHECK(!aril__tuned("conv [1,2] card", few, sizeof few)); /* no room: not found */
    char *text = text_of_file();
    CHECK_STR(text, "aril tuning 1\nconv [1,3] card\tengine 4\nconv [1,2] card\tengine 5\n");
    free(text);
    finish();
}

TEST(damaged_lines_are_skipped)
{
    start();
    write_text(
        "aril tuning 1\na\tone\nno tab\n\tno key\nno value\t\nb\ttwo\x01\nc\tthree\nd\tcut of");
    CHECK(is_tuned("a", "one"));
    CHECK(is_tuned("c", "three"));
    CHECK(is_unknown("b"));
    CHECK(is_unknown("d"));
    CHECK(is_unknown("no value"));
    aril__tune("e", "four");
    char *text = text_of_file();
    CHECK_STR(text, "aril tuning 1\na\tone\nc\tthree\ne\tfour\n");
    free(text);
    finish();
}

TEST(files_of_others_stay_as_they_are)
{
    static const char *const texts[] = { "my notes\n", "aril tuning 2\na\tone\n", "aril tuning 1" };
    start();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        CHECK(is_unknown("a"));
        aril__tune("a", "two");
        CHECK(is_tuned("a", "two")); /* in this process */
        char *text = text_of_file();
        CHECK_STR(text, texts[i]);
        free(text);
    }
    finish();
}

TEST(the_file_has_a_bounded_number_of_records)
{
    start();
    FILE *f = fopen(file, "w");
    CHECK(f != NULL);
    if (!f) return;
    fputs("aril tuning 1\n", f);
    for (int i = 0; i < ARIL__TUNING_RECORDS; i++) fprintf(f, "key %d\tvalue\n", i);
    fclose(f);
    aril__tuning_shutdown();
    CHECK(is_tuned("key 0", "value"));
    aril__tune("one more", "value");
    CHECK(is_unknown("key 0")); /* the oldest */
    CHECK(is_tuned("key 1", "value"));
    CHECK(is_tuned("one more", "value"));
    int lines = 0;
    char *text = text_of_file();
    for (const char *p = text; *p; p++) lines += *p == '\n';
    CHECK_INT(lines, 1 + ARIL__TUNING_RECORDS);
    free(text);
    finish();
}

TEST(processes_keep_each_others_choices)
{
    enum { PROCESSES = 4, KEYS = 16 };
    start();
    CHECK(is_unknown("process 0 key 0")); /* the file is read before the others write */
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        if (child[p]) continue;
        for (int k = 0; k < KEYS; k++) {
            char key[64];
            snprintf(key, sizeof key, "process %d key %d", p, k);
            aril__tune(key, "value");
        }
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) waitpid(child[p], NULL, 0);
    aril__tuning_shutdown();
    int found = 0;
    for (int p = 0; p < PROCESSES; p++)
        for (int k = 0; k < KEYS; k++) {
            char key[64];
            snprintf(key, sizeof key, "process %d key %d", p, k);
            found += is_tuned(key, "value");
        }
    CHECK_INT(found, PROCESSES * KEYS);
    finish();
}

TEST(a_file_that_cannot_be_written_is_no_error)
{
    start();
    setenv("ARIL_TUNING_FILE", "/nonexistent/folder/tuned", 1);
    aril__tune("a", "one");
    CHECK(is_tuned("a", "one"));
    setenv("ARIL_TUNING_FILE", folder, 1); /* a folder */
    aril__tuning_shutdown();
    aril__tune("b", "two");
    CHECK(is_tuned("b", "two"));
    CHECK_INT(aril_error_code(), ARIL_OK);
    finish();
}

TEST(text_that_does_not_fit_is_not_recorded)
{
    char lengthy[ARIL__TUNING_KEY + 1];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    start();
    aril__tune(lengthy, "one");
    CHECK(is_unknown(lengthy));
    aril__tune("a", lengthy);
    aril__tune("a\tb", "one");
    aril__tune("a", "one\ntwo");
    aril__tune("", "one");
    CHECK(is_unknown("a"));
    CHECK(access(file, F_OK) != 0);
    lengthy[ARIL__TUNING_KEY - 1] = '\0';
    aril__tune(lengthy, "one");
    CHECK(is_tuned(lengthy, "one"));
    finish();
}

TEST(the_default_file_is_in_the_cache_folder)
{
    start();
    unsetenv("ARIL_TUNING_FILE");
    char cache[96], made[128];
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    aril__tuning_shutdown();
    aril__tune("a", "one");
    snprintf(made, sizeof made, "%s/aril/tuning", cache);
    CHECK(access(made, F_OK) == 0);
    unlink(made);
    snprintf(made, sizeof made, "%s/aril", cache);
    rmdir(made);
    rmdir(cache);
    unsetenv("XDG_CACHE_HOME");
    finish();
}
