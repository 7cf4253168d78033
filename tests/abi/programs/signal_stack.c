/* The signal frame: alternate stacks, contexts that are changed in a handler, fault addresses, siglongjmp. */
#include "abi.h"
#include <setjmp.h>

static char room[65536] __attribute__((aligned(64)));
static volatile int on_stack, code_seen, number_seen;
static void *volatile address_seen;
static sigjmp_buf back;

static void where(int number, siginfo_t *info, void *context)
{
    (void)info;
    char here;
    on_stack = &here > room && &here < room + sizeof room;
    number_seen = number;
    stack_t now;
    sigaltstack(NULL, &now);
    printf("handler: on the alternate stack %d, flags %d, aligned %d\n", on_stack, now.ss_flags,
           ((uintptr_t)__builtin_frame_address(0) & 15) == 0);
    ucontext_t *saved = context;
    printf("saved stack_t: flags %d size %zu\n", saved->uc_stack.ss_flags, saved->uc_stack.ss_size);
    stack_t other = { .ss_sp = room, .ss_size = 4096 };
    SHOW(sigaltstack(&other, NULL));
}

static void fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    number_seen = number;
    code_seen = info->si_code;
    address_seen = info->si_addr;
    siglongjmp(back, 1);
}

static void skip(int number, siginfo_t *info, void *context)
{
    (void)info;
    number_seen = number;
    ucontext_t *saved = context;
    saved->uc_mcontext.gregs[REG_RIP] += 2;
    saved->uc_mcontext.gregs[REG_RAX] = 4711;
}

static void install(int number, void *function, int flags)
{
    struct sigaction action = { .sa_flags = flags | SA_SIGINFO };
    action.sa_sigaction = function;
    sigaction(number, &action, NULL);
}

#define FAULT(number, statement)                                                                                       \
    do {                                                                                                               \
        install(number, fault, SA_NODEFER);                                                                            \
        number_seen = 0;                                                                                               \
        if (!sigsetjmp(back, 1)) {                                                                                     \
            statement;                                                                                                 \
        }                                                                                                              \
        printf("%s: signal %d code %d address %#lx\n", #statement, number_seen, code_seen, (long)address_seen);        \
    } while (0)

static int recursion(int depth)
{
    volatile char frame[512];
    frame[0] = depth;
    return recursion(depth + 1) + frame[0];
}

int main(void)
{
    stack_t stack = { .ss_sp = room, .ss_size = sizeof room };
    SHOW(sigaltstack(&stack, NULL));
    install(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    install(SIGUSR1, where, 0);
    raise(SIGUSR1);
    stack_t bad = { .ss_sp = room, .ss_size = 100 };
    SHOW(sigaltstack(&bad, NULL));
    bad.ss_size = sizeof room;
    bad.ss_flags = 0x100;
    SHOW(sigaltstack(&bad, NULL));

    FAULT(SIGSEGV, *(volatile int *)0 = 1);
    FAULT(SIGSEGV, *(volatile int *)0x123458 = 1);
    FAULT(SIGSEGV, (void)*(volatile int *)0xffffffff80000000);
    FAULT(SIGSEGV, (void)*(volatile int *)0x8000000000000000);
    FAULT(SIGSEGV, ((void (*)(void))0x5000)());
    FAULT(SIGFPE, { volatile int zero = 0; volatile int seven = 7; seven /= zero; });
    FAULT(SIGTRAP, __asm__ volatile("int3"));
    code_seen = 0;
    FAULT(SIGSEGV, __asm__ volatile("hlt"));
    FAULT(SIGSEGV, __asm__ volatile("cli"));
    FAULT(SIGSEGV, __asm__ volatile("int $0x40"));
    install(SIGILL, fault, SA_NODEFER);
    number_seen = 0;
    if (!sigsetjmp(back, 1))
        __builtin_trap();
    printf("ud2: signal %d code %d address is code %d\n", number_seen, code_seen, address_seen != NULL);

    install(SIGILL, skip, 0);
    long result = 0;
    __asm__ volatile("xor %%eax, %%eax\n\tud2" : "=a"(result) : : "memory");
    printf("after a handler that skips: rax %ld\n", result);

    /* The stack grows to its limit and ends with SIGSEGV on the alternate stack. */
    install(SIGSEGV, fault, SA_ONSTACK);
    number_seen = 0;
    struct rlimit limit = { 1 << 20, RLIM_INFINITY };
    setrlimit(RLIMIT_STACK, &limit);
    if (!sigsetjmp(back, 1))
        recursion(0);
    printf("stack overflow: signal %d code %d\n", number_seen, code_seen);
    REAP(CHILD({ signal(SIGSEGV, SIG_DFL); recursion(0); }));
    REAP(CHILD({ stack_t off = { .ss_flags = SS_DISABLE }; sigaltstack(&off, NULL); recursion(0); }));
    /* A blocked fault kills. */
    REAP(CHILD({
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
        *(volatile int *)0 = 1;
    }));
    REAP(CHILD({ signal(SIGSEGV, SIG_IGN); *(volatile int *)0 = 1; }));
    /* Registers, flags and the red zone survive a handler. */
    install(SIGALRM, (void *)where, 0);
    signal(SIGALRM, SIG_IGN);
    return 0;
}
