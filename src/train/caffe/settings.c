/* Reads the fields of a SolverParameter and checks them. */
#include "aril/error.h"
#include "core/error.h"
#include "train/caffe/solver.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

aril_status aril__caffe_solver_bad(const aril__message *m, const char *file, const char *field,
                                   const char *format, ...)
{
    char text[512], place[40];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return aril__fail(ARIL_ERR_ARG, "%.300s%ssolver at %s: %s", file ? file : "", file ? ": " : "",
                      aril__message_field_place(m, field, place, sizeof place), text);
}

/* A name that is none of those that `field` may have. */
static aril_status unknown(const aril__caffe_settings *c, const char *field, const char *name,
                           const char *const *names, int n)
{
    char list[160] = "";
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
    const char *near = aril_nearest(name, names, n);
    if (near)
        return aril__caffe_solver_bad(c->message, c->file, field,
                                      "unknown %s '%s'; did you mean %s?", field, name, near);
    return aril__caffe_solver_bad(c->message, c->file, field, "unknown %s '%s'; expected one of %s",
                                  field, name, list);
}

static int find(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

static const char *const types[] = { "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam" };
static const char *const policies[] = { "fixed",     "step", "exp",    "inv",
                                        "multistep", "poly", "sigmoid" };
enum { TYPES = sizeof types / sizeof *types, POLICIES = sizeof policies / sizeof *policies };

/* A number from `low` to below `high`. */
static aril_status number(const aril__caffe_settings *c, const char *field, double low, double high,
                          double *to)
{
    *to = aril__message_number(c->message, field);
    if (*to >= low && *to < high) return ARIL_OK;
    if (isinf(high))
        return aril__caffe_solver_bad(c->message, c->file, field, "%s must be at least %g, got %g",
                                      field, low, *to);
    return aril__caffe_solver_bad(c->message, c->file, field,
                                  "%s must be from %g to below %g, got %g", field, low, high, *to);
}

/* Fields that may be any number have to be one. */
static aril_status no_nan(const aril__caffe_settings *c)
{
    static const char *const fields[] = { "gamma", "power", "clip_gradients", "warmup_start_lr" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (isnan(aril__message_number(c->message, fields[i])))
            return aril__caffe_solver_bad(c->message, c->file, fields[i],
                                          "%s must be a number, got nan", fields[i]);
    return ARIL_OK;
}

static aril_status count(const aril__caffe_settings *c, const char *field, int64_t low, int64_t *to)
{
    *to = aril__message_int(c->message, field);
    if (*to >= low) return ARIL_OK;
    return aril__caffe_solver_bad(c->message, c->file, field, "%s must be at least %lld, got %lld",
                                  field, (long long)low, (long long)*to);
}

static aril_status read_policy(const aril__message *m, aril__caffe_settings *c)
{
    const char *name = aril__message_has(m, "lr_policy") ? aril__message_text(m, "lr_policy") : "";
    int k = find(name, policies, POLICIES);
    if (k < 0) return unknown(c, "lr_policy", name, policies, POLICIES);
    c->policy = (aril__caffe_policy)k;
    c->gamma = aril__message_number(m, "gamma");
    c->power = aril__message_number(m, "power");
    c->n_steps = aril__message_count(m, "stepvalue");
    bool needs_step = c->policy == ARIL__CAFFE_STEP;
    return count(c, "stepsize", needs_step ? 1 : 0, &c->stepsize);
}

/* The update's own numbers, as far as its type uses them. */
static aril_status read_type(const aril__message *m, aril__caffe_settings *c)
{
    c->type = aril__message_text(m, "type");
    int k = find(c->type, types, TYPES);
    if (k < 0) return unknown(c, "type", c->type, types, TYPES);
    bool adam = k == 5, delta = k == 4;
    aril_status status = number(c, "momentum", 0, adam || delta ? 1 : INFINITY, &c->momentum);
    if (status == ARIL_OK && (k == 2 || k == 3) && c->momentum != 0)
        status = aril__caffe_solver_bad(m, c->file, "momentum", "%s has no momentum, got %g",
                                        c->type, c->momentum);
    if (status == ARIL_OK) status = number(c, "momentum2", 0, adam ? 1 : INFINITY, &c->momentum2);
    if (status == ARIL_OK) status = number(c, "rms_decay", 0, k == 3 ? 1 : INFINITY, &c->rms_decay);
    return status == ARIL_OK ? number(c, "delta", 0, INFINITY, &c->delta) : status;
}

static aril_status read_counts(aril__caffe_settings *c)
{
    aril_status status = count(c, "max_iter", 0, &c->max_iter);
    if (status == ARIL_OK) status = count(c, "display", 0, &c->display);
    if (status == ARIL_OK) status = count(c, "test_interval", 0, &c->test_interval);
    if (status == ARIL_OK) status = count(c, "snapshot", 0, &c->snapshot);
    if (status == ARIL_OK) status = count(c, "iter_size", 1, &c->iter_size);
    if (status == ARIL_OK) status = count(c, "average_loss", 1, &c->average_loss);
    if (status == ARIL_OK) status = count(c, "warmup_iter", 0, &c->warmup);
    if (status == ARIL_OK && c->average_loss > 1 << 24)
        status = aril__caffe_solver_bad(c->message, c->file, "average_loss",
                                        "average_loss must be at most %d, got %lld", 1 << 24,
                                        (long long)c->average_loss);
    return status;
}

aril_status aril__caffe_settings_read(const aril__message *m, const char *file,
                                      aril__caffe_settings *c)
{
    *c = (aril__caffe_settings){
        .message = m,
        .file = file,
        .prefix = aril__message_text(m, "snapshot_prefix"),
        .clip = aril__message_number(m, "clip_gradients"),
        .warmup_lr = aril__message_number(m, "warmup_start_lr"),
        .gpu = strcmp(aril__message_value(m, "solver_mode"), "GPU") == 0,
        .says_gpu = aril__message_has(m, "solver_mode"),
        .hdf5 = strcmp(aril__message_value(m, "snapshot_format"), "HDF5") == 0,
        .test_initialization = aril__message_int(m, "test_initialization") != 0,
        .test_compute_loss = aril__message_int(m, "test_compute_loss") != 0,
        .snapshot_after_train = aril__message_int(m, "snapshot_after_train") != 0,
        .snapshot_diff = aril__message_int(m, "snapshot_diff") != 0,
        .debug = aril__message_int(m, "debug_info") != 0,
        .seed = aril__message_int(m, "random_seed"),
        .device = (int)aril__message_int(m, "device_id"),
    };
    const char *kind = aril__message_text(m, "regularization_type");
    c->l1 = strcmp(kind, "L1") == 0;
    if (!c->l1 && strcmp(kind, "L2") != 0)
        return aril__caffe_solver_bad(m, file, "regularization_type",
                                      "unknown regularization_type '%s'; expected L1 or L2", kind);
    aril_status status = no_nan(c);
    if (status == ARIL_OK) status = number(c, "base_lr", 0, INFINITY, &c->base_lr);
    if (status == ARIL_OK) status = number(c, "weight_decay", 0, INFINITY, &c->weight_decay);
    if (status == ARIL_OK) status = read_counts(c);
    if (status == ARIL_OK) status = read_policy(m, c);
    return status == ARIL_OK ? read_type(m, c) : status;
}
