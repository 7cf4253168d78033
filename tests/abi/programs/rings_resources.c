/* Submission rings (io_uring): extended attributes, the part of the table of files from which places are given out, taking back that waits, rings of provided buffers. */
#include "ring.h"
#include <sys/socket.h>

#define SQE(...) ((struct io_uring_sqe){ __VA_ARGS__ })
#define P(...) ((unsigned long long)(uintptr_t)(__VA_ARGS__))

/* Members of an entry that not all headers know: the second address and the third. */
#define SECOND(...) .off = P(__VA_ARGS__)
#define THIRD(...) .addr3 = P(__VA_ARGS__)

static void attributes(struct ring *r)
{
    char value[16] = "";
    int fd = open("attributes", O_RDWR | O_CREAT, 0644);
    ring_one(r, "setxattr", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.one"), SECOND("first"), .len = 5));
    ring_one(r, "getxattr", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P("trusted.one"), SECOND(value), .len = 16));
    printf("%s\n", value);
    ring_one(r, "getxattr size", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P("trusted.one")));
    ring_one(r, "getxattr short", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P("trusted.one"), SECOND(value), .len = 2));
    ring_one(r, "getxattr none", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P("trusted.two"), SECOND(value), .len = 16));
    ring_one(r, "getxattr no file", SQE(.opcode = IORING_OP_GETXATTR, THIRD("missing"), .addr = P("trusted.one"), SECOND(value), .len = 16));
    ring_one(r, "getxattr flags", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P("trusted.one"), SECOND(value), .len = 16, .rw_flags = 1));
    ring_one(r, "getxattr no name", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = P(""), SECOND(value), .len = 16));
    ring_one(r, "getxattr fault", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes"), .addr = 8, SECOND(value), .len = 16));
    ring_one(r, "getxattr path fault", SQE(.opcode = IORING_OP_GETXATTR, THIRD(8), .addr = P("trusted.one"), SECOND(value), .len = 16));
    ring_one(r, "getxattr fixed", SQE(.opcode = IORING_OP_GETXATTR, .flags = IOSQE_FIXED_FILE, THIRD("attributes"), .addr = P("trusted.one"), SECOND(value), .len = 16));
    ring_one(r, "setxattr create", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.one"), SECOND("again"), .len = 5, .rw_flags = XATTR_CREATE));
    ring_one(r, "setxattr replace", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.two"), SECOND("again"), .len = 5, .rw_flags = XATTR_REPLACE));
    ring_one(r, "setxattr flags", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.two"), SECOND("again"), .len = 5, .rw_flags = 8));
    ring_one(r, "setxattr long", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.two"), SECOND("again"), .len = 65537));
    ring_one(r, "setxattr fault", SQE(.opcode = IORING_OP_SETXATTR, THIRD("attributes"), .addr = P("trusted.two"), SECOND(8), .len = 5));
    ring_one(r, "fsetxattr", SQE(.opcode = IORING_OP_FSETXATTR, .fd = fd, .addr = P("trusted.two"), SECOND("second"), .len = 6));
    ring_one(r, "fgetxattr", SQE(.opcode = IORING_OP_FGETXATTR, .fd = fd, .addr = P("trusted.two"), SECOND(value), .len = 16));
    printf("%s\n", value);
    ring_one(r, "fgetxattr asynchronous", SQE(.opcode = IORING_OP_FGETXATTR, .flags = IOSQE_ASYNC, .fd = fd, .addr = P("trusted.one"), SECOND(value), .len = 16));
    ring_one(r, "fgetxattr bad", SQE(.opcode = IORING_OP_FGETXATTR, .fd = 999, .addr = P("trusted.two"), SECOND(value), .len = 16));
    ring_one(r, "fsetxattr bad", SQE(.opcode = IORING_OP_FSETXATTR, .fd = 999, .addr = P("trusted.two"), SECOND(value), .len = 16));
    ring_one(r, "fgetxattr flags", SQE(.opcode = IORING_OP_FGETXATTR, .fd = fd, .addr = P("trusted.two"), SECOND(value), .len = 16, .rw_flags = 4));
    /* A symbolic link is followed. */
    OK(symlink("attributes", "attributes-link"));
    ring_one(r, "getxattr link", SQE(.opcode = IORING_OP_GETXATTR, THIRD("attributes-link"), .addr = P("trusted.two"), SECOND(value), .len = 16));
    close(fd);
    struct { struct io_uring_probe probe; struct io_uring_probe_op ops[48]; } probe;
    memset(&probe, 0, sizeof probe);
    SHOW(ring_register(r->fd, IORING_REGISTER_PROBE, &probe, 48));
    for (int i = IORING_OP_FSETXATTR; i <= IORING_OP_GETXATTR; i++)
        printf("operation %d: %d\n", probe.probe.ops[i].op, probe.probe.ops[i].flags);
}

static void opens(struct ring *r)
{
    ring_one(r, "open", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("attributes"), .open_flags = O_RDONLY, .file_index = IORING_FILE_INDEX_ALLOC));
}

static int allot(struct ring *r, unsigned from, unsigned count, unsigned long long reserved)
{
    struct io_uring_file_index_range range = { .off = from, .len = count, .resv = reserved };
    return ring_register(r->fd, IORING_REGISTER_FILE_ALLOC_RANGE, &range, 0);
}

static void places(struct ring *r)
{
    int table[8];
    memset(table, -1, sizeof table);
    SHOW(allot(r, 0, 0, 0));
    SHOW(allot(r, 0, 1, 0));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES, table, 8));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILE_ALLOC_RANGE, NULL, 0));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILE_ALLOC_RANGE, table, 1));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILE_ALLOC_RANGE, (void *)8, 0));
    SHOW(allot(r, 0, 9, 0));
    SHOW(allot(r, 8, 1, 0));
    SHOW(allot(r, -1, 2, 0));
    SHOW(allot(r, 0, 8, 1));
    SHOW(allot(r, 4, 2, 0));
    opens(r), opens(r), opens(r);
    ring_one(r, "close", SQE(.opcode = IORING_OP_CLOSE, .file_index = 5));
    opens(r);
    /* Where exactly is still the program's to say. */
    ring_one(r, "open there", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("attributes"), .open_flags = O_RDONLY, .file_index = 2));
    SHOW(allot(r, 0, 3, 0));
    opens(r), opens(r), opens(r);
    SHOW(allot(r, 8, 0, 0));
    opens(r);
    SHOW(ring_register(r->fd, IORING_UNREGISTER_FILES, NULL, 0));
    /* A new table is given out as a whole. */
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES, table, 2));
    opens(r), opens(r), opens(r);
    SHOW(ring_register(r->fd, IORING_UNREGISTER_FILES, NULL, 0));
}

