/* The kinds of files and folders that aril_dataset_open reads, and the datasets it knows by name:
 * rows of datasets.def, where the fields are explained. */
#ifndef ARIL_DATA_OPEN_H
#define ARIL_DATA_OPEN_H

#include "aril/datasets.h"

typedef aril_dataset *aril__open_fn(const char *path, const char *split,
                                    const aril_open_opts *opts);

typedef struct aril__data_kind {
    const char *name;
    aril__open_fn *open;
    bool (*holds)(const char *folder); /* NULL: files, or any folder */
    bool any_folder;
    const char *doc, *shown, *with;
    const char *ends[3];
    bool unsplit, table;
} aril__data_kind;

enum { ARIL__DATA_FOLDERS = 4 };

typedef struct aril__known_dataset {
    const char *name;
    aril__open_fn *open;
    bool (*holds)(const char *folder);
    int n_classes;
    const char *const *classes;
    const char *doc, *files, *package;
    const char *folders[ARIL__DATA_FOLDERS];
} aril__known_dataset;

/* The rows; *n: how many. */
const aril__data_kind *aril__data_kinds(int *n);
const aril__known_dataset *aril__known_datasets(int *n);

#define OPENER(kind)                                                     \
    aril_dataset *aril__open_##kind(const char *path, const char *split, \
                                    const aril_open_opts *opts);
#define FILES(kind, ...)                   OPENER(kind)
#define ANY_FOLDER(kind, ...)              OPENER(kind)
#define FOLDER(kind, ...)                  OPENER(kind) bool aril__holds_##kind(const char *folder);
#define DATASET(name, kind, n, names, ...) extern const char *const aril__classes_##names[n];
#include "data/datasets.def"
#undef OPENER

#endif
