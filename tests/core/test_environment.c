/* Switches in environment variables. */
#include "aril/device.h"
#include "core/environment.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

static int of(const char *value, int otherwise)
{
    setenv("ARIL_TEST_SWITCH", value, 1);
    int on = aril__env_switch("ARIL_TEST_SWITCH", otherwise);
    unsetenv("ARIL_TEST_SWITCH");
    return on;
}

TEST(a_switch_knows_the_usual_words)
{
    static const char *const yes[] = { "1", "yes", "on", "true", "ON", "True" };
    static const char *const no[] = { "0", "no", "off", "false", "OFF", "False" };
    for (int i = 0; i < 6; i++) {
        CHECK_INT(of(yes[i], 0), 1);
        CHECK_INT(of(no[i], 1), 0);
    }
    CHECK_INT(aril__env_switch("ARIL_TEST_SWITCH", 2), 2);
    CHECK_INT(of("", 1), 1);
    CHECK_INT(of("", 0), 0);
}

/* What a call of of("maybe", 1) writes to stderr; *on: its value. */
static void read_maybe(int *on, char *text, size_t size)
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    CHECK(file && saved >= 0);
    dup2(fileno(file), STDERR_FILENO);
    *on = of("maybe", 1);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

TEST(another_word_is_ignored_with_one_warning)
{
    char text[200];
    int on;
    read_maybe(&on, text, sizeof text);
    CHECK_INT(on, 1);
    CHECK_STR(text, "aril: ARIL_TEST_SWITCH=maybe ignored: expected 1 or 0 (yes or no, on or "
                    "off)\n");
    read_maybe(&on, text, sizeof text);
    CHECK_INT(on, 1);
    CHECK_STR(text, "");
}

TEST(off_means_off)
{
    setenv("ARIL_TF32", "off", 1);
    setenv("ARIL_TUNING", "no", 1);
    CHECK(!aril_tf32_allowed());
    CHECK(!aril_tuning());
}
