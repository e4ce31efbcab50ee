/* ONNX models: values, nodes with resolved names, and the calls that rules see. */
#ifndef ARIL_ONNX_ONNX_H
#define ARIL_ONNX_ONNX_H

#include "aril/aril.h"
#include "aril/value.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/proto.h"

#include <stdatomic.h>

/* A rule needs the value of a tensor that a trace does not have: not an error, the model is then
 * interpreted at each run. */
enum { ARIL__ONNX_DYNAMIC = 1 };

/* ---- memory of a run ---- */

/* Memory that is freed as a whole. */
typedef struct onnx_chunk {
    struct onnx_chunk *next;
    _Alignas(16) unsigned char at[];
} onnx_chunk;

typedef struct onnx_arena {
    onnx_chunk *chunks;
    aril_tensor **kept; /* references of sequences */
    size_t n_kept, cap_kept;
    size_t limit, used; /* bytes; limit 0: none */
} onnx_arena;

typedef struct onnx_mark {
    onnx_chunk *chunks;
    size_t n_kept, used;
} onnx_mark;

/* Zeroed; NULL, with an error, when out of memory. */
void *aril__onnx_alloc(onnx_arena *a, size_t n, size_t size);
/* Takes a reference that lasts as long as the arena; it counts as memory. */
bool aril__onnx_keep(onnx_arena *a, aril_tensor *t);
/* What an arena holds now, and giving back what was taken since. */
onnx_mark aril__onnx_mark(const onnx_arena *a);
void aril__onnx_return_to(onnx_arena *a, onnx_mark mark);
void aril__onnx_arena_free(onnx_arena *a);

/* ---- values ---- */

enum onnx_kind {
    ONNX_NONE, /* an optional input that is not given */
    ONNX_TENSOR,
    ONNX_TEXT, /* a tensor of strings */
    ONNX_SEQUENCE,
    ONNX_MAP,      /* of ai.onnx.ml */
    ONNX_OPTIONAL, /* an optional without an element; one with it is the element itself */
};

typedef struct onnx_text {
    aril_shape shape;
    size_t n;
    aril__slice *at;
} onnx_text;

typedef struct onnx_value {
    uint8_t kind;
    bool known; /* the same in every run of a trace */
    bool sizes; /* integers of which some stand for unknown sizes of the trace (core/sizes.h) */
    union {
        aril_tensor *tensor;
        const onnx_text *text;
        const struct onnx_sequence *sequence;
        const struct onnx_map *map;
    };
} onnx_value;

typedef struct onnx_sequence {
    size_t n;
    onnx_value *at;
} onnx_sequence;

typedef struct onnx_map {
    onnx_value keys; /* strings, or a tensor of i64 */
    onnx_sequence items;
} onnx_map;

/* values.c: to and from the values of programs. Tensors are borrowed, memory belongs to the
 * arena. */
aril_status aril__onnx_from_value(onnx_arena *a, const aril_value *v, onnx_value *out);
/* A value of the innermost scope; NULL with an error. */
aril_value *aril__onnx_to_value(const onnx_value *v);

/* ---- reading ---- */

/* The value of a TensorProto. Tensors belong to the innermost scope, the rest to the arena.
 * `folder` is where files of external data lie; NULL: they are refused. */
aril_status aril__onnx_tensor(onnx_arena *a, const aril__message *tensor, const char *folder,
                              onnx_value *out);
/* The name of a TensorProto, for messages. */
const char *aril__onnx_tensor_name(const aril__message *tensor);
/* Fails with what is wrong with a TensorProto, its name and its place in the file. */
aril__cold aril_status aril__onnx_malformed(const aril__message *tensor, const char *what);

/* The files of external data of a model, each mapped once. */
typedef struct onnx_files {
    const char *folder; /* where they lie; NULL: they are refused */
    bool in_place;      /* tensors may use their memory: of files, aligned to 64 bytes */
    struct onnx_file *at;
    size_t n;
} onnx_files;

/* A tensor in an external file. In place it keeps the file mapped: then the file must not change,
 * which aril__onnx_files_check tells; memory that a truncated file does not have reads as 0. */
aril_status aril__onnx_external(onnx_files *files, const aril__message *tensor, aril_dtype dtype,
                                aril_shape shape, aril_tensor **out);
