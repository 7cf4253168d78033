/* A file server that splices: each message goes through a pipe as a whole. */
#include "fuse.h"

static unsigned char before[200000], after[200000];

static void no_messages(void)
{
    int ends[2];
    TRUE(pipe(ends) == 0);
    int device = world->device;
    SHOW(splice(device, NULL, ends[1], NULL, 100, 0));
    SHOW(write(ends[1], "0123456789", 10));
    SHOW(splice(ends[0], NULL, device, NULL, 20, 0));
    SHOW(splice(ends[0], NULL, device, NULL, 10, 0));
    SHOW(splice(device, NULL, ends[1], NULL, 1 << 20, 0));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    struct stat found;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    make_world();
    world->splices = 1;
    add_node(1, "file", S_IFREG | 0644, "0123456789");
    SHOW(mount_world("m", 0, ""));
    SHOW(stat("m/file", &found));
    for (size_t at = 0; at < sizeof before; at++)
        before[at] = at * 7 + at / 4096;
    int fd = open("m/file", O_RDWR);
    SHOW(pwrite(fd, before, sizeof before, 5));
    SHOW(pread(fd, after, sizeof after, 5));
    TRUE(!memcmp(before, after, sizeof before));
    SHOW(close(fd));
    SHOW(mkdir("m/directory", 0755));
    SHOW(rename("m/file", "m/directory/moved"));
    SHOW(stat("m/directory/moved", &found));
    printf("   %ld bytes\n", (long)found.st_size);
    SHOW(umount("m"));
    int ended;
    SHOW(waitpid(world->pid, &ended, 0) == world->pid);
    printf("   %s\n", how_ended(ended));
    world->device = open_device();
    SHOW(mount("hand", "m", "fuse.hand", 0, "") < 0);
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", world->device);
    SHOW(mount("hand", "m", "fuse.hand", 0, options));
    no_messages();
    SHOW(umount2("m", MNT_DETACH));
    close(world->device);
    return 0;
}
