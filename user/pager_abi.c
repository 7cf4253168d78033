/* Page faults as messages: pagers that map, grant, refuse, lie and die, and everything that may happen to a thread that waits for one.
 *
 * abi: guest
 * abi: cpus 1,2,4
 * abi: limit 60
 */
#include "guest.h"
#include "ipc/include/starling_ipc.h"
#include <sched.h>
#include <setjmp.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 16 };

/* What the pager does about a fault on a page of the range: by the page's number. */
enum policy { MAPS, GRANTS, HAS_NONE, DENIES, GIVES_NOTHING, ENDS, WAITS, ANSWERS_LATE, GIVES_LOADS_ONLY, GIVES_MANY };

struct shared {
    _Atomic ipc_id ids[4];
    _Atomic int turn;
    _Atomic long result;
    _Atomic uint64_t faults, answers, words[IPC_WORDS];
    _Atomic ipc_id sender;
};
static struct shared *shared;
/* Something was wrong in a pager. */
static atomic_int *wrong_elsewhere;
/* Memory that all processes of the test share; what pagers map. */
static char *pool;
/* The range that has a pager, in the client. */
static char *range;
static int cpus;

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % cpus, &set);
    EXPECT(sched_setaffinity(0, sizeof set, &set) == 0, "%s", strerror(errno));
}

static void *mapped(size_t pages, int flags)
{
    void *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED, "%s", strerror(errno));
    return memory;
}

static ipc_id await_id(int who)
{
    ipc_id id;
    while ((id = atomic_load(&shared->ids[who])) == 0)
        usleep(100);
    return id;
}

static void await_turn(int turn)
{
    while (atomic_load(&shared->turn) != turn)
        usleep(100);
}

static void await_sleep(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int round = 0; round < 100000; round++) {
        const char *text = contents_of(path), *at = strrchr(text, ')');
        if (at && at[2] == 'S')
            return;
        usleep(100);
    }
    EXPECT(0, "process %d never slept", pid);
}

static int status_of(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void finish(pid_t pid)
{
    kill(pid, SIGKILL);
    status_of(pid);
}

static sigjmp_buf failed_access;
static volatile int access_code;

static void access_failed(int number, siginfo_t *info, void *context)
{
    (void)context;
    access_code = info->si_code;
    siglongjmp(failed_access, number);
}

/* The signal that an access ends in; 0 if it is made. */
static int signal_of(volatile char *address, int store)
{
    struct sigaction action = { .sa_sigaction = access_failed, .sa_flags = SA_SIGINFO }, bus, segment;
    sigaction(SIGBUS, &action, &bus);
    sigaction(SIGSEGV, &action, &segment);
    int number = sigsetjmp(failed_access, 1);
    if (number == 0) {
        if (store)
            *address = (char)(*address + 1);
        else
            (void)*address;
    }
    sigaction(SIGBUS, &bus, NULL);
    sigaction(SIGSEGV, &segment, NULL);
    return number;
}

/* Answers one fault; the result of the answer. */
static long answer(struct ipc_message *message)
{
    uint64_t at = message->words[0] & ~3ull;
    int store = (message->words[0] & IPC_FAULT_STORE) != 0;
    size_t page = (at - (uintptr_t)range) / PAGE;
    uint64_t to = at & ~(uint64_t)(PAGE - 1);
    static char *own;
    switch ((enum policy)page) {
    case MAPS:
        ipc_set_pages(message, pool, to, store ? IPC_STORE : 0, 1);
        break;
    case GRANTS:
        own = mapped(1, MAP_PRIVATE);
        strcpy(own, "granted");
        ipc_set_pages(message, own, to, IPC_GRANT | IPC_STORE, 1);
        long result = ipc_give(message, IPC_ZERO);
        EXPECT(own[0] == 0, "the giver still has the page");
        munmap(own, PAGE);
        return result;
    case DENIES:
        message->words[0] = IPC_FAULT_DENIED;
        return ipc_send(message, IPC_ZERO);
    case GIVES_NOTHING:
        own = mapped(1, MAP_SHARED);
        munmap(own, PAGE);
        ipc_set_pages(message, own, to, 0, 1);
        break;
    case ENDS:
        _exit(0);
    case WAITS:
        atomic_store(&shared->turn, 1);
        await_turn(2);
        ipc_set_pages(message, pool + WAITS * PAGE, to, IPC_STORE, 1);
        break;
    case ANSWERS_LATE:
        ipc_set_pages(message, pool + ANSWERS_LATE * PAGE, to, IPC_STORE, 1);
        if (atomic_load(&shared->turn) == 0) {
            /* Given, but the fault is not answered: the next one finds it answered. */
            atomic_store(&shared->turn, 1);
            return 0;
        }
        break;
    case GIVES_LOADS_ONLY:
        ipc_set_pages(message, pool + GIVES_LOADS_ONLY * PAGE, to, 0, 1);
        break;
    case GIVES_MANY:
        ipc_set_pages(message, pool + GIVES_MANY * PAGE, to, IPC_STORE, PAGES - GIVES_MANY);
        break;
    default:
        message->words[0] = 0;
        return ipc_send(message, IPC_ZERO);
    }
    return ipc_give(message, IPC_ZERO);
}

/* A pager in a process of its own. */
static pid_t start_pager(int cpu)
{
    memset(shared, 0, sizeof *shared);
    pid_t child = fork();
    if (child != 0)
        return child;
    pin(cpu);
    atomic_store(&shared->ids[0], (ipc_id)ipc_self(0));
    for (;;) {
        struct ipc_message message = { 0 };
        EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "the pager waits");
        for (int i = 0; i < IPC_WORDS; i++)
            atomic_store(&shared->words[i], message.words[i]);
        atomic_store(&shared->sender, message.partner);
        atomic_fetch_add(&shared->faults, 1);
        atomic_store(&shared->result, answer(&message));
        atomic_fetch_add(&shared->answers, 1);
        if (verdict_failed)
            atomic_store(wrong_elsewhere, 1);
    }
}

