/* Learning rates of Caffe's policies. */
#include "train/caffe/solver.h"

#include <math.h>

int64_t aril__caffe_current_step(const aril__caffe_settings *c, int64_t iter)
{
    int64_t n = 0;
    if (c->policy == ARIL__CAFFE_STEP) return iter / c->stepsize;
    if (c->policy != ARIL__CAFFE_MULTISTEP) return 0;
    /* Caffe looks at one value in each iteration: `at` is when it passes value n. */
    for (int64_t at = -1; (size_t)n < c->n_steps; n++) {
        int64_t value = aril__message_int_at(c->message, "stepvalue", (size_t)n);
        at = value > at ? value : at + 1;
        if (at > iter) break;
    }
    return n;
}

static double policy_rate(const aril__caffe_settings *c, int64_t iter)
{
    double t = (double)iter;
    switch (c->policy) {
    case ARIL__CAFFE_FIXED: return c->base_lr;
    case ARIL__CAFFE_STEP:
    case ARIL__CAFFE_MULTISTEP:
        return c->base_lr * pow(c->gamma, (double)aril__caffe_current_step(c, iter));
    case ARIL__CAFFE_EXP: return c->base_lr * pow(c->gamma, t);
    case ARIL__CAFFE_INV: return c->base_lr * pow(1 + c->gamma * t, -c->power);
    case ARIL__CAFFE_POLY:
        /* After max_iter, where there is nothing left to train. */
        return iter >= c->max_iter ? 0 : c->base_lr * pow(1 - t / (double)c->max_iter, c->power);
    case ARIL__CAFFE_SIGMOID: return c->base_lr / (1 + exp(-c->gamma * (t - (double)c->stepsize)));
    }
    return c->base_lr;
}

double aril__caffe_rate(const aril__caffe_settings *c, int64_t iter)
{
    if (iter < c->warmup)
        return c->warmup_lr + (c->base_lr - c->warmup_lr) * (double)iter / (double)c->warmup;
    return policy_rate(c, iter);
}
