#include "commands.h"
#include "datasets.h"
#include "import.h"
#include "run.h"

#include <aril/datasets.h>
#include <aril/draw.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *split, *sheet, *export, *target, *skip;
    int64_t count;
    double seconds;
    import_options import;
} options;

/* ---- contents ---- */

enum { MAX_CLASSES = 100000, SHOWN_CLASSES = 40 };

typedef struct summary {
    int64_t samples, classes;
    int64_t *of_class;
    double sum[MAX_CHANNELS], squares[MAX_CHANNELS], elements;
    int channels;
    double min, max;
    bool differ;                /* samples have different shapes */
    aril_shape small, large;    /* minimum and maximum size along each axis */
    double targets, target_sum; /* numeric targets: count, sum */
    double target_min, target_max;
} summary;

static void count_classes(summary *c, aril_tensor *y, int64_t n)
{
    if (!y || aril_ndim(y) != 1 || aril_dtype_is_float(aril_dtype_of(y))) return;
    const int64_t *label = aril_data(aril_cast(y, ARIL_I64));
    for (int64_t i = 0; label && i < n; i++) {
        if (label[i] < 0 || label[i] >= MAX_CLASSES) continue;
        if (label[i] >= c->classes) {
            int64_t *wider = realloc(c->of_class, ((size_t)label[i] + 1) * sizeof *wider);
            if (!wider) return;
            c->of_class = wider;
            while (c->classes <= label[i]) c->of_class[c->classes++] = 0;
        }
        c->of_class[label[i]]++;
    }
}

static void count_numbers(summary *c, aril_tensor *y)
{
    if (!y || !aril_dtype_is_float(aril_dtype_of(y))) return;
    aril_tensor *d = aril_cast(y, ARIL_F64);
    double low = aril_item(aril_amin(d, ARIL_ALL)), high = aril_item(aril_amax(d, ARIL_ALL));
    if (c->targets == 0 || low < c->target_min) c->target_min = low;
    if (c->targets == 0 || high > c->target_max) c->target_max = high;
    c->targets += (double)aril_numel(d);
    c->target_sum += aril_item(aril_sum(d, ARIL_ALL));
}

/* x: [N,...] */
static void count_sizes(summary *c, aril_tensor *x)
{
    aril_shape s = aril_shape_of(x);
    if (c->samples == 0) c->small = c->large = s;
    for (int i = 1; i < s.ndim && s.ndim == c->small.ndim; i++) {
        if (s.dim[i] < c->small.dim[i]) c->small.dim[i] = s.dim[i];
        if (s.dim[i] > c->large.dim[i]) c->large.dim[i] = s.dim[i];
    }
}

static void add_values(summary *c, aril_tensor *x, bool images)
{
    if (!aril_dtype_is_float(aril_dtype_of(x))) return;
    aril_tensor *d = aril_cast(x, ARIL_F64);
    c->channels = images && aril_size(x, 1) <= MAX_CHANNELS ? (int)aril_size(x, 1) : 1;
    for (int k = 0; k < c->channels; k++) {
        aril_tensor *part = c->channels > 1 ? aril_select(d, 1, k) : d;
        c->sum[k] += aril_item(aril_sum(part, ARIL_ALL));
        c->squares[k] += aril_item(aril_sum(aril_square(part), ARIL_ALL));
        if (k == 0) c->elements += (double)aril_numel(part);
    }
    double low = aril_item(aril_amin(d, ARIL_ALL)), high = aril_item(aril_amax(d, ARIL_ALL));
    if (c->samples == 0 || low < c->min) c->min = low;
    if (c->samples == 0 || high > c->max) c->max = high;
}

