/* Generating text with a GPT-2: the most likely continuation, several that are drawn, and the best
 * by beam search.
 *
 *     build/examples/generate FOLDER [PROMPT]      a GPT-2 as Hugging Face has it
 *     build/examples/generate                      a small one, trained on a nursery rhyme first */
#include <aril/aril.h>

#include <stdlib.h>
#include <string.h>

static const char rhyme[] = "This is the house that Jack built.\n"
                            "This is the malt that lay in the house that Jack built.\n"
                            "This is the rat that ate the malt that lay in the house that Jack "
                            "built.\n"
                            "This is the cat that killed the rat that ate the malt that lay in the "
                            "house that Jack built.\n"
                            "This is the dog that worried the cat that killed the rat that ate the "
                            "malt that lay in the house that Jack built.\n";

/* A tokenizer and a network for the rhyme: each token is predicted from those before it. */
static aril_module *train(int steps, aril_tokenizer **t)
{
    static const char *const special[] = { "<|endoftext|>" };
    *t = aril_tokenizer_train(rhyme, strlen(rhyme),
                              (aril_tokenizer_opts){
                                  .size = 320, .special = special, .n_special = 1 });
    ARIL_SCOPE;
    aril_tensor *text = aril_tokenizer_encode(*t, rhyme, (aril_encode_opts){ 0 });
    int64_t n = aril_numel(text);
    printf("%zu bytes are %lld tokens of %lld\n", strlen(rhyme), (long long)n,
           (long long)aril_tokenizer_size(*t));
    aril_module *net = aril_gpt2((aril_gpt2_opts){ .vocabulary = aril_tokenizer_size(*t),
                                                   .context = 256,
                                                   .width = 64,
                                                   .heads = 4,
                                                   .layers = 2 });
    aril_optim *opt = aril_adam(aril_parameters(net), (aril_adam_opts){ .lr = 3e-3 });
    aril_tensor *x = aril_unsqueeze(aril_narrow(text, 0, 0, n - 1), 0), *loss = NULL;
    for (int step = 0; step < steps && aril_ok(); step++) {
        ARIL_SCOPE;
        aril_tensor *scores = aril_flatten(aril_forward(net, x), 0, 1); /* [n - 1,tokens] */
        loss = aril_cross_entropy(scores, aril_narrow(text, 0, 1, n - 1));
        aril_backward(loss);
        aril_step(opt);
        if (step % 20 == 19) printf("step %d, loss %.3f\n", step + 1, aril_item(loss));
    }
    aril_optim_free(opt);
    aril_module_eval(net);
    return net;
}

/* Prints each token as it comes. */
static bool print_token(void *ctx, int64_t sequence, int64_t token)
{
    const char *text = aril_text_stream_add(ctx, token);
    (void)sequence;
    if (text) fputs(text, stdout);
    fflush(stdout);
    return text != NULL;
}

static void print_text(const aril_tokenizer *t, aril_tensor *ids)
{
    char *text = aril_tokenizer_decode(t, ids, (aril_decode_opts){ .skip_special = true });
    if (text) puts(text);
    free(text);
}

int main(int argc, char **argv)
{
    ARIL_SCOPE;
    bool quick = getenv("ARIL_EXAMPLE_QUICK") != NULL;
    aril_seed(0);
    aril_tokenizer *t = NULL;
    aril_module *net = NULL;
    if (argc > 1) {
        t = aril_tokenizer_load(argv[1]);
        net = aril_gpt2_load(argv[1]);
    } else {
        net = train(quick ? 20 : 100, &t);
    }
    aril_decoder *d = net && t ? aril_gpt2_decoder(net) : NULL;
    if (!d) return aril_report(stderr);

    const char *text = argc > 2 ? argv[2] : "This is the cat";
    aril_tensor *prompt = aril_tokenizer_encode(t, text, (aril_encode_opts){ 0 }), *out[3];
    int64_t end = aril_tokenizer_id(t, "<|endoftext|>");
    aril_generate_opts opts = { .max_tokens = 30, .stop = &end, .n_stop = end >= 0 };

    printf("\nThe most likely token each time:\n%s", text);
    aril_text_stream *stream = aril_text_stream_new(t, (aril_decode_opts){ 0 });
    opts.on_token = print_token;
    opts.ctx = stream;
    aril_generate(d, ARIL_LIST(prompt), opts, out);
    const char *rest = aril_text_stream_end(stream);
    puts(rest ? rest : "");
    aril_text_stream_free(stream);
    opts.on_token = NULL;

    puts("\nDrawn three times:");
    opts.temperature = 0.8;
    opts.top_k = 40;
    opts.results = 3;
    if (aril_generate(d, ARIL_LIST(prompt), opts, out) == ARIL_OK)
        for (int i = 0; i < 3; i++) print_text(t, out[i]);

    double score;
    puts("\nThe best of four beams:");
    opts.temperature = 0;
    opts.results = 1;
    opts.top_k = 0;
    opts.beams = 4;
    opts.scores = &score;
    if (aril_generate(d, ARIL_LIST(prompt), opts, out) == ARIL_OK) {
        print_text(t, out[0]);
        printf("(mean log probability of a token: %.3f)\n", score);
    }
    aril_decoder_free(d);
    aril_module_release(net);
    aril_tokenizer_free(t);
    return aril_report(stderr);
}