/* What the pager's last answer came to. */
static long answered(void)
{
    while (atomic_load(&shared->answers) != atomic_load(&shared->faults))
        usleep(100);
    return atomic_load(&shared->result) & ~(long)IPC_REMOTE;
}



static void set_pager(void)
{
    range = mmap(range, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    long result = ipc_pager(range, PAGES * PAGE, await_id(0));
    EXPECT(result == 0, "%ld", result);
}

static void bad_arguments(void)
{
    pid_t pager = start_pager(0);
    ipc_id id = await_id(0), self = (ipc_id)ipc_self(0);
    char *memory = mapped(4, MAP_PRIVATE);
    EXPECT(ipc_pager(memory + 1, PAGE, id) == -EINVAL && ipc_pager(memory, 0, id) == -EINVAL, "alignment, length");
    EXPECT(ipc_pager(memory, PAGE, self) == -EDEADLK, "its own pager");
    static const ipc_id nobody[] = { 0, 1, 5ull << 32, ~0ull >> 1, ~0ull };
    for (unsigned i = 0; i < sizeof nobody / sizeof *nobody; i++)
        EXPECT(ipc_pager(memory, PAGE, nobody[i]) == -ESRCH, "%#lx", (long)nobody[i]);
    EXPECT(ipc_pager(memory, ~0ull, id) == -EINVAL && ipc_pager(memory, 1ull << 60, id) == -ENOMEM, "length");
    EXPECT(ipc_pager((void *)(1ull << 63), PAGE, id) == -ENOMEM, "the kernel's half");
    memory[0] = 1;
    munmap(memory + PAGE, PAGE);
    EXPECT(ipc_pager(memory + PAGE, PAGE, id) == -ENOMEM && ipc_pager(memory, 2 * PAGE, id) == -EINVAL, "a hole");
    EXPECT(mlock(memory, PAGE) == 0 && ipc_pager(memory, PAGE, id) == -EINVAL, "locked");
    munlock(memory, PAGE);
    EXPECT(memory[0] == 1, "nothing was done");
    int local;
    EXPECT(ipc_pager((void *)((uintptr_t)&local & ~(uintptr_t)(PAGE - 1)), PAGE, id) == -EINVAL, "the stack");
    int fd = open("/proc/self/exe", O_RDONLY);
    char *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    EXPECT(file != MAP_FAILED && ipc_pager(file, PAGE, id) == -EINVAL, "a file");
    munmap(file, PAGE);
    close(fd);
    EXPECT(ipc_unmap(memory, PAGE, 2) == -EINVAL && ipc_unmap(memory + 1, PAGE, 0) == -EINVAL, "flags, alignment");
    EXPECT(ipc_unmap(memory, 2 * PAGE, 0) == -ENOMEM && ipc_unmap(memory, 0, 0) == 0, "a hole, nothing");
    EXPECT(ipc_unmap(memory, PAGE, 0) == 0 && ipc_unmap(pool, PAGES * PAGE, IPC_ONLY_STORES) == 0, "nothing was given");
    /* Pages to somebody who has not made the caller its pager, and messages of pages that make no sense. */
    static const uint64_t wrong[][IPC_WORDS] = { { 4, 0, 1 }, { 0x800, 0, 1 }, { 0, 1, 1 }, { 0, 0, 0 }, { 0, 0, IPC_PAGES_MAX + 1 }, { 0, 0, ~0ull } };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ipc_message message = { .partner = id, .words = { wrong[i][0] + (uintptr_t)pool, wrong[i][1] + (uintptr_t)range, wrong[i][2] } };
        EXPECT(ipc_give(&message, IPC_ZERO) == -EINVAL, "message %u", i);
        EXPECT(ipc_operate(&message, IPC_DO_RECEIVE | IPC_WITH_PAGES, IPC_ZERO, IPC_ZERO) == -EINVAL, "nothing to send");
    }
    struct ipc_message message = { .partner = id };
    ipc_set_pages(&message, pool, (uintptr_t)range, IPC_STORE, 1);
    EXPECT(ipc_give(&message, IPC_ZERO) == IPC_SEMAPFAILED, "not its pager");
    ipc_set_pages(&message, pool, 1ull << 46, IPC_STORE, 1);
    EXPECT(ipc_give(&message, IPC_ZERO) == IPC_SEMAPFAILED, "nothing is there");
    ipc_set_pages(&message, pool, ~0ull << 12, IPC_STORE, 2);
    EXPECT(ipc_give(&message, IPC_ZERO) == IPC_SEMAPFAILED, "beyond the end");
    message.partner = self;
    EXPECT(ipc_give(&message, IPC_ZERO) == -EDEADLK, "to itself");
    message.partner = id + (1ull << 32);
    EXPECT(ipc_give(&message, IPC_ZERO) == IPC_ENOT_EXISTENT, "to nobody");
    EXPECT(atomic_load(&shared->faults) == 0, "the pager noticed nothing");
    munmap(memory, 4 * PAGE);
    finish(pager);
}

