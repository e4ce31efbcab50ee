/* An image captioner (Vinyals, Toshev, Bengio, Erhan: Show and Tell: A Neural Image Caption
 * Generator, 2015): a convolutional network, whose result is the first state of an LSTM over words.
 * Image [N,C,H,W], tokens [N,T] (default: one token 0) -> scores [N,T,classes]. */
#include "aril/create.h"
#include "aril/generate.h"
#include "aril/nn.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/tensor.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

enum { EMBED = 64, HIDDEN = 256, WIDTH = 32, STAGES = 4 };

/* The first states, h and c: [1,N,hidden]. */
static aril_status first_states(aril_module *self, aril_tensor *image, aril_tensor *state[2])
{
    aril_tensor *x = aril_forward(aril_module_child(self, 0), image); /* [N,2 * hidden] */
    aril_status status = aril_chunk(x, 2, 1, state);
    for (int i = 0; i < 2 && status == ARIL_OK; i++)
        state[i] = aril_contiguous(aril_unsqueeze(state[i], 0));
    return status;
}

ARIL__FORWARD(captioner_forward)
{
    aril_tensor *state[2], *tokens = n_in > 1 ? in[1] : NULL;
    if (!tokens) /* [N,1] */
        tokens = aril_zeros(ARIL_SHAPE(aril_size(in[0], 0), 1), ARIL_I64, aril_device_of(in[0]));
    if (first_states(self, in[0], state) < 0) {
        out[0] = aril__poison();
        return;
    }
    out[0] = aril_forward_n(aril_module_child(self, 1), ARIL_LIST(tokens, state[0], state[1]));
}

static const aril_module_class captioner_class = {
    .type = "Captioner", .forward = captioner_forward, .inputs = 2, .outputs = 1
};

/* Each stage halves the image and doubles the channels. */
static aril_module *encoder(int64_t channels)
{
    aril_module *m = aril_nn_sequential_of(0, NULL);
    int64_t width = WIDTH;
    for (int i = 0; i < STAGES; i++) {
        m = aril__append(m, aril__conv(channels, width, 3, 2, 1));
        m = aril__append(m, aril_nn_batch_norm2d(width));
        m = aril__append(m, aril_nn_relu());
        channels = width;
        width *= 2;
    }
    m = aril__append(m, aril_nn_flatten());
    m = aril__append(m, aril_nn_linear(0, 2 * HIDDEN));
    return aril__append(m, aril_nn_layer_norm(2 * HIDDEN)); /* of the size of a state */
}

static aril_module *captioner(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (!aril__takes_image(e->name, o->input)) return NULL;
    aril_module *m = aril_module_make(&captioner_class);
    m = aril__with(m, "encoder", encoder(o->input.dim[0]));
    return aril__with(m, "language", aril__language_rnn(o->classes, EMBED, HIDDEN, 1));
}

const aril_zoo_entry aril__zoo_captioner[] = {
    { .name = "captioner",
      .family = "captioner",
      .paper = "Show and Tell: A Neural Image Caption Generator",
      .year = 2014,
      ARIL__IMAGE(3, 64, 64),
      .classes = 64,
      .make = captioner,
      .about = "a convolutional network and an LSTM that describe an image in words" },
    { 0 },
};

aril_decoder *aril_captioner_decoder(aril_module *net, aril_tensor *images)
{
    if (!net || net->type != &captioner_class) {
        aril__fail(ARIL_ERR_ARG, "captioner_decoder: expected a Captioner, got %s",
                   net ? aril_module_type(net) : "NULL");
        return NULL;
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_tensor *state[2];
    if (!images) {
        aril__fail(ARIL_ERR_ARG, "captioner_decoder: the images are NULL");
        return NULL;
    }
    if (first_states(net, images, state) < 0) return NULL;
    return aril_rnn_decoder_from(aril_module_child(net, 1), ARIL_LIST(state[0], state[1]));
}
