/* Older forms of nets and solvers, rewritten to the current one. */
#include "formats/caffe/upgrade.h"

#include "core/error.h"
#include "formats/proto_message.h"

#include <string.h>

/* ---- V1 layers ---- */

/* Names of V1's types in the current form, by their numbers. */
static const char *const types[] = {
    "",
    "Accuracy",
    "BNLL",
    "Concat",
    "Convolution",
    "Data",
    "Dropout",
    "EuclideanLoss",
    "Flatten",
    "HDF5Data",
    "HDF5Output",
    "Im2col",
    "ImageData",
    "InfogainLoss",
    "InnerProduct",
    "LRN",
    "MultinomialLogisticLoss",
    "Pooling",
    "ReLU",
    "Sigmoid",
    "Softmax",
    "SoftmaxWithLoss",
    "Split",
    "TanH",
    "WindowData",
    "Eltwise",
    "Power",
    "SigmoidCrossEntropyLoss",
    "HingeLoss",
    "MemoryData",
    "ArgMax",
    "Threshold",
    "DummyData",
    "Slice",
    "MVN",
    "AbsVal",
    "Silence",
    "ContrastiveLoss",
    "Exp",
    "Deconvolution",
};

enum { TYPES = sizeof types / sizeof *types };

/* The specification of parameter i, added if it is missing. */
static aril__message *spec_at(aril__message *layer, size_t i)
{
    while (layer && aril__message_count(layer, "param") <= i)
        if (!aril__message_add_sub(layer, "param")) return NULL;
    return layer ? aril__message_sub_at(layer, "param", i) : NULL;
}

static void upgrade_specs(aril__message *to, const aril__message *v1)
{
    for (size_t i = 0; i < aril__message_count(v1, "param"); i++)
        aril__message_set_text(spec_at(to, i), "name", aril__message_text_at(v1, "param", i));
    for (size_t i = 0; i < aril__message_count(v1, "blob_share_mode"); i++)
        aril__message_set_int(spec_at(to, i), "share_mode",
                              aril__message_int_at(v1, "blob_share_mode", i));
    for (size_t i = 0; i < aril__message_count(v1, "blobs_lr"); i++)
        aril__message_set_number(spec_at(to, i), "lr_mult",
                                 aril__message_number_at(v1, "blobs_lr", i));
    for (size_t i = 0; i < aril__message_count(v1, "weight_decay"); i++)
        aril__message_set_number(spec_at(to, i), "decay_mult",
                                 aril__message_number_at(v1, "weight_decay", i));
}

static void upgrade_layer(aril__message *net, const aril__message *v1)
{
    static const char *const same[] = { "bottom",  "top",     "name",       "blobs",
                                        "include", "exclude", "loss_weight" };
    int64_t type = aril__message_int(v1, "type"); /* one of the enum's */
    ARIL_ASSERT(type >= 0 && type < TYPES);
    aril__message *to = aril__message_add_sub(net, "layer");
    if (!to) return; /* reported at the end */
    to->where = v1->where;
    aril__message_set_text(to, "type", types[type]);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        aril__message_share_field(to, same[i], v1, same[i]);
    for (int i = 0; i < v1->type->n; i++) {
        const aril__proto_field *f = &v1->type->field[i];
        bool param = f->kind == ARIL__PROTO_message && !aril__proto_repeated(f) &&
                     strcmp(f->name, "layer") != 0;
        if (param) aril__message_share_field(to, f->name, v1, f->name);
    }
    upgrade_specs(to, v1);
}

/* The transformation of data was once a part of data layers. */
static void upgrade_transform(aril__message *v1, const char *param)
{
    static const char *const fields[] = { "scale", "mean_file", "crop_size", "mirror" };
    if (!aril__message_has(v1, param)) return;
    aril__message *from = aril__message_set_sub(v1, param);
    if (from && aril__message_has(from, fields[0]))
        aril__message_set_number(aril__message_set_sub(v1, "transform_param"), fields[0],
                                 aril__message_number(from, fields[0]));
    if (from && aril__message_has(from, fields[1]))
        aril__message_set_text(aril__message_set_sub(v1, "transform_param"), fields[1],
                               aril__message_text(from, fields[1]));
    for (int i = 2; i < 4; i++)
        if (from && aril__message_has(from, fields[i]))
            aril__message_set_int(aril__message_set_sub(v1, "transform_param"), fields[i],
                                  aril__message_int(from, fields[i]));
    for (int i = 0; i < 4; i++) aril__message_clear(from, fields[i]);
}