static void pages_come(int pager_cpu)
{
    pid_t pager = start_pager(pager_cpu);
    ipc_id self = (ipc_id)ipc_self(0);
    pin(0);
    set_pager();
    strcpy(pool, "mapped");
    volatile char *page = range + MAPS * PAGE;
    EXPECT(strcmp((char *)page, "mapped") == 0, "%.8s", page);
    EXPECT(atomic_load(&shared->faults) == 1 && atomic_load(&shared->sender) == self, "one message, of this thread");
    EXPECT(atomic_load(&shared->words[0]) == (uintptr_t)page && atomic_load(&shared->words[2]) == IPC_FAULT_LABEL, "the words");
    strcpy(pool, "memory");
    EXPECT(page[1] == 'e', "the same page");
    page[2] = 'l';
    EXPECT(atomic_load(&shared->faults) == 2 && pool[2] == 'l', "a store is another message");
    EXPECT(atomic_load(&shared->words[0]) == ((uintptr_t)&page[2] & ~3ull) + IPC_FAULT_STORE, "%#lx", (long)atomic_load(&shared->words[0]));
    EXPECT(strcmp(range + GRANTS * PAGE, "granted") == 0, "%.8s", range + GRANTS * PAGE);
    range[GRANTS * PAGE] = 'G';
    EXPECT(atomic_load(&shared->faults) == 3 && answered() == 0, "granted for stores");
    EXPECT(signal_of(range + GIVES_LOADS_ONLY * PAGE, 0) == 0, "a load");
    EXPECT(signal_of(range + GIVES_LOADS_ONLY * PAGE, 1) == SIGBUS, "a store, which the pager never allows");
    memset(pool + GIVES_MANY * PAGE, 'm', (PAGES - GIVES_MANY) * PAGE);
    uint64_t before = atomic_load(&shared->faults);
    for (int i = GIVES_MANY; i < PAGES; i++)
        EXPECT(range[i * PAGE + 5] == 'm', "page %d", i);
    EXPECT(atomic_load(&shared->faults) == before + 1, "one message for many pages");
    /* Protection, advice and moves. */
    EXPECT(mprotect(range, PAGE, PROT_READ) == 0 && signal_of(range, 1) == SIGSEGV && page[0] == 'm', "loads only");
    EXPECT(mprotect(range, PAGE, PROT_READ | PROT_WRITE) == 0 && signal_of(range, 1) == 0, "stores again");
    EXPECT(atomic_load(&shared->faults) == before + 1, "what it may do it need not ask for");
    EXPECT(madvise(range + GRANTS * PAGE, PAGE, MADV_DONTNEED) == 0 && range[GRANTS * PAGE] == 'g', "asked again");
    char *moved = mremap(range, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, mapped(1, MAP_PRIVATE));
    EXPECT(moved != MAP_FAILED && moved[1] == pool[1], "moved");
    munmap(moved, PAGE);
    finish(pager);
    EXPECT(strcmp(range + GRANTS * PAGE, "granted") == 0, "pages outlive their pager");
    EXPECT(signal_of(range + HAS_NONE * PAGE, 0) == SIGBUS, "there are no new ones");
}

