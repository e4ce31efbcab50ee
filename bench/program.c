#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static aril_tensor *transposed(aril_tensor *x)
{
    return aril_transpose(x, -2, -1);
}

static aril_tensor *run_call(bench_run *r, const bench_call *c)
{
    aril_tensor *a = r->slot[c->in[0]];
    aril_tensor *b = c->n_in > 1 ? r->slot[c->in[1]] : NULL;
    aril_tensor *d = c->n_in > 2 ? r->slot[c->in[2]] : NULL;
    int axis = (int)c->number[0];
    switch (c->op) {
    case BENCH_OP_add: return aril_add(a, b);
    case BENCH_OP_sub: return aril_sub(a, b);
    case BENCH_OP_mul: return aril_mul(a, b);
    case BENCH_OP_muladd: return aril_addcmul(d, a, b, 1.0);
    case BENCH_OP_relu: return aril_relu(a);
    case BENCH_OP_exp: return aril_exp(a);
    case BENCH_OP_tanh: return aril_tanh(a);
    case BENCH_OP_sigmoid: return aril_sigmoid(a);
    case BENCH_OP_gelu: return aril_gelu(a);
    case BENCH_OP_square: return aril_square(a);
    case BENCH_OP_sum: return aril_sum(a, c->n_numbers ? ARIL_AXES(axis) : ARIL_ALL);
    case BENCH_OP_mean: return aril_mean(a, ARIL_ALL);
    case BENCH_OP_softmax: return aril_softmax(a, -1);
    case BENCH_OP_layer_norm:
        return aril_layer_norm(a, b, d, ARIL_SHAPE(-1), (aril_norm_opts){ 0 });
    case BENCH_OP_dropout:
        return aril_dropout(a, c->n_numbers ? c->number[0] : 0.5, (aril_dropout_opts){ 0 });
    case BENCH_OP_transpose: return aril_contiguous(transposed(a));
    case BENCH_OP_cat: return aril_cat(ARIL_LIST(a, b), axis);
    case BENCH_OP_matmul: return aril_matmul(a, b);
    case BENCH_OP_matmul_nt: return aril_matmul(a, transposed(b));
    case BENCH_OP_matmul_tn: return aril_matmul(transposed(a), b);
    case BENCH_OP_mse: return aril_mse_loss(a, b);
    case BENCH_OP_cross_entropy: return aril_cross_entropy(a, b);
    case BENCH_OP_token_loss:
        return aril_cross_entropy(aril_flatten(a, 0, 1), aril_flatten(b, 0, 1));
    case BENCH_OP_net: return bench_model_forward(r->model[c - r->at->call], a);
    }
    return a;
}

static void forward(bench_run *r)
{
    for (int i = 0; i < r->at->n_calls; i++) {
        const bench_call *c = &r->at->call[i];
        r->slot[c->out] = run_call(r, c);
        for (int k = 0; k < c->n_dead; k++) aril_drop(r->slot[c->dead[k]]);
    }
}

static void update(bench_run *r)
{
    aril_list none = { 0 };
    if (r->optim) {
        aril_step(r->optim); /* also drops the gradients */
        return;
    }
    if (r->rate)
        aril_sgd_update((aril_list){ r->maker.n_params, r->maker.params }, none, none, r->rate,
                        NULL, (aril_sgd_update_opts){ 0 });
    for (int i = 0; i < r->maker.n_params; i++) aril_zero_grad(r->maker.params[i]);
}

static void step(bench_run *r)
{
    forward(r);
    if (r->at->backward < 0) return;
    aril_backward(r->slot[r->at->backward]);
    update(r);
}

/* ---- compiled steps ---- */

static bool is_input(const bench_slot *s)
{
    return s->role == BENCH_INPUT || s->role == BENCH_LABELS;
}

/* The inputs of a case, in order. */
static int inputs(const bench_run *r, aril_tensor **to)
{
    int n = 0;
    for (int i = 0; i < r->at->n_slots; i++)
        if (is_input(&r->at->slot[i])) to[n++] = r->slot[i];
    return n;
}

/* A step as a function: returns its last result and, if they are not used up by an update, the
 * gradients. */
