/* A file server by hand, against the raw device: a process with a small tree in memory that everybody can look into. What it does wrong can be chosen. */
#ifndef FUSE_BY_HAND_H
#define FUSE_BY_HAND_H
#include "abi.h"
#include <linux/fuse.h>

#define NODES 48
#define DATA_BYTES (256 * 1024)
#define MESSAGE_BYTES (1 << 20)

struct node {
    int used, parent, target_of_link, links;
    char name[64];
    char text[128]; /* of a symbolic link */
    struct fuse_attr attr;
    uint64_t lookups, forgotten;
    unsigned char *data;
    char attribute_name[64], attribute_value[64];
    int attribute_bytes;
};

/* What server and programs share. */
struct world {
    struct node nodes[NODES];
    unsigned char data[8][DATA_BYTES];
    /* Set by the program before the mount, or at any time. */
    uint32_t flags, flags2, max_write, open_flags, minor;
    uint64_t entry_valid, attr_valid;
    uint64_t silent;         /* a bit for each opcode that is read and never answered */
    uint64_t unknown;        /* a bit for each that is answered with ENOSYS */
    int refuse_opcode, refuse_errno;
    int break_opcode, breakage; /* how replies to an opcode are broken */
    int on_interrupt;        /* answer interrupted requests with EINTR */
    int splices;             /* messages go through a pipe */
    /* Counted by the server. */
    atomic_int count[64];
    atomic_int waiting_opcode;
    atomic_int interrupts;
    uint32_t last_mode, last_umask, last_flags, last_valid, last_uid, last_gid, last_pid, last_access;
    int device;
    pid_t pid;
};

static struct world *world;

/* The server's pipe, if messages go through one. */
static int through[2];

/* The opcode, and nothing of what comes after it. */
static inline int asked(int opcode)
{
    return atomic_load(&world->count[opcode]);
}

static inline struct node *node_at(uint64_t id)
{
    return id >= 1 && id < NODES && world->nodes[id].used ? &world->nodes[id] : NULL;
}

static inline int find_child(uint64_t parent, const char *name)
{
    for (int id = 2; id < NODES; id++)
        if (world->nodes[id].used && world->nodes[id].parent == (int)parent && !strcmp(world->nodes[id].name, name))
            return id;
    return 0;
}

static inline int add_node(int parent, const char *name, uint32_t mode, const char *text)
{
    static int with_data;
    for (int id = 1; id < NODES; id++) {
        struct node *node = &world->nodes[id];
        if (node->used)
            continue;
        if (id == 1 && parent != 0)
            continue;
        memset(node, 0, sizeof *node);
        node->used = 1;
        node->parent = parent;
        snprintf(node->name, sizeof node->name, "%s", name);
        node->attr = (struct fuse_attr){ .ino = 100 + id, .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1, .blksize = 4096,
                                         .atime = 1000, .mtime = 2000, .ctime = 3000 };
        if (S_ISREG(mode)) {
            node->data = world->data[with_data++ % 8];
            memset(node->data, 0, DATA_BYTES);
            if (text)
                memcpy(node->data, text, node->attr.size = strlen(text));
            node->attr.blocks = (node->attr.size + 511) / 512;
        } else if (S_ISLNK(mode)) {
            snprintf(node->text, sizeof node->text, "%s", text);
            node->attr.size = strlen(text);
        }
        return id;
    }
    return 0;
}

static inline void make_world(void)
{
    world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world->minor = 31;
    world->max_write = 128 * 1024;
    world->flags = FUSE_BIG_WRITES;
    add_node(0, "", S_IFDIR | 0755, NULL);
}

static inline void make_pipe(void)
{
    if (pipe(through) < 0 || fcntl(through[1], F_SETPIPE_SZ, MESSAGE_BYTES) < 0)
        _exit(2);
}

/* The next message; what is wrong is in errno. */
static inline ssize_t take_message(void *message, size_t bytes)
{
    if (!world->splices)
        return read(world->device, message, bytes);
    if (through[1] == 0)
        make_pipe();
    ssize_t count = splice(world->device, NULL, through[1], NULL, bytes, 0);
    return count < 0 ? count : read(through[0], message, count);
}

