/* The CPU level, and ARIL_CPU: this program runs itself with the variable set. */
#include "support/test.h"

#include "core/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Prints the level, for the tests below. */
TEST(print_level)
{
    printf("level %s\n", aril__cpu_name(aril__cpu()));
}

/* The output of this program with ARIL_CPU=`value`; run by ARIL_TEST_EMULATOR if the tests are for
 * another machine. */
static void run_with(const char *value, char *text, size_t size)
{
    char self[1024], command[4096];
    const char *emulator = getenv("ARIL_TEST_EMULATOR");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    text[0] = 0;
    CHECK(n > 0);
    self[n] = 0;
    snprintf(command, sizeof command, "ARIL_CPU='%s' %s '%s' print_level 2>&1", value,
             emulator ? emulator : "", self);
    FILE *f = popen(command, "r");
    CHECK(f);
    size_t got = fread(text, 1, size - 1, f);
    text[got] = 0;
    CHECK_INT(pclose(f), 0);
}

TEST(level_can_only_be_lowered)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    for (int level = 0; level < ARIL__CPU_LEVELS; level++) {
        int taken = aril__cpu_set(level);
        CHECK_INT(taken, level < top ? level : top);
        CHECK_INT(aril__cpu(), taken);
        CHECK(taken == ARIL__CPU_AVX512 || !aril__cpu_has(ARIL__CPU_BF16));
    }
    aril__cpu_set(top);
}

TEST(environment_variable_sets_the_level)
{
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    char text[4096], want[64];
    for (int level = 0; level <= top; level++) {
        run_with(aril__cpu_name(level), text, sizeof text);
        snprintf(want, sizeof want, "level %s\n", aril__cpu_name(level));
        CHECK_MSG(strstr(text, want), "%s", text);
        CHECK_MSG(!strstr(text, "ignored"), "%s", text);
    }
}

TEST(unknown_level_is_ignored_with_a_warning)
{
    char text[4096], want[64];
    snprintf(want, sizeof want, "level %s\n", aril__cpu_name(aril__cpu_set(ARIL__CPU_LEVELS)));
    run_with("sse9", text, sizeof text);
    CHECK_MSG(strstr(text, "ARIL_CPU=sse9 ignored: known here are baseline"), "%s", text);
    CHECK_MSG(strstr(text, want), "%s", text);
}

TEST(unsupported_level_is_ignored_with_a_warning)
{
#if defined(__x86_64__)
    int top = aril__cpu_set(ARIL__CPU_LEVELS);
    char text[4096];
    if (top == ARIL__CPU_AVX512) SKIP("this machine has them all");
    run_with("avx512", text, sizeof text);
    CHECK_MSG(strstr(text, "ARIL_CPU=avx512 ignored: this machine has"), "%s", text);
#else
    SKIP("there is one level");
#endif
}