static void traced_step(void *ctx, aril_tensor *const *in, aril_tensor **out)
{
    bench_run *r = ctx;
    aril_tensor *given[BENCH_SLOTS];
    int n = 0, n_out = 0;
    memcpy(given, r->slot, sizeof given);
    for (int i = 0; i < r->at->n_slots; i++)
        if (is_input(&r->at->slot[i])) r->slot[i] = in[n++];
    forward(r);
    out[n_out++] = r->slot[r->at->call[r->at->n_calls - 1].out];
    if (r->at->backward >= 0) {
        aril_backward(r->slot[r->at->backward]);
        for (int i = 0; i < r->maker.n_params && !r->optim && !r->rate; i++)
            out[n_out++] = aril_grad(r->maker.params[i]);
        update(r);
    }
    memcpy(r->slot, given, sizeof given);
}

bool bench_run_compile(bench_run *r, double memory)
{
    aril_jit_opts opts = { .name = r->at->name, .max_results = 1 + r->maker.n_params };
    if (r->task) return true;
    r->results = calloc((size_t)opts.max_results, sizeof *r->results);
    r->program = r->results ? aril_jit(traced_step, r, opts) : NULL;
    if (!r->results) aril_fail(ARIL_ERR_MEMORY, "%s: out of memory", r->at->name);
    if (!r->program || memory >= 1) return r->program != NULL;

    bench_run_step(r);
    double peak = (double)aril_program_memory(r->program, r->maker.device).peak;
    aril_program_free(r->program);
    opts.max_memory = (int64_t)(memory * peak);
    r->program = aril_ok() ? aril_jit(traced_step, r, opts) : NULL;
    return r->program != NULL;
}

void bench_run_step(bench_run *r)
{
    ARIL_SCOPE;
    if (r->task) {
        r->task->step(r->state);
    } else if (r->program) {
        aril_tensor *in[BENCH_SLOTS];
        int n = inputs(r, in);
        aril_program_run(r->program, (aril_list){ n, in }, r->results);
    } else {
        step(r);
    }
}

/* ---- setup ---- */

static aril_tensor *make_labels(bench_maker *m, const bench_slot *s, aril_shape shape)
{
    ARIL_SCOPE;
    aril_dtype dtype = m->dtype;
    m->dtype = ARIL_F64; /* exact, so that all frameworks get the same labels */
    aril_tensor *u = bench_fill(m, shape, 1, 1);
    m->dtype = dtype;
    double scale = (double)s->classes / 2;
    return aril_escape(aril_cast(aril_floor(aril_mul_scalar(u, scale)), ARIL_I64));
}

static double elements(const aril_tensor *t)
{
    return (double)aril_numel(t);
}

static double bytes_of(const bench_run *r, const bench_call *c)
{
    double n = elements(r->slot[c->out]);
    for (int i = 0; i < c->n_in; i++) n += elements(r->slot[c->in[i]]);
    return n * (r->at->dtype == ARIL_BF16 ? 2 : 4);
}

/* FLOPs of a call's products, forward and backward; its result must exist. */
static double flops_of(bench_run *r, const bench_call *c)
{
    const bench_model *model = r->model[c - r->at->call];
    bool back = r->at->backward >= 0;
    if (model) return bench_model_flops(model) + (back ? bench_model_backward_flops(model) : 0);
    if (c->op != BENCH_OP_matmul && c->op != BENCH_OP_matmul_nt && c->op != BENCH_OP_matmul_tn)
        return 0;
    int inner = c->op == BENCH_OP_matmul_tn ? -2 : -1;
    double f = 2 * elements(r->slot[c->out]) * (double)aril_size(r->slot[c->in[0]], inner);
    return f * (1 + (back ? r->wants[c->in[0]] + r->wants[c->in[1]] : 0));
}

/* Finds the shapes, required gradients and costs of all calls by running them once. */
static void look(bench_run *r)
{
    ARIL_SCOPE;
    for (int i = 0; i < r->at->n_calls && aril_ok(); i++) {
        const bench_call *c = &r->at->call[i];
        if (c->op == BENCH_OP_net) {
            aril_tensor *x = r->slot[c->in[0]];
            aril_shape shape = aril_shape_of(x);
            r->model[i] = c->net ? bench_model_new(&r->maker, c->net, &shape)
                                 : bench_model_zoo(&r->maker, c->zoo, x);
            if (!r->model[i]) return;
        }
        r->slot[c->out] = run_call(r, c);
        r->wants[c->out] = aril_requires_grad(r->slot[c->out]);
        r->flops += flops_of(r, c);
        r->bytes += bytes_of(r, c);
    }
}