/* Whatever is said to a message: it was taken as an answer. */
static inline void send_message(const void *message, size_t bytes)
{
    if (world->splices && write(through[1], message, bytes) == (ssize_t)bytes)
        (void)!splice(through[0], NULL, world->device, NULL, bytes, 0);
    else
        (void)!write(world->device, message, bytes);
}

/* Room for one message. All programs are linked into one, which must have room in a small machine: what they keep in static arrays counts there for each of them. */
static inline unsigned char *message_room(void)
{
    unsigned char *room = malloc(MESSAGE_BYTES);
    if (!room)
        _exit(1);
    return room;
}

static inline void reply(const struct fuse_in_header *in, int error, const void *body, size_t bytes)
{
    static unsigned char *out;
    if (!out)
        out = message_room();
    struct fuse_out_header header = { sizeof header + (error ? 0 : bytes), error, in->unique };
    memcpy(out, &header, sizeof header);
    if (!error && bytes)
        memcpy(out + sizeof header, body, bytes);
    if (world->break_opcode == (int)in->opcode) {
        struct fuse_out_header *head = (void *)out;
        struct fuse_attr *attr = NULL;
        if (in->opcode == FUSE_LOOKUP)
            attr = &((struct fuse_entry_out *)(out + sizeof header))->attr;
        if (in->opcode == FUSE_GETATTR)
            attr = &((struct fuse_attr_out *)(out + sizeof header))->attr;
        switch (world->breakage) {
        case 1: /* shorter than it should be */
            head->len -= 1;
            break;
        case 2: /* longer than it may be */
            memset(out + head->len, 7, 8192);
            head->len += 8192;
            break;
        case 3: /* a kind of file that there is none of */
            attr->mode = 0;
            break;
        case 4: /* a size that no file has */
            attr->size = 1ull << 63;
            break;
        case 5: /* another kind of file */
            attr->mode ^= S_IFREG ^ S_IFDIR;
            break;
        case 6: /* an error, and something behind it */
            head->error = -EPERM;
            break;
        }
        send_message(out, head->len);
        return;
    }
    send_message(out, header.len);
}

static inline void reply_entry(const struct fuse_in_header *in, int id)
{
    struct node *node = node_at(id);
    node->lookups++;
    struct fuse_entry_out out = { .nodeid = id, .generation = 1, .entry_valid = world->entry_valid,
                                  .attr_valid = world->attr_valid, .attr = node->attr };
    reply(in, 0, &out, sizeof out);
}

static inline void reply_attr(const struct fuse_in_header *in, struct node *node)
{
    struct fuse_attr_out out = { .attr_valid = world->attr_valid, .attr = node->attr };
    reply(in, 0, &out, sizeof out);
}

static inline void reply_list(const struct fuse_in_header *in, uint64_t offset, uint32_t size)
{
    static char list[65536];
    size_t used = 0;
    uint64_t place = 0;
    for (int id = 0; id < NODES; id++) {
        const char *name;
        uint32_t mode;
        uint64_t number;
        if (id < 2) {
            name = id ? ".." : ".";
            mode = S_IFDIR;
            number = 101;
        } else if (world->nodes[id].used && world->nodes[id].parent == (int)in->nodeid) {
            name = world->nodes[id].name;
            mode = world->nodes[id].attr.mode;
            number = world->nodes[id].attr.ino;
        } else {
            continue;
        }
        if (place++ < offset)
            continue;
        struct fuse_dirent entry = { .ino = number, .off = place, .namelen = strlen(name), .type = mode >> 12 };
        size_t bytes = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);
        if (used + bytes > size)
            break;
        memset(list + used, 0, bytes);
        memcpy(list + used, &entry, FUSE_NAME_OFFSET);
        memcpy(list + used + FUSE_NAME_OFFSET, name, entry.namelen);
        used += bytes;
    }
    reply(in, 0, list, used);
}

