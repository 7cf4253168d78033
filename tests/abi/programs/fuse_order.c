/* What a file server answers late, or says by itself in between: programs see the latest all the same. This process is the server; what asks are its children. */
#include "fuse.h"
#include <poll.h>

static unsigned char *message;
static int file;

/* Takes the next message and counts it; NULL if the mount has gone. */
static struct fuse_in_header *next_message(void)
{
    for (;;) {
        ssize_t count = take_message(message, MESSAGE_BYTES);
        struct fuse_in_header *in = (void *)message;
        if (count > 0) {
            if (in->opcode < 64)
                atomic_fetch_add(&world->count[in->opcode], 1);
            return in;
        }
        if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
            return NULL;
    }
}

/* Serves until a request of a kind comes; a copy of that, which is not answered yet. */
static struct fuse_in_header *serve_until(int opcode)
{
    for (;;) {
        struct fuse_in_header *in = next_message();
        if (!in)
            _exit(1);
        if ((int)in->opcode == opcode) {
            struct fuse_in_header *copy = malloc(in->len);
            memcpy(copy, in, in->len);
            return copy;
        }
        serve_one(in);
    }
}

/* Serves until a child has ended, which says so by the end of a pipe. */
static void serve_child(int ended)
{
    struct pollfd ready[2] = { { world->device, POLLIN, 0 }, { ended, POLLIN, 0 } };
    for (;;) {
        poll(ready, 2, -1);
        if (ready[0].revents & POLLIN)
            serve_one(next_message());
        else if (ready[1].revents)
            return;
    }
}

/* Serves what comes while another request is not answered. On a kernel that has nothing to ask then, nothing comes. */
static void serve_a_while(void)
{
    struct pollfd ready = { world->device, POLLIN, 0 };
    while (poll(&ready, 1, 300) > 0)
        serve_one(next_message());
}

/* A child whose end is seen by `ended`. */
#define ASKER(ended, ...)                                                                                              \
    ({                                                                                                                 \
        int pipe_[2];                                                                                                  \
        (void)!pipe2(pipe_, O_CLOEXEC);                                                                                \
        pid_t asker_ = CHILD(close(world->device); __VA_ARGS__);                                                       \
        close(pipe_[1]);                                                                                               \
        ended = pipe_[0];                                                                                              \
        asker_;                                                                                                        \
    })

static void mount_here(const char *more)
{
    char options[128];
    world->device = open_device();
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0%s", world->device, more);
    SHOW(mount("hand", "m", "fuse.hand", MS_NOSUID | MS_NODEV, options));
    serve_one(serve_until(FUSE_INIT));
}

static void wait_for(pid_t asker, int ended)
{
    serve_child(ended);
    close(ended);
    REAP(asker);
}

/* The server decides about programs that only want to know. */
static void wishes(void)
{
    printf("-- wishes\n");
    int ended;
    pid_t asker = ASKER(ended, {
        SHOW(access("m/file", X_OK));
        SHOW(access("m/file", R_OK | W_OK | X_OK));
    });
    wait_for(asker, ended);
    TRUE(asked(FUSE_ACCESS) == 2);
    world->refuse_opcode = FUSE_ACCESS;
    world->refuse_errno = EPERM;
    asker = ASKER(ended, SHOW(access("m/file", X_OK)));
    wait_for(asker, ended);
    world->refuse_opcode = 0;
    world->unknown = 1ull << FUSE_ACCESS;
    asker = ASKER(ended, {
        SHOW(access("m/file", X_OK));
        SHOW(access("m/file", X_OK));
    });
    wait_for(asker, ended);
    world->unknown = 0;
    TRUE(asked(FUSE_ACCESS) == 4);
}

/* A name that is not true any more before who asked for it has run again. */
static void name(void)
{
    printf("-- a name\n");
    int ended;
    struct stat found;
    world->entry_valid = world->attr_valid = 1000;
    pid_t asker = ASKER(ended, SHOW(stat("m/new", &found)));
    struct fuse_in_header *lookup = serve_until(FUSE_LOOKUP);
    struct {
        struct fuse_out_header head;
        struct fuse_notify_inval_entry_out what;
        char name[4];
    } told = { { sizeof told.head + sizeof told.what + 4, FUSE_NOTIFY_INVAL_ENTRY, 0 }, { .parent = 1, .namelen = 3 }, "new" };
    serve_one(lookup);
    (void)!write(world->device, &told, told.head.len);
    wait_for(asker, ended);
    int before = asked(FUSE_LOOKUP);
    asker = ASKER(ended, SHOW(stat("m/new", &found)));
    wait_for(asker, ended);
    TRUE(asked(FUSE_LOOKUP) > before);
    world->entry_valid = world->attr_valid = 0;
    free(lookup);
}

