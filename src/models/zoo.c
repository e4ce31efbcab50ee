#include "aril/zoo.h"

#include "aril/create.h"
#include "aril/view.h"
#include "core/error.h"
#include "data/open.h"
#include "models/models.h"
#include "models/pretrained.h"
#include "nn/cost.h"
#include "nn/module.h"

#include <string.h>

static const aril_zoo_entry *const families[] = {
    aril__zoo_lenet,        aril__zoo_plain,      aril__zoo_alexnet,      aril__zoo_vgg,
    aril__zoo_nin,          aril__zoo_googlenet,  aril__zoo_inception,    aril__zoo_resnet,
    aril__zoo_resnet_cifar, aril__zoo_densenet,   aril__zoo_squeezenet,   aril__zoo_mobilenet,
    aril__zoo_mobilenet_v3, aril__zoo_shufflenet, aril__zoo_efficientnet, aril__zoo_vit,
    aril__zoo_convnext,     aril__zoo_unet,       aril__zoo_char_rnn,     aril__zoo_captioner,
    aril__zoo_gpt2,         aril__zoo_bert,
};
enum { FAMILIES = sizeof families / sizeof *families, MAX_ENTRIES = 256 };

int aril_zoo_count(void)
{
    int n = 0;
    for (int f = 0; f < FAMILIES; f++)
        for (const aril_zoo_entry *e = families[f]; e->name; e++) n++;
    return n;
}

const aril_zoo_entry *aril_zoo_at(int i)
{
    for (int f = 0; f < FAMILIES && i >= 0; f++)
        for (const aril_zoo_entry *e = families[f]; e->name; e++)
            if (i-- == 0) return e;
    return NULL;
}

const aril_zoo_entry *aril_zoo_find(const char *name)
{
    const char *names[MAX_ENTRIES];
    int n = 0;
    for (int f = 0; f < FAMILIES; f++) {
        for (const aril_zoo_entry *e = families[f]; e->name; e++) {
            if (name && strcmp(name, e->name) == 0) return e;
            if (n < MAX_ENTRIES) names[n++] = e->name;
        }
    }
    const char *near = aril_nearest(name, names, n);
    aril__fail(ARIL_ERR_ARG, near ? "no model '%s'; did you mean %s?" : "no model '%s'",
               name ? name : "", near);
    return NULL;
}

/* ---- creating ---- */

/* Fills in what is left to the network. */
static aril_status complete(const aril_zoo_entry *e, aril_zoo_opts *opts)
{
    if (!opts->input.ndim) opts->input = e->input;
    if (!opts->classes) opts->classes = e->classes;
    if (opts->classes < 1)
        return aril__fail(ARIL_ERR_ARG, "%s: expected at least 1 class, got %lld", e->name,
                          (long long)opts->classes);
    for (int i = 0; i < opts->input.ndim; i++)
        if (opts->input.dim[i] < 1)
            return aril__fail(ARIL_ERR_SHAPE, "%s: size %d of the input is %lld", e->name, i,
                              (long long)opts->input.dim[i]);
    return ARIL_OK;
}

aril_module *aril_zoo_make(const char *name, aril_zoo_opts opts)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    bool new_head = opts.classes != 0; /* without an own number, the weights have to have a head */
    if (!e || complete(e, &opts) < 0) return NULL;
    aril_module *m = e->make(e, &opts);
    if (m && (aril_module_build(m, opts.input) < 0 ||
              (opts.weights && aril__zoo_load(e, m, &opts, new_head) < 0))) {
        aril_module_release(m);
        return NULL;
    }
    return m;
}

/* A network in a sketch; aril__sketch is on as long as it is used. */
static aril_module *sketched(const aril_zoo_entry *e, aril_zoo_opts *opts)
{
    if (complete(e, opts) < 0) return NULL;
    aril_module *m = e->make(e, opts);
    if (!m || aril_module_build(m, opts->input) == ARIL_OK) return m;
    aril_module_release(m);
    return NULL;
}

aril_status aril_zoo_cost(const aril_zoo_entry *e, aril_zoo_opts opts, aril_cost *cost)
{
    if (!e || !cost)
        return aril__fail(ARIL_ERR_ARG, "zoo_cost: the %s is NULL", e ? "result" : "entry");
    *cost = (aril_cost){ 0 };
    bool before = aril__sketch(true);
    aril_module *m = sketched(e, &opts);
    aril_status s = m ? ARIL_OK : aril__last_status();
    if (m) s = aril__sketch_flops(m, opts.input, e->dtype ? e->dtype : ARIL_F32, &cost->flop);
    const aril_named *p = s == ARIL_OK ? aril_parameters(m) : NULL;
    const aril_named *b = p ? aril_buffers(m) : NULL;
    if (s == ARIL_OK && !b) s = aril__last_status();
    for (int i = 0; b && i < p->n; i++) cost->parameters += aril_numel(p->at[i]);
    for (int i = 0; b && i < b->n; i++) cost->buffers += aril_numel(b->at[i]);
    cost->trainable = cost->parameters;
    cost->parameter_bytes = cost->trainable_bytes = 4 * (double)cost->parameters;
    cost->buffer_bytes = 4 * (double)cost->buffers;
    aril_module_release(m);
    aril__sketch(before);
    return s;
}

