/* prctl, arch_prctl, personality, rseq, membership of small calls; uname, sysinfo, getrandom, getcpu. */
#include "abi.h"
#include <asm/prctl.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/random.h>

static volatile int caught;

static void handler(int number)
{
    caught = number;
}

static void process(void)
{
    char name[17] = "";
    SHOW(prctl(PR_SET_NAME, "a name that is far too long"));
    SHOW(prctl(PR_GET_NAME, name));
    printf("%s | %s", name, get_text("/proc/self/comm"));
    SHOW(prctl(PR_SET_NAME, 8));
    SHOW(prctl(PR_GET_DUMPABLE));
    SHOW(prctl(PR_SET_DUMPABLE, 0));
    SHOW(prctl(PR_GET_DUMPABLE));
    SHOW(prctl(PR_SET_DUMPABLE, 7));
    SHOW(prctl(PR_SET_DUMPABLE, 1));
    int value = -1;
    SHOW(prctl(PR_GET_PDEATHSIG, &value));
    SHOW(value);
    SHOW(prctl(PR_SET_PDEATHSIG, 99));
    SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    SHOW(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    REAP(CHILD({ SHOW(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)); }));
    SHOW(prctl(PR_GET_KEEPCAPS));
    SHOW(prctl(PR_SET_KEEPCAPS, 2));
    SHOW(prctl(PR_GET_TIMERSLACK));
    SHOW(prctl(PR_SET_TIMERSLACK, 1000));
    SHOW(prctl(PR_GET_TIMERSLACK));
    SHOW(prctl(PR_GET_SECCOMP));
    SHOW(prctl(0x7777, 0, 0, 0, 0));
    int ends[2], done[2];
    pipe(ends);
    pipe(done);
    pid_t middle = CHILD({
        CHILD({
            signal(SIGUSR1, handler);
            prctl(PR_SET_PDEATHSIG, SIGUSR1);
            tell(ends[1]);
            for (int i = 0; i < LOOKS && !caught; i++)
                pause_ms(2);
            hear(done[0]);
            printf("parent's death: %d\n", caught);
            /* Before the other one prints again: nobody reaps this one here. */
            fflush(stdout);
            tell(ends[1]);
        });
        hear(ends[0]);
    });
    REAP(middle);
    tell(done[1]);
    hear(ends[0]);
}

/* What a processor's flaws are differs; what may be asked does not. */
static void flaws(void)
{
    for (unsigned long which = 0; which < 4; which++) {
        int state = prctl(PR_GET_SPECULATION_CTRL, which, 0, 0, 0);
        printf("flaw %lu: %s\n", which, state >= 0 ? "told" : ERRNO_NAME(errno));
    }
    SHOW(prctl(PR_GET_SPECULATION_CTRL, 2, 0, 0, 0));
    SHOW(prctl(PR_GET_SPECULATION_CTRL, 0, 1, 0, 0));
    SHOW(prctl(PR_GET_SPECULATION_CTRL, 9, 0, 0, 1));
    SHOW(prctl(PR_SET_SPECULATION_CTRL, 0, PR_SPEC_ENABLE, 1, 0));
    SHOW(prctl(PR_SET_SPECULATION_CTRL, 0, PR_SPEC_ENABLE, 0, 1));
    SHOW(prctl(PR_SET_SPECULATION_CTRL, 9, 77, 0, 0));
    SHOW(prctl(PR_SET_SPECULATION_CTRL, 1, 77, 0, 0));
    SHOW(prctl(PR_SET_SPECULATION_CTRL, 2, PR_SPEC_ENABLE, 0, 0));
    SHOW(prctl(PR_SET_TSC, PR_TSC_ENABLE));
    SHOW(prctl(PR_SET_TSC, 0));
    SHOW(prctl(PR_SET_TSC, 3));
    int value = -1;
    SHOW(prctl(PR_GET_TSC, &value));
    SHOW(value);
    SHOW(prctl(PR_GET_TSC, 8));
    REAP(CHILD({
        setresuid(1, 1, 1);
        SHOW(prctl(57 /* PR_SET_IO_FLUSHER */, 3, 0, 0, 0));
        SHOW(prctl(58 /* PR_GET_IO_FLUSHER */, 1, 0, 0, 0));
    }));
}

static __thread int thread_value = 3;

