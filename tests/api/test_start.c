/* Memory that runs out while the library starts: an error of memory, whatever part was starting.
 * Each attempt is a process of its own, as a library that could not start stays so. */
#include "aril/aril.h"
#include "support/test.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRONG = 1, STARTED = 2 };

static int attempt(int64_t n)
{
    aril_fail_allocation(n);
    aril_tensor *t = aril_zeros(ARIL_SHAPE(2), ARIL_F32, aril_cpu());
    aril_status status = aril_tensor_status(t);
    bool failed = aril_allocation_failed();
    aril_fail_allocation(0);
    if (!failed) return STARTED;
    if (status != ARIL_OK && status != ARIL_ERR_MEMORY)
        fprintf(stderr, "allocation %lld: %s\n", (long long)n, aril_error());
    return status == ARIL_OK || status == ARIL_ERR_MEMORY ? 0 : WRONG;
}

TEST(a_start_without_memory_says_so)
{
    int attempts = 0;
    for (int64_t n = 1;; n += 1 + n / 20, attempts++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(attempt(n));
        int how;
        CHECK(waitpid(child, &how, 0) == child);
        CHECK_MSG(WIFEXITED(how) && WEXITSTATUS(how) != WRONG, "allocation %lld", (long long)n);
        if (!WIFEXITED(how) || WEXITSTATUS(how) == STARTED) break;
    }
    CHECK(attempts > 20);
}
