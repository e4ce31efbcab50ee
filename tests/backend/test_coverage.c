/* Every op runs on the device in every dtype: only those listed in
 * fallbacks.def may fall back to the CPU. For
 * devices whose plug-in promises it, such as CUDA's: `make test-cuda`. */
#include "aril/aril.h"
#include "support/device.h"
#include "support/run_op.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const allowed[] = {
#define FALLBACK(op) #op,
#include "backend/cuda/fallbacks.def"
};

static bool is_allowed(const char *op)
{
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (strcmp(op, allowed[i]) == 0) return true;
    return false;
}

static void run_sample(const test_sample *s)
{
    static const aril_dtype dtypes[] = { ARIL_F64, ARIL_F32, ARIL_F16, ARIL_BF16, ARIL_I64,
                                         ARIL_I32, ARIL_U64, ARIL_U8,  ARIL_BOOL };
    ARIL_NO_GRAD;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        ARIL_SCOPE;
        aril_tensor *in[TEST_INPUTS], *out[TEST_RESULTS];
        if (test_untyped(s) && i > 0) break;
        if (test_sample_inputs(s, dtypes[i], 0, in)) test_run(s, in, out);
        aril_synchronize(test_device());
        aril_clear_error();
    }
}

/* Fails once for each op and dtype of a line "aril: dispatch: OP DTYPE SHAPES: falls back ...". */
static void check_line(const char *line, char *seen, size_t size)
{
    char op[64], dtype[16], key[96];
    if (!strstr(line, ": falls back to the CPU")) return;
    if (sscanf(line, "aril: dispatch: %63s %15s", op, dtype) != 2 || is_allowed(op)) return;
    snprintf(key, sizeof key, "[%s %s]", op, dtype);
    if (strstr(seen, key) || strlen(seen) + strlen(key) + 1 > size) return;
    strcat(seen, key);
    test_fail(__FILE__, __LINE__, "%s falls back to the CPU for %s", op, dtype);
}

TEST(no_op_falls_back_to_the_cpu)
{
    if (test_on_cpu()) SKIP("about devices");
    static char seen[1 << 16];
    char path[] = "/tmp/aril-coverage-XXXXXX", line[4096];
    int fd = mkstemp(path), before = dup(STDERR_FILENO);
    CHECK(fd >= 0 && before >= 0);
    unlink(path);
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    aril_set_log("dispatch");
    test_each_sample(run_sample);
    aril_set_log("");
    dup2(before, STDERR_FILENO);
    close(before);
    lseek(fd, 0, SEEK_SET);
    FILE *log = fdopen(fd, "r");
    CHECK(log);
    while (fgets(line, sizeof line, log)) check_line(line, seen, sizeof seen);
    fclose(log);
}
