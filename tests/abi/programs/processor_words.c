/* What the auxiliary vector says of the processor is what the processor says itself. */
#include "abi.h"
#include <cpuid.h>
#include <sys/auxv.h>

/* What no kernel switches off: fpu, tsc, cx8, cmov, mmx, fxsr, sse, sse2. */
#define ALWAYS (1u << 0 | 1u << 4 | 1u << 8 | 1u << 15 | 1u << 23 | 1u << 24 | 1u << 25 | 1u << 26)
#define FSGSBASE (1u << 1)

int main(void)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    SHOW((getauxval(AT_HWCAP) & ALWAYS) == (d & ALWAYS));
    SHOW((getauxval(AT_HWCAP) & ALWAYS) == ALWAYS);
    __cpuid_count(7, 0, a, b, c, d);
    unsigned long may = getauxval(AT_HWCAP2) & FSGSBASE, base = 0, fs = 0;
    SHOW(!may == !(b & 1));
    if (may) {
        __asm__ volatile("rdfsbase %0" : "=r"(base));
        __asm__ volatile("mov %%fs:0, %0" : "=r"(fs));
    }
    SHOW(base == fs);
    return 0;
}
