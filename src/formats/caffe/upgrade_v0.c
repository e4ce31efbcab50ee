/* The oldest form of layers: one message with the fields of all types. */
#include "formats/caffe/upgrade.h"

#include "core/error.h"
#include "formats/proto_message.h"

#include <string.h>

/* ---- types ---- */

static const struct {
    const char *v0, *v1;
} types[] = {
    { "accuracy", "ACCURACY" },
    { "bnll", "BNLL" },
    { "concat", "CONCAT" },
    { "conv", "CONVOLUTION" },
    { "data", "DATA" },
    { "dropout", "DROPOUT" },
    { "euclidean_loss", "EUCLIDEAN_LOSS" },
    { "flatten", "FLATTEN" },
    { "hdf5_data", "HDF5_DATA" },
    { "hdf5_output", "HDF5_OUTPUT" },
    { "im2col", "IM2COL" },
    { "images", "IMAGE_DATA" },
    { "infogain_loss", "INFOGAIN_LOSS" },
    { "innerproduct", "INNER_PRODUCT" },
    { "lrn", "LRN" },
    { "multinomial_logistic_loss", "MULTINOMIAL_LOGISTIC_LOSS" },
    { "pool", "POOLING" },
    { "relu", "RELU" },
    { "sigmoid", "SIGMOID" },
    { "softmax", "SOFTMAX" },
    { "softmax_loss", "SOFTMAX_LOSS" },
    { "split", "SPLIT" },
    { "tanh", "TANH" },
    { "window_data", "WINDOW_DATA" },
};

/* ---- fields ---- */

/* Where a field of a V0 layer of some type belongs: a message of the V1 layer, and a field in it.
 * An empty type: layers of all types. */
static const struct {
    const char *field, *type, *message, *to;
} moves[] = {
    { "num_output", "conv", "convolution_param", "num_output" },
    { "num_output", "innerproduct", "inner_product_param", "num_output" },
    { "biasterm", "conv", "convolution_param", "bias_term" },
    { "biasterm", "innerproduct", "inner_product_param", "bias_term" },
    { "weight_filler", "conv", "convolution_param", "weight_filler" },
    { "weight_filler", "innerproduct", "inner_product_param", "weight_filler" },
    { "bias_filler", "conv", "convolution_param", "bias_filler" },
    { "bias_filler", "innerproduct", "inner_product_param", "bias_filler" },
    { "pad", "conv", "convolution_param", "pad" },
    { "pad", "pool", "pooling_param", "pad" },
    { "kernelsize", "conv", "convolution_param", "kernel_size" },
    { "kernelsize", "pool", "pooling_param", "kernel_size" },
    { "group", "conv", "convolution_param", "group" },
    { "stride", "conv", "convolution_param", "stride" },
    { "stride", "pool", "pooling_param", "stride" },
    { "pool", "pool", "pooling_param", "pool" },
    { "dropout_ratio", "dropout", "dropout_param", "dropout_ratio" },
    { "local_size", "lrn", "lrn_param", "local_size" },
    { "alpha", "lrn", "lrn_param", "alpha" },
    { "beta", "lrn", "lrn_param", "beta" },
    { "k", "lrn", "lrn_param", "k" },
    { "source", "data", "data_param", "source" },
    { "source", "hdf5_data", "hdf5_data_param", "source" },
    { "source", "images", "image_data_param", "source" },
    { "source", "window_data", "window_data_param", "source" },
    { "source", "infogain_loss", "infogain_loss_param", "source" },
    { "scale", "", "transform_param", "scale" },
    { "meanfile", "", "transform_param", "mean_file" },
    { "cropsize", "", "transform_param", "crop_size" },
    { "mirror", "", "transform_param", "mirror" },
    { "batchsize", "data", "data_param", "batch_size" },
    { "batchsize", "hdf5_data", "hdf5_data_param", "batch_size" },
    { "batchsize", "images", "image_data_param", "batch_size" },
    { "batchsize", "window_data", "window_data_param", "batch_size" },
    { "rand_skip", "data", "data_param", "rand_skip" },
    { "rand_skip", "images", "image_data_param", "rand_skip" },
    { "shuffle_images", "images", "image_data_param", "shuffle" },
    { "new_height", "images", "image_data_param", "new_height" },
    { "new_width", "images", "image_data_param", "new_width" },
    { "concat_dim", "concat", "concat_param", "concat_dim" },
    { "det_fg_threshold", "window_data", "window_data_param", "fg_threshold" },
    { "det_bg_threshold", "window_data", "window_data_param", "bg_threshold" },
    { "det_fg_fraction", "window_data", "window_data_param", "fg_fraction" },
    { "det_context_pad", "window_data", "window_data_param", "context_pad" },
    { "det_crop_mode", "window_data", "window_data_param", "crop_mode" },
};

enum {
    TYPES = sizeof types / sizeof *types,
    MOVES = sizeof moves / sizeof *moves,
    MAX_LAYERS = 5000,
};

/* Sets field `to` of a message to the value of a single field, of the same kind of number or
 * text. */