/* struct io_uring_sync_cancel_reg as Linux 6.1 has it. */
struct take_back {
    unsigned long long addr;
    int fd;
    unsigned flags;
    long long seconds, nanoseconds;
    unsigned long long reserved[4];
};

static int take_back(struct ring *r, struct take_back what)
{
    return ring_register(r->fd, IORING_REGISTER_SYNC_CANCEL, &what, 1);
}

#define TAKE_BACK(...) take_back(r, (struct take_back){ .seconds = -1, .nanoseconds = -1, __VA_ARGS__ })

static void taken_back(struct ring *r)
{
    int pipes[2];
    char buffer[8];
    OK(pipe(pipes));
    SHOW(ring_register(r->fd, IORING_REGISTER_SYNC_CANCEL, NULL, 1));
    SHOW(ring_register(r->fd, IORING_REGISTER_SYNC_CANCEL, (void *)8, 1));
    SHOW(ring_register(r->fd, IORING_REGISTER_SYNC_CANCEL, buffer, 2));
    SHOW(TAKE_BACK(.addr = 5));
    SHOW(TAKE_BACK(.addr = 5, .flags = 1u << 31));
    SHOW(TAKE_BACK(.addr = 5, .reserved = { 0, 0, 0, 1 }));
    SHOW(TAKE_BACK(.fd = 999, .flags = IORING_ASYNC_CANCEL_FD));
    SHOW(TAKE_BACK(.fd = 999, .flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_FD_FIXED));
    SHOW(TAKE_BACK(.addr = 5, .seconds = 0, .nanoseconds = 1000));
    for (int i = 1; i <= 4; i++)
        ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 8, .user_data = i));
    SHOW(ring_submit(r, 0));
    SHOW(TAKE_BACK(.addr = 3));
    ring_show(r, "taken back", 1);
    SHOW(TAKE_BACK(.fd = pipes[0], .flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL));
    ring_show(r, "taken back", 3);
    SHOW(TAKE_BACK(.fd = pipes[0], .flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL));
    ring_add(r, SQE(.opcode = IORING_OP_POLL_ADD, .fd = pipes[0], .poll32_events = POLLIN, .user_data = 7));
    SHOW(ring_submit(r, 0));
    SHOW(TAKE_BACK(.flags = IORING_ASYNC_CANCEL_ANY));
    ring_show(r, "taken back", 1);
    SHOW(TAKE_BACK(.flags = IORING_ASYNC_CANCEL_ANY));
    /* A worker is in the midst of it: whether it has ended when the call does is told by its completion only. */
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = pipes[0], .addr = P(buffer), .len = 8, .user_data = 9));
    SHOW(ring_submit(r, 0));
    pause_ms(50);
    SHOW(TAKE_BACK(.addr = 9, .seconds = 60, .nanoseconds = 0));
    struct completion cqe = ring_next(r);
    TRUE(cqe.user_data == 9 && (cqe.res == -ECANCELED || cqe.res == -EINTR));
    close(pipes[0]), close(pipes[1]);
}

