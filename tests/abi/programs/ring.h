/* A small io_uring(7): the rings mapped, an entry at a time, completions printed. */
#ifndef RING_H
#define RING_H
#include "abi.h"
#include <linux/io_uring.h>

/* struct io_uring_cqe without the array at its end. */
struct completion {
    unsigned long long user_data;
    int res;
    unsigned flags;
};

struct ring {
    int fd;
    unsigned entries, completions, features;
    unsigned *sq_head, *sq_tail, *sq_mask, *sq_array, *sq_flags, *sq_dropped;
    unsigned *cq_head, *cq_tail, *cq_mask, *cq_flags, *cq_overflow;
    struct io_uring_sqe *sqes;
    struct completion *cqes;
    void *rings;
    size_t bytes;
};

static inline int ring_setup(unsigned entries, struct io_uring_params *p) { return syscall(SYS_io_uring_setup, entries, p); }
static inline int ring_enter(int fd, unsigned submit, unsigned least, unsigned flags) { return syscall(SYS_io_uring_enter, fd, submit, least, flags, NULL, 0); }
static inline int ring_register(int fd, unsigned what, const void *argument, unsigned count) { return syscall(SYS_io_uring_register, fd, what, argument, count); }

static inline int ring_map(struct ring *r, int fd, const struct io_uring_params *p)
{
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct completion);
    *r = (struct ring){ .fd = fd, .entries = p->sq_entries, .completions = p->cq_entries, .features = p->features, .bytes = sq > cq ? sq : cq };
    char *at = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    r->sqes = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    if (at == MAP_FAILED || r->sqes == MAP_FAILED)
        return -1;
    r->rings = at;
    r->sq_head = (void *)(at + p->sq_off.head);
    r->sq_tail = (void *)(at + p->sq_off.tail);
    r->sq_mask = (void *)(at + p->sq_off.ring_mask);
    r->sq_flags = (void *)(at + p->sq_off.flags);
    r->sq_dropped = (void *)(at + p->sq_off.dropped);
    r->sq_array = (void *)(at + p->sq_off.array);
    r->cq_head = (void *)(at + p->cq_off.head);
    r->cq_tail = (void *)(at + p->cq_off.tail);
    r->cq_mask = (void *)(at + p->cq_off.ring_mask);
    r->cq_flags = (void *)(at + p->cq_off.flags);
    r->cq_overflow = (void *)(at + p->cq_off.overflow);
    r->cqes = (void *)(at + p->cq_off.cqes);
    return 0;
}

/* A ring with these flags, or the program ends. */
static inline struct ring ring_of(unsigned entries, unsigned flags)
{
    struct io_uring_params p = { .flags = flags };
    struct ring r;
    int fd = ring_setup(entries, &p);
    if (fd < 0 || ring_map(&r, fd, &p) < 0) {
        printf("no ring: %s\n", ERRNO_NAME(errno));
        exit(1);
    }
    return r;
}

static inline void ring_close(struct ring *r)
{
    munmap(r->rings, r->bytes);
    munmap(r->sqes, r->entries * sizeof(struct io_uring_sqe));
    close(r->fd);
}

/* Puts an entry into the ring; a call submits it. */
static inline struct io_uring_sqe *ring_add(struct ring *r, struct io_uring_sqe sqe)
{
    unsigned tail = *r->sq_tail, index = tail & *r->sq_mask;
    r->sqes[index] = sqe;
    r->sq_array[index] = index;
    __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
    return &r->sqes[index];
}

static inline int ring_submit(struct ring *r, unsigned least)
{
    unsigned count = *r->sq_tail - __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE);
    return ring_enter(r->fd, count, least, least ? IORING_ENTER_GETEVENTS : 0);
}

/* The next completion, for which the program waits. */
static inline struct completion ring_next(struct ring *r)
{
    while (*r->cq_head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
        if (ring_enter(r->fd, 0, 1, IORING_ENTER_GETEVENTS) < 0 && errno != EINTR) {
            printf("waiting: %s\n", ERRNO_NAME(errno));
            exit(1);
        }
    struct completion cqe = r->cqes[*r->cq_head & *r->cq_mask];
    __atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
    return cqe;
}

static inline unsigned ring_ready(struct ring *r) { return __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) - *r->cq_head; }

static inline void ring_print(const char *what, struct completion cqe)
{
    if (cqe.res < 0)
        printf("%s: %s", what, ERRNO_NAME(-cqe.res));
    else
        printf("%s: %d", what, cqe.res);
    printf(" data %llu flags %#x\n", (unsigned long long)cqe.user_data, cqe.flags);
}

/* Submits an entry, waits for its completion and prints it. */
static inline int ring_one(struct ring *r, const char *what, struct io_uring_sqe sqe)
{
    ring_add(r, sqe);
    int submitted = ring_submit(r, 1);
    if (submitted != 1)
        printf("%s: submitted %d %s\n", what, submitted, submitted < 0 ? ERRNO_NAME(errno) : "");
    struct completion cqe = ring_next(r);
    ring_print(what, cqe);
    return cqe.res;
}

static inline int ring_order(const void *a, const void *b)
{
    const struct completion *one = a, *other = b;
    return one->user_data < other->user_data ? -1 : one->user_data > other->user_data;
}

/* Prints so many completions, in the order of their data: in which order they come is not promised. */
static inline void ring_show(struct ring *r, const char *what, int count)
{
    struct completion all[count];
    for (int i = 0; i < count; i++)
        all[i] = ring_next(r);
    qsort(all, count, sizeof *all, ring_order);
    for (int i = 0; i < count; i++)
        ring_print(what, all[i]);
}
#endif
