/* Submission rings in the hands of a program that means harm: chains of rings, more entries than there are, buffers without end, polls that make themselves
 * ready, messages to a ring that nobody reads; each of them leaves a kernel that goes on and a program that can be killed. And workers are counted in
 * their control group.
 *
 * abi: guest
 * abi: limit 120
 */
#include "control_groups.h"
#include <linux/io_uring.h>
#include <pthread.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { RINGS = 300, THREADS = 20, VECTORS = 16384, MESSAGES = 70000 };

struct ring {
    int fd;
    struct io_uring_params p;
    char *words;
    size_t bytes;
    struct io_uring_sqe *entries;
};

static unsigned *word(struct ring *ring, unsigned at) { return (unsigned *)(ring->words + at); }

static struct ring ring_of(unsigned entries)
{
    struct ring ring = { 0 };
    ring.fd = syscall(SYS_io_uring_setup, entries, &ring.p);
    size_t submissions = ring.p.sq_off.array + ring.p.sq_entries * sizeof(unsigned), completions = ring.p.cq_off.cqes + ring.p.cq_entries * 16;
    ring.bytes = submissions > completions ? submissions : completions;
    ring.words = mmap(NULL, ring.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    ring.entries = mmap(NULL, ring.p.sq_entries * sizeof *ring.entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    if (ring.fd < 0 || ring.words == MAP_FAILED || ring.entries == MAP_FAILED) {
        printf("FAILED: no ring: %s\n", strerror(errno));
        exit(1);
    }
    return ring;
}

static void unmap(struct ring *ring)
{
    munmap(ring->words, ring->bytes);
    munmap(ring->entries, ring->p.sq_entries * sizeof *ring->entries);
}

static void add(struct ring *ring, struct io_uring_sqe entry)
{
    unsigned *tail = word(ring, ring->p.sq_off.tail), index = *tail & (ring->p.sq_entries - 1);
    ring->entries[index] = entry;
    word(ring, ring->p.sq_off.array)[index] = index;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

static int enter(struct ring *ring, unsigned submit, unsigned least)
{
    return syscall(SYS_io_uring_enter, ring->fd, submit, least, least ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
}

/* Takes all completions; the result of the last one. */
static int taken(struct ring *ring)
{
    unsigned *head = word(ring, ring->p.cq_off.head), tail = __atomic_load_n(word(ring, ring->p.cq_off.tail), __ATOMIC_ACQUIRE);
    struct io_uring_cqe *last = (void *)(ring->words + ring->p.cq_off.cqes + ((tail - 1) & (ring->p.cq_entries - 1)) * 16);
    int result = last->res;
    __atomic_store_n(head, tail, __ATOMIC_RELEASE);
    return result;
}

/* Whether a child that was killed ends. */
static int ends(pid_t child)
{
    kill(child, SIGKILL);
    for (int tries = 0; tries < PATIENCE_CS; tries++) {
        if (waitpid(child, NULL, WNOHANG) == child)
            return 1;
        pause_ms(10);
    }
    return 0;
}

/* Each ring is held by a request of the one before it only. */
static void chain(void)
{
    struct ring first = ring_of(2), one = first;
    for (int i = 0; i < RINGS; i++) {
        struct ring next = ring_of(2);
        add(&one, (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = next.fd, .poll32_events = POLLIN });
        EXPECT(enter(&one, 1, 0) == 1, "%s", strerror(errno));
        if (i > 0) {
            unmap(&one);
            close(one.fd);
        }
        one = next;
    }
    unmap(&one);
    close(one.fd);
    unmap(&first);
    close(first.fd);
}

static void more_than_there_are(void)
{
    pid_t child = CHILD({
        struct ring ring = ring_of(8);
        ring.entries[0] = (struct io_uring_sqe){ .opcode = IORING_OP_NOP, .flags = IOSQE_CQE_SKIP_SUCCESS };
        *word(&ring, ring.p.sq_off.tail) = *word(&ring, ring.p.sq_off.head) - 1;
        _exit(enter(&ring, ~0u, 0));
    });
    int status = 0;
    for (int tries = 0; tries < PATIENCE_CS && waitpid(child, &status, WNOHANG) == 0; tries++)
        pause_ms(10);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 8, "status %#x", status);
    if (status == 0)
        ends(child);
}

static void buffers(void)
{
    size_t bytes = 1 << 30;
    pid_t child = CHILD({
        char *place = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        struct iovec *vectors = malloc(VECTORS * sizeof *vectors);
        for (int i = 0; i < VECTORS; i++)
            vectors[i] = (struct iovec){ place, bytes };
        struct ring ring = ring_of(2);
        syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, vectors, VECTORS);
    });
    pause_ms(300);
    EXPECT(ends(child), "it can't be killed");
}

/* Each completion of the poll makes ready what it polls. */
static void itself(void)
{
    struct ring ring = ring_of(8);
    int counter = eventfd(0, 0);
    syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &counter, 1);
    pid_t child = CHILD({
        add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = counter, .len = IORING_POLL_ADD_MULTI, .poll32_events = POLLIN });
        eventfd_write(counter, 1);
        enter(&ring, 1, 16);
    });
    unsigned begun = *word(&ring, ring.p.cq_off.tail);
    for (int tries = 0; tries < PATIENCE_CS && *word(&ring, ring.p.cq_off.tail) - begun < 100; tries++) {
        taken(&ring);
        sched_yield();
    }
    kill(child, SIGKILL);
    int over = 0;
    for (long tries = 0; tries < 1000L * PATIENCE_CS && !over; tries++) {
        taken(&ring);
        sched_yield();
        over = waitpid(child, NULL, WNOHANG) == child;
    }
    EXPECT(over, "it can't be killed");
    close(counter);
    unmap(&ring);
    close(ring.fd);
}