static void refusals(int pager_cpu)
{
    pid_t pager = start_pager(pager_cpu);
    set_pager();
    for (int store = 0; store < 2; store++) {
        EXPECT(signal_of(range + HAS_NONE * PAGE, store) == SIGBUS, "there is no page");
        EXPECT(signal_of(range + DENIES * PAGE, store) == SIGSEGV && access_code == SEGV_ACCERR, "an access that may not be");
        EXPECT(signal_of(range + GIVES_NOTHING * PAGE, store) == SIGBUS, "a page that can't be given");
        EXPECT(answered() == IPC_SEMAPFAILED, "%#lx", answered());
        }
    /* The kernel does not ask. */
    int ends[2];
    EXPECT(pipe(ends) == 0 && write(ends[1], "words", 5) == 5, "%s", strerror(errno));
    uint64_t before = atomic_load(&shared->faults);
    EXPECT(read(ends[0], range, 5) == -1 && errno == EFAULT, "%s", strerror(errno));
    EXPECT(write(ends[1], range, 5) == -1 && errno == EFAULT, "%s", strerror(errno));
    EXPECT(madvise(range, PAGE, MADV_POPULATE_READ) == -1 && errno == EFAULT, "%s", strerror(errno));
    char byte;
    struct iovec here = { &byte, 1 }, there = { range, 1 };
    EXPECT(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == -1 && errno == EFAULT, "%s", strerror(errno));
    EXPECT(atomic_load(&shared->faults) == before, "no messages");
    range[0] = 'x';
    EXPECT(read(ends[0], range, 5) == 5 && memcmp(pool, "words", 5) == 0, "%.5s", pool);
    close(ends[0]);
    close(ends[1]);
    EXPECT(signal_of(range + ENDS * PAGE, 0) == SIGBUS && access_code == BUS_ADRERR, "the pager ends");
    status_of(pager);
    EXPECT(signal_of(range + ENDS * PAGE, 1) == SIGBUS, "it has ended");
    EXPECT(ipc_pager(range, PAGE, await_id(0)) == -ESRCH, "it has ended");
}

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&shared->turn, 1);
}

static void *unmaps(void *argument)
{
    (void)argument;
    await_turn(1);
    munmap(range, PAGES * PAGE);
    atomic_store(&shared->turn, 2);
    return NULL;
}

/* A child that touches a page, and exits with the signal that it got. */
static pid_t start_client(int cpu, enum policy page)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    pin(cpu);
    _exit(signal_of(range + page * PAGE, 1));
}

