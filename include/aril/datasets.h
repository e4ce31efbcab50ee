/* Datasets in files: well-known ones by name, and your own files and folders.
 *
 *     aril_dataset *train = aril_fashion_mnist("train");
 *     aril_dataset *mine = aril_dataset_open("images/flowers", "train");
 *
 * A dataset is looked for in the folders of ARIL_DATA (several are separated by colons), then in
 * ~/.local/share/datasets, /usr/local/share/datasets and /usr/share/datasets. If it is in none of
 * them, the error says what to install, or which files to put where. All functions return NULL,
 * with an error, on failure. */
#ifndef ARIL_DATASETS_H
#define ARIL_DATASETS_H

#include "aril/data.h"

ARIL_C_BEGIN

/* ---- by name ---- */

/* MNIST's digits and Fashion-MNIST's clothes: images [1,28,28] of ten classes, "train" (60,000)
 * and "test" (10,000). */
ARIL_API aril_dataset *aril_mnist(const char *split);
ARIL_API aril_dataset *aril_fashion_mnist(const char *split);

/* CIFAR-10 and CIFAR-100: images [3,32,32], "train" (50,000) and "test" (10,000), from the binary
 * version's files. */
ARIL_API aril_dataset *aril_cifar10(const char *split);
ARIL_API aril_dataset *aril_cifar100(const char *split);

/* The names that aril_dataset_open knows; returns how many. */
ARIL_API int aril_dataset_names(const char *const **names);

/* Prints what aril_dataset_open takes: the datasets that it knows by name with the files they
 * consist of, and the kinds of files and folders with what they yield. */
ARIL_API void aril_dataset_help(FILE *to);

/* A dataset by its name ("mnist", or the name of a folder in one of the directories above) or by a
 * path: a file of a known suffix, such as .csv or .npz; a folder of images, one subfolder per
 * class; a folder of another kind, such as that of CIFAR's files; or a folder that holds any of
 * these under the name of the split: train/, test.csv ... aril_dataset_help lists the names and
 * kinds. split is "train", "test", or another split of the dataset; NULL: the whole file or folder
 * of images, otherwise "train". */
ARIL_API aril_dataset *aril_dataset_open(const char *name, const char *split);

/* How to read a dataset, so that its splits, or one opened later, are consistent. Names are
 * borrowed during the call. */
typedef struct aril_open_opts {
    const char *target; /* tables: the target column, as in aril_csv_opts */
    const char *skip;   /* tables: columns to leave out, separated by commas */
    bool no_target;     /* tables: there is no target; x consists of `columns` or of all columns */
    bool class_target;  /* targets are classes, even if they are numbers */
    bool name_classes;  /* tables: where integer targets are taken as classes, their values become
                           the class names, so that other tables are matched by them */
    bool real_target;   /* targets are f32 numbers (regression), even if all are integers */
    int n_columns;      /* tables: the columns of x, as in aril_csv_opts */
    const char *const *columns;
    int n_classes; /* class names that define the target indices (aril_dataset_match_classes) */
    const char *const *classes;
} aril_open_opts;

/* The same with options:
 *
 *     aril_dataset *train = aril_dataset_open("images/flowers", "train");
 *     aril_open_opts same = { .n_classes = aril_dataset_classes(train, &same.classes) };
 *     aril_dataset *test = aril_dataset_open_with("images/flowers", "test", same); */
ARIL_API aril_dataset *aril_dataset_open_with(const char *name, const char *split,
                                              aril_open_opts opts);

/* ---- splits ---- */

/* Whether the dataset has a split of that name. */
ARIL_API bool aril_dataset_has_split(const char *name, const char *split);

/* The datasets of a training. */
typedef struct aril_splits {
    aril_dataset *train;
    aril_dataset *val;  /* evaluated after each epoch, to choose the best one */
    aril_dataset *test; /* evaluated once, at the end; NULL: the dataset has no such split */
    double held_out;    /* fraction of the training samples used as val; 0: val is a split of its
                           own */
    bool val_is_test;   /* val is the test split: results on it are optimistic */
} aril_splits;

typedef struct aril_splits_opts {
    aril_open_opts open;
    double validation_split; /* hold out this fraction of the training samples as val */
    uint64_t seed;           /* for drawing them */
} aril_splits_opts;

/* Opens the splits of a dataset (a name or a path) for training, validation and testing, with the
 * same classes and columns in all. train is the split of that name, or the whole dataset if it has
 * none. val is the held-out fraction; without one, the split "val", otherwise "test", otherwise a
 * tenth of the training samples. The caller releases them all. On failure nothing is opened. */
ARIL_API aril_status aril_splits_open(const char *name, aril_splits_opts opts, aril_splits *s);
ARIL_API void aril_splits_release(aril_splits *s);

/* ---- images ---- */

typedef struct aril_folder_opts {
    int channels;      /* 1 or 3; default 3 */
    bool follow_links; /* follow symbolic links, even out of the folder; each folder counts once per
                          class */
} aril_folder_opts;