bool bench_run_begin(bench_run *r, const bench_case *c, aril_device device, bool compare)
{
    ARIL_SCOPE;
    *r = (bench_run){
        .at = c,
        .maker = { .dtype = c->dtype, .device = device, .infer = c->infer, .still = compare }
    };
    aril_allow_tf32(c->tf32);
    if (c->task[0]) {
        r->task = bench_task_find(c->task);
        if (!r->task)
            fprintf(stderr, "aril bench: unknown task '%s'\n", c->task);
        else if (!r->task->on_devices && !aril_device_equal(device, aril_cpu()))
            aril_fail(ARIL_ERR_UNSUPPORTED, "%s runs on the CPU only", c->name);
        else
            r->state = r->task->begin(c->task, device);
        return r->state && aril_ok();
    }
    bool has_net = false;
    for (int i = 0; i < c->n_calls; i++) has_net |= c->call[i].op == BENCH_OP_net;
    for (int i = 0; i < c->n_slots; i++) {
        const bench_slot *s = &c->slot[i];
        aril_shape shape = s->shape;
        if (compare && has_net && s->role != BENCH_PARAM && shape.ndim && shape.dim[0] > 2)
            shape.dim[0] = 2;
        switch (s->role) {
        case BENCH_INPUT: r->slot[i] = aril_keep(bench_fill(&r->maker, shape, 0, 1)); break;
        case BENCH_LABELS: r->slot[i] = aril_keep(make_labels(&r->maker, s, shape)); break;
        case BENCH_PARAM:
            r->slot[i] = bench_param(&r->maker, shape, 0, sqrt(3.0 / (double)shape.dim[0]));
            r->wants[i] = !c->infer;
            break;
        case BENCH_RESULT: break;
        }
    }
    r->maker.modules = c->modules;
    if (c->sgd != 0) r->rate = aril_keep(aril_full(ARIL_SHAPE(), c->sgd, ARIL_F32, device));
    look(r);
    if (c->modules && c->sgd != 0) {
        aril_named all = { .n = r->maker.n_params, .at = r->maker.params };
        r->optim = aril_sgd(&all, (aril_sgd_opts){ .lr = c->sgd });
    }
    return aril_ok();
}

void bench_run_end(bench_run *r)
{
    if (!r->at) return;
    if (r->state) r->task->end(r->state);
    aril_program_free(r->program);
    free(r->results);
    for (int i = 0; i < r->at->n_slots; i++) {
        bench_role role = r->at->slot[i].role;
        if (role == BENCH_INPUT || role == BENCH_LABELS) aril_release(r->slot[i]);
    }
    for (int i = 0; i < r->at->n_calls; i++) bench_model_free(r->model[i]);
    for (int i = 0; i < r->maker.n_params; i++) aril_release(r->maker.params[i]);
    free(r->maker.params);
    aril_release(r->rate);
    aril_optim_free(r->optim);
    *r = (bench_run){ 0 };
}

/* ---- comparison ---- */

static void print_values(FILE *to, const char *before, const char *name, aril_tensor *t)
{
    ARIL_SCOPE;
    const double *v = aril_data(aril_cast(aril_to(aril_detach(t), aril_cpu()), ARIL_F64));
    double sum = 0, squares = 0;
    int64_t n = aril_numel(t);
    for (int64_t i = 0; v && i < n; i++) {
        sum += v[i];
        squares += v[i] * v[i];
    }
    fprintf(to, "%s{\"name\": \"%s\", \"n\": %lld, \"sum\": %.9g, \"norm\": %.9g, \"first\": [",
            before, name, (long long)n, sum, sqrt(squares));
    for (int64_t i = 0; v && i < n && i < 8; i++) fprintf(to, "%s%.9g", i ? ", " : "", v[i]);
    fputs("]}", to);
}

void bench_run_print(bench_run *r, FILE *to)
{
    ARIL_SCOPE;
    const bench_case *c = r->at;
    char name[BENCH_NAME];
    forward(r);
    int last = c->call[c->n_calls - 1].out;
    int64_t weights = 0;
    for (int i = 0; i < r->maker.n_params; i++) weights += aril_numel(r->maker.params[i]);
    fprintf(to, "{\"case\": \"%s\", \"parameters\": %lld, \"values\": [", c->name,
            (long long)weights);
    print_values(to, "", c->slot[last].name, r->slot[last]);
    if (c->backward >= 0) {
        aril_backward(r->slot[c->backward]);
        for (int i = 0; i < r->maker.n_params; i++) {
            snprintf(name, sizeof name, "gradient %d", i);
            print_values(to, ", ", name, aril_grad(r->maker.params[i]));
        }
    }
    fputs("]}\n", to);
}