/* Reads samples for at most `seconds`, one by one if they differ in size. */
static bool read_samples(aril_dataset *d, double seconds, summary *c)
{
    aril_shape shape = aril_dataset_shape(d);
    if (!aril_ok()) return false;
    bool same_size = shape.ndim > 0 && !c->differ;
    aril_loader *l = aril_loader_new(aril_dataset_keep(d),
                                     (aril_loader_opts){ .batch = same_size ? 64 : 1,
                                                         .shuffle = aril_dataset_size(d) > 0 });
    double end = bench_now() + seconds;
    for (aril_batch b; l && bench_now() < end && aril_loader_next(l, &b);) {
        ARIL_SCOPE;
        count_classes(c, b.y, b.n);
        count_numbers(c, b.y);
        count_sizes(c, b.x);
        add_values(c, b.x, aril_dataset_has_images(d));
        c->samples += b.n;
    }
    aril_loader_free(l);
    return aril_ok();
}

/* The same; starts over one by one when sizes turn out to differ. */
static bool summarize(aril_dataset *d, double seconds, summary *c)
{
    if (read_samples(d, seconds, c)) return true;
    if (c->differ || aril_error_code() != ARIL_ERR_SHAPE) return false;
    aril_clear_error();
    free(c->of_class);
    *c = (summary){ .differ = true };
    return read_samples(d, seconds, c);
}

static void print_classes(const summary *c, aril_dataset *d, int width)
{
    const char *const *names;
    int n_names = aril_dataset_classes(d, &names);
    int64_t limit = 1;
    int widest = 5;
    char number[32];
    for (int64_t i = 0; i < c->classes; i++) {
        if (c->of_class[i] > limit) limit = c->of_class[i];
        int length = i < n_names ? printed_width(names[i])
                                 : snprintf(number, sizeof number, "%lld", (long long)i);
        if (length > widest) widest = length < 30 ? length : 30;
    }
    int longest_bar = width - widest - 16;
    if (longest_bar > 40) longest_bar = 40;
    for (int64_t i = 0; i < c->classes && i < SHOWN_CLASSES; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        printf("  ");
        print_padded(i < n_names ? names[i] : number, widest);
        printf(" %8lld  ", (long long)c->of_class[i]);
        int bar = (int)((double)longest_bar * (double)c->of_class[i] / (double)limit + 0.5);
        for (int k = 0; k < bar; k++) putchar('#');
        puts("");
    }
    if (c->classes > SHOWN_CLASSES)
        printf("  ... and %lld more classes\n", (long long)(c->classes - SHOWN_CLASSES));
}

/* Whether the first sample says so. */
static bool is_bgr(aril_dataset *d)
{
    ARIL_SCOPE;
    aril_sample s = { 0 };
    return aril_dataset_size(d) > 0 && aril_dataset_get(d, 0, &s) == ARIL_OK && s.bgr;
}

static void print_values(const summary *c, bool bgr)
{
    if (c->elements == 0) return;
    printf("  values   %.4g to %.4g\n", c->min, c->max);
    for (int what = 0; what < 2; what++) {
        printf(what ? "  std     " : "  mean    ");
        for (int k = 0; k < c->channels; k++) {
            double mean = c->sum[k] / c->elements;
            double variance = c->squares[k] / c->elements - mean * mean;
            printf(" %.4f", what ? sqrt(variance > 0 ? variance : 0) : mean);
        }
        puts(bgr ? " (blue, green, red)" : "");
    }
}

/* "  columns  area, rooms", truncated at the width. */
static void print_columns(aril_dataset *d, int width)
{
    enum { HEAD = 11 };
    const char *const *names;
    int n = aril_dataset_columns(d, &names, NULL), used = HEAD;
    if (n == 0) return;
    printf("  columns  ");
    for (int i = 0; i < n; i++) {
        int wide = printed_width(names[i]);
        if (used + wide + 8 > width && i > 0) {
            printf(", ...");
            break;
        }
        if (i) printf(", ");
        print_text(stdout, names[i]);
        used += wide + 2;
    }
    puts("");
}

