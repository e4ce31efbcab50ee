/* Malicious files: not regular files, links that lead elsewhere, a few bytes that ask for
 * gigabytes. */
#include "aril/aril.h"
#include "files/images.inc"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "support/device.h"
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

/* ---- not regular files ---- */

/* Every file reader, called through a dataset or tensor that it creates. */
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
    case 5: return aril_tensor_status(aril_image_read(path, (aril_image_opts){ 0 })) == ARIL_OK;
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

TEST(readers_do_not_block_on_special_files)
{
    const char *path[] = { temp_path("pipe"), temp_path("socket"), "/dev/zero", "/dev/tty",
                           temp_path("folder") };
    CHECK(mkfifo(path[0], 0666) == 0 && mkdir(path[4], 0777) == 0);
    make_socket(path[1]);
    alarm(20); /* kills a reader that blocks */
    for (int i = 0; i < 5; i++)
        for (int r = 0; r < READERS; r++) {
            CHECK_MSG(!opens(r, path[i]), "reader %d opened %s", r, path[i]);
            aril_status code = aril_error_code();
            CHECK_MSG(code == ARIL_ERR_IO || code == ARIL_ERR_UNSUPPORTED, "reader %d, %s: %s", r,
                      path[i], aril_error());
            aril_clear_error();
        }
    CHECK(!opens(0, path[0]));
    CHECK_MSG(strstr(aril_error(), "expected a regular file"), "%s", aril_error());
    aril_clear_error();
    alarm(0);
}

TEST(writers_do_not_block_on_pipes)
{
    const char *path = temp_path("model");
    CHECK(mkfifo(temp_path(".model.new0"), 0666) == 0);
    alarm(20);
    CHECK_INT(aril__file_replace(path, "new", 3), ARIL_OK);
    alarm(0);
    struct stat st;
    CHECK(stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 3);
}

TEST(writers_leave_files_of_others)
{
    const char *path = temp_path("model"), *other = temp_path("other"),
               *user = temp_path(".model.new1");
    struct stat st;
    CHECK_INT(aril__file_replace(other, "other", 5), ARIL_OK);
    CHECK(link(other, temp_path(".model.new0")) == 0);
    CHECK_INT(aril__file_replace(user, "user", 4), ARIL_OK);
    CHECK_INT(aril__file_replace(path, "new", 3), ARIL_OK);
    CHECK(stat(other, &st) == 0 && st.st_size == 5);
    CHECK(stat(user, &st) == 0 && st.st_size == 4);
    CHECK(stat(path, &st) == 0 && st.st_size == 3);
    CHECK((st.st_mode & 01400) == 0400);
    /* What a killed writer left is taken over: it has a mark. */
    CHECK(chmod(user, 01644) == 0);
    CHECK_INT(aril__file_replace(path, "newer", 5), ARIL_OK);
    CHECK_INT(temp_count(), 3);
}

/* ---- HDF5 with external data files ---- */

TEST(hdf5_external_links_are_not_followed)
{
    ARIL_SCOPE;
    const char *path = temp_path("outside.h5"), *name = "x";
    aril_tensor *x = aril_ones(ARIL_SHAPE(4), ARIL_F32, test_device());
    aril_status status = aril_hdf5_write(temp_path("other.h5"), &(aril_named){ 1, &x, &name });
    if (status == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        SKIP("built without HDF5");
    }
    CHECK_INT(status, ARIL_OK);
    CHECK_INT(aril__file_replace(path, outside, sizeof outside), ARIL_OK);
    CHECK_INT(aril__file_replace(temp_path("raw.bin"), "abcd", 4), ARIL_OK);
    CHECK(chdir(temp_path("")) == 0); /* raw data files are searched for here */
    const char *arrays[] = { "link", "raw", "virtual" };
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(aril_tensor_status(aril_hdf5_read(path, arrays[i])) < 0, "%s was read",
                  arrays[i]);
        CHECK_MSG(strstr(aril_error(), "not followed"), "%s", aril_error());
        aril_clear_error();
    }
    CHECK(chdir("/") == 0);
}