aril_status aril__onnx_files_check(const onnx_files *files);
/* Lets the system take back the memory of what was read; when all is `loaded`, files that no tensor
 * uses are closed. */
void aril__onnx_files_rest(onnx_files *files, bool loaded);
void aril__onnx_files_free(onnx_files *files);
/* aril__onnx_tensor of an initializer, whose external data lie in these files. */
aril_status aril__onnx_initializer(onnx_arena *a, const aril__message *tensor, onnx_files *files,
                                   onnx_value *out);
/* A SparseTensorProto as a dense tensor. */
aril_status aril__onnx_sparse(onnx_arena *a, const aril__message *sparse, const char *folder,
                              onnx_value *out);
/* The value of a message of any of the types of test data: TensorProto, SequenceProto,
 * OptionalProto. */
aril_status aril__onnx_value_of(onnx_arena *a, const aril__message *m, onnx_value *out);
/* The dtype of ONNX's number for it; false if Aril has none (strings, complex numbers). */
bool aril__onnx_dtype(int64_t number, aril_dtype *out);
int aril__onnx_dtype_number(aril_dtype dtype);
/* ONNX's name of a type in lower case, such as "float16". */
const char *aril__onnx_dtype_name(int64_t number);

/* ---- models ---- */

typedef uint32_t onnx_slot; /* a place for a value; 0: none */

typedef struct onnx_attribute {
    const char *name;
    const aril__message *value;
} onnx_attribute;

typedef struct onnx_body {
    struct onnx_node *node;
    size_t n_nodes;
    onnx_slot *in, *out;
    size_t n_in, n_out;
    const char *name;
} onnx_body;

typedef struct onnx_node {
    const aril__message *message;
    const char *path;             /* in the tree of modules, as far as names tell: paths.c */
    const struct onnx_rule *rule; /* NULL: a call of a function, body[0] */
    int version;                  /* of the operator set */
    const char *takes;            /* a letter for each input: r required, o optional, + or * more */
    const struct onnx_type_row *types; /* which of them have the same type; or NULL */
    onnx_attribute *attribute;
    size_t n_attributes;
    onnx_slot *in, *out;
    size_t n_in, n_out;
    onnx_body *body; /* of If, Loop, Scan, SequenceMap: as `attribute` lists them */
    const char **body_name;
    size_t n_bodies;
    onnx_slot *last; /* values that are not used after it */
    size_t n_last;
} onnx_node;

/* An input or output of the model. */
typedef struct onnx_port {
    const char *name;
    const aril__message *type; /* TypeProto */
    onnx_slot slot;
    bool optional; /* has an initializer */
} onnx_port;

/* What is known of the type of a value. */
typedef struct onnx_type {
    uint8_t kind; /* ONNX_NONE: nothing */
    bool missing; /* a node before it could not be inferred */
    int elem;     /* ONNX's number of the dtype */
    int ndim;
    int64_t dim[ARIL_MAX_DIMS]; /* negative: an unknown size, named by the number; -1: any */
} onnx_type;

/* The types of all values, and the names of the unknown sizes among them. */
typedef struct onnx_types {
    onnx_type *of; /* of each slot */
    int64_t *size;
    const char **size_name;
    size_t n_sizes;
} onnx_types;

typedef struct onnx_model {
    aril__message *file;
    aril__message *cut; /* the type of a value that was made the output; NULL: the file has it */
    char *path, *folder;
    onnx_files files;
    onnx_arena arena;
    onnx_body main;
    onnx_port *in, *out;
    int n_in, n_out; /* inputs: the required ones first */
    int n_required;
    size_t n_slots;
    onnx_value *initial; /* of each slot; of those with an initializer, a reference */
    aril_tensor **moved; /* initializers on `device`; references or NULL */
    const char **name;   /* of each slot, for messages */
    bool *tracked;       /* of each slot: a Gradient node differentiates with respect to it */
    aril_metadata metadata;
    bool is_cut; /* it was loaded for one output instead of its own */
    aril_device device;
    int64_t batch;   /* the first size that the inputs declare, if runs may have another; or 0 */
    bool outline;    /* large initializers have types and no values */
    bool parameters; /* floating-point initializers may change: they are not known */
    bool *borrowed;  /* of each slot: its initializer belongs to a module; NULL: none do */
    atomic_bool dynamic;  /* some rule needs values: no traces, */
    atomic_bool by_value; /* or traces for values of small inputs */
    int64_t max_trips;    /* of a loop; 0: no limit */
    size_t max_memory;    /* of a run for values on the host; 0: no limit */
} onnx_model;

