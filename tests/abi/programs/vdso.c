/* The vDSO: found by AT_SYSINFO_EHDR, its symbols and versions looked up by hand, and its clocks agree with the calls. */
#include "abi.h"
#include <elf.h>
#include <sys/auxv.h>

static const char *base;
static Elf64_Sym *symbols;
static const char *strings;
static unsigned symbol_count;
static long long load_offset;

static void *find(const char *name)
{
    for (unsigned i = 0; i < symbol_count; i++)
        if (!strcmp(strings + symbols[i].st_name, name) && symbols[i].st_shndx != SHN_UNDEF)
            return (void *)(symbols[i].st_value + load_offset);
    return NULL;
}

static int parse(void)
{
    base = (const char *)getauxval(AT_SYSINFO_EHDR);
    if (!base || memcmp(base, ELFMAG, SELFMAG))
        return 0;
    const Elf64_Ehdr *header = (const void *)base;
    const Elf64_Phdr *program = (const void *)(base + header->e_phoff);
    const Elf64_Dyn *dynamic = NULL;
    int loads = 0;
    for (int i = 0; i < header->e_phnum; i++) {
        if (program[i].p_type == PT_LOAD) {
            loads++;
            load_offset = (long long)(uintptr_t)base - (long long)program[i].p_vaddr + (long long)program[i].p_offset;
        }
        if (program[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(base + program[i].p_offset);
    }
    printf("type %d machine %d loads %d dynamic %d\n", header->e_type, header->e_machine, loads, dynamic != NULL);
    if (!dynamic)
        return 0;
    const uint32_t *hash = NULL, *gnu_hash = NULL;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const char *at = (const char *)(dynamic->d_un.d_ptr + load_offset);
        if (dynamic->d_tag == DT_STRTAB)
            strings = at;
        if (dynamic->d_tag == DT_SYMTAB)
            symbols = (Elf64_Sym *)at;
        if (dynamic->d_tag == DT_HASH)
            hash = (const void *)at;
        if (dynamic->d_tag == DT_GNU_HASH)
            gnu_hash = (const void *)at;
    }
    if (hash) {
        symbol_count = hash[1];
    } else if (gnu_hash) {
        unsigned buckets = gnu_hash[0], first = gnu_hash[1], bloom = gnu_hash[2];
        const uint32_t *bucket = gnu_hash + 4 + bloom * 2, *chain = bucket + buckets;
        unsigned last = 0;
        for (unsigned i = 0; i < buckets; i++)
            last = bucket[i] > last ? bucket[i] : last;
        while (last >= first && !(chain[last - first] & 1))
            last++;
        symbol_count = last + 1;
    }
    return symbols && strings && symbol_count;
}

int main(void)
{
    TRUE(parse());
    int (*gettime)(clockid_t, struct timespec *) = find("__vdso_clock_gettime");
    int (*getres)(clockid_t, struct timespec *) = find("__vdso_clock_getres");
    int (*time_of_day)(struct timeval *, void *) = find("__vdso_gettimeofday");
    time_t (*get_time)(time_t *) = find("__vdso_time");
    long (*get_cpu)(unsigned *, unsigned *, void *) = find("__vdso_getcpu");
    TRUE(gettime != NULL);
    TRUE(time_of_day != NULL);
    TRUE(get_time != NULL);
    TRUE(get_cpu != NULL);
    TRUE(find("clock_gettime") != NULL);
    if (!gettime)
        return 1;
    static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE,
                                        CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID, CLOCK_TAI };
    for (unsigned c = 0; c < sizeof clocks / sizeof *clocks; c++) {
        int backward = 0, bad = 0, failed = 0;
        int coarse = clocks[c] == CLOCK_REALTIME_COARSE || clocks[c] == CLOCK_MONOTONIC_COARSE;
        for (int i = 0; i < 2000; i++) {
            struct timespec before, middle, after;
            failed += syscall(SYS_clock_gettime, clocks[c], &before) != 0;
            failed += gettime(clocks[c], &middle) != 0;
            failed += syscall(SYS_clock_gettime, clocks[c], &after) != 0;
            bad += middle.tv_nsec < 0 || middle.tv_nsec >= 1000000000;
            long long b = before.tv_sec * 1000000000ll + before.tv_nsec, m = middle.tv_sec * 1000000000ll + middle.tv_nsec,
                      a = after.tv_sec * 1000000000ll + after.tv_nsec;
            if (coarse) {
                b -= 10000000;
                a += 10000000;
            }
            backward += m < b || a < m;
        }
        printf("clock %d: failed %d bad %d out of order %d\n", clocks[c], failed, bad, backward);
    }
    struct timespec value;
    TRUE(gettime(77, &value) != 0);
    if (getres)
        TRUE(getres(CLOCK_MONOTONIC, &value) == 0 && value.tv_nsec == 1);
    struct timeval now;
    TRUE(time_of_day(&now, NULL) == 0 && now.tv_usec < 1000000);
    TRUE(labs(get_time(NULL) - now.tv_sec) <= 1);
    /* On one processor the vDSO names that processor. */
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    int good = 1;
    for (int cpu = 0; cpu < 64; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            unsigned found = 99, node = 99;
            good &= get_cpu(&found, &node, NULL) == 0 && found == (unsigned)cpu && node == 0;
        }
    printf("getcpu right on every processor: %d\n", good);
    /* Monotonic over threads on different processors. */
    return 0;
}
