/* The harness's main, its list of tests, and the comparisons behind the CHECK macros. */
#include "support/test.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static test_case *first;
static test_case **end = &first;

static struct {
    const char *name;
    bool failed;
    bool skipped;
    char reason[256];
} running;

void test_register(test_case *test)
{
    *end = test;
    end = &test->next;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    running.failed = true;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "  %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void test_skip(const char *format, ...)
{
    running.skipped = true;
    va_list args;
    va_start(args, format);
    vsnprintf(running.reason, sizeof running.reason, format, args);
    va_end(args);
}

bool test_failed(void)
{
    return running.failed;
}

const char *test_name(void)
{
    return running.name;
}

bool test_check_int(const char *file, int line, const char *what, long long got, long long want)
{
    if (got == want) return true;
    test_fail(file, line, "%s is %lld, expected %lld", what, got, want);
    return false;
}

bool test_check_str(const char *file, int line, const char *what, const char *got, const char *want)
{
    if (got == want || (got && want && strcmp(got, want) == 0)) return true;
    test_fail(file, line, "%s is \"%s\", expected \"%s\"", what, got ? got : "(null)",
              want ? want : "(null)");
    return false;
}

bool test_check_near(const char *file, int line, const char *what, double got, double want,
                     double tolerance)
{
    if (isnan(got) && isnan(want)) return true;
    if (isinf(got) && isinf(want) && (got > 0) == (want > 0)) return true;
    if (fabs(got - want) <= tolerance) return true;
    test_fail(file, line, "%s is %.17g, expected %.17g within %g", what, got, want, tolerance);
    return false;
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0) return true;
    return argc < 2;
}

static bool exists(const char *name)
{
    for (const test_case *t = first; t; t = t->next)
        if (strcmp(name, t->name) == 0) return true;
    return false;
}

bool test_part(int i)
{
    const char *part = getenv("ARIL_TEST_PART");
    int at = 0, of = 1;
    return !part || sscanf(part, "%d/%d", &at, &of) != 2 || of < 1 || i % of == at;
}

int main(int argc, char **argv)
{
    if (test_prepare) test_prepare();
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const test_case *t = first; t; t = t->next) puts(t->name);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (exists(argv[i])) continue;
        fprintf(stderr, "no test is named \"%s\" (--list shows them)\n", argv[i]);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    int passed = 0, failed = 0, skipped = 0;
    for (const test_case *t = first; t; t = t->next) {
        if (!wanted(t->name, argc, argv)) continue;
        running.name = t->name;
        running.failed = running.skipped = false;
        t->run();
        if (running.failed) {
            printf("FAIL  %s\n", t->name);
            failed++;
        } else if (running.skipped) {
            printf("skip  %s: %s\n", t->name, running.reason);
            skipped++;
        } else {
            printf("ok    %s\n", t->name);
            passed++;
        }
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    if (failed) return 1;
    return skipped && !passed ? 77 : 0;
}
