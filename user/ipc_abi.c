/* Messages between threads as programs see them: bad arguments, who may send to whom, partners that die in every state, and a client and a
 * server in processes of their own, on the same and on other processors, whose answers with time-out zero never fail.
 *
 * abi: guest
 * abi: cpus 1,2,4
 * abi: limit 150
 * abi: args 3000
 * abi: long-args 100000
 * abi: long-limit 900
 */
#include "guest.h"
#include "ipc/include/starling_ipc.h"
#include <sched.h>

enum { USEC = 1, MSEC = 1000 };

/* What processes tell each other, in memory that they share. */
struct shared {
    _Atomic ipc_id ids[8];
    _Atomic long results[8];
    _Atomic int turn;
};
static struct shared *shared;
static int cpus;

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % cpus, &set);
    EXPECT(sched_setaffinity(0, sizeof set, &set) == 0, "%s", strerror(errno));
}

static ipc_id await_id(int who)
{
    ipc_id id;
    while ((id = atomic_load(&shared->ids[who])) == 0)
        usleep(100);
    return id;
}

static void forget(void)
{
    memset(shared, 0, sizeof *shared);
}

/* Sleeps in an operation. */
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

static long send_to(ipc_id id, ipc_timeout timeout)
{
    struct ipc_message message = { .partner = id, .words = { 1, 2, 3 } };
    return ipc_send(&message, timeout);
}

static long receive_from(ipc_id id, ipc_timeout timeout)
{
    struct ipc_message message = { .partner = id };
    return ipc_receive(&message, timeout);
}

static void bad_arguments(void)
{
    int64_t self = ipc_self(0);
    EXPECT(self > 0 && ipc_self(0) == self, "%ld", (long)self);
    EXPECT(ipc_self(4) == -EINVAL && ipc_self(~0u) == -EINVAL, "flags");
    static const uint64_t operations[] = { 0, 4, 5, 8, 16, 1ull << 32 | 1, ~0ull };
    for (unsigned i = 0; i < sizeof operations / sizeof *operations; i++) {
        struct ipc_message message = { .partner = (ipc_id)self };
        EXPECT(ipc_operate(&message, operations[i], IPC_ZERO, IPC_ZERO) == -EINVAL, "%#lx", (long)operations[i]);
    }
    static const ipc_timeout absurd[] = { 0x80000000u, 0x80000001u, 0xc0000000u, 0xfffffffeu };
    for (unsigned i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        EXPECT(send_to(1ull << 32 | 1, absurd[i]) == -EINVAL, "%#x", absurd[i]);
        EXPECT(receive_from(1ull << 32 | 1, absurd[i]) == -EINVAL, "%#x", absurd[i]);
    }
    ipc_id own = (ipc_id)self;
    const ipc_id dead[] = { 0, 1, 5ull << 32, 0xffffffff, ~0ull >> 1, own + (1ull << 32), own ^ 1ull << 62, own + 20000, ~0ull };
    for (unsigned i = 0; i < sizeof dead / sizeof *dead; i++) {
        struct ipc_message message = { .partner = dead[i] };
        EXPECT(send_to(dead[i], IPC_NEVER) == IPC_ENOT_EXISTENT, "%#lx", (long)dead[i]);
        EXPECT(ipc_call(&message, IPC_NEVER, IPC_NEVER) == IPC_ENOT_EXISTENT, "%#lx", (long)dead[i]);
        EXPECT(receive_from(dead[i], IPC_NEVER) == IPC_ENOT_EXISTENT, "%#lx", (long)dead[i]);
        EXPECT(ipc_cancel(dead[i]) == -ESRCH && ipc_cpu(dead[i]) == -ESRCH, "%#lx", (long)dead[i]);
    }
    EXPECT(send_to(own, IPC_NEVER) == -EDEADLK && receive_from(own, IPC_NEVER) == -EDEADLK, "own id");
    EXPECT(ipc_cancel(own) == -EDEADLK, "own id");
    EXPECT(ipc_cpu(own) >= 0 && ipc_cpu(own) < cpus, "%ld", ipc_cpu(own));
    struct ipc_message message = { 0 };
    EXPECT(ipc_wait(&message, IPC_ZERO) == IPC_RETIMEOUT, "nobody");
    EXPECT(ipc_wait(&message, 500 * USEC) == IPC_RETIMEOUT, "nobody");
    EXPECT(syscall(4111) == -1 && errno == ENOSYS, "no such call");
    /* The number does not outlive the program, nor go to the child. */
    pid_t child = CHILD(_exit(ipc_self(0) == self));
    EXPECT(status_of(child) == 0, "a child has the number of its parent");
}

