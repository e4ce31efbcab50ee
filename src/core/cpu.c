#include "core/cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int aril__cpu_now = -1;
unsigned aril__cpu_features;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int machine_level;
static unsigned machine_features;

#if defined(__aarch64__)
static const char *const names[ARIL__CPU_LEVELS] = { "neon", "avx2", "avx512" };
#else
static const char *const names[ARIL__CPU_LEVELS] = { "baseline", "avx2", "avx512" };
#endif

const char *aril__cpu_name(int level)
{
    return level >= 0 && level < ARIL__CPU_LEVELS ? names[level] : "unknown";
}

#if defined(__x86_64__)
/* A bit of a cpuid leaf, for features that some compilers' __builtin_cpu_supports cannot name. */
static bool cpuid_bit(unsigned leaf, unsigned sub, int reg, int bit)
{
    unsigned r[4] = { 0 };
    return __get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3]) && (r[reg] >> bit & 1);
}

static void read_machine(void)
{
    enum { EAX, EBX, ECX, EDX };
    /* __builtin_cpu_supports also checks that the OS saves the wide registers. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !cpuid_bit(1, 0, ECX, 29)) /* F16C */
        return;
    machine_level = ARIL__CPU_AVX2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return;
    machine_level = ARIL__CPU_AVX512;
    if (cpuid_bit(7, 1, EAX, 5)) machine_features |= ARIL__CPU_BF16;
    if (cpuid_bit(7, 0, ECX, 11)) machine_features |= ARIL__CPU_VNNI;
    if (cpuid_bit(7, 0, EDX, 23)) machine_features |= ARIL__CPU_FP16;
}
#else
static void read_machine(void)
{
    machine_level = ARIL__CPU_BASELINE;
}
#endif

static void take(int level)
{
    unsigned features = level == ARIL__CPU_AVX512 ? machine_features : 0;
    __atomic_store_n(&aril__cpu_features, features, __ATOMIC_RELAXED);
    __atomic_store_n(&aril__cpu_now, level, __ATOMIC_RELEASE);
}

/* The level with that name, or -1 if this build does not know it. */
static int level_of(const char *name)
{
#if defined(__x86_64__)
    for (int i = 0; i < ARIL__CPU_LEVELS; i++)
        if (strcmp(name, names[i]) == 0) return i;
#endif
    return strcmp(name, names[0]) == 0 || strcmp(name, "baseline") == 0 ? ARIL__CPU_BASELINE : -1;
}

static void read_settings(void)
{
    read_machine();
    int level = machine_level;
    const char *text = getenv("ARIL_CPU");
    if (text && *text) {
        int wanted = level_of(text);
        if (wanted < 0) {
            fprintf(stderr, "aril: ARIL_CPU=%.32s ignored: known here are baseline", text);
#if defined(__x86_64__)
            fprintf(stderr, ", avx2 and avx512\n");
#elif defined(__aarch64__)
            fprintf(stderr, " and neon\n");
#else
            fprintf(stderr, " alone\n");
#endif
        } else if (wanted > level) {
            fprintf(stderr, "aril: ARIL_CPU=%s ignored: this machine has %s\n", names[wanted],
                    names[level]);
        } else {
            level = wanted;
        }
    }
    take(level);
}

int aril__cpu_read(void)
{
    pthread_once(&once, read_settings);
    return __atomic_load_n(&aril__cpu_now, __ATOMIC_RELAXED);
}

int aril__cpu_set(int level)
{
    pthread_once(&once, read_settings);
    take(level < machine_level ? level : machine_level);
    return aril__cpu_now;
}
