/* Output of solvers, in Caffe's words. */
#include "core/memory.h"
#include "models/caffe/net.h"
#include "train/caffe/solver.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* glog's prefix: severity, month and day, time, thread, and where Caffe logs from. */
static void print_prefix(const aril_caffe_solver *s, const char *format)
{
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!s->opts.glog || !localtime_r(&now.tv_sec, &local)) return;
    bool warns = strncmp(format, "warning", 7) == 0;
    fprintf(s->opts.log, "%c%02d%02d %02d:%02d:%02d.%06ld %5ld solver.cpp:0] ", warns ? 'W' : 'I',
            local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
            now.tv_nsec / 1000, (long)getpid());
}

void aril__caffe_log(const aril_caffe_solver *s, const char *format, ...)
{
    if (!s->opts.log) return;
    print_prefix(s, format);
    va_list args;
    va_start(args, format);
    vfprintf(s->opts.log, format, args);
    va_end(args);
    putc('\n', s->opts.log);
    fflush(s->opts.log);
}

double aril__caffe_shown(double value)
{
    return isnan(value) ? fabs((double)NAN) : value; /* a NaN's sign says nothing */
}

void aril__caffe_log_values(const aril_caffe_solver *s, const char *what, const char *name,
                            double weight, int64_t n, const double *values, int *number)
{
    enum { SHOWN = 64 };
    for (int64_t k = 0; k < n && k < SHOWN; k++) {
        char loss[96] = "";
        double value = aril__caffe_shown(values[k]);
        if (weight != 0)
            snprintf(loss, sizeof loss, " (* %g = %g loss)", weight,
                     aril__caffe_shown(weight * value));
        aril__caffe_log(s, "    %s net output #%d: %s = %g%s", what, (*number)++, name, value,
                        loss);
    }
    if (n > SHOWN) {
        aril__caffe_log(s, "    (%lld more values of %s)", (long long)(n - SHOWN), name);
        *number += (int)(n - SHOWN);
    }
}

/* "64 20 24 24 (737280)"; returns the number of elements, 0 where it depends on the data. */
static int64_t shape_text(aril_shape shape, char *text, size_t size)
{
    int64_t count = 1;
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < shape.ndim && used < size; i++) {
        int64_t dim = shape.dim[i];
        count = dim < 0 ? 0 : count * dim;
        used += (size_t)snprintf(text + used, size - used, dim < 0 ? "? " : "%" PRId64 " ", dim);
    }
    if (used < size) snprintf(text + used, size - used, "(%" PRId64 ")", count);
    return count;
}

void aril__caffe_log_shapes(const aril_caffe_solver *s, const aril_module *net)
{
    int64_t count = 0;
    for (int i = 0; s->opts.log && i < aril_caffe_layers(net); i++) {
        aril_caffe_layer l = aril_caffe_layer_at(net, i);
        aril__caffe_log(s, "Setting up %s", l.name);
        aril_caffe_blob top;
        for (int k = 0; (top = aril_caffe_top(net, i, k)).name; k++) {
            char text[256];
            count += shape_text(top.shape, text, sizeof text);
            aril__caffe_log(s, "Top shape: %s", text);
            if (top.loss_weight != 0)
                aril__caffe_log(s, "    with loss weight %g", top.loss_weight);
        }
    }
    aril__caffe_log(s, "Memory required for data: %lld", (long long)count * 4);
}

void aril__caffe_log_ignored(const aril_caffe_solver *s)
{
    const char *name;
    for (int i = 0; (name = aril_caffe_weights_ignored(s->train.net, i)); i++)
        aril__caffe_log(s, "Ignoring source layer %s", name);
}

void aril__caffe_log_missing(const aril_caffe_solver *s)
{
    const char *name;
    for (int i = 0; (name = aril_caffe_weights_missing(s->train.net, i)); i++)
        aril__caffe_log(s, "Layer %s is not in the weights: its blobs stay as initialized", name);
}
