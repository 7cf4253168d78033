/* `record`: starts a command whose threads are traced, and writes their records to a file until it has ended.
 *
 * It is the command's parent, and becomes the parent of whoever has lost its own. Two threads: the writer takes records out of the buffer and may wait for
 * the file; the watchdog waits for children, passes signals on, and stops the application when its threads have found no room for too long.
 *
 * `record level LEVEL` in a traced command changes what is recorded from now on.
 *
 * The file: `header` below, the table of events as text, then records as they are in the buffer. Holes and records that were never finished may be
 * between them, and nothing need be at the end: it may be cut off anywhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "options.h"
#include "writer.h"

enum { OURS = 125, NOT_EXECUTABLE = 126, NOT_FOUND = 127, TICK_MS = 100, ENDS_MAX = 4096, PATH_ROOM = 4096 };

struct header {
    char magic[8];
    uint32_t bytes, table_bytes;
    uint64_t time, monotonic_ns, realtime_ns;
};

static const char TABLE[] =
#define EVENT(name, class, kind, parameters, phrase) #name "\t" #class "\t" #kind "\t" parameters "\t" phrase "\n"
#define CALL(name, class, function, parameters)                                                                        \
    #name "_IN\t" #class "\tIO\t" parameters "\tenters function " #function "\n" #name "_OUT\t" #class                 \
          "\tIO\td\tleaves function " #function "\n"
#include "events.h"
#undef EVENT
#undef CALL
    ;

static struct options options;
static struct ring *ring;
static _Atomic bool application_ended;

/* What children ended with: the watchdog adds, the writer tells. */
static struct {
    pthread_mutex_t lock;
    int count;
    struct {
        pid_t process;
        int status;
        uint64_t time;
    } end[ENDS_MAX];
} ends = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "record: %s: %s\n", what, strerror(errno));
    _exit(OURS);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- The file ---- */

static int file = -1;
static uint64_t in_file, in_all;

static void write_all(const void *bytes, size_t count)
{
    for (const char *at = bytes; count;) {
        ssize_t written = write(file, at, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            /* The application goes on without being traced. */
            fprintf(stderr, "record: %s: %s; the trace ends here\n", options.file, strerror(errno));
            atomic_store(&ring->level, 0);
            int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
            dup2(null, file);
            close(null);
            return;
        }
        at += written;
        count -= (size_t)written;
        in_file += (uint64_t)written;
    }
}

