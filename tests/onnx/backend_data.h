/* The archives of ONNX's backend tests under ARIL_TEST_DATA. */
#ifndef ARIL_TESTS_BACKEND_DATA_H
#define ARIL_TESTS_BACKEND_DATA_H

#include "support/temp.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Unpacks an archive into the test's folder and returns its path there; NULL after a skip. */
static inline const char *unpacked(const char *suite)
{
    const char *data = getenv("ARIL_TEST_DATA");
    static char archive[2000], path[4000];
    char line[6000];
    struct stat st;
    snprintf(archive, sizeof archive, "%s/onnx-tests/onnx_backend_test_%s.tar.zst",
             data ? data : "", suite);
    if (stat(archive, &st) != 0) {
        test_skip("no %s (set ARIL_TEST_DATA)", archive);
        return NULL;
    }
    if (system("zstd --version >/dev/null 2>&1 && tar --version >/dev/null 2>&1") != 0) {
        test_skip("zstd and tar are needed to unpack %s", archive);
        return NULL;
    }
    snprintf(line, sizeof line, "zstd -dcq '%s' | tar xf - -C '%s'", archive, temp_path(""));
    if (system(line) != 0) {
        test_fail(__FILE__, __LINE__, "cannot unpack %s", archive);
        return NULL;
    }
    snprintf(path, sizeof path, "%s/onnx-test-data/%s", temp_path(""), suite);
    return path;
}

#endif