/* A server that answers with time-out zero, in a process of its own. */
static pid_t start_server(int cpu, int who, int rounds)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    pin(cpu);
    atomic_store(&shared->ids[who], (ipc_id)ipc_self(0));
    struct ipc_message message = { 0 };
    long result = ipc_wait(&message, IPC_NEVER), failures = 0;
    for (int round = 0; round < rounds; round++) {
        failures += IPC_FAILED(result);
        message.words[0] ^= ~0ull;
        result = round < rounds - 1 ? ipc_reply_and_wait(&message, IPC_ZERO, IPC_NEVER) : ipc_send(&message, IPC_ZERO);
    }
    failures += IPC_FAILED(result);
    atomic_store(&shared->results[who], failures);
    _exit(failures != 0);
}

static void calls(int rounds)
{
    /* One client here, one there, so that an open receive gets messages from both sides in turn. */
    for (int there = 0; there < 2; there++) {
        forget();
        pid_t server = start_server(there, 0, 2 * rounds);
        ipc_id id = await_id(0);
        pid_t clients[2];
        for (int cpu = 0; cpu < 2; cpu++) {
            clients[cpu] = fork();
            if (clients[cpu] == 0) {
                pin(cpu);
                long wrong = 0;
                for (int round = 0; round < rounds; round++) {
                    struct ipc_message message = { .partner = id, .words = { (uint64_t)round, 0x1234567890abcdef, (uint64_t)-round } };
                    long result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
                    wrong += IPC_FAILED(result) || message.partner != id || message.words[0] != ~(uint64_t)round
                             || message.words[1] != 0x1234567890abcdef || message.words[2] != (uint64_t)-round;
                }
                _exit(wrong != 0);
            }
        }
        EXPECT(status_of(clients[0]) == 0 && status_of(clients[1]) == 0, "a client's call");
        EXPECT(status_of(server) == 0, "%ld answers failed", atomic_load(&shared->results[0]));
    }
}

/* A process that does one operation and tells what came of it. */
static pid_t start_operation(int cpu, int who, ipc_id partner, uint64_t what, ipc_timeout send, ipc_timeout receive)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    pin(cpu);
    atomic_store(&shared->ids[who], (ipc_id)ipc_self(0));
    struct ipc_message message = { .partner = partner, .words = { 5, 6, 7 } };
    atomic_store(&shared->results[who], ipc_operate(&message, what, send, receive) | 0x10000);
    _exit(0);
}

static long result_of(int who)
{
    long result;
    while ((result = atomic_load(&shared->results[who])) == 0)
        usleep(100);
    return result & ~0x10000 & ~(long)IPC_REMOTE;
}

static void on_signal(int number)
{
    (void)number;
}

