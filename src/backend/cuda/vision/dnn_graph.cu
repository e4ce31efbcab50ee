#include "backend/cuda/vision/dnn_graph.cuh"

#ifdef ARIL_CUDA_CUDNN

#include <stdio.h>
#include <string.h>

/* ---- descriptors ---- */

cudnnBackendDescriptor_t aril_cuda_graph_new(aril_cuda_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = nullptr;
    g->ok = g->ok && g->n < aril_cuda_graph::MAX_DESCRIPTORS &&
            g->lib->cudnnBackendCreateDescriptor(type, &d) == CUDNN_STATUS_SUCCESS;
    if (g->ok) g->made[g->n++] = d;
    return d;
}

void aril_cuda_graph_set(aril_cuda_graph *g, cudnnBackendDescriptor_t d,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t n, const void *values)
{
    g->ok =
        g->ok && g->lib->cudnnBackendSetAttribute(d, name, type, n, values) == CUDNN_STATUS_SUCCESS;
}

void aril_cuda_graph_finish(aril_cuda_graph *g, cudnnBackendDescriptor_t d)
{
    g->ok = g->ok && g->lib->cudnnBackendFinalize(d) == CUDNN_STATUS_SUCCESS;
}

void aril_cuda_graph_end(aril_cuda_graph *g)
{
    while (g->n) g->lib->cudnnBackendDestroyDescriptor(g->made[--g->n]);
}

cudnnBackendDescriptor_t aril_cuda_graph_tensor_of(aril_cuda_graph *g,
                                                   const aril_cuda_graph_tensor *t)
{
    cudnnBackendDescriptor_t d = aril_cuda_graph_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->id);
    aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, t->n, t->dim);
    aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, t->n, t->stride);
    aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &t->alignment);
    if (t->is_virtual)
        aril_cuda_graph_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                            &t->is_virtual);
    aril_cuda_graph_finish(g, d);
    return d;
}

/* ---- engines ---- */

/* Whether the notes of an engine allow it: the same sums in every run, f32 accumulation, and f32
 * inputs as they are. Winograd's largest tiles lose digits. */
static bool is_allowed(const aril_cuda_dnn *lib, cudnnBackendDescriptor_t engine,
                       const aril_cuda_engine_rules *rules)
{
    enum { NOTES = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };
    cudnnBackendNumericalNote_t notes[NOTES];
    int64_t n = 0;
    bool allowed = lib->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                 CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &n,
                                                 notes) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; i < n && i < NOTES && allowed; i++) switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: allowed = false; break;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: allowed = rules->any_order; break;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* of f32: in TF32 */
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: allowed = !rules->keep_f32; break;
        default: break;
        }
    return allowed;
}

/* Appends ",KNOB=VALUE" for each setting of a configuration. */
static void append_settings(const aril_cuda_dnn *lib, cudnnBackendDescriptor_t config, char *name,
                            size_t size)
{
    enum { KNOBS = 32 };
    cudnnBackendDescriptor_t knob[KNOBS];
    int64_t n = 0;
    int made = 0;
    while (made < KNOBS && lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                                                             &knob[made]) == CUDNN_STATUS_SUCCESS)
        made++;
    if (lib->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n,
                                      knob) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0, one; i < n && i < made; i++) {
        cudnnBackendKnobType_t type;
        int64_t value = 0;
        size_t used = strlen(name);
        if (lib->cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                          CUDNN_TYPE_KNOB_TYPE, 1, &one,
                                          &type) == CUDNN_STATUS_SUCCESS &&
            lib->cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                          CUDNN_TYPE_INT64, 1, &one,
                                          &value) == CUDNN_STATUS_SUCCESS)
            snprintf(name + used, size - used, ",%d=%lld", (int)type, (long long)value);
    }
    for (int i = 0; i < made; i++) lib->cudnnBackendDestroyDescriptor(knob[i]);
}

/* Names a configuration; false if its engine is refused. */
static bool examine(const aril_cuda_dnn *lib, const aril_cuda_engine_rules *rules,
                    aril_cuda_engine *e)
{
    cudnnBackendDescriptor_t engine = nullptr;
    int64_t n = 0, number = 0;
    bool allowed =
        lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendGetAttribute(e->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                      &engine) == CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                      &n, &number) == CUDNN_STATUS_SUCCESS &&
        is_allowed(lib, engine, rules);
    if (engine) lib->cudnnBackendDestroyDescriptor(engine);
    snprintf(e->name, sizeof e->name, "e%lld", (long long)number);
    if (allowed) append_settings(lib, e->config, e->name, sizeof e->name);
    return allowed;
}