static void messages(void)
{
    struct ring from = ring_of(64), to = ring_of(1);
    int last = 0;
    for (int sent = 0; sent < MESSAGES && last != -EOVERFLOW; sent += 64) {
        for (int i = 0; i < 64; i++)
            add(&from, (struct io_uring_sqe){ .opcode = IORING_OP_MSG_RING, .fd = to.fd, .user_data = 1 });
        enter(&from, 64, 64);
        last = taken(&from);
    }
    EXPECT(last == -EOVERFLOW, "the last one says %d", last);
    unmap(&from);
    unmap(&to);
    close(from.fd);
    close(to.fd);
}

/* A worker that waits for the rest of a message leaves others to another one. */
static void one_waits(void)
{
    struct ring ring = ring_of(8);
    int first[2], second[2], sockets[2];
    char text[3][8];
    pipe(first);
    pipe(second);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    write(sockets[1], "x", 1);
    add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = second[0], .addr = (uintptr_t)text[0], .len = 8, .user_data = 1 });
    enter(&ring, 1, 0);
    add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = first[0], .addr = (uintptr_t)text[1], .len = 1, .flags = IOSQE_IO_LINK, .user_data = 2 });
    add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_RECV, .fd = sockets[0], .addr = (uintptr_t)text[2], .len = 8, .msg_flags = MSG_WAITALL, .user_data = 3 });
    enter(&ring, 2, 0);
    struct pollfd there = { ring.fd, POLLIN, 0 };
    write(first[1], "x", 1);
    EXPECT(poll(&there, 1, 10 * PATIENCE_CS) == 1, "the first one does not end");
    taken(&ring);
    write(second[1], "y", 1);
    EXPECT(poll(&there, 1, 10 * PATIENCE_CS) == 1, "the second one does not end");
    EXPECT(taken(&ring) == 1, "it read another number of bytes");
    write(sockets[1], "1234567", 7);
    EXPECT(poll(&there, 1, 10 * PATIENCE_CS) == 1, "the third one does not end");
    EXPECT(taken(&ring) == 8, "it received another number of bytes");
    for (int i = 0; i < 2; i++) {
        close(first[i]);
        close(second[i]);
        close(sockets[i]);
    }
    unmap(&ring);
    close(ring.fd);
}

static void *asks_worker(void *none)
{
    struct ring ring = ring_of(2);
    add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_NOP, .flags = IOSQE_ASYNC });
    enter(&ring, 1, 1);
    unmap(&ring);
    close(ring.fd);
    return none;
}

static void groups(void)
{
    WORKS(put("cgroup.subtree_control", "+pids"));
    WORKS(make("rings"));
    int ends_of_pipe[2];
    pipe(ends_of_pipe);
    pid_t child = CHILD({
        put("rings/cgroup.procs", "0");
        for (int i = 0; i < THREADS; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, asks_worker, NULL);
            pthread_join(thread, NULL);
        }
        struct ring ring = ring_of(2);
        int silent[2];
        pipe(silent);
        add(&ring, (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = silent[0], .poll32_events = POLLIN });
        enter(&ring, 1, 0);
        write(ends_of_pipe[1], "", 1);
        pause();
    });
    char byte;
    read(ends_of_pipe[0], &byte, 1);
    /* The child and the worker of its last ring. */
    SAYS("rings/pids.current", "2\n");
    WORKS(put("rings/cgroup.freeze", "1"));
    EXPECT(comes_to("rings/cgroup.events", "frozen", 1), "%s", get("rings/cgroup.events"));
    WORKS(put("rings/cgroup.freeze", "0"));
    EXPECT(comes_to("rings/cgroup.events", "frozen", 0), "%s", get("rings/cgroup.events"));
    EXPECT(ends(child), "it can't be killed");
    SAYS("rings/pids.current", "0\n");
    EXPECT(is_taken_away("rings"), "%s", strerror(errno));
    WORKS(put("cgroup.subtree_control", "-pids"));
}

int main(void)
{
    mount_groups();
    void (*const parts[])(void) = { chain, more_than_there_are, buffers, itself, messages, one_waits, groups };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("hostile rings: part %zu", part);
        parts[part]();
    }
    return verdict_failed;
}