static void ends(void)
{
    ipc_id self = (ipc_id)ipc_self(0);
    for (int cpu = 0; cpu < 2; cpu++) {
        /* The victim waits to send, waits for a message, waits for an answer: killed, cancelled, interrupted. */
        for (int how = 0; how < 3; how++)
            for (int state = 0; state < 2; state++) {
                forget();
                struct sigaction action = { .sa_handler = on_signal };
                sigaction(SIGUSR1, &action, NULL);
                pid_t child = start_operation(cpu, 0, self, state ? IPC_DO_SEND : IPC_DO_RECEIVE, IPC_NEVER, IPC_NEVER);
                ipc_id id = await_id(0);
                await_sleep(child);
                if (how == 0) {
                    kill(child, SIGKILL);
                    EXPECT(WIFSIGNALED(status_of(child)), "killed");
                    EXPECT(receive_from(id, IPC_ZERO) == IPC_ENOT_EXISTENT, "a killed sender is not queued");
                    EXPECT(send_to(id, IPC_ZERO) == IPC_ENOT_EXISTENT, "a killed receiver does not receive");
                    continue;
                }
                if (how == 1)
                    EXPECT(ipc_cancel(id) == 1, "it was in an operation");
                else
                    kill(child, SIGUSR1);
                long expected = state ? IPC_SECANCELED : IPC_RECANCELED;
                EXPECT(result_of(0) == expected, "state %d, how %d: %#lx", state, how, result_of(0));
                EXPECT(status_of(child) == 0, "it went on");
            }
        /* A partner that is killed while others wait for it: to receive, and to answer. */
        forget();
        pid_t victim = fork();
        if (victim == 0) {
            pin(cpu);
            atomic_store(&shared->ids[0], (ipc_id)ipc_self(0));
            struct ipc_message message = { 0 };
            while (atomic_load(&shared->turn) == 0)
                usleep(100);
            ipc_wait(&message, IPC_NEVER);
            atomic_store(&shared->turn, 2);
            for (;;)
                pause();
        }
        ipc_id id = await_id(0);
        pid_t waiting[4];
        for (int i = 0; i < 4; i++) {
            waiting[i] = start_operation(i, 1 + i, id, IPC_DO_SEND | IPC_DO_RECEIVE, IPC_NEVER, IPC_NEVER);
            await_id(1 + i);
            await_sleep(waiting[i]);
        }
        atomic_store(&shared->turn, 1);
        while (atomic_load(&shared->turn) != 2)
            usleep(100);
        kill(victim, SIGKILL);
        status_of(victim);
        int unheard = 0, aborted = 0;
        for (int i = 0; i < 4; i++) {
            unheard += result_of(1 + i) == IPC_ENOT_EXISTENT;
            aborted += result_of(1 + i) == IPC_REABORTED;
            status_of(waiting[i]);
        }
        EXPECT(unheard == 3 && aborted == 1, "%d not existent, %d aborted", unheard, aborted);
        /* Another program is another partner. */
        forget();
        pid_t other = fork();
        if (other == 0) {
            atomic_store(&shared->ids[0], (ipc_id)ipc_self(0));
            while (atomic_load(&shared->turn) == 0)
                usleep(100);
            execl("/bin/busybox", "true", NULL);
            execl("/proc/self/exe", "ipc_abi", "exit", NULL);
            _exit(0);
        }
        id = await_id(0);
        pid_t caller = start_operation(cpu, 1, id, IPC_DO_SEND, IPC_NEVER, IPC_NEVER);
        await_id(1);
        await_sleep(caller);
        atomic_store(&shared->turn, 1);
        EXPECT(result_of(1) == IPC_ENOT_EXISTENT, "%#lx", result_of(1));
        status_of(other);
        status_of(caller);
    }
}

/* Every state of Figure 10 in which a thread waits: what it does to come there, and whether its partner hears it. What it gets when its
 * partner is killed, when it is cancelled, signalled, or late. */
enum { SEND = IPC_DO_SEND, RECEIVE = IPC_DO_RECEIVE, OPEN = IPC_DO_RECEIVE | IPC_FROM_ANYBODY, UNNOTICED = -1 };
enum event { PARTNER_KILLED, CANCELLED, SIGNALLED, LATE, KILLED, EVENTS };
static const struct state {
    const char *name;
    uint64_t what;
    int heard;
    long results[KILLED];
} states[] = {
    { "sending", SEND, 0, { IPC_ENOT_EXISTENT, IPC_SECANCELED, IPC_SECANCELED, IPC_SETIMEOUT } },
    { "calling", SEND | RECEIVE, 0, { IPC_ENOT_EXISTENT, IPC_SECANCELED, IPC_SECANCELED, IPC_SETIMEOUT } },
    { "replying", SEND | OPEN, 0, { IPC_ENOT_EXISTENT, IPC_SECANCELED, IPC_SECANCELED, IPC_SETIMEOUT } },
    { "awaiting the answer", SEND | RECEIVE, 1, { IPC_REABORTED, IPC_RECANCELED, IPC_RECANCELED, IPC_RETIMEOUT } },
    { "receiving", RECEIVE, 0, { IPC_REABORTED, IPC_RECANCELED, IPC_RECANCELED, IPC_RETIMEOUT } },
    { "having replied", SEND | OPEN, 1, { UNNOTICED, IPC_RECANCELED, IPC_RECANCELED, IPC_RETIMEOUT } },
    { "open", OPEN, 0, { UNNOTICED, IPC_RECANCELED, IPC_RECANCELED, IPC_RETIMEOUT } },
};