static void move(aril__message *into, const char *to, const aril__message *from, const char *field)
{
    if (!into) return;
    const aril__proto_field *f = aril__proto_field_named(from->type, field),
                            *t = aril__proto_field_named(into->type, to);
    bool many = aril__proto_repeated(t);
    if (f->kind == ARIL__PROTO_message)
        aril__message_share_field(into, to, from, field);
    else if (aril__proto_is_text(f))
        aril__message_set_text(into, to, aril__message_text(from, field));
    else if (aril__proto_is_real(f))
        aril__message_set_number(into, to, aril__message_number(from, field));
    else if (many)
        aril__message_add_int(into, to, aril__message_int(from, field));
    else
        aril__message_set_int(into, to, aril__message_int(from, field));
}

static aril_status not_known(const aril__message *layer, const aril__message *v0, const char *name)
{
    char place[40];
    return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: layer '%s' at %s: there is no V0 layer type '%s'",
                      name, aril__message_text(v0, "name"),
                      aril__message_place(layer, place, sizeof place),
                      aril__message_text(v0, "type"));
}

static aril_status upgrade_layer(aril__message *layer, const char *name)
{
    const aril__message *v0 = aril__message_sub(layer, "layer");
    const char *type = aril__message_text(v0, "type");
    int known = 0;
    while (known < TYPES && strcmp(types[known].v0, type) != 0) known++;
    if (known == TYPES) return not_known(layer, v0, name);
    const aril__proto_value *v =
        aril__proto_value_named(&aril__caffe_V1LayerParameter_LayerType, types[known].v1);
    aril__message_set_int(layer, "type", v->number);
    if (aril__message_has(v0, "name"))
        aril__message_set_text(layer, "name", aril__message_text(v0, "name"));
    aril__message_share_field(layer, "blobs", v0, "blobs");
    aril__message_share_field(layer, "blobs_lr", v0, "blobs_lr");
    aril__message_share_field(layer, "weight_decay", v0, "weight_decay");
    aril__message_share_field(layer, "hdf5_output_param", v0, "hdf5_output_param");
    for (int i = 0; i < MOVES; i++) {
        if (*moves[i].type && strcmp(moves[i].type, type) != 0) continue;
        if (!aril__message_has(v0, moves[i].field)) continue;
        move(aril__message_set_sub(layer, moves[i].message), moves[i].to, v0, moves[i].field);
    }
    aril__message_clear(layer, "layer");
    return ARIL_OK;
}

/* ---- padding layers ---- */

static bool is_type(const aril__message *layer, const char *type)
{
    return strcmp(aril__message_text(aril__message_sub(layer, "layer"), "type"), type) == 0;
}

/* The last of the first n layers that has this top; NULL if none has. */
static const aril__message *writer_of(const aril__message *net, size_t n, const char *blob)
{
    while (n-- > 0) {
        const aril__message *layer = aril__message_sub_at(net, "layers", n);
        for (size_t i = 0; i < aril__message_count(layer, "top"); i++)
            if (strcmp(aril__message_text_at(layer, "top", i), blob) == 0) return layer;
    }
    return NULL;
}

/* A convolution or pooling that reads a padding layer pads itself. */
static aril_status absorb_padding(aril__message *net, size_t i, const char *name)
{
    aril__message *layer = aril__message_sub_at(net, "layers", i);
    if (aril__message_count(layer, "bottom") == 0) return ARIL_OK;
    const aril__message *pad = writer_of(net, i, aril__message_text_at(layer, "bottom", 0));
    if (!pad || !is_type(pad, "padding")) return ARIL_OK;
    const aril__message *from = aril__message_sub(pad, "layer");
    char place[40];
    if ((!is_type(layer, "conv") && !is_type(layer, "pool")) ||
        aril__message_count(layer, "bottom") != 1 || aril__message_count(pad, "bottom") != 1)
        return aril__fail(ARIL_ERR_FORMAT,
                          "%s: the padding layer '%s' at %s must have one bottom, and be read by a "
                          "convolution or pooling with no other bottom",
                          name, aril__message_text(from, "name"),
                          aril__message_place(pad, place, sizeof place));
    aril__message_set_int(aril__message_set_sub(layer, "layer"), "pad",
                          aril__message_int(from, "pad"));
    aril__message_clear(layer, "bottom");
    aril__message_add_text(layer, "bottom", aril__message_text_at(pad, "bottom", 0));
    return ARIL_OK;
}

aril_status aril__caffe_upgrade_v0(aril__message *net, const char *name)
{
    bool old = false;
    for (size_t i = 0; i < aril__message_count(net, "layers"); i++)
        old |= aril__message_has(aril__message_sub_at(net, "layers", i), "layer");
    if (!old) return ARIL_OK;
    /* Each layer is compared with those before it. */
    if (aril__message_count(net, "layers") > MAX_LAYERS)
        return aril__fail(ARIL_ERR_UNSUPPORTED, "%s: %zu V0 layers; at most %d", name,
                          aril__message_count(net, "layers"), MAX_LAYERS);
    aril_status s = ARIL_OK;
    for (size_t i = 0; i < aril__message_count(net, "layers") && s == ARIL_OK; i++)
        s = absorb_padding(net, i, name);
    for (size_t i = aril__message_count(net, "layers"); i-- > 0;)
        if (is_type(aril__message_sub_at(net, "layers", i), "padding"))
            aril__message_remove(net, "layers", i);
    for (size_t i = 0; i < aril__message_count(net, "layers") && s == ARIL_OK; i++) {
        aril__message *layer = aril__message_sub_at(net, "layers", i);
        if (aril__message_has(layer, "layer")) s = upgrade_layer(layer, name);
    }
    return s;
}
