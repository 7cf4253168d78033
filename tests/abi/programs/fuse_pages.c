/* Pages of files of a file server: mappings, what is stored by them, writes beside them, programs, and what the server says of its files by itself. */
#include "fuse.h"

/* A message of the server's that answers nothing; sent by the program itself, which has a device of its own. */
static int notify(int device, int code, const void *body, size_t bytes, const void *more, size_t more_bytes)
{
    static unsigned char out[70000];
    struct fuse_out_header head = { sizeof head + bytes + more_bytes, code, 0 };
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, body, bytes);
    memcpy(out + sizeof head + bytes, more, more_bytes);
    ssize_t told = write(device, out, head.len);
    return told == head.len ? 0 : -1;
}

static int invalidate_inode(int device, uint64_t node, int64_t offset, int64_t length)
{
    struct fuse_notify_inval_inode_out out = { node, offset, length };
    return notify(device, FUSE_NOTIFY_INVAL_INODE, &out, sizeof out, NULL, 0);
}

static int invalidate_entry(int device, uint64_t directory, const char *name)
{
    struct fuse_notify_inval_entry_out out = { .parent = directory, .namelen = strlen(name) };
    return notify(device, FUSE_NOTIFY_INVAL_ENTRY, &out, sizeof out, name, strlen(name) + 1);
}

static int store(int device, uint64_t node, uint64_t offset, const char *text)
{
    struct fuse_notify_store_out out = { .nodeid = node, .offset = offset, .size = strlen(text) };
    return notify(device, FUSE_NOTIFY_STORE, &out, sizeof out, text, strlen(text));
}

static void show_file(const char *path, off_t offset)
{
    char text[30] = "";
    int fd = open(path, O_RDONLY);
    printf("   %s: %ld", path, (long)pread(fd, text, sizeof text - 1, offset));
    printf(" %s\n", text);
    close(fd);
}

static void mappings(struct node *node)
{
    printf("-- mappings\n");
    node->attr.size = 3 * 4096 + 100;
    memset(node->data, 'a', node->attr.size);
    int fd = open("m/file", O_RDWR);
    char *map = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    TRUE(map != MAP_FAILED);
    printf("   %c %c %d\n", map[0], map[3 * 4096 + 99], map[3 * 4096 + 100]);
    memcpy(map + 4090, "across pages", 12);
    char text[20] = "";
    SHOW(pread(fd, text, 12, 4090));
    printf("   %s\n", text);
    SHOW(pwrite(fd, "WRITE", 5, 8192));
    printf("   %.6s\n", map + 8192);
    SHOW(msync(map, 4 * 4096, MS_SYNC));
    printf("   server: %.12s %.6s\n", node->data + 4090, node->data + 8192);
    memcpy(map + 100, "fsync", 5);
    SHOW(fsync(fd));
    printf("   server: %.5s\n", node->data + 100);
    memcpy(map + 200, "close", 5);
    SHOW(munmap(map, 4 * 4096));
    SHOW(close(fd));
    SHOW(asked(FUSE_WRITE) > 1);
    printf("   server: %.5s\n", node->data + 200);
    fd = open("m/file", O_RDONLY);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    map[0] = 'P';
    printf("   %c %c\n", map[0], node->data[4096]);
    SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? errno : 0);
    munmap(map, 4096);
    close(fd);
}

/* What is stored by a mapping is there after the file was closed, and the mount has gone. */
static void after_the_end(struct node *node)
{
    printf("-- after the end\n");
    node->attr.size = 200 * 1024;
    memset(node->data, 'b', node->attr.size);
    int fd = open("m/file", O_RDWR);
    char *map = mmap(NULL, node->attr.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SHOW(close(fd));
    for (unsigned page = 0; page < 50; page++)
        map[page * 4096 + page] = 'c';
    SHOW(munmap(map, node->attr.size));
    SHOW(umount("m"));
    int wrong = 0;
    for (unsigned page = 0; page < 50; page++)
        wrong += node->data[page * 4096 + page] != 'c' || node->data[page * 4096 + page + 1] != 'b';
    SHOW(wrong);
    int ended;
    waitpid(world->pid, &ended, 0);
    printf("   %s\n", how_ended(ended));
}

static void told(struct node *node, int id)
{
    printf("-- what the server says\n");
    int device = open("device", O_RDWR), fd = open("m/file", O_RDONLY);
    uint32_t number = world->device;
    SHOW(ioctl(device, FUSE_DEV_IOC_CLONE, &number));
    SHOW(ioctl(device, FUSE_DEV_IOC_CLONE, &number));
    number = 0;
    int other = open("device", O_RDWR);
    SHOW(ioctl(other, FUSE_DEV_IOC_CLONE, &number));
    SHOW(ioctl(other, 0x1234, &number));
    close(other);
    close(fd);

    /* Everything is believed for ever; then the server changes it. */
    struct stat found;
    node->attr.size = 10;
    memcpy(node->data, "0123456789", 10);
    SHOW(stat("m/other", &found));
    SHOW(stat("m/file", &found));
    show_file("m/file", 0);
    memcpy(node->data, "abcdefghij", 10);
    node->attr.mode = S_IFREG | 0600;
    world->open_flags = FOPEN_KEEP_CACHE;
    show_file("m/file", 0);
    SHOW(stat("m/file", &found));
    printf("   %o\n", found.st_mode);
    SHOW(invalidate_inode(device, id, 0, 0));
    show_file("m/file", 0);
    SHOW(stat("m/file", &found));
    printf("   %o\n", found.st_mode);
    memcpy(node->data, "ABCDEFGHIJ", 10);
    SHOW(invalidate_inode(device, id, -1, 0));
    show_file("m/file", 0);
    SHOW(invalidate_inode(device, 40, 0, 0));

    SHOW(store(device, id, 2, "store"));
    show_file("m/file", 0);
    SHOW(store(device, 40, 0, "x"));

    int before = asked(FUSE_LOOKUP);
    SHOW(stat("m/file", &found));
    SHOW(asked(FUSE_LOOKUP) - before);
    SHOW(invalidate_entry(device, 1, "file"));
    SHOW(stat("m/file", &found));
    SHOW(asked(FUSE_LOOKUP) - before);
    SHOW(invalidate_entry(device, 40, "file"));
    SHOW(invalidate_entry(device, id, "x"));
    close(device);
}

static void execute(void)
{
    printf("-- a program\n");
    int id = add_node(1, "program", S_IFREG | 0755, NULL);
    struct node *node = node_at(id);
    const char *script = "#!/bin/busybox echo\n";
    memcpy(node->data, script, node->attr.size = strlen(script));
    REAP(CHILD({
        execl("m/program", "program", "text", NULL);
        printf("   %s\n", ERRNO_NAME(errno));
    }));
    id = add_node(1, "data", S_IFREG | 0644, "x");
    REAP(CHILD({
        execl("m/data", "data", NULL);
        printf("   %s\n", ERRNO_NAME(errno));
    }));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    make_world();
    int id = add_node(1, "file", S_IFREG | 0644, NULL);
    add_node(1, "other", S_IFREG | 0644, "other");
    struct node *node = node_at(id);
    SHOW(mount_world("m", 0, ""));
    mappings(node);
    execute();
    after_the_end(node);

    world->entry_valid = world->attr_valid = ~0ull;
    world->device = open_device();
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", world->device);
    SHOW(mount("hand", "m", "fuse.hand", 0, options));
    world->pid = CHILD(serve());
    told(node, id);
    close(world->device);
    SHOW(umount("m"));
    int ended;
    waitpid(world->pid, &ended, 0);
    printf("   %s\n", how_ended(ended));
    return 0;
}