/* paths.c: gives each node its path. */
aril_status aril__onnx_name_nodes(onnx_model *m);

/* Reads a model. NULL with an error; one error lists all operators that are not supported. */
onnx_model *aril__onnx_model_load(const char *path, aril_load_opts opts, bool parameters);
/* The same without the values of large initializers, to infer types. */
onnx_model *aril__onnx_model_outline(const char *path, const char *output);
/* The same from memory, which must outlive it. */
onnx_model *aril__onnx_model_read(const void *data, size_t size, const char *name,
                                  aril_device device);
void aril__onnx_model_free(onnx_model *m);

/* ---- running ---- */

typedef struct onnx_run {
    onnx_model *model;
    onnx_types *types; /* noted by a run that infers them, which goes on after failures; or NULL */
    onnx_arena arena;
    onnx_value *slot; /* tensors: references */
    bool tracing;
    bool open;     /* there may be sizes that only the runs of the trace know */
    bool whole;    /* a trace for all values of the inputs: what depends on them is an error */
    int64_t batch; /* the first size of the first input, if model->batch is not it; else 0 */
    bool recorded; /* autograd records what it computes */
    const struct onnx_times *times; /* to be measured; or NULL */
} onnx_run;

/* Computes the outputs from the inputs: n_in values in the order of model->in, of which the last
 * may be missing. Results are owned by the innermost scope and by the arena. `whole`: a trace holds
 * for all values of the inputs; then the result is never ARIL__ONNX_DYNAMIC. */
aril_status aril__onnx_run(onnx_model *m, onnx_arena *a, bool whole, size_t n_in,
                           const onnx_value *in, onnx_value *out);

/* What an interpreted run measures of each node of the main graph. */
typedef struct onnx_times {
    double *seconds;
    onnx_type *type; /* of the first result */
} onnx_times;

/* aril__onnx_run outside a trace, measured. */
aril_status aril__onnx_run_timed(onnx_model *m, onnx_arena *a, size_t n_in, const onnx_value *in,
                                 onnx_value *out, const onnx_times *times);

/* infer.c: the types of all values, found by a trace on inputs of the declared types; sizes with
 * names stay open. The memory belongs to the model. */
aril_status aril__onnx_infer(onnx_model *m, onnx_types *to);
/* interpret.c: the part of it that runs inside the trace, or a run on values without one:
 * in[n_required], of which those that are not known are of no kind. */
aril_status aril__onnx_infer_run(onnx_model *m, onnx_types *types, const onnx_value *in,
                                 bool tracing);
/* The name of an unknown size; NULL: it has none. */
const char *aril__onnx_size_name(const onnx_types *types, int64_t dim);

/* Runs a body inside a rule: its inputs are given, out[] receives its outputs, kept by the run. */
aril_status aril__onnx_run_body(onnx_run *run, const onnx_body *body, size_t n_in,
                                const onnx_value *in, onnx_value *out);

/* rewrite.c: writing a model node by node. */

/* What a model is to be written with. */
typedef struct onnx_rewriting {
    const char *what; /* of errors: "module_export" */
    int opset;
    int ir;                                     /* the version of the format, at least */
    const char *const *inputs, *const *outputs; /* names, or NULL: its own */
    /* The sizes of the required inputs. Negative: left open, with the name at -2 - size. */
    const aril_shape *sizes;
    int n_sizes;
    const char *const *size_names;
    int n_size_names;
} onnx_rewriting;

/* The file of a model with another operator set, sizes and names. The graph stays as it is: a node
 * whose operator has changed is written as the new one, and what cannot be is an error that names
 * the node. Tensors are those that `m` has now. *to refers to it and to *of, which owns it. */
aril_status aril__onnx_rewrite(const onnx_model *m, const onnx_rewriting *r, onnx_model **of,
                               aril__message **to);

/* Checks a value against the declared type of an input. */
aril_status aril__onnx_check_input(const onnx_model *m, const onnx_port *port,
                                   const onnx_value *value);

#endif
