/* A file server that breaks the rules: replies of wrong lengths and kinds, to wrong requests, notifications that make no sense, and random bytes. */
#include "fuse.h"

static void broken(int opcode, int breakage, const char *path)
{
    struct stat found;
    world->break_opcode = opcode;
    world->breakage = breakage;
    printf("%d %d: ", opcode, breakage);
    SHOW(stat(path, &found));
    world->break_opcode = 0;
}

/* What the device says to messages of ours. The server does not read meanwhile. */
static void senseless(int device)
{
    struct {
        struct fuse_out_header head;
        uint64_t body[20];
    } out;
    memset(&out, 0, sizeof out);
    SHOW(write(device, &out, 0));
    SHOW(write(device, &out, 15));
    SHOW(write(device, &out, 16));
    out.head.len = 16;
    SHOW(write(device, &out, 16));
    SHOW(write(device, &out, 24));
    out.head.unique = 12345678;
    SHOW(write(device, &out, 16));
    out.head.error = 5;
    SHOW(write(device, &out, 16));
    out.head.error = -1000;
    SHOW(write(device, &out, 16));
    out.head.error = 0;
    out.head.unique = 12345679;
    SHOW(write(device, &out, 16));
    out.head.unique = 0;
    for (int code = 0; code < 9; code++) {
        out.head.error = code;
        for (int bytes = 0; bytes <= 48; bytes += 8) {
            memset(out.body, 0, sizeof out.body);
            out.body[0] = 99;
            out.head.len = 16 + bytes;
            errno = 0;
            ssize_t told = write(device, &out, 16 + bytes);
            /* A watch that there is none of. */
            if (code != FUSE_NOTIFY_POLL && code < 7)
                printf("notification %d with %d bytes: %s\n", code, bytes, told < 0 ? ERRNO_NAME(errno) : "taken");
        }
    }
    char small[100];
    SHOW(read(device, small, sizeof small));
}

/* Any bytes at all, many times over, while somebody asks; a reply among them may be right by chance, so nothing is printed of it. */
static void any(unsigned seed)
{
    int device = open_device();
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", device);
    if (mount("hand", "m", "fuse", 0, options))
        return;
    pid_t server = CHILD({
        unsigned char *in = message_room(), *out = calloc(1, 300000);
        srandom(seed);
        for (int number = 0; number < 100000; number++) {
            ssize_t count = read(device, in, MESSAGE_BYTES);
            if (count < 0 && errno != EINTR)
                break;
            struct fuse_in_header *head = (void *)in;
            struct fuse_out_header *answer = (void *)out;
            if (head->opcode == FUSE_INIT) {
                struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 65536, .flags = FUSE_BIG_WRITES | FUSE_ATOMIC_O_TRUNC | FUSE_ASYNC_READ | FUSE_AUTO_INVAL_DATA };
                *answer = (struct fuse_out_header){ 16 + sizeof init, 0, head->unique };
                memcpy(answer + 1, &init, sizeof init);
                (void)!write(device, out, answer->len);
                continue;
            }
            static const int sizes[] = { 0, 8, 16, 40, 80, 104, 128, 144, 160, 4096, 65536, 131072, 200000 };
            int bytes = random() % 3 ? sizes[random() % 13] : random() % 300;
            for (int index = 0; index < bytes && index < 400; index++)
                out[16 + index] = random() % 4 ? 0 : random();
            /* Often a kind of file that makes sense, so that what comes behind it is looked at. */
            uint32_t *mode = (void *)(out + 16 + 40 + 60);
            *mode = random() % 2 ? S_IFDIR | 0777 : S_IFREG | 0777;
            *answer = (struct fuse_out_header){ 16 + bytes, random() % 4 ? 0 : -(int)(random() % 520), head->unique };
            if (random() % 20 == 0)
                answer->unique = random();
            if (random() % 20 == 0)
                answer->unique = 0, answer->error = random() % 8;
            (void)!write(device, out, answer->len);
            /* What was not taken as an answer is answered now. */
            *answer = (struct fuse_out_header){ 16, -EIO, head->unique };
            (void)!write(device, out, 16);
        }
    });
    close(device);
    pid_t asker = CHILD({
        static char text[70000];
        struct stat found;
        struct statfs status;
        for (int round = 0; round < 100; round++) {
            stat("m", &found);
            stat("m/a/b", &found);
            int fd = open("m/f", O_RDWR | O_CREAT, 0666);
            if (fd >= 0) {
                (void)!read(fd, text, sizeof text);
                (void)!pwrite(fd, text, sizeof text, 100);
                lseek(fd, 0, SEEK_END);
                fstat(fd, &found);
                (void)!ftruncate(fd, 1000);
                close(fd);
            }
            fd = open("m", O_RDONLY | O_DIRECTORY);
            (void)!syscall(SYS_getdents64, fd, text, sizeof text);
            close(fd);
            (void)!readlink("m/l", text, sizeof text);
            mkdir("m/d", 0777);
            rename("m/d", "m/e");
            unlink("m/f");
            getxattr("m/x", "user.a", text, 100);
            listxattr("m/x", text, 100);
            statfs("m", &status);
        }
    });
    int ended;
    waitpid(asker, &ended, 0);
    umount2("m", MNT_DETACH);
    waitpid(server, &ended, 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    make_world();
    add_node(1, "file", S_IFREG | 0644, "0123456789");
    add_node(1, "dir", S_IFDIR | 0755, NULL);
    SHOW(mount_world("m", 0, ""));
    for (int breakage = 1; breakage <= 6; breakage++) {
        char path[20];
        snprintf(path, sizeof path, "m/%d", breakage);
        add_node(1, path + 2, S_IFREG | 0644, "x");
        if (breakage != 5)
            broken(FUSE_LOOKUP, breakage, path);
        snprintf(path, sizeof path, "m/a%d", breakage);
        add_node(1, path + 2, S_IFREG | 0644, "x");
        broken(FUSE_GETATTR, breakage, path);
    }
    struct stat found;
    SHOW(stat("m/file", &found));
    world->break_opcode = FUSE_READ;
    world->breakage = 2;
    int fd = open("m/file", O_RDONLY);
    static char text[4096];
    SHOW(read(fd, text, sizeof text));
    close(fd);
    world->break_opcode = FUSE_OPEN;
    SHOW(open("m/file", O_RDONLY));
    world->break_opcode = FUSE_INIT;
    SHOW(umount("m"));
    end_server();
    SHOW(mount_world("m", 0, ""));
    SHOW(stat("m/file", &found));
    SHOW(umount("m"));
    end_server();
    world->break_opcode = 0;
    int device = open_device();
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", device);
    SHOW(mount("hand", "m", "fuse", 0, options));
    senseless(device);
    close(device);
    SHOW(stat("m", &found));
    SHOW(umount("m"));
    for (unsigned seed = 1; seed <= 8; seed++)
        any(seed);
    SHOW(stat("m", &found));
    return 0;
}
