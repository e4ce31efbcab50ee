/* Weights in files, whoever wrote them: listed, read, loaded into modules, converted.
 *
 *     aril_load_weights(net, "resnet18.pth", (aril_load_weights_opts){ 0 });
 *
 *     aril_weights *w = aril_weights_open("model.bin", (aril_weights_opts){ 0 });
 *     for (int i = 0; i < aril_weights_count(w); i++) puts(aril_weights_name(w, i));
 *     aril_weights_close(w);
 *
 * The kind of a file is found by its contents, not by its name: PyTorch checkpoints (zip archives,
 * and the pickles and tar archives of older versions), safetensors, either of them in parts with
 * an index, NumPy's .npz and .npy, HDF5 and files of Keras, TensorFlow's checkpoints and
 * SavedModels, MATLAB's .mat. Initializers of ONNX models are known by the extension .onnx. A path
 * may also be a folder that holds one of them, as Hugging Face and TensorFlow have it, or the name
 * of a checkpoint without ".index". `docs/weights.md` lists all kinds.
 *
 * No file is trusted: pickles are interpreted by a reader that knows a short list of classes and
 * runs nothing, and all sizes are checked before memory is allocated. */
#ifndef ARIL_WEIGHTS_H
#define ARIL_WEIGHTS_H

#include "aril/formats.h"
#include "aril/module.h"

ARIL_C_BEGIN

/* ---- reading ---- */

/* An open file. Only one thread may use it at a time. */
typedef struct aril_weights aril_weights;

/* How to open a file. All zeros: the weights of the model in it. */
typedef struct aril_weights_opts {
    /* Where in a nested file the weights are, such as "ema.model". NULL: a checkpoint's usual
     * entry ("state_dict", "model" and the like) is found, and "" gives everything in the file,
     * such as an optimizer's state, under dotted names. */
    const char *root;
    /* Removes what wrappers add to names: the first "module." of DataParallel if all names have it,
     * and "_orig_mod." of torch.compile. */
    bool unwrap;
    /* Tensors get memory of their own, instead of the file's, mapped to memory. */
    bool copy;
    /* Checks the checksums of PyTorch's archives for each tensor that is read, which reads all of
     * its storage; `copy` does, too. Other kinds with checksums are always checked. */
    bool verify;
} aril_weights_opts;

/* Opens a file: reads its list of tensors. They are read on demand. NULL, with an error, when the
 * file cannot be read, is malformed or of no known kind. */
ARIL_API aril_weights *aril_weights_open(const char *path, aril_weights_opts opts);
ARIL_API void aril_weights_close(aril_weights *w);

/* The kind of the file, such as "PyTorch" or "safetensors"; which part of it holds the weights ("":
 * all of it). */
ARIL_API const char *aril_weights_kind(const aril_weights *w);
ARIL_API const char *aril_weights_root(const aril_weights *w);

/* The number of tensors; the name, dtype and shape of the i-th, in the order of the file. Names
 * belong to w. If there is no i-th: NULL, f32, no dimensions. */
ARIL_API int aril_weights_count(const aril_weights *w);
ARIL_API const char *aril_weights_name(const aril_weights *w, int i);
ARIL_API aril_dtype aril_weights_dtype(const aril_weights *w, int i);
ARIL_API aril_shape aril_weights_shape(const aril_weights *w, int i);

/* Why the i-th tensor is listed but cannot be read, such as "dtype complex64"; NULL: it can. */
ARIL_API const char *aril_weights_problem(const aril_weights *w, int i);

/* The first tensor whose memory is part of the same storage as that of the i-th (tied weights): i
 * itself if none comes before it. */
ARIL_API int aril_weights_shared(const aril_weights *w, int i);

/* The index of the tensor with a name, -1 if there is none. */
ARIL_API int aril_weights_find(const aril_weights *w, const char *name);

/* The i-th tensor, on the CPU, contiguous unless it shares memory; owned by the scope. Its memory
 * is that of the file where possible, mapped privately: writes to it do not reach the file. It
 * stays valid when w is closed. The file must not be changed in place meanwhile (replacing it, as
 * Aril writes files, is fine): aril_weights_check tells. Poison, with an error, on failure. */
ARIL_API aril_tensor *aril_weights_tensor(aril_weights *w, int i);

/* All tensors, kept until w is closed (aril_keep holds one longer). NULL, with an error, on
 * failure. */
ARIL_API const aril_named *aril_weights_all(aril_weights *w);

/* ARIL_ERR_IO if the file has changed since it was opened: what was read may be mixed. */
ARIL_API aril_status aril_weights_check(const aril_weights *w);

/* What the file holds beside tensors, as text: metadata, and numbers and text of a checkpoint
 * ("epoch"). Belongs to w. */
ARIL_API aril_metadata aril_weights_metadata(const aril_weights *w);

/* ---- writing ---- */