static void begin_file(void)
{
    file = open(options.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        fail(options.file);
    uint32_t table = (sizeof TABLE + 3) & ~3u;
    struct header header = { "PTTRACE1", sizeof header, table, time_stamp(), clock_ns(CLOCK_MONOTONIC),
                             clock_ns(CLOCK_REALTIME) };
    static char padded[sizeof TABLE + 3];
    memcpy(padded, TABLE, sizeof TABLE);
    in_file = 0;
    write_all(&header, sizeof header);
    write_all(padded, table);
}

/* A record of our own, straight into the file. */
static void write_own(enum event event, uint64_t time, const uint32_t *parameters, uint32_t count)
{
    uint32_t words[WORDS_BEFORE_PARAMETERS + 4];
    words[WORD_HEADER] = header_word(WHOLE, WORDS_BEFORE_PARAMETERS + count, event);
    words[WORD_THREAD] = words[WORD_PROCESS] = (uint32_t)getpid();
    words[WORD_TIME] = (uint32_t)time;
    words[WORD_TIME + 1] = (uint32_t)(time >> 32);
    memcpy(words + WORDS_BEFORE_PARAMETERS, parameters, 4 * count);
    write_all(words, 4 * (WORDS_BEFORE_PARAMETERS + count));
}

static void write_number(enum event event, uint64_t time, uint64_t number)
{
    const uint32_t halves[] = { (uint32_t)number, (uint32_t)(number >> 32) };
    write_own(event, time, halves, 2);
}

/* What a tick of the time stamps lasts is known from these, also if the file is cut off. */
static void write_clock(void)
{
    static uint64_t last;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (now - last > TICK_MS * 1000000ull) {
        write_number(CLOCK, time_stamp(), now);
        last = now;
    }
}

static void write_ends(void)
{
    pthread_mutex_lock(&ends.lock);
    for (int i = 0; i < ends.count; i++) {
        const uint32_t parameters[] = { (uint32_t)ends.end[i].process, (uint32_t)ends.end[i].status };
        write_own(PROCESS_ENDED, ends.end[i].time, parameters, 2);
    }
    ends.count = 0;
    pthread_mutex_unlock(&ends.lock);
}

/* Of a trace of which only the last part is wanted the file before this one is kept, and none before that. */
static void turn_over(void)
{
    if (!options.last || in_file < options.last / 8 * 3)
        return;
    char before[PATH_ROOM];
    snprintf(before, sizeof before, "%s.before", options.file);
    close(file);
    if (rename(options.file, before))
        fail(before);
    begin_file();
}

/* ---- Taking records ---- */

/* Where the whole records from `begin` on end. */
static uint64_t end_of_whole(uint64_t begin, uint64_t limit)
{
    while (begin < limit) {
        uint32_t header = atomic_load_explicit(word_at(ring, begin), memory_order_acquire);
        if (header >> 24 != WHOLE)
            break;
        begin += 4 * (header >> 16 & 0xff);
    }
    return begin;
}

/* Where the hole at `begin` ends: a record that was begun, or what was never begun. Nobody is in it any more. */
static uint64_t end_of_hole(uint64_t begin, uint64_t end)
{
    uint32_t header = atomic_load(word_at(ring, begin));
    if (header >> 24 == BEGUN && (header >> 16 & 0xff) >= WORDS_BEFORE_PARAMETERS && begin + 4 * (header >> 16 & 0xff) <= end)
        return begin + 4 * (header >> 16 & 0xff);
    do
        begin += 4;
    while (begin < end && (header = atomic_load(word_at(ring, begin)), header >> 24 != WHOLE && header >> 24 != BEGUN));
    return begin;
}

static void give_back(uint64_t begin, uint64_t end)
{
    memset(buffer_of(ring) + (begin & (ring->capacity - 1)), 0, end - begin);
    /* Release: who writes there next does so after it is zero. */
    atomic_store(&ring->taken, end);
    if (atomic_load(&ring->waiting)) {
        atomic_fetch_add(&ring->room, 1);
        raw_futex(&ring->room, FUTEX_WAKE, 1 << 30, NULL);
    }
}

/* Up to where there may be records: behind a buffer's length are those that wait for room, whose places are still those of others. */
static uint64_t end_of_written(uint64_t begin)
{
    uint64_t end = atomic_load(&ring->reserved);
    return end < begin + ring->capacity ? end : begin + ring->capacity;
}

/* Takes what is whole; returns whether there was anything. */
static bool take(void)
{
    uint64_t begin = atomic_load(&ring->taken), limit = end_of_written(begin);
    /* Of a trace of which the last part is kept no more at once than an eighth of it. */
    if (options.last && limit > begin + options.last / 8 + 4 * WORDS_MAX)
        limit = begin + options.last / 8 + 4 * WORDS_MAX;
    uint64_t end = end_of_whole(begin, limit);
    if (end == begin)
        return false;
    turn_over();
    write_all(buffer_of(ring) + (begin & (ring->capacity - 1)), end - begin);
    in_all += end - begin;
    give_back(begin, end);
    write_clock();
    if (options.limit && in_all >= options.limit && atomic_exchange(&ring->level, 0))
        fprintf(stderr, "record: the trace has %llu bytes and ends here\n", (unsigned long long)in_all);
    return true;
}

/* A thread that was to write there is dead, or has stood still for too long. */
static void skip_hole(void)
{
    uint64_t begin = atomic_load(&ring->taken), end = end_of_hole(begin, end_of_written(begin));
    fprintf(stderr, "record: %llu bytes of records were never written\n", (unsigned long long)(end - begin));
    write_number(LOST, time_stamp(), end - begin);
    give_back(begin, end);
}

static void *writes(void *unused)
{
    (void)unused;
    uint64_t since = clock_ns(CLOCK_MONOTONIC);
    const struct timespec tick = { 0, TICK_MS * 1000000 };
    for (;;) {
        uint32_t bell = atomic_load(&ring->bell);
        bool ended = atomic_load(&application_ended);
        if (take()) {
            since = clock_ns(CLOCK_MONOTONIC);
            continue;
        }
        write_ends();
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        bool hole = atomic_load(&ring->taken) < atomic_load(&ring->reserved);
        /* When all have ended nobody will write there. Who has outlived the command goes on untraced. */
        if (hole && (ended || now - since > options.timeout_ms * 1000000ull)) {
            skip_hole();
            since = now;
        } else if (ended) {
            break;
        } else {
            if (!hole)
                since = now;
            raw_futex(&ring->bell, FUTEX_WAIT, bell, &tick);
        }
    }
    write_number(CLOCK, time_stamp(), clock_ns(CLOCK_MONOTONIC));
    if (close(file))
        fail(options.file);
    return NULL;
}

/* ---- The application ---- */

static struct ring *make_ring(int *descriptor)
{
    *descriptor = memfd_create("threads", MFD_CLOEXEC);
    if (*descriptor < 0 || ftruncate(*descriptor, (off_t)(RING_PAGE + options.size)))
        fail("the buffer");
    /* Whoever the application runs as. */
    fchmod(*descriptor, 0666);
    char *whole = mmap(NULL, RING_PAGE + 2 * options.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;
    if (whole == MAP_FAILED ||
        mmap(whole, RING_PAGE + options.size, access, how, *descriptor, 0) == MAP_FAILED ||
        mmap(whole + RING_PAGE + options.size, options.size, access, how, *descriptor, RING_PAGE) == MAP_FAILED)
        fail("the buffer");
    struct ring *made = (struct ring *)(void *)whole;
    made->magic = RING_MAGIC;
    made->capacity = options.size;
    made->reader = getpid();
    atomic_store(&made->level, options.level);
    return made;
}

static void prepend(const char *name, const char *value)
{
    const char *old = getenv(name);
    char *both;
    if (asprintf(&both, old && *old ? "%s:%s" : "%s", value, old) < 0)
        fail(name);
    setenv(name, both, 1);
    free(both);
}

static pid_t start(int buffer, const sigset_t *signals)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), buffer);
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child > 0)
        return child;
    setenv(RING_VARIABLE, path, 1);
    prepend("LD_PRELOAD", options.library);
    sigprocmask(SIG_SETMASK, signals, NULL);
    execvp(options.command[0], options.command);
    fprintf(stderr, "record: %s: %s\n", options.command[0], strerror(errno));
    _exit(errno == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}