static inline void serve_change(const struct fuse_in_header *in, const struct fuse_setattr_in *arg)
{
    struct node *node = node_at(in->nodeid);
    world->last_valid = arg->valid & ~(FATTR_FH | FATTR_LOCKOWNER);
    if (arg->valid & FATTR_MODE)
        node->attr.mode = (node->attr.mode & S_IFMT) | (arg->mode & 07777);
    if (arg->valid & FATTR_UID)
        node->attr.uid = arg->uid;
    if (arg->valid & FATTR_GID)
        node->attr.gid = arg->gid;
    if (arg->valid & FATTR_SIZE) {
        if (arg->size < node->attr.size)
            memset(node->data + arg->size, 0, node->attr.size - arg->size);
        node->attr.size = arg->size;
    }
    if (arg->valid & FATTR_ATIME)
        node->attr.atime = arg->valid & FATTR_ATIME_NOW ? 5000 : arg->atime;
    if (arg->valid & FATTR_MTIME)
        node->attr.mtime = arg->valid & FATTR_MTIME_NOW ? 6000 : arg->mtime;
    reply_attr(in, node);
}

static inline void serve_new(const struct fuse_in_header *in, const char *name, uint32_t mode, const char *text, int opened)
{
    int id = add_node(in->nodeid, name, mode, text);
    struct node *node = node_at(id);
    node->attr.uid = in->uid;
    node->attr.gid = in->gid;
    if (!opened) {
        reply_entry(in, id);
        return;
    }
    node->lookups++;
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out = { { .nodeid = id, .generation = 1, .entry_valid = world->entry_valid, .attr_valid = world->attr_valid,
                .attr = node->attr },
              { .fh = 1000 + id, .open_flags = world->open_flags } };
    reply(in, 0, &out, sizeof out);
}