/* A page that is brought in for a mapping while somebody writes it. */
static void page(struct node *node)
{
    printf("-- a page\n");
    int ended, written;
    node->attr.size = 4096;
    memset(node->data, 'a', 4096);
    int go[2];
    (void)!pipe(go);
    pid_t asker = ASKER(ended, {
        char byte;
        int fd = open("m/file", O_RDWR);
        volatile char *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        (void)map[0];
        (void)!read(go[0], &byte, 1);
        printf("   %c%c%c\n", map[0], map[1], map[5]);
    });
    struct fuse_in_header *in = serve_until(FUSE_READ);
    unsigned char old[4096];
    memcpy(old, node->data, sizeof old);
    pid_t writer = ASKER(written, {
        int fd = open("m/file", O_WRONLY);
        SHOW(pwrite(fd, "WRITE", 5, 0));
    });
    serve_a_while();
    reply(in, 0, old, sizeof old);
    wait_for(writer, written);
    (void)!write(go[1], "x", 1);
    wait_for(asker, ended);
    close(go[0]);
    close(go[1]);
    free(in);
}

/* A write of pages that is under way when the file is cut off. */
static void cut(struct node *node)
{
    printf("-- cut off\n");
    int ended;
    node->attr.size = 8192;
    pid_t asker = ASKER(ended, {
        int fd = open("m/file", O_RDWR);
        char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        map[4096] = 'x';
        SHOW(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
        SHOW(ftruncate(fd, 0));
    });
    struct fuse_in_header *in = serve_until(FUSE_WRITE);
    serve_a_while();
    serve_one(in);
    wait_for(asker, ended);
    SHOW(node->attr.size);
    free(in);
}

/* What was stored by a mapping, for who reads past the pages, and for who makes a hole there. */
static void stored(struct node *node)
{
    printf("-- stored\n");
    int ended;
    node->attr.size = 8192;
    memset(node->data, 'a', 8192);
    pid_t asker = ASKER(ended, {
        int fd = open("m/file", O_RDWR), direct = open("m/file", O_RDONLY | O_DIRECT);
        char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        char *text = aligned_alloc(4096, 4096);
        map[0] = 'M';
        SHOW(pread(direct, text, 4096, 0));
        printf("   %c%c\n", text[0], text[1]);
        map[4096] = 'H';
        SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096));
    });
    struct fuse_in_header *in = serve_until(FUSE_FALLOCATE);
    printf("   %c\n", node->data[4096]);
    serve_one(in);
    wait_for(asker, ended);
    free(in);
}

/* A server that shows nothing but `.`, and always has more of that. */
static void nothing(void)
{
    printf("-- nothing\n");
    int ended;
    pid_t asker = ASKER(ended, {
        char list[1024];
        int fd = open("m", O_RDONLY | O_DIRECTORY);
        int wrong = 0;
        for (int tries = 0; tries < 20; tries++)
            wrong |= syscall(SYS_getdents64, fd, list, sizeof list) > 200;
        printf("   %d\n", wrong);
    });
    struct pollfd ready[2] = { { world->device, POLLIN, 0 }, { ended, POLLIN, 0 } };
    for (int turn = 0;;) {
        poll(ready, 2, -1);
        if (!(ready[0].revents & POLLIN))
            break;
        struct fuse_in_header *in = next_message();
        if (in->opcode != FUSE_READDIR) {
            serve_one(in);
            continue;
        }
        struct {
            struct fuse_dirent entry;
            char name[8];
        } list = { { .ino = 101, .off = 1 + turn++ % 2, .namelen = 1, .type = S_IFDIR >> 12 }, "." };
        reply(in, 0, &list, FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + 1));
    }
    close(ended);
    REAP(asker);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    message = message_room();
    make_world();
    file = add_node(1, "file", S_IFREG | 0644, NULL);
    add_node(1, "new", S_IFREG | 0644, NULL);
    mount_here("");
    wishes();
    name();
    page(node_at(file));
    cut(node_at(file));
    stored(node_at(file));
    nothing();
    close(world->device);
    SHOW(umount("m"));
    return 0;
}