/* ---- links in folders of images ---- */

/* The number of samples in a folder; -1 when it is rejected. */
static int64_t count(const char *path, bool follow)
{
    aril_dataset *d = aril_dataset_folder(path, (aril_folder_opts){ .follow_links = follow });
    int64_t n = d ? aril_dataset_size(d) : -1;
    aril_dataset_release(d);
    return n;
}

static void link_to(const char *to, const char *at)
{
    CHECK_MSG(symlink(to, temp_path(at)) == 0, "%s: %s", at, strerror(errno));
}

TEST(symbolic_links_in_an_image_folder)
{
    char set[512];
    snprintf(set, sizeof set, "%s", temp_path("set"));
    static const char *const folders[] = { "set", "set/cats", "set/dogs", "set/dogs/old", "other" };
    static const char *const images[] = { "set/cats/a.png", "set/dogs/b.png", "set/dogs/old/c.png",
                                          "other/d.png" };
    for (int i = 0; i < 5; i++) CHECK(mkdir(temp_path(folders[i]), 0777) == 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(aril__file_replace(temp_path(images[i]), png_rgba, sizeof png_rgba), ARIL_OK);
    CHECK_INT(count(set, false), 3);
    CHECK_INT(count(set, true), 3);
    /* cycles, several paths to one folder, dangling links */
    link_to("..", "set/cats/up");
    link_to(".", "set/cats/here");
    link_to("../cats", "set/cats/again");
    link_to("old", "set/dogs/old2");
    link_to("old", "set/dogs/old3");
    link_to("nowhere", "set/dogs/nowhere.png");
    link_to("round.png", "set/dogs/round.png");
    CHECK_INT(count(set, false), 3);
    CHECK_INT(count(set, true), 3);
    link_to("b.png", "set/dogs/same.png"); /* a second name for an image is a second sample */
    CHECK_INT(count(set, false), 4);
    link_to("set", "linked"); /* the folder itself may be a link */
    CHECK_INT(count(temp_path("linked"), false), 4);
    /* links out of the folder */
    static const struct {
        const char *to, *at;
    } out[] = { { "../other", "set/birds" },
                { "../../other", "set/dogs/other" },
                { "../../other/d.png", "set/dogs/d.png" },
                { "/", "set/cats/all" } };
    for (int i = 0; i < 4; i++) {
        link_to(out[i].to, out[i].at);
        CHECK_INT(count(set, false), -1);
        CHECK_INT(aril_error_code(), ARIL_ERR_IO);
        CHECK_MSG(strstr(aril_error(), out[i].at) && strstr(aril_error(), "outside the folder"),
                  "%s", aril_error());
        aril_clear_error();
        if (i < 3) CHECK_INT(count(set, true), 5);
        CHECK(unlink(temp_path(out[i].at)) == 0);
    }
}

/* ---- gzip bombs ---- */

struct bits {
    aril__bytes *to;
    unsigned held, n;
};

/* Huffman codes are stored high bit first, numbers low bit first. */
static void put_code(struct bits *b, unsigned code, unsigned n)
{
    for (unsigned i = n; i-- > 0;) {
        b->held |= (code >> i & 1) << b->n;
        if (++b->n < 8) continue;
        unsigned char byte = (unsigned char)b->held;
        aril__bytes_add(b->to, &byte, 1);
        b->held = b->n = 0;
    }
}

/* A gzip file of the lines "1", 2 + 258n bytes: matches of 258 bytes, 13 bits each. */
static void pack_ones(aril__bytes *gz, size_t n)
{
    static const unsigned char head[10] = { 0x1f, 0x8b, 8 };
    unsigned char tail[8];
    aril__bytes_add(gz, head, sizeof head);
    struct bits b = { gz, 0, 0 };
    put_code(&b, 6, 3); /* the last block, with fixed codes */
    put_code(&b, 0x30 + '1', 8);
    put_code(&b, 0x30 + '\n', 8);
    for (size_t i = 0; i < n; i++) {
        put_code(&b, 0xc5, 8); /* 258 bytes */
        put_code(&b, 1, 5);    /* distance 2 */
    }
    put_code(&b, 0, 7); /* end of block */
    put_code(&b, 0, 7);
    uint32_t crc = 0;
    for (size_t i = 0; i < 1 + 129 * n; i++) crc = aril__crc32(crc, "1\n", 2);
    aril__put_le32(tail, crc);
    aril__put_le32(tail + 4, (uint32_t)(2 + 258 * n));
    aril__bytes_add(gz, tail, sizeof tail);
}

TEST(gzip_expansion_is_limited)
{
    ARIL_SCOPE;
    aril__bytes gz = { 0 };
    const char *path = temp_path("ones.csv.gz");
    pack_ones(&gz, 1000); /* 150 times its size, but small */
    CHECK_INT(aril__file_replace(path, gz.at, gz.n), ARIL_OK);
    aril_dataset *d = aril_dataset_csv(path, (aril_csv_opts){ 0 });
    if (!d && aril_error_code() == ARIL_ERR_UNSUPPORTED) {
        aril_clear_error();
        aril__bytes_free(&gz);
        SKIP("built without zlib");
    }
    CHECK_MSG(d, "%s", aril_error());
    CHECK_INT(aril_dataset_size(d), 129001);
    aril_dataset_release(d);

    aril__bytes_free(&gz);
    pack_ones(&gz, 200000); /* 50 MB in 325 kB */
    const char *const names[] = { "x.csv.gz", "x.txt.gz", "x.idx.gz", "test_batch.bin.gz" };
    for (int i = 0; i < 4; i++) {
        path = temp_path(names[i]);
        CHECK_INT(aril__file_replace(path, gz.at, gz.n), ARIL_OK);
        bool read = true;
        switch (i) {
        case 0: read = opens(6, path); break;
        case 1: read = opens(7, path); break;
        case 2: read = opens(3, path); break;
        default:
            d = aril_dataset_open(temp_path(""), "test");
            read = d;
            aril_dataset_release(d);
        }
        CHECK_MSG(!read, "%s was read", names[i]);
        CHECK_MSG(strstr(aril_error(), "unpacks to more than"), "%s: %s", names[i], aril_error());
        aril_clear_error();
    }
    aril__bytes_free(&gz);
}

/* ---- images that decompress to far more than their size ---- */

static void put_chunk(aril__bytes *png, const char *name, const void *data, size_t n)
{
    unsigned char number[4];
    aril__put_be32(number, (uint32_t)n);
    aril__bytes_add(png, number, 4);
    aril__bytes_add(png, name, 4);
    aril__bytes_add(png, data, n);
    aril__put_be32(number, aril__crc32(aril__crc32(0, name, 4), data, n));
    aril__bytes_add(png, number, 4);
}

static void begin_png(aril__bytes *png, uint32_t width, uint32_t height, unsigned depth)
{
    unsigned char head[13] = { 0 };
    aril__put_be32(head, width);
    aril__put_be32(head + 4, height);
    head[8] = (unsigned char)depth;
    aril__bytes_free(png);
    aril__bytes_add(png, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(png, "IHDR", head, sizeof head);
}

static const char *decodes(const aril__bytes *b)
{
    ARIL_SCOPE;
    static char why[512];
    aril_tensor *x = aril_image_decode(b->at, b->n, (aril_image_opts){ 0 });
    snprintf(why, sizeof why, "%s",
             aril_tensor_status(x) == ARIL_OK ? "it was read" : aril_error());
    aril_clear_error();
    return why;
}

TEST(image_size_is_limited_by_file_size)
{
    static const unsigned char junk[40000];
    aril__bytes png = { 0 };
    begin_png(&png, 16000, 16000, 1); /* 256 MB of gray in 40 kB */
    put_chunk(&png, "IDAT", junk, sizeof junk);
    const char *why = decodes(&png);
    if (strstr(why, "without libpng")) {
        aril__bytes_free(&png);
        SKIP("built without libpng");
    }
    CHECK_MSG(strstr(why, "too small for the 16000 x 16000 pixels"), "%s", why);
    begin_png(&png, 8000, 8000, 1); /* 64 MB: allowed for any file that can hold it */
    put_chunk(&png, "IDAT", junk, sizeof junk);
    why = decodes(&png);
    CHECK_MSG(!strstr(why, "too small") && !strstr(why, "was read"), "%s", why);
    aril__bytes_free(&png);
}

/* The zlib stream of n * 258 + 1 letters, without its checksum: libpng warns about that. */
static void pack_letters(aril__bytes *to, size_t n)
{
    aril__bytes_add(to, "\x78\x01", 2);
    struct bits b = { to, 0, 0 };
    put_code(&b, 6, 3);
    put_code(&b, 0x30 + 'a', 8);
    for (size_t i = 0; i < n; i++) {
        put_code(&b, 0xc5, 8);
        put_code(&b, 0, 5);
    }
    put_code(&b, 0, 7);
    put_code(&b, 0, 7);
    uint32_t low = 1, high = 0; /* Adler-32 */
    for (size_t i = 0; i < 258 * n + 1; i++) {
        low = (low + 'a') % 65521;
        high = (high + low) % 65521;
    }
    unsigned char sum[4];
    aril__put_be32(sum, high << 16 | low);
    aril__bytes_add(to, sum, 4);
}

TEST(png_text_is_not_decompressed)
{
    aril__bytes text = { 0 }, png = { 0 };
    aril__bytes_add(&text, "Comment\0", 9);
    pack_letters(&text, 60000); /* 15 MB */
    aril__bytes_add(&png, png_rgba, 8 + 25);
    for (int i = 0; i < 40; i++) put_chunk(&png, "zTXt", text.at, text.n);
    aril__bytes_add(&png, png_rgba + 8 + 25, sizeof png_rgba - 8 - 25);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const char *why = decodes(&png);
    getrusage(RUSAGE_SELF, &after);
    aril__bytes_free(&text);
    aril__bytes_free(&png);
    if (strstr(why, "without libpng")) SKIP("built without libpng");
    CHECK_STR(why, "it was read");
    CHECK_MSG(after.ru_maxrss - before.ru_maxrss < 200000, "%ld kB more",
              after.ru_maxrss - before.ru_maxrss);
}

TEST(jpeg_with_thousands_of_scans_is_rejected)
{
    /* Repeats the first scan of a progressive file, up to the next marker. */
    size_t begin = 0, end;
    const unsigned char *p = jpeg_progressive;
    while (!(p[begin] == 0xff && p[begin + 1] == 0xda)) begin++;
    for (end = begin + 2; p[end] != 0xff || p[end + 1] == 0; end++) continue;
    aril__bytes jpeg = { 0 };
    for (int times = 1; times <= 3000; times += 2999) {
        aril__bytes_free(&jpeg);
        aril__bytes_add(&jpeg, p, begin);
        for (int i = 0; i < times; i++) aril__bytes_add(&jpeg, p + begin, end - begin);
        aril__bytes_add(&jpeg, p + end, sizeof jpeg_progressive - end);
        const char *why = decodes(&jpeg);
        if (strstr(why, "without libjpeg")) break;
        CHECK_MSG(strstr(why, times == 1 ? "it was read" : "more than 100 scans"), "%d: %s", times,
                  why);
    }
    aril__bytes_free(&jpeg);
}
