/* What programs with huge pages of the pool have in common: numbers of the pool, accesses that may fail. */
#ifndef HUGE_POOL_H
#define HUGE_POOL_H
#include "abi.h"
#include <setjmp.h>

#define PAGE 4096L
#define HUGE (2L << 20)
#define ANY (PROT_READ | PROT_WRITE)
#define POOLED (MAP_ANONYMOUS | MAP_HUGETLB)

/* What a call that returns an address comes to. */
#define MAPS(call) SHOW((call) == MAP_FAILED ? -1 : 0)

/* A number of a file, behind a name or the first one. */
static inline long number(const char *path, const char *name)
{
    FILE *file = fopen(path, "r");
    char line[200];
    long value = -1;
    while (file && value < 0 && fgets(line, sizeof line, file))
        if (!name || (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':'))
            value = strtol(line + (name ? strlen(name) + 1 : 0), NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static inline void pool(const char *when)
{
    printf("  %s:", when);
    for (const char **name = (const char *[]){ "Total", "Free", "Rsvd", "Surp", NULL }; *name; name++) {
        char full[40];
        snprintf(full, sizeof full, "HugePages_%s", *name);
        printf(" %s %ld", *name, number("/proc/meminfo", full));
    }
    printf("\n");
    fflush(stdout);
}

static inline void set(const char *path, long value)
{
    FILE *file = fopen(path, "w");
    fprintf(file, "%ld\n", value);
    fclose(file);
}

#define SIZE "/proc/sys/vm/nr_hugepages"
#define SURPLUS "/proc/sys/vm/nr_overcommit_hugepages"

static sigjmp_buf back;

static inline void caught(int signal, siginfo_t *info, void *context)
{
    (void)context;
    siglongjmp(back, signal * 10 + info->si_code);
}

/* The signal that an access ends in, and why; 0 for none. */
static inline int reads(volatile unsigned char *place)
{
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        (void)*place;
    return signal;
}

static inline int writes(volatile unsigned char *place)
{
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        *place = 1;
    return signal;
}

/* The lines of smaps that tell of pages of the pool. */
static inline void smaps(const unsigned char *place)
{
    static const char *const names[] = { "Size:", "KernelPageSize:", "MMUPageSize:", "Rss:", "Pss:", "Anonymous:",
        "AnonHugePages:", "Shared_Hugetlb:", "Private_Hugetlb:", "Locked:", "THPeligible:" };
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[400];
    unsigned long start, end;
    int inside = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            inside = start <= (unsigned long)place && (unsigned long)place < end;
            if (inside)
                printf("  %s", strchr(line, '/') ? strchr(line, '/') : "\n");
        }
        for (unsigned at = 0; inside && at < sizeof names / sizeof *names; at++)
            if (strncmp(line, names[at], strlen(names[at])) == 0)
                printf("  %s", line);
    }
    fclose(file);
    printf("  HugetlbPages %ld\n", number("/proc/self/status", "HugetlbPages"));
}

/* Lets accesses end in a number instead of the program's death. */
static inline void catch_signals(void)
{
    struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
}

#endif
