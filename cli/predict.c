#include "commands.h"
#include "model_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    int64_t top, threads;
    bool json, invert;
} options;

/* A picture file as the network wants it: channels, size, normalised. [1,C,H,W] */
static aril_tensor *read_picture(const model_file *m, const char *path, bool invert)
{
    int64_t channels = m->input.dim[0], height = m->input.dim[1], width = m->input.dim[2];
    aril_tensor *x = aril_picture_read(path, (aril_picture_opts){ .channels = channels == 1 ? 1 : 3,
                                                                  .min_width = width,
                                                                  .min_height = height });
    if (aril_size(x, 1) != height || aril_size(x, 2) != width) {
        aril_transform *resize = aril_transform_resize(height, width, (aril_resize_opts){ 0 });
        x = aril_transform_picture(resize, x, NULL);
        aril_transform_free(resize);
    }
    x = aril_div_scalar(aril_cast(x, ARIL_F32), 255);
    if (invert) x = aril_add_scalar(aril_neg(x), 1);
    aril_transform *normalise = model_normalise(m);
    if (normalise) x = aril_transform_picture(normalise, x, NULL);
    aril_transform_free(normalise);
    return aril_unsqueeze(x, 0);
}

static void json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 32)
            printf("\\u%04x", *text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void print_json(const model_file *m, const char *path, int64_t n, const int64_t *class,
                       const float *share, bool first)
{
    char number[32];
    printf("%s\n  {\"file\": ", first ? "" : ",");
    json_text(path);
    printf(", \"predictions\": [");
    for (int64_t i = 0; i < n; i++) {
        printf("%s{\"class\": ", i ? ", " : "");
        json_text(model_class(m, class[i], number, sizeof number));
        printf(", \"index\": %lld, \"probability\": %.6g}", (long long)class[i], (double)share[i]);
    }
    printf("]}");
}

static void print_lines(const model_file *m, const char *path, int64_t n, const int64_t *class,
                        const float *share)
{
    char number[32];
    printf("%s\n", path);
    for (int64_t i = 0; i < n; i++)
        printf("  %5.1f %%  %s\n", 100 * (double)share[i],
               model_class(m, class[i], number, sizeof number));
}

/* False after an error; it is this file's alone. */
static bool predict(const model_file *m, const char *path, const options *o, bool first)
{
    ARIL_SCOPE;
    ARIL_INFERENCE;
    int64_t n = o->top < m->classes ? o->top : m->classes;
    aril_tensor *which;
    aril_tensor *p = aril_softmax(aril_forward(m->net, read_picture(m, path, o->invert)), -1);
    aril_tensor *best = aril_topk(p, n, -1, (aril_topk_opts){ 0 }, &which);
    const float *share = aril_data(best);
    const int64_t *class = aril_data(which);
    if (!share || !class || !aril_ok()) return false;
    if (o->json)
        print_json(m, path, n, class, share, first);
    else
        print_lines(m, path, n, class, share);
    return true;
}

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    model_file m;
    use_threads(o->threads);
    if (!model_open(argument[0], &m)) return report("predict");
    if (m.input.ndim != 3) {
        fprintf(stderr, "aril predict: '%s' does not take pictures\n", argument[0]);
        model_close(&m);
        return EXIT_FAILED;
    }
    aril_module_eval(m.net);
    int status = EXIT_DONE;
    bool first = true;
    if (o->json) printf("[");
    for (int i = 1; i < n; i++) {
        if (predict(&m, argument[i], o, first)) {
            first = false;
            continue;
        }
        status = report("predict");
    }
    if (o->json) puts("\n]");
    model_close(&m);
    return status;
}

#define AT(field) .at = offsetof(options, field)

static const option table[] = {
    { .name = "top",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(top),
      .least = 1,
      .help = "how many classes are shown for each picture; 3" },
    { .name = "json", AT(json), .help = "prints JSON" },
    { .name = "invert",
      AT(invert),
      .help = "turns dark to light: for pictures on white paper where the network knows them on "
              "black" },
    { .name = "threads",
      .value = "N",
      .kind = OPTION_WHOLE,
      AT(threads),
      .least = 1,
      .help = "as many threads; all CPUs unless given" },
    { 0 },
};

static const example examples[] = {
    { "aril predict quickstart boot.png shirt.jpg", "the likeliest classes of two pictures" },
    { "aril predict model.safetensors *.png --top 1 --json", "for other programs" },
    { 0 },
};

const command command_predict = { .name = "predict",
                                  .summary = "tells what is on pictures",
                                  .arguments = "MODEL FILE...",
                                  .about =
                                      "MODEL is a file or folder that `aril train` has written. "
                                      "Pictures (JPEG, PNG) of any size are brought to the "
                                      "size and colours that it wants. A file that cannot be read "
                                      "is reported, the others are done; the exit status is "
                                      "then 1.",
                                  .options = table,
                                  .examples = examples,
                                  .size = sizeof(options),
                                  .defaults = &(const options){ .top = 3 },
                                  .least = 2,
                                  .most = -1,
                                  .run = run };
