/* Ten thousand sleeping processes, while four readers list /proc and look processes up, and others fork and end: every listing has each
 * of those that live all the time exactly once, in ascending order, and no fork waits for the readers.
 *
 * Arguments: sleeping processes, forks meanwhile.
 * abi: guest
 * abi: alone
 * abi: memory 1G
 * abi: limit 240
 * abi: args 1000 200
 * abi: long-args 10000 2000
 * abi: long-limit 1200
 * abi: long-cpus 1,4
 */
#include "guest.h"

enum { READERS = 4, MOST = 10000 };

static pid_t sleepers[MOST];
static int count;

/* What the readers tell. */
static struct shared {
    atomic_int stop;
    atomic_long listings, entries, missing, twice, disordered, look_ups, wrong;
    atomic_long longest_ns, shortest_ns;
} *shared;

struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t length;
    uint8_t kind;
    char name[];
};

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int by_number(const void *one, const void *other)
{
    return *(const pid_t *)one - *(const pid_t *)other;
}

/* One listing, read in pieces of so many bytes. */
static void list(size_t bytes)
{
    static char buffer[65536] __attribute__((aligned(8)));
    int fd = open("/proc", O_RDONLY | O_DIRECTORY), next = 0;
    long last = 0, got;
    long long start = now_ns();
    while ((got = syscall(SYS_getdents64, fd, buffer, bytes)) > 0)
        for (long at = 0; at < got;) {
            struct entry *entry = (struct entry *)(buffer + at);
            at += entry->length;
            long pid = atol(entry->name);
            if (pid == 0)
                continue;
            shared->entries++;
            shared->twice += pid == last;
            shared->disordered += pid < last;
            last = pid;
            for (; next < count && sleepers[next] < pid; next++)
                shared->missing++;
            next += next < count && sleepers[next] == pid;
        }
    shared->missing += count - next;
    shared->wrong += got < 0;
    long long took = now_ns() - start;
    if (took > shared->longest_ns)
        shared->longest_ns = took;
    if (!shared->shortest_ns || took < shared->shortest_ns)
        shared->shortest_ns = took;
    shared->listings++;
    close(fd);
}

static void read_and_look_up(int reader)
{
    static const size_t sizes[] = { 65536, 32768, 4096, 512 };
    unsigned seed = (unsigned)reader;
    pid_t group = getpgid(0), session = getsid(0);
    do {
        list(sizes[reader % 4]);
        for (int i = 0; i < 1000; i++) {
            pid_t pid = sleepers[rand_r(&seed) % (unsigned)count];
            int good = kill(pid, 0) == 0 && getpgid(pid) == group && getsid(pid) == session && sched_getscheduler(pid) == SCHED_OTHER;
            shared->wrong += !good;
            shared->look_ups++;
        }
    } while (!shared->stop);
    _exit(0);
}

/* Sleeping processes; returns what a fork took on average. */
static long long make_sleepers(int wanted)
{
    long long start = now_ns();
    for (count = 0; count < wanted; count++) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        if (child < 0) {
            printf("process %d: %s\n", count, ERRNO_NAME(errno));
            break;
        }
        sleepers[count] = child;
    }
    long long took = now_ns() - start;
    qsort(sleepers, (size_t)count, sizeof *sleepers, by_number);
    return took / (count ? count : 1);
}

/* Forks under the readers, as many as told and until each reader has had two turns; returns the longest fork, of which another thread may
 * have had a part if this one shares the processor as an ordinary thread. */
static long long fork_and_reap(int forks, int *failed)
{
    long long longest = 0;
    long before = shared->listings;
    for (int i = 0; i < forks || shared->listings < before + 2 * READERS; i++) {
        long long then = now_ns();
        pid_t child = fork();
        if (child == 0)
            _exit(i & 127);
        long long took = now_ns() - then;
        if (took > longest)
            longest = took;
        int status;
        *failed += child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != (i & 127);
    }
    return longest;
}

static void end_sleepers(void)
{
    for (int i = 0; i < count; i++)
        kill(sleepers[i], SIGKILL);
    for (int i = 0; i < count; i++)
        waitpid(sleepers[i], NULL, 0);
    int found = 0;
    for (int i = 0; i < count; i++)
        found += kill(sleepers[i], 0) == 0;
    EXPECT(found == 0, "%d numbers still mean somebody", found);
}

int main(int argc, char **argv)
{
    int wanted = argc > 1 ? atoi(argv[1]) : MOST, forks = argc > 2 ? atoi(argv[2]) : 2000;
    long before = free_kib();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_NPROC, &limit);

    progress("process_table: %d sleepers", wanted);
    long long each = make_sleepers(wanted > MOST ? MOST : wanted);
    EXPECT(count == wanted, "only %d processes", count);
    list(65536);
    printf("%d processes, %lld ns each to make; alone, a listing takes %ld ns an entry\n", count, each,
           shared->longest_ns / (count ? count : 1));
    fflush(stdout);

    progress("process_table: readers");
    pid_t readers[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = fork();
        if (readers[i] == 0)
            read_and_look_up(i);
    }
    int failed = 0;
    long long start = now_ns(), ordinary = fork_and_reap(forks, &failed);
    /* First in the queue of its processor it waits for nothing but locks, and sections that can't be preempted. Its children are ordinary. */
    struct sched_param first = { .sched_priority = 1 };
    EXPECT(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0, "%s", ERRNO_NAME(errno));
    long long real_time = fork_and_reap(forks, &failed), all = now_ns() - start;
    shared->stop = 1;
    for (int i = 0; i < READERS; i++)
        waitpid(readers[i], NULL, 0);
    printf("%ld listings of %ld entries and %ld look-ups by %d readers in %lld ns\n", shared->listings, shared->entries,
           shared->look_ups, READERS, all);
    printf("meanwhile a fork took up to %lld ns; up to %lld ns of a real-time thread\n", ordinary, real_time);
    EXPECT(failed == 0, "%d forks meanwhile", failed);
    EXPECT(shared->missing == 0, "%ld were missing", shared->missing);
    EXPECT(shared->twice == 0, "%ld were there twice", shared->twice);
    EXPECT(shared->disordered == 0, "%ld not in order", shared->disordered);
    EXPECT(shared->wrong == 0, "%ld look-ups were wrong", shared->wrong);

    progress("process_table: end");
    end_sleepers();
    EXPECT(memory_is_back("after the processes", before), "memory");
    return verdict_failed;
}