/* Bad input that a thread in a state must not notice. */
static void disturb(const struct state *state, ipc_id id)
{
    static const ipc_timeout absurd[] = { 0x80000000u, 0xfffffffeu };
    for (unsigned i = 0; i < sizeof absurd / sizeof *absurd; i++)
        EXPECT(send_to(id, absurd[i]) == -EINVAL, "%s: %#x", state->name, absurd[i]);
    struct ipc_message message = { .partner = id };
    EXPECT(ipc_operate(&message, 0x40, IPC_NEVER, IPC_NEVER) == -EINVAL, "%s: flags", state->name);
    const ipc_id wrong[] = { id + (1ull << 32), id ^ 1ull << 62, id & 0xffffffff };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        EXPECT(send_to(wrong[i], IPC_NEVER) == IPC_ENOT_EXISTENT, "%s: %#lx", state->name, (long)wrong[i]);
        EXPECT(ipc_cancel(wrong[i]) == -ESRCH, "%s: %#lx", state->name, (long)wrong[i]);
    }
    if (!(state->what & IPC_FROM_ANYBODY) || !(state->heard || state->what == OPEN))
        EXPECT((send_to(id, IPC_ZERO) & ~IPC_REMOTE) == IPC_SETIMEOUT, "%s: a third one's send", state->name);
    EXPECT(receive_from(id, IPC_ZERO) == IPC_RETIMEOUT, "%s: from it", state->name);
}

static void event_in(const struct state *state, enum event event, int cpu)
{
    forget();
    pid_t partner = fork();
    if (partner == 0) {
        pin(1);
        atomic_store(&shared->ids[1], (ipc_id)ipc_self(0));
        struct ipc_message message = { 0 };
        if (state->heard)
            EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "%s", state->name);
        atomic_store(&shared->turn, 1);
        for (;;)
            pause();
    }
    ipc_timeout patience = event == LATE ? 300 * USEC : IPC_NEVER;
    ipc_id partner_id = await_id(1);
    pid_t subject = start_operation(cpu, 0, partner_id, state->what, state->heard ? IPC_NEVER : patience, patience);
    ipc_id id = await_id(0);
    while (atomic_load(&shared->turn) == 0)
        usleep(100);
    if (event != LATE) {
        await_sleep(subject);
        disturb(state, id);
    }
    if (event == PARTNER_KILLED) {
        kill(partner, SIGKILL);
        EXPECT(WIFSIGNALED(status_of(partner)), "killed");
        EXPECT(send_to(partner_id, IPC_NEVER) == IPC_ENOT_EXISTENT, "a killed partner");
    }
    if (event == SIGNALLED)
        kill(subject, SIGUSR1);
    long expected = event == KILLED ? UNNOTICED : state->results[event];
    if (event == CANCELLED || (event != KILLED && expected == UNNOTICED))
        EXPECT(ipc_cancel(id) == 1, "%s: it waits", state->name);
    if (expected == UNNOTICED)
        expected = IPC_RECANCELED;
    if (event == KILLED) {
        kill(subject, SIGKILL);
        EXPECT(WIFSIGNALED(status_of(subject)), "killed");
        EXPECT(ipc_cancel(id) == -ESRCH && send_to(id, IPC_NEVER) == IPC_ENOT_EXISTENT, "%s: it is gone", state->name);
    } else {
        EXPECT(result_of(0) == expected, "%s, event %d on processor %d: %#lx", state->name, event, cpu, result_of(0));
        EXPECT(status_of(subject) == 0, "%s: it goes on", state->name);
    }
    if (event != PARTNER_KILLED) {
        EXPECT((send_to(partner_id, IPC_ZERO) & ~IPC_REMOTE) == IPC_SETIMEOUT, "%s: its partner goes on", state->name);
        kill(partner, SIGKILL);
        status_of(partner);
    }
}

