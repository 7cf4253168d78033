/* Vector registers belong to their thread: kept over system calls, preemption, signals and fork, never seen by others. */
#include "abi.h"
#include <cpuid.h>

static int avx, failures;

static void find_avx(void)
{
    unsigned a, b, c, d;
    __get_cpuid(1, &a, &b, &c, &d);
    if ((c & (1u << 27)) && (c & (1u << 28))) {
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        avx = (low & 6) == 6;
    }
}

/* Fills all sixteen registers with one pattern, spins with system calls in between, and counts what changed. */
static int round_trip(uint32_t seed, int spins, int with_calls)
{
    uint32_t pattern[8], out[16][8];
    for (int i = 0; i < 8; i++)
        pattern[i] = seed * 2654435761u + (uint32_t)i;
    int width = avx ? 8 : 4;
    register long number __asm__("rax") = 0;
    (void)number;
    if (avx)
        __asm__ volatile(
            "vmovups (%0), %%ymm0\n vmovaps %%ymm0,%%ymm1\n vmovaps %%ymm0,%%ymm2\n vmovaps %%ymm0,%%ymm3\n"
            "vmovaps %%ymm0,%%ymm4\n vmovaps %%ymm0,%%ymm5\n vmovaps %%ymm0,%%ymm6\n vmovaps %%ymm0,%%ymm7\n"
            "vmovaps %%ymm0,%%ymm8\n vmovaps %%ymm0,%%ymm9\n vmovaps %%ymm0,%%ymm10\n vmovaps %%ymm0,%%ymm11\n"
            "vmovaps %%ymm0,%%ymm12\n vmovaps %%ymm0,%%ymm13\n vmovaps %%ymm0,%%ymm14\n vmovaps %%ymm0,%%ymm15\n"
            "mov %2, %%r8d\n"
            "1: test %3, %3\n jz 2f\n"
            "mov $24, %%eax\n syscall\n" /* sched_yield */
            "2: mov $200, %%r9d\n 3: dec %%r9d\n jnz 3b\n"
            "dec %%r8d\n jnz 1b\n"
            "vmovups %%ymm0,(%1)\n vmovups %%ymm1,32(%1)\n vmovups %%ymm2,64(%1)\n vmovups %%ymm3,96(%1)\n"
            "vmovups %%ymm4,128(%1)\n vmovups %%ymm5,160(%1)\n vmovups %%ymm6,192(%1)\n vmovups %%ymm7,224(%1)\n"
            "vmovups %%ymm8,256(%1)\n vmovups %%ymm9,288(%1)\n vmovups %%ymm10,320(%1)\n vmovups %%ymm11,352(%1)\n"
            "vmovups %%ymm12,384(%1)\n vmovups %%ymm13,416(%1)\n vmovups %%ymm14,448(%1)\n vmovups %%ymm15,480(%1)\n"
            "vzeroupper\n"
            : : "D"(pattern), "S"(out), "r"(spins), "d"(with_calls)
            : "rax", "rcx", "r8", "r9", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
              "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    else
        __asm__ volatile(
            "movups (%0), %%xmm0\n movaps %%xmm0,%%xmm1\n movaps %%xmm0,%%xmm7\n movaps %%xmm0,%%xmm15\n"
            "mov %2, %%r8d\n"
            "1: test %3, %3\n jz 2f\n"
            "mov $24, %%eax\n syscall\n"
            "2: mov $200, %%r9d\n 3: dec %%r9d\n jnz 3b\n"
            "dec %%r8d\n jnz 1b\n"
            "movups %%xmm0,(%1)\n movups %%xmm1,32(%1)\n movups %%xmm7,64(%1)\n movups %%xmm15,96(%1)\n"
            : : "D"(pattern), "S"(out), "r"(spins), "d"(with_calls)
            : "rax", "rcx", "r8", "r9", "r11", "memory", "cc", "xmm0", "xmm1", "xmm7", "xmm15");
    int wrong = 0;
    for (int i = 0; i < (avx ? 16 : 4); i++)
        for (int j = 0; j < width; j++)
            wrong += out[i][j] != pattern[j];
    return wrong;
}

static void *worker(void *argument)
{
    long wrong = 0;
    for (int i = 0; i < 60; i++)
        wrong += round_trip((uint32_t)((long)argument * 1000 + i), 100, i & 1);
    return (void *)wrong;
}

static volatile int signals;

static void handler(int number)
{
    (void)number;
    /* The handler works with vector registers of its own. */
    failures += round_trip(0xdead, 2, 0) != 0;
    signals++;
}

static void control_words(void)
{
    unsigned control = 0x5fa0, back = 0;
    unsigned short fpu = 0x0f7f, fpu_back = 0;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
    __asm__ volatile("fldcw %0" : : "m"(fpu));
    for (int i = 0; i < 20; i++)
        sched_yield();
    pause_ms(5);
    __asm__ volatile("stmxcsr %0" : "=m"(back));
    __asm__ volatile("fnstcw %0" : "=m"(fpu_back));
    printf("mxcsr %#x fcw %#x\n", back & 0xffc0, fpu_back);
    REAP(CHILD({
        __asm__ volatile("stmxcsr %0" : "=m"(back));
        __asm__ volatile("fnstcw %0" : "=m"(fpu_back));
        printf("child mxcsr %#x fcw %#x\n", back & 0xffc0, fpu_back);
        execl("/abi/bin/fpu_state", "fpu_state", "fresh", NULL);
    }));
    control = 0x1f80;
    fpu = 0x37f;
    __asm__ volatile("ldmxcsr %0" : : "m"(control));
    __asm__ volatile("fldcw %0" : : "m"(fpu));
}

int main(int count, char **words)
{
    (void)words;
    if (count > 1) {
        unsigned control = 0;
        unsigned short fpu = 0;
        __asm__ volatile("stmxcsr %0" : "=m"(control));
        __asm__ volatile("fnstcw %0" : "=m"(fpu));
        printf("after exec mxcsr %#x fcw %#x\n", control & 0xffc0, fpu);
        return 0;
    }
    find_avx();
    pthread_t threads[8];
    pid_t children[4];
    for (int c = 0; c < 4; c++)
        children[c] = CHILD({ _exit(worker((void *)(long)(c + 100)) == NULL ? 0 : 1); });
    for (long i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, worker, (void *)i);
    long wrong = 0;
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    SHOW(wrong);
    for (int c = 0; c < 4; c++)
        REAP(children[c]);
    signal(SIGALRM, handler);
    struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, off = { 0 };
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 100000 && signals < 50; i++)
        wrong += round_trip((uint32_t)i, 50, i & 1);
    setitimer(ITIMER_REAL, &off, NULL);
    SHOW(wrong);
    SHOW(failures);
    TRUE(signals >= 50);
    control_words();
    /* x87 and floating point arithmetic over a sleep. */
    long double value = 1.0L;
    for (int i = 1; i < 20; i++) {
        value *= i;
        sched_yield();
    }
    printf("%.0Lf\n", value);
    return 0;
}