static bool is_known(const aril_cuda_engine *engines, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(engines[i].name, name) == 0) return true;
    return false;
}

/* Adds the engines of one kind of heuristics, in their order. */
static int add_engines(aril_cuda_graph *g, cudnnBackendDescriptor_t graph,
                       cudnnBackendHeurMode_t mode, const aril_cuda_engine_rules *rules,
                       aril_cuda_engine *to, int have, int most)
{
    enum { ENGINES = 64 };
    const aril_cuda_dnn *lib = g->lib;
    cudnnBackendDescriptor_t config[ENGINES];
    int64_t n = 0;
    int made = 0;
    cudnnBackendDescriptor_t heuristics =
        aril_cuda_graph_new(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    aril_cuda_graph_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    aril_cuda_graph_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    aril_cuda_graph_finish(g, heuristics);
    if (!g->ok) {
        g->ok = true; /* the next mode may know the graph */
        return have;
    }
    while (made < ENGINES &&
           lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[made]) ==
               CUDNN_STATUS_SUCCESS)
        made++;
    if (lib->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n,
                                      config) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < made; i++) {
        aril_cuda_engine e = { config[i], "" };
        if (i < n && have < most && examine(lib, rules, &e) && !is_known(to, have, e.name))
            to[have++] = e;
        else
            lib->cudnnBackendDestroyDescriptor(config[i]);
    }
    return have;
}

int aril_cuda_graph_engines(aril_cuda_graph *g, cudnnHandle_t handle, int n,
                            const cudnnBackendDescriptor_t *operations,
                            const aril_cuda_engine_rules *rules, aril_cuda_engine *to, int most)
{
    cudnnBackendDescriptor_t graph =
        aril_cuda_graph_new(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (g->ok)
        (void)g->lib->cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                               CUDNN_TYPE_HANDLE, 1, &handle);
    aril_cuda_graph_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                        operations);
    aril_cuda_graph_finish(g, graph);
    if (!g->ok) return 0;
    int have = add_engines(g, graph, CUDNN_HEUR_MODE_A, rules, to, 0, most);
    return add_engines(g, graph, CUDNN_HEUR_MODE_FALLBACK, rules, to, have, most);
}

void aril_cuda_engines_end(const aril_cuda_dnn *lib, aril_cuda_engine *engines, int n)
{
    for (int i = 0; i < n; i++)
        if (engines[i].config) lib->cudnnBackendDestroyDescriptor(engines[i].config);
}

bool aril_cuda_engine_build(const aril_cuda_dnn *lib, cudnnHandle_t handle,
                            aril_cuda_engine *engine, int64_t most, aril_cuda_dnn_plan *to)
{
    cudnnBackendDescriptor_t plan = nullptr;
    int64_t n = 0, workspace = 0;
    *to = {};
    if (lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    /* Newer versions take the handle when the plan is executed. */
    (void)lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                        1, &handle);
    bool ok =
        lib->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &engine->config) == CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        lib->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                      CUDNN_TYPE_INT64, 1, &n, &workspace) == CUDNN_STATUS_SUCCESS;
    if (!ok || workspace > most) {
        lib->cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    *to = { engine->config, plan, workspace };
    engine->config = nullptr;
    return true;
}

void aril_cuda_dnn_plan_end(const aril_cuda_dnn *lib, aril_cuda_dnn_plan *plan)
{
    if (plan->plan) lib->cudnnBackendDestroyDescriptor(plan->plan);
    if (plan->engine) lib->cudnnBackendDestroyDescriptor(plan->engine);
    *plan = {};
}

cudnnStatus_t aril_cuda_dnn_execute(const aril_cuda_dnn *lib, cudnnHandle_t handle,
                                    const aril_cuda_dnn_plan *plan, int n, const int64_t *ids,
                                    void *const *addresses, void *workspace)
{
    cudnnBackendDescriptor_t pack = nullptr;
    cudnnStatus_t s =
        lib->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (s != CUDNN_STATUS_SUCCESS) return s;
    s = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                      CUDNN_TYPE_VOID_PTR, n, addresses);
    if (s == CUDNN_STATUS_SUCCESS)
        s = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, n, ids);
    if (s == CUDNN_STATUS_SUCCESS)
        s = lib->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (s == CUDNN_STATUS_SUCCESS) s = lib->cudnnBackendFinalize(pack);
    if (s == CUDNN_STATUS_SUCCESS) s = lib->cudnnBackendExecute(handle, plan->plan, pack);
    lib->cudnnBackendDestroyDescriptor(pack);
    return s;
}

#endif