static void each_state(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    for (int cpu = 0; cpu < 2 && cpu < cpus; cpu++)
        for (unsigned state = 0; state < sizeof states / sizeof *states; state++)
            for (int event = 0; event < EVENTS; event++)
                event_in(&states[state], (enum event)event, cpu);
}

static void strangers(void)
{
    forget();
    ipc_id self = (ipc_id)ipc_self(0);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(setresuid(65534, 65534, 65534) == 0, "%s", strerror(errno));
        atomic_store(&shared->ids[0], (ipc_id)ipc_self(0));
        EXPECT(send_to(self, IPC_ZERO) == -EPERM, "a stranger");
        EXPECT(ipc_cancel(self) == -EPERM, "a stranger");
        atomic_store(&shared->turn, 1);
        while (atomic_load(&shared->turn) != 2)
            usleep(100);
        struct ipc_message message = { .partner = self };
        EXPECT(!IPC_FAILED(ipc_call(&message, IPC_NEVER, IPC_NEVER)), "open to all");
        _exit(verdict_failed);
    }
    while (atomic_load(&shared->turn) != 1)
        usleep(100);
    EXPECT(ipc_self(IPC_OPEN_TO_ALL) == (int64_t)self, "the number stays");
    atomic_store(&shared->turn, 2);
    struct ipc_message message = { 0 };
    EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "from a stranger");
    EXPECT(message.partner == atomic_load(&shared->ids[0]), "%#lx", (long)message.partner);
    EXPECT(!IPC_FAILED(ipc_send(&message, IPC_ZERO)), "an answer with time-out zero");
    EXPECT(status_of(child) == 0, "the stranger");
}

/* Rules of the partitioned model: threads stay, numbers come from the processor's range, and only messages go across. */
static void partitions(void)
{
    for (int cpu = 0; cpu < 2 && cpu < cpus; cpu++) {
        forget();
        pid_t child = fork();
        if (child == 0) {
            pin(cpu);
            int64_t id = ipc_self(IPC_PARTITIONED);
            atomic_store(&shared->ids[0], (ipc_id)id);
            unsigned share = 32768 / (unsigned)cpus / 16 * 16;
            EXPECT((uint32_t)id / share == (unsigned)cpu, "number %u on processor %d", (uint32_t)id, cpu);
            EXPECT(ipc_self(IPC_PARTITIONED) == id, "it stays");
            cpu_set_t other;
            CPU_ZERO(&other);
            CPU_SET((cpu + 1) % cpus, &other);
            if (cpus > 1)
                EXPECT(sched_setaffinity(0, sizeof other, &other) == -1 && errno == EXDEV, "%s", strerror(errno));
            struct ipc_message message = { 0 };
            EXPECT(!IPC_FAILED(ipc_wait(&message, IPC_NEVER)), "a message from elsewhere");
            EXPECT(sched_getcpu() == cpu, "on %d", sched_getcpu());
            EXPECT(!IPC_FAILED(ipc_send(&message, IPC_ZERO)), "its answer");
            _exit(verdict_failed);
        }
        ipc_id id = await_id(0);
        await_sleep(child);
        pin(cpu + 1);
        if (cpus > 1)
            EXPECT(ipc_cancel(id) == -EXDEV, "%ld", ipc_cancel(id));
        struct ipc_message message = { .partner = id };
        long result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
        EXPECT(result == (cpus > 1 ? IPC_REMOTE : 0), "%#lx", result);
        EXPECT(status_of(child) == 0, "the partitioned process");
    }
    EXPECT(ipc_self(IPC_PARTITIONED) == -EBUSY, "it has a number already");
}

int main(int count, char **words)
{
    if (count > 1 && strcmp(words[1], "exit") == 0)
        return 0;
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    bad_arguments();
    progress("calls");
    calls(count > 1 ? atoi(words[1]) : 1000);
    progress("ends");
    ends();
    progress("each state");
    each_state();
    progress("strangers");
    strangers();
    progress("partitions");
    partitions();
    printf("%s", contents_of("/proc/starling/ipc"));
    return verdict_failed;
}