/* A folder of images: JPEG, PNG, BMP, PGM and PPM. Each subfolder is a class, sorted by name, and
 * every image below it belongs to that class; without subfolders, the images in the folder have no
 * target. x: u8 [C,H,W] in the image's own size, y: the class. Samples are named by their paths in
 * the folder ("cats/17.jpg"). If a transform crops or downscales a JPEG, only the needed part is
 * decoded, at the needed scale.
 *
 * Unless .follow_links is set, a symbolic link to a folder or an image outside the folder is an
 * error, and a link to a folder inside it is skipped. */
ARIL_API aril_dataset *aril_dataset_folder(const char *path, aril_folder_opts opts);
/* The same for n files, in the order given, without a target. */
ARIL_API aril_dataset *aril_dataset_image_files(int64_t n, const char *const *paths,
                                                aril_folder_opts opts);

/* ---- tables ---- */

typedef enum aril_csv_header {
    ARIL_CSV_GUESS_HEADER = 0, /* the first row is a header when none of its values is a number */
    ARIL_CSV_HEADER,
    ARIL_CSV_NO_HEADER,
} aril_csv_header;

typedef struct aril_csv_opts {
    char separator; /* 0: the most frequent of , ; | and tab in the first line */
    aril_csv_header header;
    /* The name of the target column, or its number as text if no column has that name: "1" is the
     * first, "-1" the last. NULL: by target_column. */
    const char *target;
    int target_column; /* or its number; 0: the last */
    bool no_target;
    bool real_target;  /* the target is a number (regression), even if all values are integers */
    bool class_target; /* the target is a class, even if all values are numbers: each distinct value
                          is a class of that name */
    const char *skip;  /* names of columns to skip, separated by commas */
    /* The columns of x, in that order, by name (or number, as for the target); NULL: all but the
     * target and skipped columns. A table without a header that has exactly n_columns columns is
     * used as is. */
    int n_columns;
    const char *const *columns;
    bool allow_missing; /* missing values (empty, ?, NA or null) become NaN */
    /* The class names that define the label indices, such as those of the training set for a test
     * set; NULL: the labels that occur, sorted. */
    int n_classes;
    const char *const *classes;
} aril_csv_opts;

/* A table in a text file: values with or without quotes, separated by commas, semicolons or tabs;
 * may be gzip-compressed. x: f32 [columns] of all columns but the target, y: a class (i64) or a
 * number (f32). Unless the options decide, the target is a class if it is text, or if its values
 * are integers from 0 to 99 with at most 32 distinct values (y is then the integer itself); other
 * numeric targets, such as prices, are numbers. Text labels become the class names. Errors give the
 * line and column. */
ARIL_API aril_dataset *aril_dataset_csv(const char *path, aril_csv_opts opts);

/* ---- text ---- */

typedef struct aril_text_opts {
    bool words;     /* tokens are words and punctuation marks instead of UTF-8 characters */
    bool lower;     /* convert ASCII to lower case */
    int64_t length; /* of a sequence; default 64 */
    int64_t step;   /* distance between the starts of successive sequences; 0: length */
    int64_t limit;  /* words: maximum size of the vocabulary, keeping the most frequent; 0: all */
    const aril_dataset *like; /* a text dataset whose vocabulary (and words, lower) to use;
                                 borrowed */
} aril_text_opts;

/* A text as sequences of tokens: x: i64 [length], y: the same shifted by one. The dataset's classes
 * are the vocabulary: characters in code point order, words by frequency, after "<unk>" for unknown
 * tokens. */
ARIL_API aril_dataset *aril_dataset_text(const char *path, aril_text_opts opts);
ARIL_API aril_dataset *aril_dataset_text_from(const char *text, aril_text_opts opts);

/* Encodes a text as token indices of d's vocabulary: i64 [n]; decodes token indices to text and,
 * like snprintf, returns the length needed. d may be a subset or map of a text dataset. */
ARIL_API aril_tensor *aril_text_encode(const aril_dataset *d, const char *text);
ARIL_API size_t aril_text_decode(const aril_dataset *d, aril_tensor *tokens, char *buf,
                                 size_t size);

/* ---- arrays ---- */

/* Arrays of a .npz file, by their names; y may be NULL. u8 [N,H,W], [N,C,H,W] or [N,H,W,C] are
 * images. */
ARIL_API aril_dataset *aril_dataset_npz(const char *path, const char *x, const char *y);

/* ---- databases ---- */

/* Caffe's data sets: an LMDB (its folder, or the file data.mdb) of Datum messages. x: [C,H,W], u8
 * or f32, with the channels in the order in which they were stored (BGR by Caffe's own tools);
 * encoded images are decoded to RGB. y: the label. Samples are named by their keys. */
ARIL_API aril_dataset *aril_dataset_lmdb(const char *path);

/* Arrays of an HDF5 file by their names; x NULL: "x" or "data"; y NULL: "y" or "label", if the file
 * has one. */
ARIL_API aril_dataset *aril_dataset_hdf5(const char *path, const char *x, const char *y);

ARIL_C_END

#endif
