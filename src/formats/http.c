/* HTTP through libcurl, loaded with dlopen on first use: few programs download anything. */
#include "formats/http.h"

#include "core/clock.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef ARIL_HAVE_CURL

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>

/* ---- the library ---- */

static struct {
#define FUNCTION(name) __typeof__(name) *name##_;
#include "formats/curl.def"
#undef FUNCTION
    char wrong[200];
} lib;

/* Sets *to to the address of a symbol. */
static void find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof symbol);
    if (!symbol) snprintf(lib.wrong, sizeof lib.wrong, "no %s", name);
}

/* The library of the build, or one with another TLS library, which has the same interface. */
static void *open_library(void)
{
    static const char *const names[] = { ARIL_CURL_FILE, "libcurl.so.4", "libcurl-gnutls.so.4" };
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
        const char *why = dlerror();
        if (i == 0) snprintf(lib.wrong, sizeof lib.wrong, "%s", why ? why : names[i]);
    }
    return NULL;
}

static void load(void)
{
    void *library = open_library();
    if (!library) return;
    *lib.wrong = '\0';
#define FUNCTION(name) find(library, #name, &lib.name##_);
#include "formats/curl.def"
#undef FUNCTION
    if (!*lib.wrong && lib.curl_global_init_(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        snprintf(lib.wrong, sizeof lib.wrong, "it does not start");
}

/* ---- headers ---- */

typedef struct transfer {
    const aril__http_get *get;
    aril__http_answer *answer;
    bool stopped, stalled;
    curl_off_t got; /* bytes, at the time `since` */
    double since;
    char error[CURL_ERROR_SIZE];
} transfer;

/* A decimal number at *p, moved past it; -1 if there is none. */
static int64_t number(const char **p)
{
    char *end;
    if (**p < '0' || **p > '9') return -1;
    long long n = strtoll(*p, &end, 10);
    *p = end;
    return n < INT64_MAX ? (int64_t)n : -1; /* the limit is what strtoll gives for any above it */
}

/* "bytes 100-199/1000", of which the total may be "*"; after 416 "bytes *" and the total. */
static void read_range(aril__http_head *h, const char *value)
{
    if (strncasecmp(value, "bytes", 5) != 0) return;
    value += 5 + strspn(value + 5, " ");
    h->from = number(&value);
    value = strchr(value, '/');
    if (value) value++, h->total = number(&value);
}

/* The text between quotes. */
static void read_quoted(char *to, size_t size, const char *value)
{
    const char *begin = strchr(value, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
    if (end && (size_t)(end - begin) <= size)
        snprintf(to, size, "%.*s", (int)(end - begin - 1), begin + 1);
}

static void read_header(aril__http_head *h, const char *name, const char *value)
{
    const char *p = value;
    if (strcasecmp(name, "content-length") == 0) h->length = number(&p);
    if (strcasecmp(name, "content-range") == 0) read_range(h, value);
    if (strcasecmp(name, "x-linked-etag") == 0) read_quoted(h->sha256, sizeof h->sha256, value);
    /* A weak ETag ("W/...") or a date says less than a strong one. */
    bool strong = strcasecmp(name, "etag") == 0 && *value == '"';
    bool date = strcasecmp(name, "last-modified") == 0 && *h->version != '"';
    if ((strong || date) && strlen(value) < sizeof h->version)
        snprintf(h->version, sizeof h->version, "%s", value);
}

/* One header line. The status line of each answer starts over; what came with a redirect counts
 * only for the hash. */
static size_t on_header(char *data, size_t one, size_t n, void *ctx)
{
    transfer *t = ctx;
    aril__http_head *h = &t->answer->head;
    char line[512];
    size_t size = one * n, used = size < sizeof line ? size : sizeof line - 1;
    memcpy(line, data, used);
    while (used > 0 && strchr("\r\n \t", line[used - 1])) used--;
    line[used] = '\0';
    if (strncmp(line, "HTTP/", 5) == 0) {
        const char *status = strchr(line, ' ');
        char sha256[sizeof h->sha256];
        memcpy(sha256, h->sha256, sizeof sha256);
        *h = (aril__http_head){
            .status = status ? atoi(status) : 0, .length = -1, .from = -1, .total = -1
        };
        memcpy(h->sha256, sha256, sizeof sha256);
        return size;
    }
    char *colon = strchr(line, ':');
    if (!colon || size >= sizeof line) return size; /* longer than any header that matters */
    *colon = '\0';
    read_header(h, line, colon + 1 + strspn(colon + 1, " \t"));
    return size;
}

/* ---- the transfer ---- */

static size_t on_data(char *data, size_t one, size_t n, void *ctx)
{
    transfer *t = ctx;
    int status = t->answer->head.status;
    if (status != 200 && status != 206) return one * n; /* the page of an error */
    if (t->get->data(t->get->ctx, &t->answer->head, data, one * n)) return one * n;
    t->stopped = true;
    return 0;
}

static int on_tick(void *ctx, curl_off_t down, curl_off_t got, curl_off_t up, curl_off_t sent)
{
    (void)down, (void)up, (void)sent;
    transfer *t = ctx;
    double now = aril__seconds();
    if (got != t->got) t->got = got, t->since = now;
    t->stalled = now - t->since > t->get->stall; /* libcurl's own check averages over seconds */
    if (t->stalled) return 1;
    if (t->get->tick(t->get->ctx)) return 0;
    t->stopped = true;
    return 1;
}

static aril__http_end end_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK: return ARIL__HTTP_DONE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: return ARIL__HTTP_NO_SERVER;
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return ARIL__HTTP_CUT;
    case CURLE_OUT_OF_MEMORY: return ARIL__HTTP_UNABLE;
    default: return ARIL__HTTP_REFUSED;
    }
}

/* libcurl leaves the choice of certificates by the environment to its users. */
static const char *certificates(void)
{
    const char *file = getenv("CURL_CA_BUNDLE");
    if (!file || !*file) file = getenv("SSL_CERT_FILE");
    return file && *file ? file : NULL;
}

static bool set_protocols(CURL *curl, const char *url)
{
    bool secure = strncasecmp(url, "https:", 6) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    return lib.curl_easy_setopt_(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_REDIR_PROTOCOLS_STR,
                                 secure ? "https" : "http,https") == CURLE_OK;
#else
    long either = CURLPROTO_HTTP | CURLPROTO_HTTPS;
    return lib.curl_easy_setopt_(curl, CURLOPT_PROTOCOLS, either) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_REDIR_PROTOCOLS,
                                 secure ? (long)CURLPROTO_HTTPS : either) == CURLE_OK;
#endif
}