static inline void serve_one(const struct fuse_in_header *in)
{
    const void *arg = in + 1;
    struct node *node = node_at(in->nodeid);
    int opcode = in->opcode, id;
    if (opcode == FUSE_INTERRUPT) {
        const struct fuse_interrupt_in *interrupt = arg;
        atomic_fetch_add(&world->interrupts, 1);
        if (world->on_interrupt) {
            struct fuse_in_header other = *in;
            other.unique = interrupt->unique;
            other.opcode = 0;
            reply(&other, -EINTR, NULL, 0);
        }
        return;
    }
    if (opcode == FUSE_FORGET) {
        if (node)
            node->forgotten += ((const struct fuse_forget_in *)arg)->nlookup;
        return;
    }
    if (opcode == FUSE_BATCH_FORGET) {
        const struct fuse_batch_forget_in *batch = arg;
        const struct fuse_forget_one *one = (const void *)(batch + 1);
        for (uint32_t index = 0; index < batch->count; index++)
            if (node_at(one[index].nodeid))
                node_at(one[index].nodeid)->forgotten += one[index].nlookup;
        return;
    }
    world->last_uid = in->uid;
    world->last_gid = in->gid;
    world->last_pid = in->pid;
    if (opcode < 64 && world->silent >> opcode & 1) {
        atomic_store(&world->waiting_opcode, opcode);
        return;
    }
    if (opcode < 64 && world->unknown >> opcode & 1) {
        reply(in, -ENOSYS, NULL, 0);
        return;
    }
    if (world->refuse_opcode == opcode) {
        reply(in, -world->refuse_errno, NULL, 0);
        return;
    }
    switch (opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = { .major = 7, .minor = world->minor, .max_readahead = 65536, .flags = world->flags,
                                     .max_background = 0, .max_write = world->max_write, .flags2 = world->flags2 };
        reply(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_LOOKUP:
        id = find_child(in->nodeid, arg);
        if (id)
            reply_entry(in, id);
        else
            reply(in, -ENOENT, NULL, 0);
        return;
    case FUSE_GETATTR:
        if (node)
            reply_attr(in, node);
        else
            reply(in, -ENOENT, NULL, 0);
        return;
    case FUSE_SETATTR:
        serve_change(in, arg);
        return;
    case FUSE_READLINK:
        reply(in, 0, node->text, strlen(node->text));
        return;
    case FUSE_SYMLINK: {
        const char *name = arg;
        serve_new(in, name, S_IFLNK | 0777, name + strlen(name) + 1, 0);
        return;
    }
    case FUSE_MKNOD: {
        const struct fuse_mknod_in *made = arg;
        world->last_mode = made->mode;
        world->last_umask = made->umask;
        serve_new(in, (const char *)(made + 1), made->mode, NULL, 0);
        return;
    }
    case FUSE_MKDIR: {
        const struct fuse_mkdir_in *made = arg;
        world->last_mode = made->mode;
        world->last_umask = made->umask;
        serve_new(in, (const char *)(made + 1), S_IFDIR | made->mode, NULL, 0);
        return;
    }
    case FUSE_CREATE: {
        const struct fuse_create_in *made = arg;
        world->last_mode = made->mode;
        world->last_umask = made->umask;
        world->last_flags = made->flags;
        serve_new(in, (const char *)(made + 1), made->mode, NULL, 1);
        return;
    }
    case FUSE_UNLINK:
    case FUSE_RMDIR:
        id = find_child(in->nodeid, arg);
        if (!id) {
            reply(in, -ENOENT, NULL, 0);
            return;
        }
        world->nodes[id].parent = -1;
        world->nodes[id].attr.nlink = 0;
        reply(in, 0, NULL, 0);
        return;
    case FUSE_LINK: {
        const struct fuse_link_in *linked = arg;
        reply(in, linked->oldnodeid ? -EMLINK : 0, NULL, 0);
        return;
    }
    case FUSE_RENAME:
    case FUSE_RENAME2: {
        const struct fuse_rename2_in *moved = arg;
        const char *from = opcode == FUSE_RENAME ? (const char *)arg + 8 : (const char *)(moved + 1);
        const char *to = from + strlen(from) + 1;
        int old = find_child(in->nodeid, from), present = find_child(moved->newdir, to);
        if (present && opcode == FUSE_RENAME2 && moved->flags & RENAME_NOREPLACE) {
            reply(in, -EEXIST, NULL, 0);
            return;
        }
        if (present && opcode == FUSE_RENAME2 && moved->flags & RENAME_EXCHANGE) {
            char name[64];
            strcpy(name, world->nodes[old].name);
            strcpy(world->nodes[old].name, world->nodes[present].name);
            strcpy(world->nodes[present].name, name);
            int parent = world->nodes[old].parent;
            world->nodes[old].parent = world->nodes[present].parent;
            world->nodes[present].parent = parent;
            reply(in, 0, NULL, 0);
            return;
        }
        if (present)
            world->nodes[present].parent = -1;
        world->nodes[old].parent = moved->newdir;
        snprintf(world->nodes[old].name, sizeof world->nodes[old].name, "%s", to);
        reply(in, 0, NULL, 0);
        return;
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        world->last_flags = ((const struct fuse_open_in *)arg)->flags;
        struct fuse_open_out out = { .fh = 1000 + in->nodeid, .open_flags = world->open_flags };
        reply(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        const struct fuse_read_in *wanted = arg;
        uint64_t left = wanted->offset < node->attr.size ? node->attr.size - wanted->offset : 0;
        reply(in, 0, node->data + wanted->offset, left < wanted->size ? left : wanted->size);
        return;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *wanted = arg;
        struct fuse_write_out out = { .size = wanted->size };
        if (wanted->offset + wanted->size > DATA_BYTES) {
            reply(in, -ENOSPC, NULL, 0);
            return;
        }
        memcpy(node->data + wanted->offset, wanted + 1, wanted->size);
        if (node->attr.size < wanted->offset + wanted->size)
            node->attr.size = wanted->offset + wanted->size;
        node->attr.mtime++;
        reply(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = { .st = { .blocks = 1000, .bfree = 600, .bavail = 500, .files = 40, .ffree = 30,
                                               .bsize = 4096, .namelen = 200, .frsize = 4096 } };
        reply(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_SETXATTR: {
        const struct fuse_setxattr_in *set = arg;
        const char *name = (const char *)arg + FUSE_COMPAT_SETXATTR_IN_SIZE;
        snprintf(node->attribute_name, sizeof node->attribute_name, "%s", name);
        memcpy(node->attribute_value, name + strlen(name) + 1, node->attribute_bytes = set->size);
        reply(in, 0, NULL, 0);
        return;
    }
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR: {
        const struct fuse_getxattr_in *get = arg;
        const char *name = (const char *)(get + 1);
        const void *value = node->attribute_value;
        uint32_t bytes = node->attribute_bytes;
        if (opcode == FUSE_LISTXATTR) {
            value = node->attribute_name;
            bytes = node->attribute_name[0] ? strlen(node->attribute_name) + 1 : 0;
        } else if (!node->attribute_name[0] || strcmp(name, node->attribute_name)) {
            reply(in, -ENODATA, NULL, 0);
            return;
        }
        struct fuse_getxattr_out out = { .size = bytes };
        if (!get->size)
            reply(in, 0, &out, sizeof out);
        else if (get->size < bytes)
            reply(in, -ERANGE, NULL, 0);
        else
            reply(in, 0, value, bytes);
        return;
    }
    case FUSE_REMOVEXATTR:
        if (strcmp(arg, node->attribute_name)) {
            reply(in, -ENODATA, NULL, 0);
            return;
        }
        node->attribute_name[0] = 0;
        reply(in, 0, NULL, 0);
        return;
    case FUSE_ACCESS:
        world->last_access = ((const struct fuse_access_in *)arg)->mask;
        reply(in, 0, NULL, 0);
        return;
    case FUSE_READDIR: {
        const struct fuse_read_in *wanted = arg;
        reply_list(in, wanted->offset, wanted->size);
        return;
    }
    case FUSE_FALLOCATE: {
        const struct fuse_fallocate_in *wanted = arg;
        if (!wanted->mode && node->attr.size < wanted->offset + wanted->length)
            node->attr.size = wanted->offset + wanted->length;
        reply(in, 0, NULL, 0);
        return;
    }
    case FUSE_LSEEK: {
        struct fuse_lseek_out out = { .offset = ((const struct fuse_lseek_in *)arg)->offset + 10 };
        reply(in, 0, &out, sizeof out);
        return;
    }
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
        reply(in, 0, NULL, 0);
        return;
    default:
        reply(in, -ENOSYS, NULL, 0);
    }
}

/* Serves until the mount ends. */
static inline void serve(void)
{
    unsigned char *message = message_room();
    for (;;) {
        ssize_t count = take_message(message, MESSAGE_BYTES);
        if (count < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (count < 0)
            _exit(errno == ENODEV ? 0 : 1);
        const struct fuse_in_header *in = (const void *)message;
        if (in->opcode < 64)
            atomic_fetch_add(&world->count[in->opcode], 1);
        serve_one(in);
    }
}

static inline int open_device(void)
{
    mknod("device", S_IFCHR | 0666, makedev(10, 229));
    chmod("device", 0666);
    return open("device", O_RDWR | O_CLOEXEC);
}

/* Mounts on a directory and starts the server; what is said beyond the usual options comes behind them. */
static inline int mount_world(const char *place, unsigned long flags, const char *more)
{
    char options[256];
    world->device = open_device();
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=%d,group_id=%d%s", world->device, geteuid(), getegid(), more);
    if (mount("hand", place, "fuse.hand", flags | MS_NOSUID | MS_NODEV, options) < 0)
        return -1;
    world->pid = CHILD(serve());
    close(world->device);
    return 0;
}

static inline void end_server(void)
{
    kill(world->pid, SIGKILL);
    int status;
    waitpid(world->pid, &status, 0);
}

/* Waits until the server has so many requests of a kind. */
static inline void await(int opcode, int number)
{
    for (int tries = 0; tries < LOOKS && asked(opcode) < number; tries++)
        pause_ms(1);
}
#endif
