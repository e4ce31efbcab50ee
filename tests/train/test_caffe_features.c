/* Writing the blobs of Caffe's nets: what would destroy a file or fill the memory is refused. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "support/temp.h"
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char text[] =
    "layer { name: 'm' type: 'MemoryData' top: 'x' top: 't' memory_data_param { batch_size: 4 "
    "channels: 3 height: 2 width: 2 } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { "
    "num_output: 1000 weight_filler { type: 'xavier' } } }";

typedef struct fed {
    aril_module *net;
    aril_caffe_feed *feed;
} fed;

static fed open_net(void)
{
    ARIL_SCOPE;
    fed f = { aril_caffe_net_parse(text, strlen(text), NULL, (aril_caffe_opts){ 0 }), NULL };
    f.feed = aril_caffe_feed_new(f.net, (aril_caffe_feed_opts){ 0 });
    aril_caffe_feed_set(f.feed, NULL, aril_ones(ARIL_SHAPE(8, 3, 2, 2), ARIL_F32, aril_cpu()),
                        NULL);
    if (!aril_ok()) test_fail(__FILE__, __LINE__, "%s", aril_error());
    return f;
}

static void close_net(fed *f)
{
    aril_caffe_feed_free(f->feed);
    aril_module_release(f->net);
}

static void refused(fed *f, int64_t iterations, int n, const char *const *blob,
                    const char *const *to, const char *words)
{
    CHECK(aril_caffe_features(f->net, f->feed, iterations, n, blob, to) < 0);
    CHECK_MSG(strstr(aril_error(), words), "%s\n  want: %s", aril_error(), words);
    aril_clear_error();
}

static int64_t samples(const char *path)
{
    aril_dataset *d = aril_dataset_lmdb(path);
    int64_t n = d ? aril_dataset_size(d) : -1;
    aril_dataset_release(d);
    return n;
}

TEST(features_replace_no_file)
{
    char db[4096], h5[4096];
    fed f = open_net();
    snprintf(db, sizeof db, "%s", temp_path("db"));
    snprintf(h5, sizeof h5, "%s", temp_path("old.h5"));
    const char *blob[] = { "ip" }, *to_db[] = { db }, *to_h5[] = { h5 };
    CHECK_MSG(aril_caffe_features(f.net, f.feed, 2, 1, blob, to_db) == ARIL_OK, "%s", aril_error());
    CHECK_INT(samples(db), 8);
    refused(&f, 1, 1, blob, to_db, "data.mdb exists");
    CHECK_INT(samples(db), 8);
    CHECK_INT(aril__file_replace(h5, "old", 3), ARIL_OK);
    refused(&f, 1, 1, blob, to_h5, "old.h5 exists");
    struct stat st;
    CHECK(stat(h5, &st) == 0 && st.st_size == 3);
    close_net(&f);
}

TEST(two_blobs_need_two_files)
{
    static const char *const ends[][2] = {
        { "a", "a" }, { "a/", "./a" }, { "b.h5", "b.h5" }, { "b.h5", "./b.h5" }
    };
    static const char *const blob[] = { "ip", "x" };
    fed f = open_net();
    for (int i = 0; i < 4; i++) {
        char first[4096], second[4096];
        snprintf(first, sizeof first, "%s/%s", temp_path(""), ends[i][0]);
        snprintf(second, sizeof second, "%s/%s", temp_path(""), ends[i][1]);
        const char *to[] = { first, second };
        refused(&f, 1, 2, blob, to, "are the same");
    }
    CHECK(access(temp_path("a/data.mdb"), F_OK) != 0);
    close_net(&f);
}

TEST(values_of_hdf5_must_fit_the_memory)
{
    static const char *const blob[] = { "ip" };
    fed f = open_net();
    const char *to[] = { temp_path("large.h5") };
    refused(&f, INT_MAX, 1, blob, to, "batches of 'ip' are 34359.7 GB");
    CHECK(access(to[0], F_OK) != 0);
    aril_status status = aril_caffe_features(f.net, f.feed, 100, 1, blob, to);
    if (status == ARIL_ERR_UNSUPPORTED) {
        close_net(&f);
        SKIP("%s", aril_error());
    }
    CHECK_MSG(status == ARIL_OK, "%s", aril_error());
    ARIL_SCOPE;
    aril_tensor *all = aril_hdf5_read(to[0], "ip");
    CHECK_INT(aril_size(all, 0), 400);
    close_net(&f);
}

TEST(paths_and_blobs_are_not_null)
{
    static const char *const blob[] = { "ip" }, *const none[] = { NULL }, *const empty[] = { "" };
    fed f = open_net();
    refused(&f, 1, 1, blob, none, "the path 0 is NULL");
    refused(&f, 1, 1, none, blob, "the blob 0 is NULL");
    refused(&f, 1, 1, blob, empty, "the path 0 is empty");
    close_net(&f);
}