/* Who has this one for a parent, or had a parent that is killed by now. */
static int kill_children(void)
{
    int killed = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    FILE *children = fopen(path, "r");
    for (int child; children && fscanf(children, "%d", &child) == 1;)
        killed += kill(child, SIGKILL) == 0;
    if (children)
        fclose(children);
    return killed;
}

static void stop_application(pid_t child)
{
    fprintf(stderr, "record: the buffer is full and %s takes no more: %u threads stand still. The application is stopped, and what they "
                    "were to tell is lost\n",
            options.file, atomic_load(&ring->waiting));
    kill(child, SIGKILL);
    while (waitpid(-1, NULL, kill_children() ? 0 : WNOHANG) > 0)
        ;
    _exit(OURS);
}

static void note_end(pid_t process, int status)
{
    pthread_mutex_lock(&ends.lock);
    if (ends.count < ENDS_MAX) {
        ends.end[ends.count].process = process;
        ends.end[ends.count].status = status;
        ends.end[ends.count++].time = time_stamp();
    }
    pthread_mutex_unlock(&ends.lock);
}

/* Until the child has ended; returns what it ended with. */
static int watch(pid_t child, const sigset_t *handled)
{
    const struct timespec tick = { 0, TICK_MS * 1000000 };
    uint64_t taken = 0, since = clock_ns(CLOCK_MONOTONIC);
    for (;;) {
        int number = sigtimedwait(handled, NULL, &tick);
        if (number > 0 && number != SIGCHLD)
            kill(child, number);
        int status;
        for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
            note_end(process, status);
            if (process == child)
                return status;
        }
        uint64_t now = clock_ns(CLOCK_MONOTONIC), progress = atomic_load(&ring->taken);
        if (progress != taken || !atomic_load(&ring->waiting)) {
            taken = progress;
            since = now;
        } else if (now - since > options.timeout_ms * 1000000ull) {
            stop_application(child);
        }
    }
}

static int change_level(const char *words)
{
    uint32_t level;
    const char *path = getenv(RING_VARIABLE);
    int buffer = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (!read_level(words, &level))
        errno = EINVAL;
    else if (buffer >= 0) {
        struct ring *words_of_ring = mmap(NULL, RING_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, buffer, 0);
        if (words_of_ring != MAP_FAILED) {
            atomic_store(&words_of_ring->level, level);
            return 0;
        }
    }
    fail("level");
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "level") == 0)
        return change_level(words[2]);
    options = read_options(count, words);
    static const int passed_on[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD };
    sigset_t handled, before;
    sigemptyset(&handled);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(&handled, passed_on[i]);
    sigset_t blocked = handled;
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int buffer;
    ring = make_ring(&buffer);
    begin_file();
    pid_t child = start(buffer, &before);
    pthread_t writer;
    if ((errno = pthread_create(&writer, NULL, writes, NULL)))
        fail("a thread");
    int status = watch(child, &handled);
    atomic_store(&ring->level, 0);
    atomic_store(&application_ended, true);
    ring_the_bell(ring);
    pthread_join(writer, NULL);
    bool was_executed = !WIFEXITED(status) || (WEXITSTATUS(status) != NOT_FOUND && WEXITSTATUS(status) != NOT_EXECUTABLE);
    if (was_executed && !atomic_load(&ring->programs))
        fprintf(stderr,
                "record: nothing was recorded: no program of this command has loaded the library that tells what its threads do. "
                "Those that are linked statically, or have privileges of their own, do not\n");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
