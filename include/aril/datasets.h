/* Datasets in files: known ones by their names, and files and folders of your own.
 *
 *     aril_dataset *train = aril_fashion_mnist("train");
 *     aril_dataset *mine = aril_dataset_open("images/flowers", "train");
 *
 * A dataset is looked for in the folders of ARIL_DATA (several are separated by colons), then in
 * ~/.local/share/datasets, /usr/local/share/datasets and /usr/share/datasets. Where it is in none
 * of them the error says what to install, or which files to put where. All functions give NULL,
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

/* A dataset by its name ("mnist", "fashion-mnist", "cifar10", "cifar100", or that of a folder in
 * one of the places above) or by a path:
 *   - a folder of IDX files as MNIST's, or of CIFAR's binary files
 *   - a folder of images, one folder a class
 *   - .csv and .tsv (the last column is the target), .npz (x and y, or x_train, y_train, x_test,
 *     y_test), .npy, .txt (characters, in sequences of 64), .h5 (x and y, or data and label), a
 *     folder that is an LMDB of Caffe's
 *   - a folder that holds any of these under the name of the split: train/, test.csv ...
 * split is "train", "test", or another that the dataset has; NULL: all there is of a file or a
 * folder of images, "train" of others. */
ARIL_API aril_dataset *aril_dataset_open(const char *name, const char *split);

/* How a dataset is to be read, so that its parts, or one opened later, agree with each other. The
 * names are borrowed during the call. */
typedef struct aril_open_opts {
    const char *target; /* tables: the target's column, as in aril_csv_opts */
    const char *skip;   /* tables: columns to leave out, separated by commas */
    bool no_target;     /* tables: there is no target; x is made of `columns` or of all columns */
    bool class_target;  /* targets are classes, also where they are numbers */
    bool real_target;   /* targets are numbers, f32, also where all of them are integers */
    int n_columns;      /* tables: the columns of x, as in aril_csv_opts */
    const char *const *columns;
    int n_classes; /* the classes by which targets are numbered (aril_dataset_match_classes) */
    const char *const *classes;
} aril_open_opts;

/* The same with options:
 *
 *     aril_dataset *train = aril_dataset_open("images/flowers", "train");
 *     aril_open_opts same = { .n_classes = aril_dataset_classes(train, &same.classes) };
 *     aril_dataset *test = aril_dataset_open_with("images/flowers", "test", same); */
ARIL_API aril_dataset *aril_dataset_open_with(const char *name, const char *split,
                                              aril_open_opts opts);

/* ---- images ---- */

typedef struct aril_folder_opts {
    int channels;      /* 1 or 3; 0: 3 */
    bool follow_links; /* also out of the folder; each folder counts once for a class */
} aril_folder_opts;

/* A folder of JPEG and PNG files. Each folder in it is a class, in the order of their names, and
 * everything below it is of that class; with no folders in it, the images in the folder itself
 * have no target. x: u8 [C,H,W] of the image's own size, y: the class. Samples are called by
 * their paths in the folder ("cats/17.jpg"). Where a transform takes but a part of a JPEG, or makes
 * it smaller, no more than that is decoded.
 *
 * A symbolic link out of the folder, to a folder or a image, is an error, and one to a folder in
 * it is passed over, unless .follow_links is set. */
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
    char separator; /* 0: the one of , ; | and tab that is most frequent in the first line */
    aril_csv_header header;
    /* The name of the target's column, or its number as text where no column has that name: "1" is
     * the first, "-1" the last. NULL: by target_column. */
    const char *target;
    int target_column; /* or its number; 0: the last */
    bool no_target;
    bool real_target;  /* the target is a number, also where all of them are integers */
    bool class_target; /* the target is a class, also where all of them are numbers: as many classes
                          as there are different values, which are their names */
    const char *skip;  /* names of columns to leave out, separated by commas */
    /* The columns that x is made of, in that order, by name (or number, as the target's); NULL: all
     * but the target and those left out. A table without a header that has exactly n_columns of
     * them is taken as it is. */
    int n_columns;
    const char *const *columns;
    bool allow_missing; /* values that are empty, ?, NA or null become NaN */
    /* The classes that labels stand for, such as those of the training set for a test set; NULL:
     * those that come up, sorted. */
    int n_classes;
    const char *const *classes;
} aril_csv_opts;

/* A table in text: values in quotes or without, separated by commas, semicolons or tabs; also
 * compressed by gzip. x: f32 [columns] of all columns but the target, y: a class (i64) or a number
 * (f32). Unless the options say which, the target is a class where it is text, and where it is
 * integers from 0 to 99 of at most 32 different values (y is then the integer itself); all other
 * numbers, such as prices, are numbers. Text labels are the names of the classes. An error says in
 * which line and column it is. */
ARIL_API aril_dataset *aril_dataset_csv(const char *path, aril_csv_opts opts);

/* ---- text ---- */

typedef struct aril_text_opts {
    bool words;     /* words and marks, instead of characters (of UTF-8) */
    bool lower;     /* in lower case (of ASCII) */
    int64_t length; /* of a sequence; 0: 64 */
    int64_t step;   /* from the beginning of a sequence to that of the next; 0: length */
    int64_t limit;  /* words: how many the vocabulary has at most, the most frequent; 0: all */
    const aril_dataset *like; /* a text whose vocabulary (and words, lower) is taken; borrowed */
} aril_text_opts;

/* A text in sequences: x: i64 [length], y the same moved on by one. The vocabulary is the dataset's
 * classes: characters in the order of their codes, words in that of their frequency, after "<unk>"
 * for what is not in it. */
ARIL_API aril_dataset *aril_dataset_text(const char *path, aril_text_opts opts);
ARIL_API aril_dataset *aril_dataset_text_from(const char *text, aril_text_opts opts);

/* A text as numbers of d's vocabulary: i64 [n]; and numbers as text, like snprintf: the length that
 * was needed is returned. d may be a part or a map of a text. */
ARIL_API aril_tensor *aril_text_encode(const aril_dataset *d, const char *text);
ARIL_API size_t aril_text_decode(const aril_dataset *d, aril_tensor *tokens, char *buf,
                                 size_t size);

/* ---- arrays ---- */

/* Arrays of a .npz file, by their names; y may be NULL. u8 [N,H,W], [N,C,H,W] or [N,H,W,C] are
 * images. */
ARIL_API aril_dataset *aril_dataset_npz(const char *path, const char *x, const char *y);

/* ---- databases ---- */

/* Caffe's data sets: an LMDB (its folder, or the file data.mdb) of Datum messages. x: [C,H,W], u8
 * or f32, with the channels in the order in which they were stored (by Caffe's own tools: blue
 * first); encoded ones as their files have them, red first. y: the label. Samples are called by
 * their keys. */
ARIL_API aril_dataset *aril_dataset_lmdb(const char *path);

/* Arrays of an HDF5 file by their names; x NULL: "x" or "data", and y NULL: "y" or "label", where
 * the file has one. */
ARIL_API aril_dataset *aril_dataset_hdf5(const char *path, const char *x, const char *y);

ARIL_C_END

#endif
