/* The user environment of a multiprocessor L4, in small: a roottask on each processor, tasks, and a pager for all of them.
 *
 * Every processor has a roottask, a partitioned process of its own. All of them see the same memory at the same addresses
 * (they are congruent), which a checksum over their pages' frames shows. In each one two threads serve:
 *   the paging stub      takes the page faults of its processor's tasks, asks the real pager on processor 0 which page it
 *                        shall be, and maps it out of its own roottask: pages do not go from processor to processor
 *   the task executor    creates tasks on its processor; tasks do not, either
 * What is whose is known on processor 0 only, to the server there: it is the real pager, and it takes the tasks' requests
 * for new tasks. Such a request does not fit into a message; the server sends the executor a pointer to it, into its own
 * stack: that lies in the congruent memory, and the request is valid until the call returns.
 *
 * Pages belong to whoever touches them first; tasks of the same program, on whatever processor, are the same owner.
 *
 * usage: roottask
 *
 * abi: guest
 * abi: cpus 1,2,4
 * abi: limit 60
 */
#include "guest.h"
#include "ipc/include/starling_ipc.h"
#include <sched.h>
#include <setjmp.h>

enum { PAGE = 4096, CPUS_MAX = 64, TASKS_MAX = 16, STACK_PAGES = 16, POOL_PAGES = 32 };

/* What is asked of the server: the third word of a message. */
enum request { FIND_PAGE = 1, CREATE, FINISH };
/* What a new task does. */
enum program { FIRST, SECOND, INTRUDER };

/* A task to be created. */
struct creation {
    enum program program;
    int owner;
    ipc_id creator;
    _Atomic ipc_id id;
};

/* Memory that all roottasks have, at one address. */
struct congruent {
    _Alignas(PAGE) char pool[POOL_PAGES * PAGE];
    _Alignas(PAGE) char stack[STACK_PAGES * PAGE];
    /* Where the threads are, which each of them says once. */
    _Atomic ipc_id stubs[CPUS_MAX], executors[CPUS_MAX], server;
    _Atomic uint64_t checksums[CPUS_MAX];
    atomic_int ready, wrong;
    /* A task's messages about itself. */
    atomic_int task_cpus[TASKS_MAX];
};
static struct congruent *congruent;
/* Where tasks have their memory: the page with some number there is that page of the pool. */
static char *const task_memory = (char *)0x200000000000;
static int cpus, cpu;

static void pin(int to)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(to, &set);
    cpu = to;
    EXPECT(sched_setaffinity(0, sizeof set, &set) == 0, "%s", strerror(errno));
}

/* Becomes a thread of this partition; its number. */
static ipc_id join_partition(void)
{
    int64_t id = ipc_self(IPC_PARTITIONED);
    EXPECT(id > 0, "%ld", (long)id);
    return (ipc_id)id;
}

static ipc_id await(_Atomic ipc_id *id)
{
    while (atomic_load(id) == 0)
        usleep(100);
    return atomic_load(id);
}

/* Which frames the pages of the congruent memory have here. */
static uint64_t checksum(void)
{
    uint64_t sum = 14695981039346656037ull, entry;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    for (int page = 0; page < POOL_PAGES; page++) {
        char *at = congruent->pool + page * PAGE;
        __atomic_fetch_add(at, 0, __ATOMIC_SEQ_CST);
        EXPECT(pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)at / PAGE * sizeof entry)) == sizeof entry, "%s", strerror(errno));
        EXPECT(entry >> 63 == 1 && (entry & ((1ull << 55) - 1)) != 0, "page %d: %#lx", page, (long)entry);
        sum = (sum ^ (entry & ((1ull << 55) - 1))) * 1099511628211ull;
    }
    close(fd);
    return sum;
}

static void *paging_stub(void *argument)
{
    (void)argument;
    atomic_store(&congruent->stubs[cpu], join_partition());
    atomic_fetch_add(&congruent->ready, 1);
    ipc_id server = await(&congruent->server);
    struct ipc_message fault = { 0 };
    long result = ipc_wait(&fault, IPC_NEVER);
    for (;;) {
        EXPECT(!IPC_FAILED(result) && fault.words[2] == IPC_FAULT_LABEL, "%#lx", result);
        uint64_t page = fault.words[0] & ~(uint64_t)(PAGE - 1);
        struct ipc_message question = { .partner = server, .words = { page, fault.partner, FIND_PAGE } };
        result = ipc_call(&question, IPC_NEVER, IPC_NEVER);
        if (!IPC_FAILED(result) && question.words[0] != 0) {
            ipc_set_pages(&fault, (void *)(uintptr_t)question.words[0], page, IPC_STORE, 1);
            result = ipc_give_and_wait(&fault, IPC_ZERO, IPC_NEVER);
        } else {
            fault.words[0] = IPC_FAULT_DENIED;
            result = ipc_reply_and_wait(&fault, IPC_ZERO, IPC_NEVER);
        }
    }
    return NULL;
}

static sigjmp_buf failed_access;

static void access_failed(int number)
{
    siglongjmp(failed_access, number);
}