/* "  target   price, 90000 to 700000, mean 398362" */
static void print_target(aril_dataset *d, const summary *c)
{
    const char *target = NULL;
    aril_dataset_columns(d, NULL, &target);
    if (!target && c->targets == 0) return;
    printf("  target   ");
    print_text(stdout, target ? target : "numbers");
    if (c->targets > 0)
        printf(", %.6g to %.6g, mean %.6g", c->target_min, c->target_max,
               c->target_sum / c->targets);
    puts("");
}

static void print_shape(aril_dataset *d, const summary *c)
{
    char text[128], large[128];
    bool images = aril_dataset_has_images(d);
    if (!c->differ || c->samples == 0) {
        printf("  shape    %s%s\n", shape_text(aril_dataset_shape(d), text, sizeof text),
               images ? " (image)" : "");
        return;
    }
    aril_shape a = c->small, b = c->large; /* without the batch dimension */
    for (int i = 1; i < a.ndim; i++) a.dim[i - 1] = a.dim[i], b.dim[i - 1] = b.dim[i];
    a.ndim--, b.ndim--;
    printf("  shape    %s to %s%s\n", shape_text(a, text, sizeof text),
           shape_text(b, large, sizeof large),
           images ? " (images of different sizes)" : " (different sizes)");
}

static int describe(aril_dataset *d, const char *name, const options *o)
{
    summary c = { .differ = shapes_differ(d) };
    if (!aril_ok() || !summarize(d, o->seconds, &c)) {
        free(c.of_class);
        return report("data");
    }
    int64_t size = aril_dataset_size(d);
    const char *const *names;
    int n_names = aril_dataset_classes(d, &names);
    print_text(stdout, name);
    printf("%s%s: ", o->split ? ", " : "", o->split ? o->split : "");
    if (size >= 0)
        printf("%lld samples\n", (long long)size);
    else
        puts("a stream");
    print_shape(d, &c);
    print_values(&c, is_bgr(d));
    print_columns(d, terminal_width(stdout));
    print_target(d, &c);
    if (n_names || c.classes)
        printf("  classes  %lld\n", (long long)(n_names > c.classes ? n_names : c.classes));
    if (c.samples && c.samples < size)
        printf("  (statistics of %lld random samples)\n", (long long)c.samples);
    if (c.classes) {
        puts("");
        print_classes(&c, d, terminal_width(stdout));
    }
    free(c.of_class);
    return aril_ok() ? EXIT_DONE : report("data");
}

/* ---- images ---- */

/* The first samples, spread over the classes if the labels are sorted. */
static int64_t pick(aril_dataset *d, int64_t i, int64_t count)
{
    int64_t size = aril_dataset_size(d);
    return count < size ? (int64_t)((double)i * (double)size / (double)count) : i;
}

static bool label_of(aril_dataset *d, const aril_sample *s, char *text, size_t size)
{
    const char *const *names;
    int n = aril_dataset_classes(d, &names);
    if (!s->y || aril_numel(s->y) != 1) return false;
    int64_t label = aril_dtype_is_float(aril_dtype_of(s->y)) ? -1 : aril_item_int(s->y);
    if (label >= 0 && label < n)
        printable(names[label], text, size);
    else if (label >= 0)
        snprintf(text, size, "%lld", (long long)label);
    else
        snprintf(text, size, "%g", aril_item(s->y));
    return true;
}

