/* A small test harness: TEST(name) { ... } registers itself, a failing CHECK(...) leaves the test.
 *
 *     TEST(shapes_add_up) { CHECK_INT(1 + 1, 2); }
 *
 * main() is in test.c: run with no argument for all tests, with names for some, with --list to
 * list. */
#ifndef ARIL_TESTS_SUPPORT_TEST_H
#define ARIL_TESTS_SUPPORT_TEST_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

/* Appends a test to the list; called by TEST before main. */
void test_register(test_case *test);

/* Records a failure of the running test (counted once, all are printed). */
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Skips the running test, with the reason. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether the running test has failed so far: for loops that call helpers with checks in them. */
bool test_failed(void);

/* Called by main before the first test, if the program contains it: support/prepare.c, or one of
 * its own. */
__attribute__((weak)) void test_prepare(void);

/* Whether item i of a long list is this process's: ARIL_TEST_PART=3/16 takes items 3, 19, 35 ... */
bool test_part(int i);

/* The name of the running test. */
const char *test_name(void);

/* Comparisons behind the macros; false, after test_fail, when they don't hold. NaN is near NaN. */
bool test_check_int(const char *file, int line, const char *what, long long got, long long want);
bool test_check_str(const char *file, int line, const char *what, const char *got,
                    const char *want);
bool test_check_near(const char *file, int line, const char *what, double got, double want,
                     double tolerance);

#ifdef __cplusplus
}
#endif

#define TEST(name)                                                 \
    static void test_##name(void);                                 \
    __attribute__((constructor)) static void test_add_##name(void) \
    {                                                              \
        static test_case self = { #name, test_##name, NULL };      \
        test_register(&self);                                      \
    }                                                              \
    static void test_##name(void)

/* Each returns from the enclosing (void) function when it fails. */
#define CHECK(cond)                                     \
    do {                                                \
        if (!(cond)) {                                  \
            test_fail(__FILE__, __LINE__, "%s", #cond); \
            return;                                     \
        }                                               \
    } while (0)

#define CHECK_MSG(cond, ...)                            \
    do {                                                \
        if (!(cond)) {                                  \
            test_fail(__FILE__, __LINE__, __VA_ARGS__); \
            return;                                     \
        }                                               \
    } while (0)

#define CHECK_INT(got, want)                                                                \
    do {                                                                                    \
        if (!test_check_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))) \
            return;                                                                         \
    } while (0)

#define CHECK_STR(got, want)                                                  \
    do {                                                                      \
        if (!test_check_str(__FILE__, __LINE__, #got, (got), (want))) return; \
    } while (0)

/* |got - want| <= tol, or both NaN, or the same infinity. */
#define CHECK_NEAR(got, want, tol)                                                    \
    do {                                                                              \
        if (!test_check_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), \
                             (double)(tol)))                                          \
            return;                                                                   \
    } while (0)

#define SKIP(...)               \
    do {                        \
        test_skip(__VA_ARGS__); \
        return;                 \
    } while (0)

#endif