aril_status aril_zoo_summary(const aril_zoo_entry *e, aril_zoo_opts opts, FILE *to,
                             aril_summary_opts how)
{
    if (!e) return aril__fail(ARIL_ERR_ARG, "zoo_summary: the entry is NULL");
    bool before = aril__sketch(true);
    aril_module *m = sketched(e, &opts);
    if (!how.dtype) how.dtype = e->dtype;
    bool guessed = false;
    aril_status s =
        m ? aril__summary_sketch(m, opts.input, to, how, &guessed) : aril__last_status();
    aril_module_release(m);
    aril__sketch(before);
    if (s < 0 || !guessed) return s;
    m = aril_zoo_make(e->name, opts);
    s = m ? aril_summary_with(m, opts.input, to, how) : aril__last_status();
    aril_module_release(m);
    return s;
}

aril_status aril_zoo_print(const aril_zoo_entry *e, aril_zoo_opts opts, FILE *to)
{
    if (!e || !to)
        return aril__fail(ARIL_ERR_ARG, "zoo_print: the %s is NULL", e ? "file" : "entry");
    bool before = aril__sketch(true);
    aril_module *m = sketched(e, &opts);
    if (m) aril_module_print(m, to);
    aril_status s = m ? ARIL_OK : aril__last_status();
    aril_module_release(m);
    aril__sketch(before);
    return s;
}

/* ---- images ---- */

static aril_status swap_red_and_blue(aril_sample *s, void *ctx)
{
    (void)ctx;
    if (aril_ndim(s->x) != 3 || aril_size(s->x, 0) != 3) return ARIL_OK;
    s->x = aril_copy(aril_flip(s->x, ARIL_AXES(0)));
    return aril_tensor_status(s->x);
}

aril_transform *aril_zoo_transform(const aril_zoo_entry *e, aril_shape input)
{
    if (!e) {
        aril__fail(ARIL_ERR_ARG, "zoo_transform: the entry is NULL");
        return NULL;
    }
    if (!input.ndim) input = e->input;
    if (input.ndim != 3 || (input.dim[0] != 1 && input.dim[0] != 3)) {
        aril__fail(ARIL_ERR_ARG, "%s: its inputs are not images of 1 or 3 channels", e->name);
        return NULL;
    }
    const aril_preprocess *p = &e->preprocess;
    int64_t height = input.dim[1], width = input.dim[2];
    aril_resize_opts resize = { .filter = p->filter };
    aril_transform *list[6];
    int n = 0;
    if (input.dim[0] == 1) list[n++] = aril_transform_grayscale(1, 1);
    /* Other sizes of inputs see the same part of an image. */
    bool square = height == width && height == e->input.dim[1];
    if (p->resize && square) {
        list[n++] = aril_transform_resize(p->resize, 0, resize);
        list[n++] = aril_transform_center_crop(height, width);
    } else {
        list[n++] = aril_transform_resize(height, width, resize);
    }
    if (p->bgr) list[n++] = aril_transform_function(swap_red_and_blue, NULL, NULL);
    double scale = p->scale > 0 ? p->scale : 1, mean[3], std[3];
    for (int i = 0; i < 3; i++) {
        mean[i] = p->mean[i] / scale;
        std[i] = (p->std[i] > 0 ? p->std[i] : 1) / scale;
    }
    list[n++] = aril_transform_normalize(input.dim[0] == 3 ? 3 : 1, mean, std);
    return aril_transform_list(n, list);
}

/* ---- class names ---- */

const char *aril_zoo_class_name(const aril_zoo_entry *e, int64_t i)
{
    if (!e || i < 0 || i >= e->classes) return NULL;
    switch (e->names) {
    case ARIL_CLASSES_DIGITS: return aril__classes_digits[i];
    case ARIL_CLASSES_CIFAR10: return aril__classes_cifar10[i];
    case ARIL_CLASSES_CIFAR100: return aril__classes_cifar100[i];
    case ARIL_CLASSES_IMAGENET: return aril__classes_imagenet[i];
    case ARIL_CLASSES_UNNAMED: break;
    }
    return NULL;
}
