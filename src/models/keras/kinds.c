/* The classes of layers. */
#include "models/keras/keras.h"

#include <string.h>

/* ---- variables ---- */

#define NONE      ""
#define KERNEL    "kernel bias?use_bias"
#define SEPARABLE "depthwise_kernel pointwise_kernel bias?use_bias"
#define SCALED    "gamma?scale beta?center"
#define MOVING    SCALED " moving_mean! moving_variance!"
#define ADAPTED   "mean!?mean:null variance!?mean:null count!?mean:null"
#define SCORES    "scale?use_scale=0 concat_score_weight?score_mode:concat"
#define CELL      "cell/kernel cell/recurrent_kernel cell/bias?use_bias"
#define PART(p)   p "_dense/kernel " p "_dense/bias?use_bias"
#define HEADS     PART("query") " " PART("key") " " PART("value") " " PART("output")

/* ---- inputs: their order, and what becomes of a mask ---- */

#define ANY            KERAS_WANT_ANY, KERAS_MASK_PASS
#define AXIS           KERAS_WANT_AXIS, KERAS_MASK_PASS
#define SPATIAL        KERAS_WANT_SPATIAL, KERAS_MASK_STOP
#define SPATIAL_MASKED KERAS_WANT_SPATIAL, KERAS_MASK_TAKE
#define PLAIN          KERAS_WANT_KERAS, KERAS_MASK_STOP
#define STEPS          KERAS_WANT_KERAS, KERAS_MASK_PASS
#define FLATTENED      KERAS_WANT_FLAT, KERAS_MASK_PASS
#define FLATTENS       KERAS_WANT_ANY, KERAS_MASK_STOP
#define MASKING        KERAS_WANT_KERAS, KERAS_MASK_MAKE
#define MASKED         KERAS_WANT_KERAS, KERAS_MASK_BOTH
#define RECURRENT      KERAS_WANT_KERAS, KERAS_MASK_ALONE

/* ---- results ---- */

#define SAME  KERAS_GIVES_SAME
#define KERAS KERAS_GIVES_KERAS
#define FLAT  KERAS_GIVES_FLAT

static const keras_kind kinds[] = {
#define KIND(class, variables, in, spatial, fn, gives) \
    { #class, variables, in, spatial, aril__keras_##fn, gives },
#include "models/keras/kinds.def"
#undef KIND
};

const keras_kind *aril__keras_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return aril__keras_op_kind(name);
}