static bool set_headers(CURL *curl, const aril__http_get *get, struct curl_slist **headers)
{
    char text[256];
    if (get->from <= 0) return true;
    snprintf(text, sizeof text, "%lld-", (long long)get->from);
    if (lib.curl_easy_setopt_(curl, CURLOPT_RANGE, text) != CURLE_OK) return false;
    if (!get->version || !*get->version) return true;
    snprintf(text, sizeof text, "If-Range: %s", get->version);
    *headers = lib.curl_slist_append_(NULL, text);
    return *headers && lib.curl_easy_setopt_(curl, CURLOPT_HTTPHEADER, *headers) == CURLE_OK;
}

static bool set_options(CURL *curl, const aril__http_get *get, transfer *t)
{
    struct {
        CURLoption name;
        long value;
    } numbers[] = { { CURLOPT_NOSIGNAL, 1 },        { CURLOPT_NOPROGRESS, 0 },
                    { CURLOPT_FOLLOWLOCATION, 1 },  { CURLOPT_MAXREDIRS, 10 },
                    { CURLOPT_CONNECTTIMEOUT, 30 }, { CURLOPT_BUFFERSIZE, 1 << 18 } };
    bool ok = set_protocols(curl, get->url);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        ok &= lib.curl_easy_setopt_(curl, numbers[i].name, numbers[i].value) == CURLE_OK;
    const char *ca = certificates();
    if (ca) ok &= lib.curl_easy_setopt_(curl, CURLOPT_CAINFO, ca) == CURLE_OK;
    return ok && lib.curl_easy_setopt_(curl, CURLOPT_URL, get->url) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_USERAGENT, "aril") == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_ERRORBUFFER, t->error) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_HEADERDATA, t) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_WRITEFUNCTION, on_data) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_WRITEDATA, t) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_XFERINFOFUNCTION, on_tick) == CURLE_OK &&
           lib.curl_easy_setopt_(curl, CURLOPT_XFERINFODATA, t) == CURLE_OK;
}

static void unable(aril__http_answer *answer, const char *what, const char *why)
{
    answer->end = ARIL__HTTP_UNABLE;
    snprintf(answer->why, sizeof answer->why, "%s%s", what, why);
}

void aril__http_request(const aril__http_get *get, aril__http_answer *answer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    transfer t = { .get = get, .answer = answer, .since = aril__seconds() };
    struct curl_slist *headers = NULL;
    *answer = (aril__http_answer){ 0 };
    pthread_once(&once, load);
    if (*lib.wrong) {
        unable(answer, "libcurl (on Debian: libcurl4) cannot be used: ", lib.wrong);
        return;
    }
    CURL *curl = lib.curl_easy_init_();
    if (!curl || !set_options(curl, get, &t) || !set_headers(curl, get, &headers)) {
        unable(answer, "libcurl cannot be set up: out of memory, or it is older than ",
               LIBCURL_VERSION);
    } else {
        CURLcode code = lib.curl_easy_perform_(curl);
        answer->end = t.stopped ? ARIL__HTTP_STOPPED : t.stalled ? ARIL__HTTP_CUT : end_of(code);
        if (t.stalled)
            snprintf(answer->why, sizeof answer->why, "nothing came for %.0f seconds", get->stall);
        else if (code == CURLE_OUT_OF_MEMORY)
            snprintf(answer->why, sizeof answer->why, "%s",
                     "memory is out, or the server sends a header line that is too long");
        else if (code != CURLE_OK)
            snprintf(answer->why, sizeof answer->why, "%s",
                     *t.error ? t.error : lib.curl_easy_strerror_(code));
    }
    lib.curl_slist_free_all_(headers);
    if (curl) lib.curl_easy_cleanup_(curl);
}

#else

void aril__http_request(const aril__http_get *get, aril__http_answer *answer)
{
    (void)get;
    *answer = (aril__http_answer){
        .end = ARIL__HTTP_UNABLE,
        .why = "Aril was built without libcurl (on Debian: libcurl4-openssl-dev)"
    };
}

#endif