/* Asks the server for a task; its number. */
static ipc_id create(int where, enum program program)
{
    struct ipc_message message = { .partner = atomic_load(&congruent->server), .words = { (uint64_t)where, program, CREATE } };
    long result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
    EXPECT(!IPC_FAILED(result) && message.words[0] != 0, "%#lx", result);
    return message.words[0];
}

/* Waits for a task's message, which it answers later. */
static struct ipc_message message_of(ipc_id task)
{
    struct ipc_message message = { .partner = task };
    long result = ipc_receive(&message, IPC_NEVER);
    EXPECT(!IPC_FAILED(result), "%#lx", result);
    return message;
}

static void first_task(void)
{
    int there = cpus - 1;
    strcpy(task_memory, "written by the first task");
    ipc_id second = create(there, SECOND);
    struct ipc_message message = message_of(second);
    printf("task on processor %d: the task that I asked for runs on processor %d, and reads \"%s\"\n", cpu, (int)message.words[0],
           task_memory + PAGE);
    EXPECT(message.words[0] == (uint64_t)there, "it runs elsewhere");
    EXPECT(strcmp(task_memory + PAGE, "written by the first task") == 0, "the two have the same memory");
    if (there != cpu) {
        /* Whatever else would reach across has no effect. */
        struct ipc_message pages = { .partner = second };
        ipc_set_pages(&pages, congruent->pool, (uintptr_t)task_memory, IPC_STORE, 1);
        EXPECT(ipc_cancel(second) == -EXDEV, "cancelling");
        EXPECT(ipc_give(&pages, IPC_ZERO) == -EXDEV, "mapping");
        EXPECT(ipc_pager(task_memory, PAGE, atomic_load(&congruent->stubs[there])) == -EXDEV, "paging");
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(there, &set);
        EXPECT(sched_setaffinity(0, sizeof set, &set) == -1 && errno == EXDEV, "going there: %s", strerror(errno));
    }
    EXPECT(!IPC_FAILED(ipc_send(&message, IPC_ZERO)), "it still waits");
    ipc_id intruder = create(there, INTRUDER);
    message = message_of(intruder);
    printf("task on processor %d: another program gets signal %d from my page, and %d from its own\n", cpu, (int)message.words[0],
           (int)message.words[1]);
    EXPECT(message.words[0] == SIGSEGV && message.words[1] == 0, "whose pages they are");
    EXPECT(!IPC_FAILED(ipc_send(&message, IPC_ZERO)), "it still waits");
    if (verdict_failed)
        atomic_store(&congruent->wrong, 1);
    message = (struct ipc_message){ .partner = atomic_load(&congruent->server), .words = { 0, 0, FINISH } };
    EXPECT(!IPC_FAILED(ipc_call(&message, IPC_NEVER, IPC_NEVER)), "the server");
}

static void second_task(ipc_id creator)
{
    /* Pages of the first task, which are mapped here by another roottask. */
    strcpy(task_memory + PAGE, task_memory);
    struct ipc_message message = { .partner = creator, .words = { (uint64_t)sched_getcpu() } };
    EXPECT(!IPC_FAILED(ipc_call(&message, IPC_NEVER, IPC_NEVER)), "the first task");
}

static void intruder(ipc_id creator)
{
    signal(SIGSEGV, access_failed);
    struct ipc_message message = { .partner = creator };
    for (int page = 0; page < 2; page++) {
        int number = sigsetjmp(failed_access, 1);
        if (number == 0)
            *(volatile char *)(task_memory + (page == 0 ? 0 : 5) * PAGE) = 'i';
        message.words[page] = (uint64_t)number;
    }
    EXPECT(!IPC_FAILED(ipc_call(&message, IPC_NEVER, IPC_NEVER)), "the first task");
}

