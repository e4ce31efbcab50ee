#include "tasks.h"

#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- LeNet-5 from a loader: a step is an epoch of IMAGES images in batches of BATCH ---- */

enum { IMAGES = 16384, BATCH = 64 };

typedef struct lenet {
    aril_model *model; /* for model_fit */
    aril_module *net;
    aril_optim *opt; /* for a hand-written loop */
    aril_loader *batches;
} lenet;

static aril_dataset *images(void)
{
    ARIL_SCOPE;
    bench_maker m = { .dtype = ARIL_F32 };
    aril_tensor *x = bench_fill(&m, ARIL_SHAPE(IMAGES, 28, 28), 128, 127);
    aril_tensor *y = bench_fill(&m, ARIL_SHAPE(IMAGES), 5, 5);
    return aril_dataset_images(aril_cast(x, ARIL_U8), aril_cast(aril_floor(y), ARIL_I64));
}

static void lenet_end(void *state)
{
    lenet *l = state;
    aril_loader_free(l->batches);
    aril_optim_free(l->opt);
    if (l->model)
        aril_model_free(l->model);
    else
        aril_module_release(l->net);
    free(l);
}

static void *lenet_begin(bool fit)
{
    lenet *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    aril_seed(0);
    l->net = aril_zoo_make("lenet5", (aril_zoo_opts){ 0 });
    l->batches = aril_loader_new(images(), (aril_loader_opts){ .batch = BATCH, .shuffle = true });
    if (fit) {
        l->model = aril_model_new(l->net, ARIL_SHAPE(1, 28, 28));
        aril_model_compile(l->model, (aril_model_opts){
                                         .loss = "cross_entropy",
                                         .metrics = "accuracy",
                                         .optimizer = aril_adam(NULL, (aril_adam_opts){ 0 }) });
    } else {
        l->opt = aril_adam(aril_parameters(l->net), (aril_adam_opts){ 0 });
    }
    if (aril_ok()) return l;
    lenet_end(l);
    return NULL;
}

static void *lenet_loop_begin(const char *name, aril_device device)
{
    (void)name;
    (void)device;
    return lenet_begin(false);
}

static void *lenet_fit_begin(const char *name, aril_device device)
{
    (void)name;
    (void)device;
    return lenet_begin(true);
}

static void lenet_loop_step(void *state)
{
    lenet *l = state;
    for (aril_batch b; aril_loader_next(l->batches, &b);) {
        ARIL_SCOPE;
        aril_backward(aril_cross_entropy(aril_forward(l->net, b.x), b.y));
        aril_step(l->opt);
    }
}

static void lenet_fit_step(void *state)
{
    lenet *l = state;
    aril_model_fit_loader(l->model, l->batches,
                          (aril_fit_opts){ .epochs = 1, .verbose = ARIL_SILENT });
}

/* ---- images from files: a step is FILES of them, cropped to 224 x 224, in batches of 32 ---- */

enum { FILES = 256, WIDTH = 500, HEIGHT = 375 };

/* An image with edges, gradients and noise, so that its file is about as large as a
 * photograph's. */
static aril_tensor *scene(int i)
{
    ARIL_SCOPE;
    aril_seed((uint64_t)i);
    aril_device cpu = aril_cpu();
    aril_tensor *x =
        aril_reshape(aril_linspace(0, 1, WIDTH, ARIL_F32, cpu), ARIL_SHAPE(1, 1, WIDTH));
    aril_tensor *y =
        aril_reshape(aril_linspace(0, 1, HEIGHT, ARIL_F32, cpu), ARIL_SHAPE(1, HEIGHT, 1));
    aril_tensor *k = aril_rand(ARIL_SHAPE(3, 1, 1), ARIL_F32, cpu);
    aril_tensor *wave =
        aril_sin(aril_add(aril_mul_scalar(aril_mul(x, k), 40), aril_mul_scalar(y, 7 + i % 5)));
    aril_tensor *disc = aril_lt_scalar(aril_add(aril_square(aril_sub_scalar(x, 0.1 * (i % 9))),
                                                aril_square(aril_sub_scalar(y, 0.5))),
                                       0.06);
    aril_tensor *grain = aril_randn(ARIL_SHAPE(3, HEIGHT, WIDTH), ARIL_F32, cpu);
    aril_tensor *sum =
        aril_add(aril_mul_scalar(wave, 0.25), aril_mul_scalar(aril_cast(disc, ARIL_F32), 0.3));
    return aril_escape(
        aril_clamp(aril_add_scalar(aril_add(sum, aril_mul_scalar(grain, 0.035)), 0.4), 0, 1));
}

/* The folder with the files, which are created once; the peers read the same files. */
static bool make_files(char *folder, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    char path[4096];
    snprintf(folder, size, "%s/aril-bench-images-%ld", tmp ? tmp : "/tmp", (long)getuid());
    snprintf(path, sizeof path, "%s/done", folder);
    if (access(path, R_OK) == 0) return true;
    for (int i = -1; i < FILES && aril_ok(); i++) {
        ARIL_SCOPE;
        snprintf(path, sizeof path, "%s/class%d", folder, i % 2);
        if (i < 0) snprintf(path, sizeof path, "%s", folder);
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return false;
        if (i < 0) continue;
        snprintf(path, sizeof path, "%s/class%d/%d.jpg", folder, i % 2, i);
        aril_image_write(path, scene(i), (aril_image_write_opts){ .quality = 92 });
    }
    snprintf(path, sizeof path, "%s/done", folder);
    FILE *f = aril_ok() ? fopen(path, "w") : NULL;
    return f && fclose(f) == 0;
}

