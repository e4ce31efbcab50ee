/* Losses. */
#include "onnx/rules.h"

/* The negative logarithm of the probability of each target, weighted and reduced.
 * x [N,C,...], target [N,...] */
static aril_status nll(onnx_call *c, aril_tensor *x, aril_tensor *target, aril_tensor *weight)
{
    bool ignores = has_attr(c, "ignore_index");
    int64_t ignore = aril__onnx_attr_int(c, "ignore_index", -100);
    const char *how = aril__onnx_attr_text(c, "reduction", "mean");
    target = aril_cast(target, ARIL_I64);
    aril_tensor *skip = ignores ? aril_eq_scalar(target, ignore) : NULL;
    if (skip) target = aril_where(skip, aril_zeros_like(target), target);
    aril_tensor *loss =
        aril_neg(aril_squeeze(aril_gather(x, aril_unsqueeze(target, 1), 1), ARIL_AXES(1)));
    aril_tensor *w = weight ? aril_index_select(weight, target, 0) : aril_ones_like(loss);
    if (skip) w = aril_where(skip, aril_zeros_like(w), w);
    loss = aril_mul(loss, w);
    if (strcmp(how, "none") == 0) return give(c, 0, loss);
    aril_tensor *sum = aril_sum(loss, ARIL_ALL);
    return give(c, 0, strcmp(how, "sum") == 0 ? sum : aril_div(sum, aril_sum(w, ARIL_ALL)));
}

static aril_status nll_loss(onnx_call *c)
{
    return nll(c, in(c, 0), in(c, 1), in(c, 2));
}

static aril_status softmax_cross_entropy(onnx_call *c)
{
    aril_tensor *log_prob = aril_log_softmax(in(c, 0), 1);
    aril_status s = nll(c, log_prob, in(c, 1), in(c, 2));
    return s < 0 ? s : give(c, 1, log_prob);
}

const onnx_rule aril__onnx_loss_rules[] = {
    RULE("NegativeLogLikelihoodLoss", 12, nll_loss),
    RULE("SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy),
    { 0 },
};
