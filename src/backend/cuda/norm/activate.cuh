/* Fused activations, as in ops/elementwise/activation.c. */
#ifndef ARIL_CUDA_NORM_ACTIVATE_CUH
#define ARIL_CUDA_NORM_ACTIVATE_CUH

#include "aril/activation.h"

#define ARIL_CUDA_LEAKY_SLOPE 0.01

template <typename C> static __device__ __forceinline__ C aril_cuda_activate(int act, C x)
{
    if (act == ARIL_NO_ACTIVATION) return x;
    if (act == ARIL_RELU) return x < 0 ? C(0) : x;
    switch (act) {
    case ARIL_RELU6: return x < 0 ? C(0) : x > 6 ? C(6) : x;
    case ARIL_LEAKY_RELU: return x > 0 ? x : x * C(ARIL_CUDA_LEAKY_SLOPE);
    case ARIL_SIGMOID: return 1 / (1 + exp(-x));
    default: return tanh(x);
    }
}

/* The gradient before the activation, from that of y. */
template <typename C> static __device__ __forceinline__ C aril_cuda_activate_grad(int act, C g, C y)
{
    if (act == ARIL_NO_ACTIVATION) return g;
    if (act == ARIL_RELU) return y > 0 ? g : C(0);
    switch (act) {
    case ARIL_RELU6: return y > 0 && y < 6 ? g : C(0);
    case ARIL_LEAKY_RELU: return y > 0 ? g : g * C(ARIL_CUDA_LEAKY_SLOPE);
    case ARIL_SIGMOID: return g * y * (1 - y);
    default: return g * (1 - y * y);
    }
}

#endif
