/* Restartable sequences: a critical section that its thread is taken out of does not commit; membarrier of sequences. */
#include "abi.h"
#include <linux/membarrier.h>
#include <linux/rseq.h>
#include <pthread.h>
#include <sched.h>
#include <sys/rseq.h>

/* What the section stores to, and where the pointer that it reads it from is. */
struct place {
    volatile uint64_t value;
};
static struct place places[2];
static struct place *volatile current_place = &places[0];
static volatile int spinning, stop, ready;
static volatile long commits, aborts;
static volatile sig_atomic_t signalled;

static struct rseq *area(void)
{
    return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}

/* Reads where to store, spins that many times, and stores; in a critical section. Whether it was committed. */
static int store_after(unsigned long spins, uint64_t value)
{
    struct rseq *own = area();
    asm goto("lea 10f(%%rip), %%rax\n\t"
             "mov %%rax, %0\n"
             "1:\n\t"
             "mov %1, %%rdx\n\t"
             "movl $1, %2\n\t"
             "mov %3, %%rcx\n"
             "2:\n\t"
             "dec %%rcx\n\t"
             "jnz 2b\n\t"
             "mov %4, (%%rdx)\n"
             "3:\n\t"
             ".pushsection .data, \"aw\"\n\t"
             ".balign 32\n"
             "10:\n\t"
             ".long 0, 0\n\t"
             ".quad 1b, 3b - 1b, 4f\n\t"
             ".popsection\n\t"
             "jmp 5f\n\t"
             ".long 0x53053053\n"
             "4:\n\t"
             "movl $0, %2\n\t"
             "jmp %l[aborted]\n"
             "5:\n\t"
             "movl $0, %2"
             :
             : "m"(own->rseq_cs), "m"(current_place), "m"(spinning), "r"(spins), "r"(value)
             : "rax", "rcx", "rdx", "memory", "cc"
             : aborted);
    commits++;
    return 1;
aborted:
    aborts++;
    return 0;
}

static void *writer(void *unused)
{
    (void)unused;
    ready = 1;
    for (uint64_t value = 1; !stop; value++)
        store_after(20000, value);
    return NULL;
}

static void on_signal(int number)
{
    signalled = number;
}

/* Signals take a thread out of its section, wherever it is in it. */
static void signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = { { 0, 0 }, { 0, 20000 } };
    setitimer(ITIMER_REAL, &soon, NULL);
    long before = commits;
    /* It may lose its processor before the signal comes. */
    while (!signalled)
        store_after(1ul << 40, 7);
    SHOW(commits - before);
    SHOW(area()->rseq_cs == 0);
    SHOW(places[0].value);
    int committed = store_after(10, 8);
    for (int times = 0; !committed && times < 1000; times++)
        committed = store_after(10, 8);
    SHOW(committed);
    SHOW(places[0].value);
}

/* After the barrier nobody commits to what he read before it. */
static void barriers(int flags)
{
    pthread_t threads[2];
    long late = 0, in_a_section = 0;
    stop = ready = 0;
    for (unsigned i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, writer, NULL);
    while (!ready)
        sched_yield();
    for (int round = 0; round < 200; round++) {
        struct place *former = current_place;
        for (int times = 0; !spinning && times < 100; times++)
            sched_yield();
        in_a_section += spinning;
        current_place = &places[former == &places[0]];
        if (flags == 0)
            syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0);
        else
            for (int cpu = 0; cpu < get_nprocs_conf(); cpu++)
                syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, cpu);
        uint64_t seen = former->value;
        for (int times = 0; times < 40000; times++) {
            late += former->value != seen;
            seen = former->value;
        }
    }
    stop = 1;
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    SHOW(late);
    SHOW(in_a_section > 0);
    SHOW(aborts > 0);
}

int main(void)
{
    SHOW(__rseq_size >= 20);
    SHOW(area()->cpu_id < (unsigned)get_nprocs_conf());
    signals();
    SHOW((syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) & 0x180) == 0x180);
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, 100000));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, -1));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 2, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_FLAG_CPU, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, MEMBARRIER_CMD_FLAG_CPU, 0));
    barriers(0);
    barriers(MEMBARRIER_CMD_FLAG_CPU);
    return 0;
}