static int draw_sheet(aril_dataset *d, const char *name, const options *o)
{
    ARIL_SCOPE;
    int64_t size = aril_dataset_size(d), n = size >= 0 && size < o->count ? size : o->count;
    aril_tensor **image = calloc((size_t)n + 1, sizeof *image);
    aril_caption *caption = calloc((size_t)n + 1, sizeof *caption);
    char(*text)[96] = calloc((size_t)n + 1, sizeof *text);
    /* Different sizes: resize and crop all of them to 96 x 96. */
    aril_transform *square = aril_transform_parse("resize=96,center_crop=96");
    bool same = true;
    for (int64_t i = 0; image && caption && text && i < n && aril_ok(); i++) {
        aril_sample s = { 0 };
        if (aril_dataset_get(d, pick(d, i, n), &s) < 0) break;
        image[i] = s.bgr ? aril_flip(s.x, ARIL_AXES(0)) : s.x;
        same = same && aril_numel(s.x) == aril_numel(image[0]);
        if (label_of(d, &s, text[i], sizeof text[i])) caption[i].text = text[i];
    }
    for (int64_t i = 0; !same && i < n && aril_ok(); i++)
        image[i] = aril_transform_image(square, image[i], NULL);
    if (aril_ok() && n > 0 && image && caption && text) {
        char title[160];
        snprintf(title, sizeof title, "%s%s%s", name, o->split ? ", " : "",
                 o->split ? o->split : "");
        aril_tensor *all = aril_stack((aril_list){ .n = (int)n, .at = image }, 0);
        aril_draw_sheet(o->sheet, all, caption, 0, (aril_draw_opts){ .title = title });
        if (aril_ok()) printf("%s: %lld images\n", o->sheet, (long long)n);
    }
    aril_transform_free(square);
    free(image);
    free(caption);
    free(text);
    return aril_ok() ? EXIT_DONE : report("data");
}

/* Makes a label usable in a file name. */
static void make_file_name(char *text)
{
    for (; *text; text++) {
        bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                      (*text >= '0' && *text <= '9');
        if (!letter && *text != '-') *text = '_';
    }
}

static int export(aril_dataset *d, const options *o)
{
    int64_t size = aril_dataset_size(d), n = size >= 0 && size < o->count ? size : o->count;
    if (aril_folder_create(o->export) != ARIL_OK) return report("data");
    for (int64_t i = 0; i < n && aril_ok(); i++) {
        ARIL_SCOPE;
        char path[4096], label[96] = "image";
        int64_t which = pick(d, i, n);
        aril_sample s = { 0 };
        if (aril_dataset_get(d, which, &s) < 0) break;
        label_of(d, &s, label, sizeof label);
        make_file_name(label);
        if (s.bgr) s.x = aril_flip(s.x, ARIL_AXES(0));
        snprintf(path, sizeof path, "%s/%lld-%s.png", o->export, (long long)which, label);
        aril_image_write(path, s.x, (aril_image_write_opts){ 0 });
    }
    if (aril_ok()) printf("%s: %lld images\n", o->export, (long long)n);
    return aril_ok() ? EXIT_DONE : report("data");
}

static int run(void *values, int n, char **argument)
{
    const options *o = values;
    if (n == 3 && strcmp(argument[0], "import") == 0)
        return import_data(argument[1], o->split, argument[2], &o->import);
    if (n == 3 && strcmp(argument[0], "mean") == 0) return import_mean(argument[1], argument[2]);
    if (n != 1) {
        fputs("aril data: expected DATASET, import SOURCE LMDB or mean LMDB FILE\n", stderr);
        return EXIT_USAGE;
    }
    /* The same classes that aril train uses. */
    aril_open_opts opts = { .target = o->target, .skip = o->skip, .name_classes = true };
    aril_dataset *d = aril_dataset_open_with(argument[0], o->split, opts);
    if (!d) return report("data");
    int status = EXIT_DONE;
    if ((o->sheet || o->export) && !aril_dataset_has_images(d)) {
        fprintf(stderr, "aril data: --sheet and --export are for images; '%s' has none\n",
                argument[0]);
        status = EXIT_FAILED;
    }
    if (status == EXIT_DONE && !o->sheet && !o->export) status = describe(d, argument[0], o);
    if (status == EXIT_DONE && o->sheet) status = draw_sheet(d, argument[0], o);
    if (status == EXIT_DONE && o->export) status = export(d, o);
    aril_dataset_release(d);
    return status;
}

const char *const *dataset_names(void)
{
    static const char *names[64];
    const char *const *known;
    int n = aril_dataset_names(&known);
    for (int i = 0; i < n && i < 63; i++) names[i] = known[i];
    names[n < 63 ? n : 63] = NULL;
    return names;
}

