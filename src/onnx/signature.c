/* What the inputs, outputs and attributes of a node must be: nothing that a file gets wrong is
 * taken for an operator's default. */
#include "formats/schemas.h"
#include "onnx/rules.h"

#include <stdarg.h>
#include <stdio.h>

/* Since a version, names of inputs and outputs ("?": may be missing, "*": any number), and of
 * attributes with their kinds ("!": required). */
typedef struct signature {
    const char *domain, *name;
    int from;
    const char *in, *out, *attributes;
} signature;

static const signature signatures[] = {
#include "onnx/signatures.def"
};
enum { SIGNATURES = sizeof signatures / sizeof *signatures };

static int order_of(const signature *s, const char *domain, const char *name, int version)
{
    int order = strcmp(s->domain, domain);
    if (!order) order = strcmp(s->name, name);
    return order ? order : s->from > version;
}

/* The newest row that is not newer than the version; NULL: none is known. */
static const signature *find(const char *domain, const char *name, int version)
{
    int low = 0, high = SIGNATURES; /* the first row behind it */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (order_of(&signatures[middle], domain, name, version) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const signature *s = low ? &signatures[low - 1] : NULL;
    return s && strcmp(s->domain, domain) == 0 && strcmp(s->name, name) == 0 ? s : NULL;
}

bool aril__onnx_has_signature(const char *domain, const char *name, int version)
{
    return find(domain, name, version) != NULL;
}

/* ---- words of attributes ---- */

/* The words that an attribute of strings may have. */
static const struct {
    const char *operators, *attribute, *words;
} words[] = {
    { "Conv ConvInteger ConvTranspose DeformConv QLinearConv MaxPool AveragePool LpPool "
      "FusedConv NhwcFusedConv NhwcMaxPool QLinearAveragePool",
      "auto_pad", "NOTSET SAME_UPPER SAME_LOWER VALID" },
    { "RNN GRU LSTM DynamicQuantizeLSTM", "direction", "forward reverse bidirectional" },
    { "Resize", "mode", "nearest linear cubic" },
    { "Resize", "coordinate_transformation_mode",
      "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
      "tf_crop_and_resize tf_half_pixel_for_nn" },
    { "Resize", "nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil" },
    { "Resize", "keep_aspect_ratio_policy", "stretch not_larger not_smaller" },
    { "Upsample", "mode", "nearest linear bilinear" },
    { "GridSample", "mode", "linear nearest cubic bilinear bicubic" },
    { "GridSample", "padding_mode", "zeros border reflection" },
    { "RoiAlign", "mode", "avg max" },
    { "RoiAlign", "coordinate_transformation_mode", "half_pixel output_half_pixel" },
    { "Gelu", "approximate", "none tanh" },
    { "BitShift", "direction", "LEFT RIGHT" },
    { "DepthToSpace", "mode", "DCR CRD" },
    { "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", "reduction", "none sum mean" },
    { "ScatterElements ScatterND", "reduction", "none add mul max min" },
    { "StringNormalizer", "case_change_action", "LOWER UPPER NONE" },
    { "ImageDecoder", "pixel_format", "RGB BGR Grayscale" },
    { "Cast CastLike", "round_mode", "up down nearest" },
    { "TfIdfVectorizer", "mode", "TF IDF TFIDF" },
    { "Pad", "mode", "constant reflect edge wrap" },
};

/* Whether one of the words, which spaces separate, is the text. */
static bool has_word(const char *list, const char *text, size_t n)
{
    for (const char *at = list; *at;) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, text, n) == 0) return true;
        at += length;
        at += *at == ' ';
    }
    return false;
}

/* ---- checking ---- */

static aril__cold aril_status wrong(const onnx_model *m, const onnx_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static aril_status wrong(const onnx_model *m, const onnx_node *n, const char *fmt, ...)
{
    char text[300], place[64];
    const char *name = aril__message_text(n->message, "name");
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return aril__fail(ARIL_ERR_FORMAT, "%s: node %s%s%s at %s: %s", m->path, name, *name ? " " : "",
                      aril__message_text(n->message, "op_type"),
                      aril__message_place(n->message, place, sizeof place), text);
}

/* The kinds of attributes: the letter, ONNX's number and the field of the value. */
static const struct {
    char letter;
    int number;
    const char *field, *what;
} kinds[] = {
    { 'f', 1, "f", "a float" },
    { 'i', 2, "i", "an integer" },
    { 's', 3, "s", "a string" },
    { 't', 4, "t", "a tensor" },
    { 'g', 5, "g", "a graph" },
    { 'F', 6, "floats", "floats" },
    { 'I', 7, "ints", "integers" },
    { 'S', 8, "strings", "strings" },
    { 'T', 9, "tensors", "tensors" },
    { 'G', 10, "graphs", "graphs" },
    { 'p', 11, "sparse_tensor", "a sparse tensor" },
    { 'P', 12, "sparse_tensors", "sparse tensors" },
    { 'y', 13, "tp", "a type" },
    { 'Y', 14, "type_protos", "types" },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The kind of an attribute's value, an index of kinds: the type that it declares, or in old files
 * the field that it has; -1: neither, or they contradict. */
static int kind_of(const aril__message *value)
{
    int64_t type = aril__message_int(value, "type");
    int kind = -1;
    for (int k = 0; k < KINDS; k++)
        if (type == kinds[k].number) kind = k;
    for (int k = 0; k < KINDS; k++) {
        if (!aril__message_has(value, kinds[k].field) || k == kind) continue;
        if (type || kind >= 0) return -1;
        kind = k;
    }
    return kind;
}

/* "axis:i! mode:s": the kind of a name, an index of kinds; -1: there is none. */
static int declared(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, n) == 0 && at[n] == ':')
            for (int k = 0; k < KINDS; k++)
                if (at[n + 1] == kinds[k].letter) return k;
    return -1;
}