static void *files_begin(const char *name, aril_device device)
{
    (void)name;
    (void)device;
    char folder[1024];
    const double mean[] = { 0.485, 0.456, 0.406 }, std[] = { 0.229, 0.224, 0.225 };
    if (!make_files(folder, sizeof folder)) return NULL;
    aril_transform *change =
        ARIL_TRANSFORMS(aril_transform_random_resized_crop(224, 224, (aril_crop_opts){ 0 }),
                        aril_transform_flip(0.5), aril_transform_normalize(3, mean, std));
    aril_dataset *d =
        aril_dataset_transform(aril_dataset_folder(folder, (aril_folder_opts){ 0 }), change);
    return aril_loader_new(d, (aril_loader_opts){ .batch = 32, .shuffle = true, .workers = 2 });
}

static void files_step(void *state)
{
    for (aril_batch b; aril_loader_next(state, &b);) {
    }
}

static void files_end(void *state)
{
    aril_loader_free(state);
}

/* ---- Adam over 25.6 million parameters in 161 tensors, as in ResNet-50 ---- */

enum { LARGE = 24, SMALL = 137 };

static void *adam_begin(const char *name, aril_device device)
{
    (void)name;
    (void)device;
    ARIL_SCOPE;
    aril_tensor *p[LARGE + SMALL];
    bench_maker m = { .dtype = ARIL_F32 };
    for (int i = 0; i < LARGE + SMALL; i++) {
        aril_shape shape = i < LARGE ? ARIL_SHAPE(1024, 1024) : ARIL_SHAPE(3140);
        p[i] = aril_parameter(bench_fill(&m, shape, 0, 1));
        aril_set_grad(p[i], bench_fill(&m, shape, 0, 1));
    }
    aril_named all = { .n = LARGE + SMALL, .at = p };
    aril_optim *opt = aril_adam(&all, (aril_adam_opts){ .keep_grads = true });
    for (int i = 0; i < LARGE + SMALL; i++) aril_release(p[i]);
    return opt;
}

static void adam_step(void *state)
{
    aril_step(state);
}

static void adam_end(void *state)
{
    aril_optim_free(state);
}

/* ---- a model in ONNX: onnx:NAME, or onnx:NAME*SAMPLES, of those that onnx_models.py makes ---- */

enum { MODEL_TENSORS = 16 };

typedef struct loaded {
    aril_program *program;
    aril_tensor *in[MODEL_TENSORS];
    int n_in;
} loaded;

static void onnx_end(void *state)
{
    loaded *m = state;
    for (int i = 0; i < m->n_in; i++) aril_release(m->in[i]);
    aril_program_free(m->program);
    free(m);
}

/* An input as the peers fill it: random numbers, zeros as the state of a model, the sample rate. */
static aril_tensor *onnx_input(bench_maker *maker, const aril_program *p, int i, int64_t samples)
{
    const char *name = aril_program_input_name(p, i);
    aril_shape shape = aril_program_input_shape(p, i);
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] < 0) shape.dim[d] = d && d == shape.ndim - 1 ? 576 : samples;
    if (aril_program_input_dtype(p, i) == ARIL_I64)
        return aril_full(shape, 16000, ARIL_I64, maker->device);
    if (strcmp(name, "state") == 0) return aril_zeros(shape, ARIL_F32, maker->device);
    return bench_fill(maker, shape, 0, 1);
}

static void *onnx_begin(const char *name, aril_device device)
{
    ARIL_SCOPE;
    char path[4096];
    const char *tmp = getenv("TMPDIR"), *model = name + strlen("onnx:"), *times = strchr(name, '*');
    int64_t samples = times ? strtoll(times + 1, NULL, 10) : 1;
    snprintf(path, sizeof path, "%s/aril-bench-models-%ld/%.*s.onnx", tmp ? tmp : "/tmp",
             (long)getuid(), (int)(times ? times - model : (ptrdiff_t)strlen(model)), model);
    if (access(path, R_OK) != 0) {
        aril_fail(ARIL_ERR_IO, "%s is missing: bench/onnx_models.py makes it", path);
        return NULL;
    }
    loaded *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    bench_maker maker = { .dtype = ARIL_F32, .device = device };
    m->program =
        aril_program_load(path, (aril_load_opts){ .device = device, .open_batch = times != NULL });
    int n = aril_program_inputs(m->program);
    if (n > MODEL_TENSORS || aril_program_outputs(m->program) > MODEL_TENSORS)
        aril_fail(ARIL_ERR_UNSUPPORTED, "%s: too many inputs or outputs", path);
    while (m->n_in < n && aril_ok()) {
        m->in[m->n_in] = aril_keep(onnx_input(&maker, m->program, m->n_in, samples));
        m->n_in++;
    }
    if (aril_ok()) return m;
    onnx_end(m);
    return NULL;
}

static void onnx_step(void *state)
{
    loaded *m = state;
    aril_tensor *out[MODEL_TENSORS];
    aril_program_run(m->program, (aril_list){ m->n_in, m->in }, out);
}

static const bench_task tasks[] = {
    { "lenet5-loop", lenet_loop_begin, lenet_loop_step, lenet_end, false },
    { "lenet5-fit", lenet_fit_begin, lenet_fit_step, lenet_end, false },
    { "image-files", files_begin, files_step, files_end, false },
    { "adam", adam_begin, adam_step, adam_end, false },
    { "onnx:", onnx_begin, onnx_step, onnx_end, true },
};

const bench_task *bench_task_find(const char *name)
{
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (strcmp(tasks[i].name, name) == 0 ||
            (strchr(tasks[i].name, ':') &&
             strncmp(name, tasks[i].name, strlen(tasks[i].name)) == 0))
            return &tasks[i];
    return NULL;
}