/* The life of a task, from the executor's fork on. */
static void run_task(struct creation *creation)
{
    enum program program = creation->program;
    ipc_id creator = creation->creator, own = join_partition();
    void *memory = mmap(task_memory, POOL_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT(memory == task_memory, "%s", strerror(errno));
    EXPECT(ipc_pager(memory, POOL_PAGES * PAGE, atomic_load(&congruent->stubs[cpu])) == 0, "its processor's paging stub");
    unsigned share = 32768 / (unsigned)cpus / 16 * 16;
    EXPECT((uint32_t)own / share == (unsigned)cpu, "number %u on processor %d", (uint32_t)own, cpu);
    /* The executor answers now, and the request is no longer valid. */
    atomic_store(&creation->id, own);
    if (program == FIRST)
        first_task();
    else if (program == SECOND)
        second_task(creator);
    else
        intruder(creator);
    if (verdict_failed)
        atomic_store(&congruent->wrong, 1);
    exit(0);
}

static void *task_executor(void *argument)
{
    (void)argument;
    atomic_store(&congruent->executors[cpu], join_partition());
    atomic_fetch_add(&congruent->ready, 1);
    struct ipc_message message = { 0 };
    long result = ipc_wait(&message, IPC_NEVER);
    for (;;) {
        EXPECT(!IPC_FAILED(result), "%#lx", result);
        struct creation *creation = (void *)(uintptr_t)message.words[0];
        pid_t task = fork();
        if (task == 0)
            run_task(creation);
        EXPECT(task > 0, "%s", strerror(errno));
        message.words[0] = await(&creation->id);
        result = ipc_reply_and_wait(&message, IPC_ZERO, IPC_NEVER);
    }
    return NULL;
}

/* What the server knows of tasks and pages. Nobody else does. */
static struct {
    ipc_id tasks[TASKS_MAX];
    int owners[TASKS_MAX];
    int count, next_owner;
    int page_owners[POOL_PAGES];
} known;

static int owner_of(ipc_id task)
{
    for (int i = 0; i < known.count; i++)
        if (known.tasks[i] == task)
            return known.owners[i];
    return 0;
}

/* The page of the pool that a task shall have at an address; 0 if it belongs to somebody else. */
static uint64_t page_for(uint64_t address, ipc_id task)
{
    uint64_t page = (address - (uintptr_t)task_memory) / PAGE;
    int owner = owner_of(task);
    if (page >= POOL_PAGES || owner == 0)
        return 0;
    if (known.page_owners[page] == 0)
        known.page_owners[page] = owner;
    return known.page_owners[page] == owner ? (uintptr_t)congruent->pool + page * PAGE : 0;
}

static ipc_id create_task(int where, enum program program, ipc_id creator)
{
    if (where < 0 || where >= cpus || known.count == TASKS_MAX)
        return 0;
    /* A task of the same program has the same memory. */
    int owner = program == SECOND ? owner_of(creator) : ++known.next_owner;
    struct creation creation = { .program = program, .owner = owner, .creator = creator };
    EXPECT((char *)&creation >= congruent->stack && (char *)&creation < congruent->stack + sizeof congruent->stack, "a stack elsewhere");
    struct ipc_message message = { .partner = atomic_load(&congruent->executors[where]), .words = { (uintptr_t)&creation } };
    long result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
    EXPECT(!IPC_FAILED(result), "%#lx", result);
    known.tasks[known.count] = message.words[0];
    known.owners[known.count++] = owner;
    return message.words[0];
}

static void *server(void *argument)
{
    (void)argument;
    atomic_store(&congruent->server, join_partition());
    create_task(0, FIRST, 0);
    struct ipc_message message = { 0 };
    long result = ipc_wait(&message, IPC_NEVER);
    for (;;) {
        EXPECT(!IPC_FAILED(result), "%#lx", result);
        enum request request = (enum request)message.words[2];
        if (request == FIND_PAGE)
            message.words[0] = page_for(message.words[0], message.words[1]);
        else if (request == CREATE)
            message.words[0] = create_task((int)message.words[0], (enum program)message.words[1], message.partner);
        if (request == FINISH)
            break;
        result = ipc_reply_and_wait(&message, IPC_ZERO, IPC_NEVER);
    }
    EXPECT(!IPC_FAILED(ipc_send(&message, IPC_ZERO)), "the first task waits");
    return NULL;
}

/* The roottask of a processor. */
static void roottask(int own_cpu)
{
    pin(own_cpu);
    join_partition();
    atomic_store(&congruent->checksums[cpu], checksum());
    pthread_t stub, executor, main_server;
    pthread_attr_t attributes;
    EXPECT(pthread_create(&stub, NULL, paging_stub, NULL) == 0 && pthread_create(&executor, NULL, task_executor, NULL) == 0, "threads");
    /* There are no tasks before all who serve them are there. */
    while (atomic_load(&congruent->ready) < 2 * cpus)
        usleep(100);
    if (cpu != 0)
        for (;;)
            pause();
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, congruent->stack, sizeof congruent->stack);
    EXPECT(pthread_create(&main_server, &attributes, server, NULL) == 0, "the server");
    pthread_join(main_server, NULL);
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    congruent = mmap(NULL, sizeof *congruent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(congruent != MAP_FAILED && cpus <= CPUS_MAX, "%s", strerror(errno));
    pid_t roottasks[CPUS_MAX];
    for (int i = 0; i < cpus; i++) {
        roottasks[i] = fork();
        if (roottasks[i] == 0) {
            roottask(i);
            _exit(verdict_failed);
        }
    }
    int status;
    EXPECT(waitpid(roottasks[0], &status, 0) == roottasks[0] && status == 0, "the first roottask");
    for (int i = 0; i < cpus; i++) {
        uint64_t sum = atomic_load(&congruent->checksums[i]);
        printf("roottask of processor %d: numbers of its threads from %u, checksum of its pages %016lx\n", i,
               (uint32_t)atomic_load(&congruent->stubs[i]) & ~15u, (long)sum);
        EXPECT(sum != 0 && sum == atomic_load(&congruent->checksums[0]), "not congruent");
        if (i > 0) {
            kill(roottasks[i], SIGKILL);
            waitpid(roottasks[i], &status, 0);
        }
    }
    return verdict_failed | atomic_load(&congruent->wrong);
}
