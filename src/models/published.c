#include "aril/published.h"

#include "aril/weights.h"
#include "core/clock.h"
#include "core/environment.h"
#include "core/error.h"
#include "formats/download.h"
#include "formats/sha256.h"
#include "train/progress.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- which files ---- */

int aril_published_count(const aril_zoo_entry *e)
{
    int n = 1;
    if (!e || !e->weights.url) return 0;
    for (const aril_zoo_file *f = e->weights.files; f && f->name; f++) n++;
    return n;
}

/* The name of the i-th file below the folder of weights: "resnet50-11ad3fa6.pth", and
 * "gpt2/model.safetensors", as all networks of Hugging Face have a file of that name. */
static void name_of(const aril_zoo_entry *e, int i, char *name, size_t size)
{
    const char *slash = strrchr(e->weights.url, '/');
    const char *file = i > 0 ? e->weights.files[i - 1].name : slash ? slash + 1 : e->weights.url;
    bool folder = e->weights.files != NULL;
    snprintf(name, size, "%s%s%s", folder ? e->name : "", folder ? "/" : "", file);
}

/* ---- where from, where to ---- */

aril_status aril_cache_folder(char *buf, size_t size)
{
    const char *named = getenv("ARIL_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;
    if (named && *named)
        n = snprintf(buf, size, "%s", named);
    else if (cache && *cache == '/')
        n = snprintf(buf, size, "%s/aril", cache);
    else if (home && *home == '/')
        n = snprintf(buf, size, "%s/.cache/aril", home);
    if (n < 0)
        return aril__fail(
            ARIL_ERR_IO, "there is no cache folder: none of ARIL_CACHE, XDG_CACHE_HOME and HOME is "
                         "set; set ARIL_CACHE to a folder");
    if ((size_t)n >= size) return aril__fail(ARIL_ERR_ARG, "the path of the cache is too long");
    return ARIL_OK;
}

/* The URL of a file on the publisher's server, or on the mirror. */
static bool write_url(const aril_zoo_entry *e, int i, const char *name, char *url, size_t size)
{
    const char *mirror = getenv("ARIL_ZOO_MIRROR"), *slash = strrchr(e->weights.url, '/');
    int n;
    if (mirror && *mirror)
        n = snprintf(url, size, "%s%s%s", mirror, mirror[strlen(mirror) - 1] == '/' ? "" : "/",
                     name);
    else if (i > 0 && slash)
        n = snprintf(url, size, "%.*s/%s", (int)(slash - e->weights.url), e->weights.url,
                     e->weights.files[i - 1].name);
    else
        n = snprintf(url, size, "%s", e->weights.url);
    return n > 0 && (size_t)n < size;
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

aril_status aril_published_at(const aril_zoo_entry *e, int i, aril_published_file *file)
{
    char name[256], cache[PATH_MAX];
    if (!file) return aril__fail(ARIL_ERR_ARG, "published_at: the file is NULL");
    *file = (aril_published_file){ 0 };
    if (i < 0 || i >= aril_published_count(e))
        return aril__fail(ARIL_ERR_INDEX, "published_at: expected a file from 0 to %d, got %d",
                          aril_published_count(e) - 1, i);
    aril_status status = aril_cache_folder(cache, sizeof cache);
    if (status != ARIL_OK) return status;
    name_of(e, i, name, sizeof name);
    int n = snprintf(file->path, sizeof file->path, "%s/weights/%s", cache, name);
    if (n < 0 || (size_t)n >= sizeof file->path ||
        !write_url(e, i, name, file->url, sizeof file->url))
        return aril__fail(ARIL_ERR_ARG, "%s: the path or the URL of the weights is too long",
                          e->name);
    file->sha256 = i > 0 ? e->weights.files[i - 1].sha256 : e->weights.sha256;
    file->size = size_of(file->path);
    file->part = file->size ? 0 : aril__download_part_size(file->path);
    return ARIL_OK;
}

bool aril_zoo_weights_path(const aril_zoo_entry *e, char *buf, size_t size)
{
    aril_published_file file;
    if (aril_published_count(e) == 0) return false;
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_status status = aril_published_at(e, 0, &file);
    aril__error_release(aril__errors_end(&before));
    if (status != ARIL_OK || file.size == 0) return false;
    int n = snprintf(buf, size, "%s", file.path);
    return n > 0 && (size_t)n < size;
}

/* ---- downloading ---- */

typedef struct show {
    const aril_zoo_download_opts *opts;
    const aril_published_file *file;
    const char *title;
    aril__progress progress;
    bool begun, told; /* told: that another process is waited for */
} show;

/* Progress output of one file. */
static bool on_progress(void *ctx, const aril__download_at *at)
{
    show *s = ctx;
    aril__progress *p = &s->progress;
    if (s->opts->stop && s->opts->stop(s->opts->ctx)) return false;
    if (at->phase == ARIL__DOWNLOAD_WAITING) {
        if (!s->told)
            aril__progress_note(p, "%s: another process downloads it; waiting for it", s->title);
        s->told = true;
        return true;
    }
    if (at->phase == ARIL__DOWNLOAD_CHECKING) return true;
    if (!s->begun) aril__progress_begin(p, s->title, at->total, at->done, at->done);
    s->begun = true;
    p->total = at->total;
    if (!aril__progress_due(p)) return true;
    aril__progress_draw(p, &(aril__progress_at){
                               .batch = at->done, .samples = at->done, .note = at->why });
    return true;
}

/* Ends the line; says where an unfinished one stands. */
static void end_progress(show *s, const aril__downloaded *got, aril_status status)
{
    if (status != ARIL_OK) {
        aril__progress_break(&s->progress);
        return;
    }
    if (!s->begun) return;
    s->progress.total = got->size;
    aril__progress_end(&s->progress,
                       &(aril__progress_at){ .batch = got->size, .samples = got->size },
                       aril__seconds() - s->progress.started);
}

/* The hash of a file that was there before: put there by hand, or damaged since. */
static aril_status check_file(const aril_published_file *file)
{
    char text[ARIL__SHA256_HEX + 1];
    if (!file->sha256) return ARIL_OK;
    aril_status status = aril__file_sha256(file->path, text);
    if (status != ARIL_OK || aril__sha256_matches(text, file->sha256)) return status;
    return aril__fail(
        ARIL_ERR_FORMAT,
        "%s has another hash than published: SHA-256 %s, expected %s%s; remove it and "
        "download it again",
        file->path, text, strlen(file->sha256) < ARIL__SHA256_HEX ? "one that begins with " : "",
        file->sha256);
}

/* About the size of a file of weights: four bytes a number. */
static int64_t about_size(const aril_zoo_entry *e)
{
    aril_cost cost;
    aril__saved_errors before = aril__errors_begin_quiet();
    bool known = aril_zoo_cost(e, (aril_zoo_opts){ 0 }, &cost) == ARIL_OK;
    aril__error_release(aril__errors_end(&before));
    return known ? (int64_t)(cost.parameter_bytes + cost.buffer_bytes) : 0;
}

/* Whether a file begins as one of its name does. */
static bool has_right_start(const char *path, const char *name)
{
    char text[65] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    size_t first = strspn(text, " \t\r\n"), length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".json") == 0)
        return text[first] == '{' || text[first] == '[';
    return n > 0 && strncasecmp(text + first, "<!doctype", 9) != 0 &&
           strncasecmp(text + first, "<html", 5) != 0;
}

