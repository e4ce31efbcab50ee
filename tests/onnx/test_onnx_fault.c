/* Out of memory: every allocation of loading and running a model fails in turn. Nothing may crash
 * or leak, and the next attempt succeeds. */
#include "core/memory.h"
#include "core/tensor.h"
#include "onnx/small_models.h"

#include <stdio.h>

static void fail_each(int model)
{
    aril__bytes wire = wire_of(model);
    CHECK(wire.n > 0);
    CHECK_MSG(run_model(wire.at, wire.n), "model %d: %s", model, aril_error());
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        int64_t blocks = aril__live_blocks(), bytes = aril_memory(aril_cpu()).live;
        aril_fail_allocation(n);
        bool good = run_model(wire.at, wire.n);
        bool failed = aril_allocation_failed();
        aril_fail_allocation(0);
        CHECK_MSG(failed || good, "model %d: %s", model, aril_error());
        CHECK_MSG(good || !aril_ok(), "model %d: allocation %lld failed without a word", model,
                  (long long)n);
        if (!failed) break;
        aril_clear_error();
        CHECK_MSG(aril__live_blocks() == blocks, "model %d: allocation %lld: %lld blocks leaked",
                  model, (long long)n, (long long)(aril__live_blocks() - blocks));
        CHECK_INT(aril_memory(aril_cpu()).live, bytes);
    }
    printf("      model %d: %d allocations\n", model, failures);
    CHECK(failures > 50);
    CHECK_MSG(run_model(wire.at, wire.n), "model %d: %s", model, aril_error());
    aril__bytes_free(&wire);
}

TEST(every_allocation_fails_in_turn)
{
    for (int i = 0; i < MODELS && !test_failed(); i++) fail_each(i);
}