static aril_status upgrade_v1(aril__message *net, const char *name)
{
    size_t n = aril__message_count(net, "layers");
    if (!n) return ARIL_OK;
    if (aril__message_count(net, "layer"))
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: the net has layers of the current form ('layer') and of an older "
                          "one ('layers'); use one of them",
                          name);
    for (size_t i = 0; i < n; i++) {
        aril__message *v1 = aril__message_sub_at(net, "layers", i);
        upgrade_transform(v1, "data_param");
        upgrade_transform(v1, "image_data_param");
        upgrade_transform(v1, "window_data_param");
        upgrade_layer(net, v1);
    }
    aril__message_clear(net, "layers");
    return ARIL_OK;
}

/* ---- fields of nets ---- */

static aril_status upgrade_input(aril__message *net, const char *name)
{
    size_t inputs = aril__message_count(net, "input"),
           shapes = aril__message_count(net, "input_shape"),
           dims = aril__message_count(net, "input_dim");
    if (!inputs) return ARIL_OK;
    if (shapes && dims)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: expected either input_shape or the older input_dim, got both", name);
    if ((shapes && shapes != inputs) || (!shapes && dims && dims != 4 * inputs))
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: %zu inputs need %zu values of input_shape or %zu of input_dim, got "
                          "%zu and %zu",
                          name, inputs, inputs, 4 * inputs, shapes, dims);
    if (shapes || dims) { /* otherwise the net is a shell that names the inputs of another */
        aril__message *layer = aril__message_add_sub(net, "layer");
        if (layer) layer->where = net->where;
        aril__message_set_text(layer, "name", "input");
        aril__message_set_text(layer, "type", "Input");
        aril__message *param = aril__message_set_sub(layer, "input_param");
        for (size_t i = 0; i < inputs; i++) {
            aril__message_add_text(layer, "top", aril__message_text_at(net, "input", i));
            aril__message *to = aril__message_add_sub(param, "shape");
            if (to && shapes)
                aril__message_share_field(to, "dim", aril__message_sub_at(net, "input_shape", i),
                                          "dim");
            for (size_t k = 0; to && !shapes && k < 4; k++)
                aril__message_add_int(to, "dim", aril__message_int_at(net, "input_dim", 4 * i + k));
        }
        aril__message_to_front(net, "layer", aril__message_count(net, "layer") - 1);
    }
    aril__message_clear(net, "input");
    aril__message_clear(net, "input_shape");
    aril__message_clear(net, "input_dim");
    return ARIL_OK;
}

/* BatchNorm once needed multipliers of zero for its statistics; they say nothing. */
static void upgrade_batch_norm(aril__message *net)
{
    for (size_t i = 0; i < aril__message_count(net, "layer"); i++) {
        aril__message *layer = aril__message_sub_at(net, "layer", i);
        if (strcmp(aril__message_text(layer, "type"), "BatchNorm") == 0 &&
            aril__message_count(layer, "param") == 3)
            aril__message_clear(layer, "param");
    }
}

aril_status aril__caffe_net_upgrade(aril__message *net, const char *name)
{
    aril_status s = aril__caffe_upgrade_v0(net, name);
    if (s == ARIL_OK) s = upgrade_v1(net, name);
    if (s == ARIL_OK) s = upgrade_input(net, name);
    if (s != ARIL_OK) return s;
    upgrade_batch_norm(net);
    return net->owner->failed
               ? aril__fail(ARIL_ERR_MEMORY, "%s: out of memory for the upgrade of the net", name)
               : ARIL_OK;
}

/* ---- solvers ---- */

/* Solvers were numbered before they had names. */
static void upgrade_solver_type(aril__message *solver)
{
    static const char *const names[] = {
        "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"
    };
    int64_t type = aril__message_int(solver, "solver_type");
    if (!aril__message_has(solver, "solver_type")) return;
    if (type >= 0 && type < (int64_t)(sizeof names / sizeof *names))
        aril__message_set_text(solver, "type", names[type]);
    aril__message_clear(solver, "solver_type");
}

aril_status aril__caffe_solver_upgrade(aril__message *solver, const char *name)
{
    static const char *const nets[] = { "net_param", "train_net_param" };
    if (aril__message_has(solver, "solver_type") && aril__message_has(solver, "type"))
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: the solver has 'type' and 'solver_type'; use 'type' alone", name);
    upgrade_solver_type(solver);
    aril_status s = ARIL_OK;
    for (int i = 0; i < 2 && s == ARIL_OK; i++)
        if (aril__message_has(solver, nets[i]))
            s = aril__caffe_net_upgrade(aril__message_set_sub(solver, nets[i]), name);
    for (size_t i = 0; i < aril__message_count(solver, "test_net_param") && s == ARIL_OK; i++)
        s = aril__caffe_net_upgrade(aril__message_sub_at(solver, "test_net_param", i), name);
    return s;
}