static int provide_ring(struct ring *r, struct io_uring_buf_reg what)
{
    return ring_register(r->fd, IORING_REGISTER_PBUF_RING, &what, 1);
}

static int forget_ring(struct ring *r, unsigned short group)
{
    struct io_uring_buf_reg what = { .bgid = group };
    return ring_register(r->fd, IORING_UNREGISTER_PBUF_RING, &what, 1);
}

#define PROVIDE_RING(...) provide_ring(r, (struct io_uring_buf_reg){ __VA_ARGS__ })

static char provided[4][8];

/* One more buffer at the end of a ring of four. */
static void offer(struct io_uring_buf_ring *ring, int number, unsigned length)
{
    struct io_uring_buf *place = &((struct io_uring_buf *)ring)[ring->tail & 3];
    place->addr = P(provided[number]);
    place->len = length;
    place->bid = 100 + number;
    __atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
}

static void buffers(struct ring *r)
{
    struct io_uring_buf_ring *ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(ring_register(r->fd, IORING_REGISTER_PBUF_RING, NULL, 1));
    SHOW(ring_register(r->fd, IORING_REGISTER_PBUF_RING, ring, 2));
    SHOW(ring_register(r->fd, IORING_REGISTER_PBUF_RING, (void *)8, 1));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_PBUF_RING, NULL, 1));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_PBUF_RING, (void *)8, 1));
    SHOW(PROVIDE_RING(.ring_addr = 0, .ring_entries = 4, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring) + 16, .ring_entries = 4, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = 1ul << 46, .ring_entries = 4, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 3, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 0, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 65536, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 4, .bgid = 5, .resv = { 0, 0, 1 }));
    SHOW(forget_ring(r, 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 4, .bgid = 5));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 4, .bgid = 5));
    ring_one(r, "provide to a ring", SQE(.opcode = IORING_OP_PROVIDE_BUFFERS, .fd = 4, .addr = P(provided), .len = 8, .off = 20, .buf_group = 5));
    ring_one(r, "remove from a ring", SQE(.opcode = IORING_OP_REMOVE_BUFFERS, .fd = 4, .buf_group = 5));
    int fd = open("buffers", O_RDWR | O_CREAT, 0644);
    SHOW(pwrite(fd, "0123456789abcdefghij", 20, 0));
    ring_one(r, "empty", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .buf_group = 5));
    for (int turn = 0; turn < 3; turn++) {
        offer(ring, 0, 8);
        offer(ring, 1, 3);
        offer(ring, 2, 8);
        ring_one(r, "read", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .buf_group = 5));
        ring_one(r, "read short", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .off = 8, .buf_group = 5));
        ring_one(r, "read all", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .off = 12, .buf_group = 5));
        printf("%.8s %.3s %.8s\n", provided[0], provided[1], provided[2]);
    }
    ring_one(r, "empty again", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .buf_group = 5));
    /* One that waits takes a buffer only when there is something to put there. */
    int pair[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    offer(ring, 3, 8);
    ring_add(r, SQE(.opcode = IORING_OP_RECV, .flags = IOSQE_BUFFER_SELECT, .fd = pair[0], .buf_group = 5, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_one(r, "read meanwhile", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .buf_group = 5, .user_data = 2));
    offer(ring, 0, 8);
    SHOW(write(pair[1], "stream", 6));
    ring_show(r, "receive", 1);
    printf("%.6s\n", provided[0]);
    /* A group of buffers that were provided one by one is none of these. */
    ring_one(r, "provide", SQE(.opcode = IORING_OP_PROVIDE_BUFFERS, .fd = 1, .addr = P(provided), .len = 8, .off = 20, .buf_group = 6));
    SHOW(PROVIDE_RING(.ring_addr = P(ring), .ring_entries = 4, .bgid = 6));
    SHOW(forget_ring(r, 6));
    SHOW(forget_ring(r, 5));
    SHOW(forget_ring(r, 5));
    ring_one(r, "forgotten", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 8, .buf_group = 5));
    close(fd), close(pair[0]), close(pair[1]);
}

int main(void)
{
    struct ring r = ring_of(8, 0);
    attributes(&r);
    places(&r);
    taken_back(&r);
    buffers(&r);
    return 0;
}
