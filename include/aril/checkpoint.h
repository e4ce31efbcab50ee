/* Checkpoints: everything that a training run needs to go on as if it had never stopped.
 *
 *     aril_checkpoint_save("run", model, opt, batches);
 *     ...
 *     if (aril_checkpoint_exists("run")) aril_checkpoint_load("run", model, opt, batches);
 *
 * A checkpoint is a folder with two files:
 *     weights-STEP.safetensors   parameters and buffers by name, as PyTorch and others read them
 *     state.safetensors          the optimizer with its schedule, gradients that were gathered but
 *                                not applied, the random number generator, the loader's place,
 *                                and more
 * The state names its weights and holds a digest of both. Each file is written under another name,
 * synced and renamed, the state last; then the weights of the checkpoint before are removed. So a
 * kill, a power cut or a full disk at any moment leaves the checkpoint before or the one after,
 * whole. Only files that a checkpoint has written are removed or replaced: while one is being
 * saved, the folder holds a list of them, .checkpoint-files, by which the next save clears up after
 * a kill. Other files in the folder stay, whatever they are called. */
#ifndef ARIL_CHECKPOINT_H
#define ARIL_CHECKPOINT_H

#include "aril/data.h"
#include "aril/module.h"
#include "aril/optim.h"

ARIL_C_BEGIN

/* Writes a checkpoint of a model, its optimizer and the loader (the last two may be NULL), and of
 * the calling thread's random number generator, into a folder, which is made where it is
 * missing. */
ARIL_API aril_status aril_checkpoint_save(const char *dir, aril_module *model, aril_optim *opt,
                                          aril_loader *loader);

/* Puts all of it back. A file that is missing, cut off, damaged, or of another model or optimizer
 * is an error, and changes nothing. Parts of the checkpoint for which NULL is given are passed
 * over. */
ARIL_API aril_status aril_checkpoint_load(const char *dir, aril_module *model, aril_optim *opt,
                                          aril_loader *loader);

/* The same with tensors of your own. */
typedef struct aril_checkpoint_opts {
    const aril_named *extra; /* saved too; at loading: those of these names are written to */
    int64_t step;            /* the number in the weights' file name; 0: the one after the last */
} aril_checkpoint_opts;
ARIL_API aril_status aril_checkpoint_save_with(const char *dir, aril_module *model, aril_optim *opt,
                                               aril_loader *loader, aril_checkpoint_opts opts);
ARIL_API aril_status aril_checkpoint_load_with(const char *dir, aril_module *model, aril_optim *opt,
                                               aril_loader *loader, aril_checkpoint_opts opts);

/* True when the folder holds a checkpoint (which may still turn out to be damaged). */
ARIL_API bool aril_checkpoint_exists(const char *dir);

/* The path of the checkpoint's weights, in buf. */
ARIL_API aril_status aril_checkpoint_weights(const char *dir, char *buf, size_t size);

ARIL_C_END

#endif
