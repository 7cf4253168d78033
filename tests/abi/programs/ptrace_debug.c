/* ptrace(2): steps, breakpoints in code, hardware breakpoints and watchpoints. */
#include "tracing.h"

static volatile long watched[2];
static volatile int handled;

static __attribute__((noinline)) void broken(void)
{
    asm volatile("nop");
    watched[1]++;
}

static __attribute__((noinline)) void stores(void)
{
    for (int i = 1; i <= 3; i++)
        watched[0] = i;
    broken();
}

static void handler(int number)
{
    handled = number;
}

static long peek_user(pid_t pid, size_t offset)
{
    long value = -1;
    if (request(PEEKUSR, pid, offset, &value) < 0)
        printf("PEEKUSR: %s\n", ERRNO_NAME(errno));
    return value;
}

#define DEBUG(number) (offsetof(struct user, u_debugreg) + 8 * (number))
#define RIP offsetof(struct user, regs.rip)

static pid_t start(void)
{
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        signal(SIGUSR1, handler);
        raise(SIGSTOP);
        stores();
        stores();
        raise(SIGUSR1);
        printf("values %ld %ld, handled %d\n", watched[0], watched[1], handled);
    });
    wait_for("start", pid);
    return pid;
}

static void breakpoints(void)
{
    puts("-- a breakpoint in code that may not be written");
    pid_t pid = start();
    long code = 0, again = 0;
    SHOW(request(PEEKTEXT, pid, broken, &code));
    SHOW(request(POKETEXT, pid, broken, (code & ~0xffl) | 0xcc));
    TRUE(*(volatile unsigned char *)broken != 0xcc);
    request(CONT, pid, 0, 0);
    wait_for("breakpoint", pid);
    show_information(pid);
    TRUE(peek_user(pid, RIP) == (long)broken + 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDWR);
    SHOW(pread(memory, &again, 8, (off_t)(long)broken));
    TRUE((again & 0xff) == 0xcc);
    SHOW(pwrite(memory, &code, 8, (off_t)(long)broken));
    close(memory);
    SHOW(request(POKEUSR, pid, RIP, broken));
    SHOW(request(SINGLESTEP, pid, 0, 0));
    wait_for("step", pid);
    show_information(pid);
    TRUE(peek_user(pid, RIP) > (long)broken && peek_user(pid, RIP) < (long)broken + 16);
    printf("flags %#lx\n", peek_user(pid, offsetof(struct user, regs.eflags)) & 0x100);
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    SHOW(request(SINGLESTEP, pid, 0, SIGUSR1));
    wait_for("handler", pid);
    show_information(pid);
    TRUE(peek_user(pid, RIP) == (long)handler);
    request(CONT, pid, 0, 0);
    wait_for("end", pid);

    puts("-- shared memory that may not be written");
    int file = memfd_create("shared", 0);
    ftruncate(file, 4096);
    long *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    long *own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long *of_file = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    pid = start();
    SHOW(request(POKEDATA, pid, shared, 1));
    SHOW(request(POKEDATA, pid, own, 2));
    SHOW(request(POKEDATA, pid, of_file, 3));
    SHOW(request(PEEKDATA, pid, own, &again));
    printf("own %ld here %ld\n", again, own[0]);
    SHOW(request(PEEKDATA, pid, of_file, &again));
    printf("of the file %ld here %ld\n", again, of_file[0]);
    request(KILL, pid, 0, 0);
    wait_for("killed", pid);
}

static void steps(void)
{
    puts("-- steps over calls");
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        asm volatile("mov $110, %%eax; syscall; nop; nop" ::: "rax", "rcx", "r11", "memory");
        _exit(0);
    });
    wait_for("start", pid);
    long before = 0;
    int calls = 0;
    for (int i = 0; i < 20000; i++) {
        long rip = peek_user(pid, RIP);
        long code = 0;
        request(PEEKTEXT, pid, rip, &code);
        int is_call = (code & 0xffff) == 0x050f && peek_user(pid, offsetof(struct user, regs.rax)) == 110;
        request(SINGLESTEP, pid, 0, 0);
        int status;
        waitpid(pid, &status, 0);
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
            printf("%s\n", status_text(status));
            break;
        }
        before = rip;
        if (is_call) {
            calls++;
            show_information(pid);
            TRUE(peek_user(pid, RIP) == before + 2);
            TRUE(peek_user(pid, offsetof(struct user, regs.rax)) == getpid());
            break;
        }
    }
    printf("calls %d\n", calls);
    request(CONT, pid, 0, 0);
    wait_for("end", pid);
}

static void hardware(void)
{
    puts("-- watchpoints");
    pid_t pid = start();
    SHOW(peek_user(pid, DEBUG(7)));
    SHOW(request(POKEUSR, pid, DEBUG(0), watched));
    SHOW(request(POKEUSR, pid, DEBUG(1), broken));
    TRUE(peek_user(pid, DEBUG(0)) == (long)watched);
    SHOW(request(POKEUSR, pid, DEBUG(4), 0));
    SHOW(request(POKEUSR, pid, DEBUG(5), 0));
    SHOW(request(POKEUSR, pid, DEBUG(2), -4096l));
    /* One that is not aligned, and one for ports. */
    SHOW(request(POKEUSR, pid, DEBUG(3), (long)watched + 1));
    SHOW(request(POKEUSR, pid, DEBUG(7), 0x40 | 0xdl << 28));
    SHOW(request(POKEUSR, pid, DEBUG(7), 0x40 | 0x2l << 28));
    SHOW(request(POKEUSR, pid, DEBUG(7), 0x1 | 0x9l << 16 | 0x4));
    for (int i = 0; i < 4; i++) {
        request(CONT, pid, 0, 0);
        wait_for(i < 3 ? "store" : "execution", pid);
        show_information(pid);
        long value = 0;
        request(PEEKDATA, pid, watched, &value);
        printf("value %ld, hits %#lx\n", value, peek_user(pid, DEBUG(6)) & 0xf);
        SHOW(request(POKEUSR, pid, DEBUG(6), 0));
        if (i == 3)
            TRUE(peek_user(pid, RIP) == (long)broken);
    }
    SHOW(request(POKEUSR, pid, DEBUG(7), 0));
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    request(CONT, pid, 0, SIGUSR1);
    wait_for("end", pid);
}

/* A program that sets the trap flag itself. */
static volatile int traps;

static void trapped(int number, siginfo_t *information, void *context)
{
    (void)number;
    ucontext_t *user = context;
    traps++;
    if (traps == 4)
        user->uc_mcontext.gregs[REG_EFL] &= ~0x100l;
    if (traps == 1)
        printf("code %d\n", information->si_code);
}

static void own_flag(void)
{
    puts("-- the program's own trap flag");
    struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };
    sigaction(SIGTRAP, &action, NULL);
    asm volatile("pushfq; orl $0x100, (%%rsp); popfq; nop; nop; nop; nop; nop; nop" ::: "memory", "cc");
    printf("traps %d\n", traps);
}

int main(void)
{
    breakpoints();
    steps();
    hardware();
    own_flag();
    return 0;
}