/* Looks at a file without a published hash: a server may answer with a page of its own. */
static aril_status accept_file(void *ctx, const char *path)
{
    const show *s = ctx;
    const char *name = strrchr(s->file->path, '/') + 1, *why = "it does not begin as one";
    bool weights = strstr(name, ".safetensors") || strstr(name, ".pt") || strstr(name, ".bin");
    aril__saved_errors before = aril__errors_begin_quiet();
    aril_weights *w = weights ? aril_weights_open(path, (aril_weights_opts){ 0 }) : NULL;
    bool good = weights ? w != NULL : has_right_start(path, name);
    aril_weights_close(w);
    aril__error *error = aril__errors_end(&before);
    aril_status status = ARIL_OK;
    if (!good)
        status = aril__fail(ARIL_ERR_FORMAT, "what came from %s is no file %s: %s; it was removed",
                            s->file->url, name, weights && error ? error->message : why);
    aril__error_release(error);
    return status;
}

/* The most bytes that a file can have: about as many as the network's parameters, or what a
 * vocabulary may take. */
static int64_t limit_of(int64_t about, int i)
{
    enum { MB = 1 << 20 };
    if (i > 0) return 256 * (int64_t)MB;
    return about ? 2 * about + 64 * (int64_t)MB : 65536 * (int64_t)MB;
}

static aril_status download_file(const aril_zoo_entry *e, const aril_published_file *file,
                                 int64_t about, int64_t limit, const aril_zoo_download_opts *opts)
{
    char title[48];
    const char *slash = strrchr(file->path, '/');
    show s = { .opts = opts, .file = file, .title = title };
    aril__downloaded got = { 0 };
    bool folder = e->weights.files != NULL;
    snprintf(title, sizeof title, "%s%s%s", e->name, folder ? "/" : "", folder ? slash + 1 : "");
    aril__progress_start(&s.progress, opts->output, opts->verbose, false);
    s.progress.bytes = true;
    aril_status status = aril__download(
        file->url, file->path,
        (aril__download_opts){ .sha256 = file->sha256,
                               .size = about,
                               .limit = limit,
                               .accept = file->sha256 ? NULL : accept_file,
                               .offline = opts->offline || aril__env_switch("ARIL_OFFLINE", 0),
                               .watch = on_progress,
                               .ctx = &s },
        &got);
    end_progress(&s, &got, status);
    return status == ARIL_OK && got.was_there && opts->check ? check_file(file) : status;
}

aril_status aril_zoo_download(const char *name, aril_zoo_download_opts opts)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    if (!e) return aril__latest_status();
    int n = aril_published_count(e);
    if (n == 0)
        return aril__fail(ARIL_ERR_ARG,
                          "no weights are published for %s; train it (`aril train %s`) or load a "
                          "file of your own",
                          e->name, e->name);
    aril_status status = ARIL_OK;
    for (int i = 0; i < n && status == ARIL_OK; i++) {
        aril_published_file file;
        status = aril_published_at(e, i, &file);
        int64_t about = status == ARIL_OK && i == 0 && !file.size ? about_size(e) : 0;
        if (status == ARIL_OK) status = download_file(e, &file, about, limit_of(about, i), &opts);
    }
    return status;
}

aril_status aril_zoo_remove(const char *name, int64_t *removed)
{
    const aril_zoo_entry *e = aril_zoo_find(name);
    int64_t sum = 0, bytes;
    if (!e) return aril__latest_status();
    aril_status status = ARIL_OK;
    for (int i = 0; i < aril_published_count(e) && status == ARIL_OK; i++) {
        aril_published_file file;
        status = aril_published_at(e, i, &file);
        if (status != ARIL_OK) break;
        status = aril__download_remove(file.path, &bytes);
        sum += bytes;
    }
    if (removed) *removed = sum;
    return status;
}