static void architecture(void)
{
    unsigned long base = 0, again = 0;
    SHOW(syscall(SYS_arch_prctl, ARCH_GET_FS, &base));
    TRUE(base != 0);
    SHOW(syscall(SYS_arch_prctl, ARCH_SET_FS, base));
    SHOW(thread_value);
    SHOW(syscall(SYS_arch_prctl, ARCH_SET_GS, 0x1234567000));
    SHOW(syscall(SYS_arch_prctl, ARCH_GET_GS, &again));
    TRUE(again == 0x1234567000);
    REAP(CHILD({ syscall(SYS_arch_prctl, ARCH_GET_GS, &again); TRUE(again == 0x1234567000); }));
    static unsigned long data[4] = { 11, 22, 33, 44 };
    SHOW(syscall(SYS_arch_prctl, ARCH_SET_GS, data));
    unsigned long value;
    __asm__ volatile("movq %%gs:16, %0" : "=r"(value));
    SHOW(value);
    sched_yield();
    pause_ms(5);
    __asm__ volatile("movq %%gs:8, %0" : "=r"(value));
    SHOW(value);
    SHOW(syscall(SYS_arch_prctl, ARCH_SET_FS, 0x8000000000000000ul));
    SHOW(syscall(SYS_arch_prctl, ARCH_SET_GS, 0xffff800000000000ul));
    SHOW(syscall(SYS_arch_prctl, ARCH_GET_FS, 8));
    SHOW(syscall(SYS_arch_prctl, 0x7777, 0));
    SHOW(personality(0xffffffff));
    struct utsname names;
    SHOW(personality(PER_LINUX32));
    uname(&names);
    printf("%s\n", names.machine);
    SHOW(personality(PER_LINUX | ADDR_NO_RANDOMIZE));
    uname(&names);
    printf("%s\n", names.machine);
    SHOW(personality(PER_LINUX));
}

static void system_information(void)
{
    struct utsname names;
    SHOW(uname(&names));
    printf("%s %s release 6.x %d version %d nodename %d\n", names.sysname, names.machine, names.release[0] == '6',
           names.version[0] != 0, names.nodename[0] != 0);
    SHOW(uname((void *)8));
    SHOW(sethostname("changed", 7));
    uname(&names);
    printf("%s\n", names.nodename);
    SHOW(sethostname("starling", 8));
    SHOW(sethostname("x", 65));
    SHOW(sethostname("x", -1));
    SHOW(setdomainname("domain", 6));
    uname(&names);
    printf("%s\n", names.domainname);
    REAP(CHILD({ setresuid(1, 1, 1); SHOW(sethostname("x", 1)); }));
    struct sysinfo information;
    SHOW(sysinfo(&information));
    TRUE(information.totalram * information.mem_unit > 16 << 20);
    TRUE(information.freeram <= information.totalram);
    TRUE(information.procs >= 1);
    TRUE(information.uptime >= 0);
    SHOW(sysinfo((void *)8));
    unsigned char bytes[64] = { 0 }, more[64] = { 0 };
    SHOW(getrandom(bytes, 64, 0));
    SHOW(getrandom(more, 64, GRND_NONBLOCK));
    TRUE(memcmp(bytes, more, 64) != 0);
    SHOW(getrandom(bytes, 64, 0x80));
    SHOW(getrandom((void *)8, 64, 0));
    SHOW(getrandom(bytes, 0, 0));
    unsigned cpu = 9999, node = 9999;
    SHOW(syscall(SYS_getcpu, &cpu, &node, NULL));
    TRUE(cpu < 64);
    SHOW(node);
    SHOW(getauxval(AT_PAGESZ));
    SHOW(getauxval(AT_CLKTCK));
    SHOW(getauxval(AT_SECURE));
    SHOW(getauxval(AT_UID));
    SHOW(getauxval(AT_PHENT));
    TRUE(getauxval(AT_PHDR) != 0);
    TRUE(getauxval(AT_ENTRY) != 0);
    TRUE(getauxval(AT_RANDOM) != 0);
    TRUE(getauxval(AT_SYSINFO_EHDR) != 0);
    printf("%s\n", (char *)getauxval(AT_PLATFORM));
    printf("%s\n", (char *)getauxval(AT_EXECFN));
    struct rusage usage;
    SHOW(getrusage(RUSAGE_SELF, &usage));
    TRUE(usage.ru_maxrss > 0);
    TRUE(usage.ru_minflt > 0);
    SHOW(getrusage(RUSAGE_CHILDREN, &usage));
    SHOW(getrusage(RUSAGE_THREAD, &usage));
    SHOW(getrusage(77, &usage));
    SHOW(getrusage(RUSAGE_SELF, (void *)8));
    struct tms spent;
    TRUE(times(&spent) != -1);
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(setpriority(PRIO_PROCESS, 0, 5));
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(setpriority(PRIO_PROCESS, 0, 100));
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(setpriority(PRIO_PROCESS, 0, -100));
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(setpriority(PRIO_PROCESS, 0x3fffffff, 0));
    SHOW(setpriority(77, 0, 0));
    SHOW(getpriority(77, 0));
    SHOW(getpriority(PRIO_PGRP, 0));
    SHOW(setpriority(PRIO_PROCESS, 0, 0));
    REAP(CHILD({ setresuid(1, 1, 1); SHOW(setpriority(PRIO_PROCESS, 0, 3)); SHOW(setpriority(PRIO_PROCESS, 0, 1)); SHOW(setpriority(PRIO_PROCESS, 1, 5)); }));
    SHOW(syscall(SYS_getpid) == getpid());
    SHOW(syscall(400));
    SHOW(syscall(9999));
    SHOW(syscall(-1));
    SHOW(syscall(SYS_membarrier, 0, 0, 0) > 0);
    SHOW(syscall(SYS_membarrier, 0x7777, 0, 0));
}

int main(void)
{
    process();
    flaws();
    architecture();
    system_information();
    return 0;
}
