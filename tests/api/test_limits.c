/* Limits on address space, as set by ulimit -v: with too little memory the library returns errors
 * and never ends the process, and more memory never works worse. Each trial is a separate process
 * that limits itself before its first use of Aril. */
#include "aril/aril.h"
#include "core/memory.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MB = 1 << 20, TRAINED = 20, REFUSED = 21 };

/* The address space in bytes that this process uses so far. */
static size_t taken(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * (size_t)sysconf(_SC_PAGE_SIZE);
}

/* Two steps of a network that needs about 20 MB. */
static bool train(void)
{
    aril_module *net =
        aril_nn_sequential(aril_nn_linear(64, 1024), aril_nn_relu(), aril_nn_linear(1024, 10));
    aril_optim *opt =
        aril_sgd(aril_parameters(net), (aril_sgd_opts){ .lr = 0.01, .momentum = 0.9 });
    for (int i = 0; i < 2 && aril_ok(); i++) {
        ARIL_SCOPE;
        aril_tensor *x = aril_randn(ARIL_SHAPE(1024, 64), ARIL_F32, aril_cpu());
        aril_backward(aril_mean(aril_square(aril_forward(net, x)), ARIL_ALL));
        aril_step(opt);
    }
    bool good = !aril_report(stderr);
    aril_optim_free(opt);
    aril_module_release(net);
    return good;
}

TEST(child)
{
    const char *more = getenv("ARIL_TEST_MORE");
    if (!more) SKIP("run by the other tests");
    rlim_t limit = taken() + (rlim_t)atoi(more) * MB;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){ limit, limit }) != 0) _exit(9);
    _exit(train() ? TRAINED : REFUSED);
}

/* The child's exit status with `more` MB beyond its use at start; -signal when it crashed. */
static int trial(int more)
{
    char value[16];
    snprintf(value, sizeof value, "%d", more);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("ARIL_TEST_MORE", value, 1);
        setenv("ARIL_THREADS", "1", 1);
        /* OpenBLAS maps 128 MB for each of its own threads, whatever the limit. */
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        if (!freopen("/dev/null", "w", stderr)) _exit(9);
        execl("/proc/self/exe", "test_limits", "child", (char *)NULL);
        _exit(9);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 9;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(more_memory_never_makes_it_fail)
{
    static const int more[] = { 0, 1, 4, 16, 64, 120, 140, 180, 260, 300, 400, 530, 1100 };
    if (ARIL__PLAIN_BLOCKS || taken() == 0) SKIP("a sanitizer takes all addresses itself");
    int enough = -1;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        int got = trial(more[i]);
        CHECK_MSG(got == TRAINED || got == REFUSED, "with %d MB more: %s %d", more[i],
                  got < 0 ? "signal" : "status", got < 0 ? -got : got);
        if (got == TRAINED && enough < 0) enough = more[i];
        CHECK_MSG(enough < 0 || got == TRAINED, "works with %d MB and not with %d", enough,
                  more[i]);
    }
    CHECK_MSG(enough >= 0 && enough <= 256, "not even %d MB are enough", enough);
}