typedef struct aril_weights_save_opts {
    /* "safetensors", "pytorch", "npz", "hdf5". NULL: by the extension of the path: .safetensors;
     * .pt, .pth, .bin, .th, .ckpt; .npz; .h5, .hdf5. */
    const char *kind;
    const aril_metadata *metadata; /* safetensors; other kinds have none */
    /* Safetensors and PyTorch: files of at most so many bytes of tensors (a larger tensor gets a
     * file of its own), NAME-00001-of-00003.EXT, with an index NAME.EXT.index.json. 0: one file.
     * The parts of an old index of that name are removed once the new index is there; while one has
     * a name of the new ones, these are NAME.2-00001-of-00003.EXT, or of the next free number. */
    int64_t max_part;
} aril_weights_save_opts;

/* Writes tensors under unique names. PyTorch's are read by torch.load(weights_only=True), with
 * memory that tensors share. Atomic: an old file stays until the new one is complete; parts and
 * their index, until all new ones are. A process that is killed leaves the old ones or the new. */
ARIL_API aril_status aril_weights_save(const char *path, const aril_named *tensors,
                                       aril_weights_save_opts opts);

/* ---- modules ---- */

/* One rule for names: `from` with any text for each '*', and `to`, in which the k-th '*' is the
 * text of the k-th. An empty `to` leaves the tensor out. { "backbone.*", "*" } */
typedef struct aril_rename {
    const char *from, *to;
} aril_rename;

/* A name as the rules change it, in buf of at most 4096 bytes; NULL if they leave the tensor out,
 * or, with an error, if it does not fit. Rules end with { 0 }; each applies to the result of those
 * before it. NULL: no rules. Each '*' matches as little text as possible. */
ARIL_API const char *aril_renamed(const char *name, const aril_rename *rules, char *buf,
                                  size_t size);

/* A name of a report: in the module, in the file, or both (else NULL), with its shapes. */
typedef struct aril_weights_line {
    const char *name, *file_name;
    aril_shape shape, file_shape;
} aril_weights_line;

typedef struct aril_weights_lines {
    int n;
    const aril_weights_line *at;
} aril_weights_lines;

/* What loading found. Free with aril_weights_report_free. */
typedef struct aril_weights_report {
    int loaded;                     /* tensors of the module that got a value */
    int turned;                     /* of those, kernels that were in the order of Keras */
    aril_weights_lines missing;     /* in the module, but not in the file */
    aril_weights_lines left_over;   /* in the file, but not in the module */
    aril_weights_lines other_shape; /* in both, with different shapes */
    void *memory;                   /* of the lines */
} aril_weights_report;

/* Frees the lines of a report and empties it. NULL is allowed. */
ARIL_API void aril_weights_report_free(aril_weights_report *report);
/* Prints the counts, and up to `max` lines of each list (0: 10, negative: all). */
ARIL_API void aril_weights_report_print(const aril_weights_report *report, FILE *to, int max);

/* The order of dimensions of kernels in a file. Keras and TensorFlow have [in,out] for a dense
 * layer and [H,W,in,out] for a convolution (depthwise [H,W,in,multiplier], transposed
 * [H,W,out,in]), Aril and PyTorch [out,in] and [out,in,H,W] ([in * multiplier,1,H,W],
 * [in,out,H,W]). */
typedef enum aril_weights_order {
    ARIL_ORDER_OF_FILE, /* that of Keras if the file is known to be of Keras or TensorFlow */
    ARIL_ORDER_SAME,    /* that of the module */
    ARIL_ORDER_KERAS    /* weights of Linear, convolutions and transposed ones are turned */
} aril_weights_order;

/* How to load. All zeros: names and shapes of module and file must be the same. */
typedef struct aril_load_weights_opts {
    bool partial;      /* names that are missing on either side are skipped; some must fit */
    bool other_shapes; /* so are tensors of another shape, such as a head for other classes */
    const char *root;  /* as in aril_weights_opts */
    const aril_rename *rename; /* for the names of the file; ends with { 0 } */
    aril_weights_order order;
    aril_weights_report *report; /* set to what was found, also on failure; freed by the caller */
} aril_load_weights_opts;

/* Copies weights from a file into the parameters and saved buffers of m, converted to their dtype
 * and device. Prefixes of wrappers ("module.", "_orig_mod.") are removed where names fit only
 * without them. Names and shapes that do not fit are an error that lists them, unless options allow
 * it. Everything is checked before the first write: on failure m is unchanged, unless another
 * process changed the file meanwhile, which the error says. */
ARIL_API aril_status aril_load_weights(aril_module *m, const char *path,
                                       aril_load_weights_opts opts);
/* The same from an open file. */
ARIL_API aril_status aril_load_weights_from(aril_module *m, aril_weights *w,
                                            aril_load_weights_opts opts);

/* Writes the parameters and saved buffers of m under their names, as aril_weights_save does; as
 * safetensors if the extension names no kind. */
ARIL_API aril_status aril_save(aril_module *m, const char *path);

ARIL_C_END

#endif
