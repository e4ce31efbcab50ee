/* Checkpoints: everything that a training run needs to resume as if it had never stopped.
 *
 *     aril_checkpoint_save("run", model, opt, batches);
 *     ...
 *     if (aril_checkpoint_exists("run")) aril_checkpoint_load("run", model, opt, batches);
 *
 * A checkpoint is a folder with two files:
 *     weights-STEP.safetensors   parameters and buffers by name, as PyTorch and others read them
 *     state.safetensors          the optimizer with its schedule, accumulated gradients that were
 *                                not applied, the random number generator, the loader's position,
 *                                and more
 * The state names its weights and holds a digest of both. Each file is written under a temporary
 * name, synced and renamed, the state last; then the weights of the previous checkpoint are
 * removed. So saving is atomic: after a kill, a power cut or a full disk, either the previous or
 * the new checkpoint is complete. Only files that a checkpoint wrote are removed or replaced:
 * during a save the folder holds a list of them, .checkpoint-files, from which the next save cleans
 * up after a kill. All other files in the folder are left alone. */
#ifndef ARIL_CHECKPOINT_H
#define ARIL_CHECKPOINT_H

#include "aril/data.h"
#include "aril/module.h"
#include "aril/optim.h"

ARIL_C_BEGIN

/* Writes a checkpoint of a model, its optimizer and the loader (the last two may be NULL), and of
 * the calling thread's random number generator, into a folder, which is created if missing. */
ARIL_API aril_status aril_checkpoint_save(const char *dir, aril_module *model, aril_optim *opt,
                                          aril_loader *loader);

/* Restores a checkpoint. A file that is missing, truncated, corrupted, or from another model or
 * optimizer is an error, and changes nothing. Parts of the checkpoint for which NULL is given are
 * skipped. */
ARIL_API aril_status aril_checkpoint_load(const char *dir, aril_module *model, aril_optim *opt,
                                          aril_loader *loader);

/* The same with additional tensors. */
typedef struct aril_checkpoint_opts {
    const aril_named *extra; /* also saved; on load: overwritten with the saved values, by name */
    int64_t step;            /* the number in the weights' file name; 0: the next one */
} aril_checkpoint_opts;
ARIL_API aril_status aril_checkpoint_save_with(const char *dir, aril_module *model, aril_optim *opt,
                                               aril_loader *loader, aril_checkpoint_opts opts);
ARIL_API aril_status aril_checkpoint_load_with(const char *dir, aril_module *model, aril_optim *opt,
                                               aril_loader *loader, aril_checkpoint_opts opts);

/* True when the folder holds a checkpoint (which is not verified and may be corrupted). */
ARIL_API bool aril_checkpoint_exists(const char *dir);

/* Writes the path of the checkpoint's weights to buf. */
ARIL_API aril_status aril_checkpoint_weights(const char *dir, char *buf, size_t size);

ARIL_C_END

#endif
