/* cuDNN's graph API in short: descriptors of a graph, and a plan that executes it. */
#ifndef ARIL_CUDA_DNN_GRAPH_CUH
#define ARIL_CUDA_DNN_GRAPH_CUH

#include "backend/cuda/device/library.h"

#ifdef ARIL_CUDA_CUDNN

/* Descriptors of one graph while it is built: all are destroyed together. The first failure makes
 * `ok` false, and what follows does nothing. */
struct aril_cuda_graph {
    enum { MAX_DESCRIPTORS = 64 };
    const aril_cuda_dnn *lib;
    bool ok;
    int n;
    cudnnBackendDescriptor_t made[MAX_DESCRIPTORS];
};

cudnnBackendDescriptor_t aril_cuda_graph_new(aril_cuda_graph *g, cudnnBackendDescriptorType_t type);
void aril_cuda_graph_set(aril_cuda_graph *g, cudnnBackendDescriptor_t d,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t n, const void *values);
void aril_cuda_graph_finish(aril_cuda_graph *g, cudnnBackendDescriptor_t d);
void aril_cuda_graph_end(aril_cuda_graph *g);

/* A tensor of n dimensions; `virtual_`: it only exists within the graph. */
struct aril_cuda_graph_tensor {
    int64_t id;
    cudnnDataType_t type;
    int n;
    int64_t dim[8], stride[8];
    int64_t alignment;
    bool is_virtual;
};
cudnnBackendDescriptor_t aril_cuda_graph_tensor_of(aril_cuda_graph *g,
                                                   const aril_cuda_graph_tensor *t);

/* Which engines are refused. */
struct aril_cuda_engine_rules {
    bool keep_f32;  /* inputs stay f32: no TF32 */
    bool any_order; /* sums may differ from run to run */
};

/* An engine with its settings, which its name tells: "e12,2=3,11=1". */
struct aril_cuda_engine {
    cudnnBackendDescriptor_t config;
    char name[192];
};

/* A graph that can be executed. */
struct aril_cuda_dnn_plan {
    cudnnBackendDescriptor_t engine, plan; /* NULL: there is none */
    int64_t workspace;
};

/* The engines for the graph of these operations that the rules allow, as the heuristics order
 * them, each once. Returns how many, at most `most`; aril_cuda_engines_end releases them. */
int aril_cuda_graph_engines(aril_cuda_graph *g, cudnnHandle_t handle, int n,
                            const cudnnBackendDescriptor_t *operations,
                            const aril_cuda_engine_rules *rules, aril_cuda_engine *to, int most);
void aril_cuda_engines_end(const aril_cuda_dnn *lib, aril_cuda_engine *engines, int n);

/* Builds the plan of an engine, which it then owns; false if it does not build or needs more than
 * `most` bytes of workspace. */
bool aril_cuda_engine_build(const aril_cuda_dnn *lib, cudnnHandle_t handle,
                            aril_cuda_engine *engine, int64_t most, aril_cuda_dnn_plan *to);
void aril_cuda_dnn_plan_end(const aril_cuda_dnn *lib, aril_cuda_dnn_plan *plan);
cudnnStatus_t aril_cuda_dnn_execute(const aril_cuda_dnn *lib, cudnnHandle_t handle,
                                    const aril_cuda_dnn_plan *plan, int n, const int64_t *ids,
                                    void *const *addresses, void *workspace);

#endif
#endif