static void while_it_waits(int cpu)
{
    /* The pager is killed. */
    pid_t pager = start_pager(0);
    set_pager();
    pid_t client = start_client(cpu, WAITS);
    await_turn(1);
    await_sleep(client);
    finish(pager);
    EXPECT(status_of(client) == SIGBUS << 8, "the pager was killed");
    /* The thread is killed: it is gone at once, and the pager is told. */
    pager = start_pager(0);
    set_pager();
    client = start_client(cpu, WAITS);
    await_turn(1);
    ipc_id id = atomic_load(&shared->sender);
    kill(client, SIGKILL);
    EXPECT(WIFSIGNALED(status_of(client)) && ipc_cpu(id) == -ESRCH, "killed while it waits");
    atomic_store(&shared->turn, 2);
    EXPECT(answered() == IPC_ENOT_EXISTENT, "%#lx", answered());
    /* A signal is handled meanwhile, and the page is asked for again; the first answer finds it waiting again. */
    atomic_store(&shared->turn, 0);
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    client = start_client(cpu, ANSWERS_LATE);
    await_turn(1);
    await_sleep(client);
    uint64_t before = atomic_load(&shared->faults);
    kill(client, SIGUSR1);
    EXPECT(status_of(client) == 0, "it goes on");
    EXPECT(atomic_load(&shared->faults) == before + 1 && atomic_load(&shared->turn) == 2, "asked again");
    /* Somebody cancels the wait: likewise. */
    atomic_store(&shared->turn, 0);
    client = start_client(cpu, ANSWERS_LATE);
    await_turn(1);
    await_sleep(client);
    EXPECT(ipc_cancel(atomic_load(&shared->sender)) == 1, "it waits");
    EXPECT(status_of(client) == 0, "it goes on");
    /* The range is unmapped. */
    atomic_store(&shared->turn, 0);
    client = fork();
    if (client == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, unmaps, NULL);
        _exit(signal_of(range + WAITS * PAGE, 0));
    }
    EXPECT(status_of(client) == SIGSEGV << 8, "nothing is there any more");
    EXPECT(answered() == IPC_SEMAPFAILED, "%#lx", answered());
    /* The pager executes another program: its number ends. */
    finish(pager);
    memset(shared, 0, sizeof *shared);
    pager = fork();
    if (pager == 0) {
        atomic_store(&shared->ids[0], (ipc_id)ipc_self(0));
        struct ipc_message message = { 0 };
        ipc_wait(&message, IPC_NEVER);
        execl("/proc/self/exe", "pager_abi", "exit", NULL);
        _exit(1);
    }
    set_pager();
    EXPECT(signal_of(range, 0) == SIGBUS, "another program");
    EXPECT(status_of(pager) == 0, "executed");
}

static void forks(void)
{
    pid_t pager = start_pager(1);
    set_pager();
    range[MAPS * PAGE] = 'p';
    uint64_t before = atomic_load(&shared->faults);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(range[MAPS * PAGE] == 'p', "mapped for the child");
        EXPECT(atomic_load(&shared->faults) == before + 1 && atomic_load(&shared->sender) == (ipc_id)ipc_self(0), "its own message");
        EXPECT(signal_of(range + HAS_NONE * PAGE, 0) == SIGBUS, "the same pager");
        /* With the range in place, to another program, which has nothing of it. */
        if (!verdict_failed)
            execl("/proc/self/exe", "pager_abi", "exit", NULL);
        _exit(1);
    }
    EXPECT(status_of(child) == 0, "the child");
    EXPECT(range[MAPS * PAGE] == 'p' && atomic_load(&shared->faults) == before + 2, "the parent keeps its page");
    finish(pager);
}

/* A pager between a pager and its client: maps on what it has been given. */
static pid_t start_second_pager(char *own)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    atomic_store(&shared->ids[1], (ipc_id)ipc_self(0));
    EXPECT(ipc_pager(own, PAGES * PAGE, await_id(0)) == 0, "the second pager's pager");
    for (;;) {
        struct ipc_message message = { 0 };
        EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "the second pager waits");
        uint64_t at = message.words[0] & ~(uint64_t)(PAGE - 1);
        /* What is asked of it it asks for itself. */
        ((volatile char *)own)[1] = 's';
        ipc_set_pages(&message, own, at, IPC_STORE, 1);
        EXPECT(!IPC_FAILED(ipc_give(&message, IPC_ZERO)), "the second pager's answer");
        if (verdict_failed)
            atomic_store(wrong_elsewhere, 1);
    }
}