static aril_status check_word(const onnx_model *m, const onnx_node *n, const signature *s,
                              const onnx_attribute *a)
{
    aril__slice text = aril__message_bytes(a->value, "s");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].attribute, a->name) != 0 ||
            !has_word(words[i].operators, s->name, strlen(s->name)) ||
            has_word(words[i].words, text.at, text.n))
            continue;
        return wrong(m, n, "the attribute %s is \"%.*s\", expected one of: %s", a->name,
                     text.n < 60 ? (int)text.n : 60, (const char *)text.at, words[i].words);
    }
    return ARIL_OK;
}

static aril_status check_attributes(const onnx_model *m, const onnx_node *n, const signature *s)
{
    for (size_t i = 0; i < n->n_attributes; i++) {
        const onnx_attribute *a = &n->attribute[i];
        for (size_t k = 0; k < i && i < 100; k++)
            if (strcmp(n->attribute[k].name, a->name) == 0)
                return wrong(m, n, "the attribute %s is there twice", a->name);
        int want = declared(s->attributes, a->name), got = kind_of(a->value);
        if (want < 0) { /* newer onnxruntimes add attributes to their own operators */
            if (strcmp(s->domain, "com.microsoft") == 0) continue;
            return wrong(m, n, "the operator has no attribute %s", a->name);
        }
        if (got != want)
            return wrong(m, n, "the attribute %s is %s, expected %s", a->name,
                         got < 0 ? "of no clear type" : kinds[got].what, kinds[want].what);
        aril_status status = kinds[want].letter == 's' ? check_word(m, n, s, a) : ARIL_OK;
        if (status < 0) return status;
    }
    for (const char *at = s->attributes; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t length = strcspn(at, ":");
        bool found = at[length + 2] != '!' || strncmp(at, "consumed_inputs", length) == 0;
        for (size_t i = 0; i < n->n_attributes && !found; i++)
            found = strlen(n->attribute[i].name) == length &&
                    strncmp(n->attribute[i].name, at, length) == 0;
        if (!found) return wrong(m, n, "the attribute %.*s is missing", (int)length, at);
    }
    return ARIL_OK;
}

/* Of "X W B? more*", the number of names, and whether the last stands for any number. */
static size_t count_names(const char *list, bool *any)
{
    size_t n = 0;
    *any = false;
    for (const char *at = list; *at; at += *at == ' ', n++) {
        at += strcspn(at, " ");
        *any = at[-1] == '*';
    }
    return n;
}

static const char *name_at(const char *list, size_t i, size_t *length)
{
    const char *at = list;
    for (; i && *at; i--) at += strcspn(at, " "), at += *at == ' ';
    *length = strcspn(at, " ");
    return at;
}

aril_status aril__onnx_check_node(const onnx_model *m, const char *domain, onnx_node *n)
{
    enum { MASK = 32 };
    const signature *s = find(domain, aril__message_text(n->message, "op_type"), n->version);
    bool any;
    if (!s) return ARIL_OK;
    size_t most = count_names(s->in, &any), given = aril__message_count(n->message, "input");
    if (given > most && !any)
        return wrong(m, n, "%zu inputs, the operator has at most %zu", given, most);
    for (size_t i = 0; i < most && i < MASK; i++) {
        size_t length;
        const char *name = name_at(s->in, i, &length);
        if (name[length - 1] == '?' || name[length - 1] == '*') continue;
        n->required |= UINT32_C(1) << i;
        if (i >= given || !n->in[i])
            return wrong(m, n, "input %zu (%.*s) is missing", i, (int)length, name);
    }
    most = count_names(s->out, &any);
    given = aril__message_count(n->message, "output");
    if (given > most && !any)
        return wrong(m, n, "%zu outputs, the operator has at most %zu", given, most);
    return check_attributes(m, n, s);
}
