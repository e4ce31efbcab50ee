/* The time of a bare kernel launch. */
#include "aril/error.h"
#include "aril/profile.h"
#include "core/clock.h"
#include "core/device.h"

#include <string.h>

enum { LAUNCHES = 200, ROUNDS = 20 }; /* few enough that the queue never fills up */

/* Seconds per launch in the fastest round; negative on failure. */
static double measure(aril__device *d, aril_program *empty)
{
    static const uint32_t one[3] = { 1, 1, 1 };
    double best = -1;
    for (int i = 0; i < ROUNDS; i++) {
        double start = aril__seconds();
        for (int k = 0; k < LAUNCHES; k++)
            if (d->ops.launch(d->self, d->queue, empty, "nothing", one, one, 0, NULL, 0) < 0)
                return -1;
        double now = (aril__seconds() - start) / LAUNCHES;
        if (best < 0 || now < best) best = now;
        if (d->ops.queue_wait(d->self, d->queue) < 0) return -1;
    }
    return best;
}

double aril_launch_time(aril_device device)
{
    aril__device *d = aril__device_find(device);
    if (!d || !d->ops.launch || !d->queue || strcmp(d->kind_name, "cuda") != 0) return 0;
    aril_program *empty =
        d->ops.compile(d->self, "extern \"C\" __global__ void nothing(void) {}", NULL);
    if (!empty) return 0;
    double best = measure(d, empty);
    d->ops.program_free(d->self, empty);
    return best > 0 ? best : 0;
}
