/* The classes of layers. */
#include "models/keras/keras.h"

#include <string.h>

#define ANY     KERAS_WANT_ANY, KERAS_MASK_PASS
#define AXIS    KERAS_WANT_AXIS, KERAS_MASK_PASS
#define SPATIAL KERAS_WANT_SPATIAL, KERAS_MASK_STOP
#define PLAIN   KERAS_WANT_KERAS, KERAS_MASK_STOP
#define STEPS   KERAS_WANT_KERAS, KERAS_MASK_PASS
#define SAME    KERAS_GIVES_SAME
#define KERAS   KERAS_GIVES_KERAS

/* clang-format off */
#define CELL "cell/kernel cell/recurrent_kernel cell/bias?use_bias"
#define HEADS "query_dense/kernel query_dense/bias?use_bias key_dense/kernel key_dense/bias?use_bias " \
              "value_dense/kernel value_dense/bias?use_bias output_dense/kernel output_dense/bias?use_bias"
#define DIMENSIONS(name, variables, fn, gives)                 \
    { name "1D", variables, SPATIAL, 1, aril__keras_##fn, gives }, \
    { name "2D", variables, SPATIAL, 2, aril__keras_##fn, gives }, \
    { name "3D", variables, SPATIAL, 3, aril__keras_##fn, gives }

static const keras_kind kinds[] = {
    { "InputLayer", "", ANY, 0, aril__keras_identity, SAME },

    DIMENSIONS("Conv", "kernel bias?use_bias", conv, SAME),
    DIMENSIONS("Convolution", "kernel bias?use_bias", conv, SAME),
    { "Conv1DTranspose", "kernel bias?use_bias", SPATIAL, 1, aril__keras_conv_transpose, SAME },
    { "Conv2DTranspose", "kernel bias?use_bias", SPATIAL, 2, aril__keras_conv_transpose, SAME },
    { "Conv3DTranspose", "kernel bias?use_bias", SPATIAL, 3, aril__keras_conv_transpose, SAME },
    { "DepthwiseConv1D", "kernel bias?use_bias", SPATIAL, 1, aril__keras_depthwise, SAME },
    { "DepthwiseConv2D", "kernel bias?use_bias", SPATIAL, 2, aril__keras_depthwise, SAME },
    { "SeparableConv1D", "depthwise_kernel pointwise_kernel bias?use_bias", SPATIAL, 1, aril__keras_separable, SAME },
    { "SeparableConv2D", "depthwise_kernel pointwise_kernel bias?use_bias", SPATIAL, 2, aril__keras_separable, SAME },

    DIMENSIONS("MaxPooling", "", max_pool, SAME),
    DIMENSIONS("AveragePooling", "", avg_pool, SAME),
    { "GlobalAveragePooling1D", "", KERAS_WANT_SPATIAL, KERAS_MASK_TAKE, 1, aril__keras_global_avg_pool, SAME },
    { "GlobalAveragePooling2D", "", SPATIAL, 2, aril__keras_global_avg_pool, SAME },
    { "GlobalAveragePooling3D", "", SPATIAL, 3, aril__keras_global_avg_pool, SAME },
    DIMENSIONS("GlobalMaxPooling", "", global_max_pool, SAME),
    DIMENSIONS("AdaptiveAveragePooling", "", adaptive_avg_pool, SAME),
    DIMENSIONS("AdaptiveMaxPooling", "", adaptive_max_pool, SAME),
    DIMENSIONS("ZeroPadding", "", zero_padding, SAME),
    DIMENSIONS("Cropping", "", cropping, SAME),
    DIMENSIONS("UpSampling", "", up_sampling, SAME),
    { "Resizing", "", SPATIAL, 2, aril__keras_resizing, SAME },

    { "Dense", "kernel bias?use_bias", KERAS_WANT_FLAT, KERAS_MASK_PASS, 0, aril__keras_dense, KERAS },
    { "EinsumDense", "kernel bias?bias_axes", PLAIN, 0, aril__keras_einsum_dense, KERAS },
    { "Embedding", "embeddings", KERAS_WANT_KERAS, KERAS_MASK_MAKE, 0, aril__keras_embedding, KERAS },
    { "Masking", "", KERAS_WANT_KERAS, KERAS_MASK_MAKE, 0, aril__keras_masking, KERAS },

    { "BatchNormalization", "gamma?scale beta?center moving_mean! moving_variance!", AXIS, 0, aril__keras_batch_norm, SAME },
    { "SyncBatchNormalization", "gamma?scale beta?center moving_mean! moving_variance!", AXIS, 0, aril__keras_batch_norm, SAME },
    { "LayerNormalization", "gamma?scale beta?center", STEPS, 0, aril__keras_layer_norm, SAME },
    { "RMSNormalization", "scale", STEPS, 0, aril__keras_rms_norm, SAME },
    { "GroupNormalization", "gamma?scale beta?center", AXIS, 0, aril__keras_group_norm, SAME },
    { "UnitNormalization", "", AXIS, 0, aril__keras_unit_norm, SAME },
    { "Normalization", "mean!?mean:null variance!?mean:null count!?mean:null", AXIS, 0, aril__keras_normalization, SAME },
    { "Rescaling", "", AXIS, 0, aril__keras_rescaling, SAME },
    { "LayerScale", "gamma", AXIS, 0, aril__keras_layer_scale, SAME },

    { "Activation", "", AXIS, 0, aril__keras_activation_layer, SAME },
    { "ReLU", "", ANY, 0, aril__keras_activation_layer, SAME },
    { "ThresholdedReLU", "", ANY, 0, aril__keras_activation_layer, SAME },
    { "LeakyReLU", "", ANY, 0, aril__keras_activation_layer, SAME },
    { "ELU", "", ANY, 0, aril__keras_activation_layer, SAME },
    { "Softmax", "", AXIS, 0, aril__keras_activation_layer, SAME },
    { "PReLU", "alpha", AXIS, 0, aril__keras_prelu, SAME },

    { "Dropout", "", AXIS, 0, aril__keras_dropout, SAME },
    DIMENSIONS("SpatialDropout", "", spatial_dropout, SAME),
    { "AlphaDropout", "", ANY, 0, aril__keras_alpha_dropout, SAME },
    { "GaussianDropout", "", ANY, 0, aril__keras_gaussian_dropout, SAME },
    { "GaussianNoise", "", ANY, 0, aril__keras_gaussian_noise, SAME },
    { "ActivityRegularization", "", ANY, 0, aril__keras_identity, SAME },
    { "Identity", "", ANY, 0, aril__keras_identity, SAME },

    { "Add", "", ANY, 0, aril__keras_merge, SAME },
    { "Subtract", "", ANY, 0, aril__keras_merge, SAME },
    { "Multiply", "", ANY, 0, aril__keras_merge, SAME },
    { "Average", "", ANY, 0, aril__keras_merge, SAME },
    { "Maximum", "", ANY, 0, aril__keras_merge, SAME },
    { "Minimum", "", ANY, 0, aril__keras_merge, SAME },
    { "Concatenate", "", AXIS, 0, aril__keras_concatenate, SAME },
    { "Dot", "", PLAIN, 0, aril__keras_dot, KERAS },

    { "Flatten", "", KERAS_WANT_ANY, KERAS_MASK_STOP, 0, aril__keras_flatten, KERAS_GIVES_FLAT },
    { "Reshape", "", PLAIN, 0, aril__keras_reshape, KERAS },
    { "Permute", "", PLAIN, 0, aril__keras_permute, KERAS },
    { "RepeatVector", "", PLAIN, 0, aril__keras_repeat_vector, KERAS },

    { "LSTM", CELL, KERAS_WANT_KERAS, KERAS_MASK_ALONE, 0, aril__keras_recurrent, KERAS },
    { "GRU", CELL, KERAS_WANT_KERAS, KERAS_MASK_ALONE, 0, aril__keras_recurrent, KERAS },
    { "SimpleRNN", CELL, KERAS_WANT_KERAS, KERAS_MASK_ALONE, 0, aril__keras_recurrent, KERAS },
    { "Bidirectional", "", KERAS_WANT_KERAS, KERAS_MASK_ALONE, 0, aril__keras_bidirectional, KERAS },
    { "TimeDistributed", "", STEPS, 0, aril__keras_time_distributed, KERAS },

    { "Attention", "scale?use_scale=0 concat_score_weight?score_mode:concat", KERAS_WANT_KERAS, KERAS_MASK_BOTH, 0, aril__keras_attention, KERAS },
    { "AdditiveAttention", "scale?use_scale", KERAS_WANT_KERAS, KERAS_MASK_BOTH, 0, aril__keras_attention, KERAS },
    { "MultiHeadAttention", HEADS, KERAS_WANT_KERAS, KERAS_MASK_BOTH, 0, aril__keras_multi_head, KERAS },
    { "GroupedQueryAttention", HEADS, KERAS_WANT_KERAS, KERAS_MASK_BOTH, 0, aril__keras_multi_head, KERAS },
    { "GroupQueryAttention", HEADS, KERAS_WANT_KERAS, KERAS_MASK_BOTH, 0, aril__keras_multi_head, KERAS },
};
/* clang-format on */

const keras_kind *aril__keras_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return aril__keras_op_kind(name);
}