static void taken_back(void)
{
    pid_t first = start_pager(0);
    set_pager();
    pid_t second = start_second_pager(range);
    char *own = mapped(2, MAP_PRIVATE);
    EXPECT(ipc_pager(own, 2 * PAGE, await_id(1)) == 0, "a client of the second");
    volatile char *page = own;
    pool[1] = 0;
    page[0] = 1;
    EXPECT(pool[0] == 1 && pool[1] == 's', "one page for three: %d", pool[0]);
    uint64_t before = atomic_load(&shared->faults);
    /* All places that came of it, also those that others made. */
    long places = ipc_unmap(pool, PAGE, 0);
    EXPECT(places == 2, "%ld places", places);
    pool[1] = 0;
    page[0] = 2;
    EXPECT(pool[0] == 2 && pool[1] == 's' && atomic_load(&shared->faults) == before + 1, "all have asked again");
    places = ipc_unmap(pool, PAGE, IPC_ONLY_STORES);
    EXPECT(places == 2 && page[0] == 2, "%ld places", places);
    pool[1] = 0;
    page[0] = 3;
    EXPECT(pool[0] == 3 && pool[1] == 's' && atomic_load(&shared->faults) == before + 2, "for stores, too");
    EXPECT(ipc_unmap(own, PAGE, 0) == 0, "nothing came of its own");
    /* What was given away by a pager that has ended can be taken back as well. */
    finish(second);
    places = ipc_unmap(pool, PAGE, 0);
    EXPECT(places == 1 && signal_of(own, 0) == SIGBUS, "%ld places", places);
    munmap(own, 2 * PAGE);
    finish(first);
}

static void strangers(void)
{
    memset(shared, 0, sizeof *shared);
    ipc_id self = (ipc_id)ipc_self(0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(setresuid(65534, 65534, 65534) == 0, "%s", strerror(errno));
        EXPECT(ipc_pager(range, PAGE, self) == -EPERM, "a stranger's pager");
        atomic_store(&shared->turn, 1);
        await_turn(2);
        EXPECT(ipc_pager(range, PAGE, self) == 0, "one that is open to all");
        EXPECT(range[0] == 16, "its page");
        _exit(verdict_failed);
    }
    await_turn(1);
    ipc_self(IPC_OPEN_TO_ALL);
    atomic_store(&shared->turn, 2);
    pool[0] = 16;
    struct ipc_message message = { 0 };
    EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "a stranger's fault");
    ipc_set_pages(&message, pool, message.words[0] & ~(uint64_t)(PAGE - 1), 0, 1);
    EXPECT(!IPC_FAILED(ipc_give(&message, IPC_ZERO)), "a page for a stranger");
    EXPECT(status_of(child) == 0, "the stranger");
}

/* Pages do not go from partition to partition, and a pager is on the processor of those it serves. */
static void partitions(void)
{
    memset(shared, 0, sizeof *shared);
    pin(0);
    pid_t child = fork();
    if (child == 0) {
        pin(1);
        ipc_id self = (ipc_id)ipc_self(IPC_PARTITIONED);
        atomic_store(&shared->ids[1], self);
        long expected = cpus > 1 ? -EXDEV : 0;
        EXPECT(ipc_pager(range, PAGES * PAGE, await_id(0)) == expected, "a pager elsewhere");
        struct ipc_message message = { 0 };
        EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "but messages come");
        EXPECT(message.words[0] == 5, "%lu", (long)message.words[0]);
        _exit(verdict_failed);
    }
    ipc_id self = (ipc_id)ipc_self(0), other = await_id(1);
    atomic_store(&shared->ids[0], self);
    await_sleep(child);
    struct ipc_message message = { .partner = other };
    ipc_set_pages(&message, pool, (uintptr_t)range, 0, 1);
    if (cpus > 1) {
        EXPECT(ipc_give(&message, IPC_NEVER) == -EXDEV, "pages for another partition");
        EXPECT(ipc_pager(mapped(1, MAP_PRIVATE), PAGE, other) == -EXDEV, "a pager of another partition");
    }
    message = (struct ipc_message){ .partner = other, .words = { 5 } };
    EXPECT(!IPC_FAILED(ipc_send(&message, IPC_NEVER)), "a message");
    EXPECT(status_of(child) == 0, "the partitioned process");
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "exit") == 0)
        return 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    shared = mapped(1, MAP_SHARED);
    pool = mapped(PAGES, MAP_SHARED);
    wrong_elsewhere = mapped(1, MAP_SHARED);
    range = mapped(PAGES, MAP_PRIVATE);
    progress("bad arguments");
    bad_arguments();
    for (int cpu = 0; cpu < 2 && cpu < cpus; cpu++) {
        progress("pages come from processor %d", cpu);
        pages_come(cpu);
        refusals(cpu);
        while_it_waits(cpu);
    }
    progress("fork");
    forks();
    progress("taken back");
    taken_back();
    progress("strangers");
    strangers();
    progress("partitions");
    partitions();
    return verdict_failed | atomic_load(wrong_elsewhere);
}