static const option table[] = {
    { .name = "split",
      .value = "NAME",
      .kind = OPTION_STRING,
      OPTION_AT(split),
      .help = "split to describe: train, test or another one of the dataset" },
    OPTION_TARGET("tables: target column, by name or number (default the last one)"),
    OPTION_SKIP,
    { .name = "sheet",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(sheet),
      .help = "draw a contact sheet of images with their classes to this .png or .svg file" },
    { .name = "export",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      OPTION_AT(export),
      .help = "write images as PNG files to this folder" },
    { .name = "count",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(count),
      .min = 1,
      .max = 100000,
      .help = "number of images for --sheet and --export" },
    { .name = "seconds",
      .value = "S",
      .kind = OPTION_FLOAT,
      OPTION_AT(seconds),
      .help = "read samples for at most this many seconds" },

    { .name = "", .help = "Import:" },
    { .name = "root",
      .value = "DIR",
      .kind = OPTION_FOLDER,
      OPTION_AT(import.root),
      .help = "folder of the images in a list" },
    { .name = "size",
      .value = "HxW",
      .kind = OPTION_STRING,
      OPTION_AT(import.size),
      .help = "resize images to this size" },
    { .name = "gray", OPTION_AT(import.gray), .help = "store images with one channel" },
    { .name = "shuffle", OPTION_AT(import.shuffle), .help = "store samples in random order" },
    { .name = "seed",
      .value = "N",
      .kind = OPTION_INTEGER,
      OPTION_AT(import.seed),
      .by_default = "0",
      .help = "random seed of that order" },
    { .name = "encoded",
      .value = "FORMAT",
      .kind = OPTION_STRING,
      OPTION_AT(import.encoded),
      .help = "store images compressed: png or jpg" },
    { .name = "rgb",
      OPTION_AT(import.rgb),
      .help = "store channels in the order red, green, blue, not in reverse as Caffe does" },
    { .name = "same-size",
      OPTION_AT(import.same_size),
      .help = "samples of different sizes are an error" },
    { .name = "strict",
      OPTION_AT(import.strict),
      .help =
          "lists: an image that cannot be read is an error, instead of left out with a warning" },
    { .name = "force", OPTION_AT(import.force), .help = "replace a database that is there" },
    { .name = "mean",
      .value = "FILE",
      .kind = OPTION_FILE,
      OPTION_AT(import.mean),
      .help = "also write the mean image to this file, a .binaryproto" },
    { 0 },
};

static const example examples[] = {
    { "aril data fashion-mnist", "samples, classes and statistics of Fashion-MNIST" },
    { "aril data ~/flowers --sheet flowers.png", "a contact sheet of a folder of images" },
    { "aril data import mnist mnist_test_lmdb --split test", "a database for Caffe's Data layer" },
    { "aril data import train.txt train_lmdb --root images/ --size 256 --shuffle",
      "one of a list with lines of \"path label\"" },
    { "aril data mean train_lmdb mean.binaryproto", "the mean image of a database" },
    { 0 },
};

const command command_data = {
    .name = "data",
    .summary = "describe a dataset, or convert it to a database",
    .arguments = "DATASET | import SOURCE LMDB | mean LMDB FILE",
    .about = "DATASET is a name, which is searched for in the folders of ARIL_DATA and of the "
             "system, or the path of a file or folder; `aril help datasets` lists the names and "
             "formats.\n\n"
             "`import` writes the samples of a dataset, or the images of a list, to an LMDB as "
             "Caffe's tools do. SOURCE is a DATASET, or a text file with a line \"path label\" for "
             "each image. `mean` writes the mean image of an LMDB, for transform_param.",
    .options = table,
    .examples = examples,
    .size = sizeof(options),
    .defaults = &(const options){ .count = 40, .seconds = 5 },
    .min = 1,
    .max = 3,
    .choices = dataset_names,
    .run = run
};
