/* Files that mean harm: what is no file at all, links that lead elsewhere, a few bytes that ask for
 * gigabytes. */
#include "aril/aril.h"
#include "formats/atomic_file.h"
#include "support/temp.h"
#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static const unsigned char outside[] = {
#include "files/outside.inc"
};

/* ---- what is no ordinary file ---- */

/* Every reader of files, by a dataset or tensor that it makes of one. */
static bool opens(int reader, const char *path)
{
    ARIL_SCOPE;
    aril_safetensors *f;
    aril_npz *z;
    aril_dataset *d;
    switch (reader) {
    case 0:
        f = aril_safetensors_open(path);
        aril_safetensors_close(f);
        return f;
    case 1:
        z = aril_npz_open(path);
        aril_npz_close(z);
        return z;
    case 2: return aril_tensor_status(aril_npy_read(path)) == ARIL_OK;
    case 3: return aril_tensor_status(aril_idx_read(path)) == ARIL_OK;
    case 4: return aril_tensor_status(aril_hdf5_read(path, "x")) == ARIL_OK;
    case 5: return aril_tensor_status(aril_picture_read(path, (aril_picture_opts){ 0 })) == ARIL_OK;
    case 6: d = aril_dataset_csv(path, (aril_csv_opts){ 0 }); break;
    case 7: d = aril_dataset_text(path, (aril_text_opts){ 0 }); break;
    case 8: d = aril_dataset_lmdb(path); break;
    default: d = aril_dataset_hdf5(path, NULL, NULL); break;
    }
    aril_dataset_release(d);
    return d;
}
enum { READERS = 10 };

static void make_socket(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
    close(fd);
}

TEST(readers_do_not_wait_for_what_is_no_file)
{
    const char *path[] = { temp_path("pipe"), temp_path("socket"), "/dev/zero", "/dev/tty",
                           temp_path("folder") };
    CHECK(mkfifo(path[0], 0666) == 0 && mkdir(path[4], 0777) == 0);
    make_socket(path[1]);
    alarm(20); /* a reader that waits ends the test */
    for (int i = 0; i < 5; i++)
        for (int r = 0; r < READERS; r++) {
            CHECK_MSG(!opens(r, path[i]), "reader %d opened %s", r, path[i]);
            aril_status code = aril_error_code();
            CHECK_MSG(code == ARIL_ERR_IO || code == ARIL_ERR_UNSUPPORTED, "reader %d, %s: %s", r,
                      path[i], aril_error());
            aril_clear_error();
        }
    CHECK(!opens(0, path[0]));
    CHECK_MSG(strstr(aril_error(), "an ordinary file was expected"), "%s", aril_error());
    aril_clear_error();
    alarm(0);
}

TEST(writers_do_not_wait_for_a_pipe_in_their_way)
{
    const char *path = temp_path("model");
    CHECK(mkfifo(temp_path(".model.new0"), 0666) == 0);
    alarm(20);
    CHECK_INT(aril__file_replace(path, "new", 3), ARIL_OK);
    alarm(0);
    struct stat st;
    CHECK(stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 3);
}

/* ---- HDF5 whose arrays lie in other files ---- */

TEST(hdf5_follows_no_links_to_other_files)
{
    ARIL_SCOPE;
    const char *path = temp_path("outside.h5"), *name = "x";
    aril_tensor *x = aril_ones(ARIL_SHAPE(4), ARIL_F32, aril_cpu());
    aril_status status = aril_hdf5_write(temp_path("other.h5"), &(aril_named){ 1, &x, &name });
    if (status == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        SKIP("built without HDF5");
    }
    CHECK_INT(status, ARIL_OK);
    CHECK_INT(aril__file_replace(path, outside, sizeof outside), ARIL_OK);
    CHECK_INT(aril__file_replace(temp_path("raw.bin"), "abcd", 4), ARIL_OK);
    CHECK(chdir(temp_path("")) == 0); /* where files of raw values are looked for */
    const char *arrays[] = { "link", "raw", "virtual" };
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(aril_tensor_status(aril_hdf5_read(path, arrays[i])) < 0, "%s was read",
                  arrays[i]);
        CHECK_MSG(strstr(aril_error(), "not followed"), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(chdir("/") == 0);
}
