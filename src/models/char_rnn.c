/* A character RNN: an embedding, two layers of LSTM, and scores of the next character:
 * tokens [N,T], then states [layers,N,hidden] or none -> scores [N,T,classes] and states. */
#include "aril/nn.h"
#include "core/error.h"
#include "models/build.h"
#include "models/models.h"
#include "nn/module.h"

ARIL__FORWARD(language_forward)
{
    aril_tensor *h = n_in > 1 ? in[1] : NULL, *c = n_in > 2 ? in[2] : NULL, *y[3];
    aril_tensor *x = aril_forward(aril_module_child(self, 0), in[0]); /* [N,T,embed] */
    aril_forward_all(aril_module_child(self, 1), ARIL_LIST(x, h, c), 3, y);
    out[0] = aril_forward(aril_module_child(self, 2), y[0]);
    for (int i = 1; i < n_out; i++) out[i] = y[i];
}

aril_module *aril__language_rnn(int64_t classes, int64_t embed, int64_t hidden, int layers)
{
    static const aril_module_class class = {
        .type = "CharRNN", .forward = language_forward, .inputs = 3, .outputs = 3
    };
    aril_nn_rnn_opts opts = { .layers = layers, .batch_first = true };
    aril_module *m = aril_module_make(&class);
    m = aril__with(m, "embedding", aril_nn_embedding(classes, embed));
    m = aril__with(m, "lstm", aril_nn_lstm_with(embed, hidden, opts));
    return aril__with(m, "linear", aril_nn_linear(hidden, classes));
}

static aril_module *char_rnn(const aril_zoo_entry *e, const aril_zoo_opts *o)
{
    if (o->input.ndim == 1) return aril__language_rnn(o->classes, 64, 256, 2);
    aril__fail(ARIL_ERR_SHAPE, "%s expects sequences of characters, [T]", e->name);
    return NULL;
}

const aril_zoo_entry aril__zoo_char_rnn[] = {
    { .name = "char_rnn",
      .family = "char_rnn",
      .paper = "Generating Sequences With Recurrent Neural Networks",
      .year = 2013,
      ARIL__TOKENS(96),
      .classes = 256,
      .make = char_rnn,
      .about = "two layers of LSTM that predict the next character" },
    { 0 },
};
