/* The files of a dropped tmpfs are gone, whatever was done in it before: names that are not there were looked up in directories
 * that are removed, replaced or still somebody's working directory, and who was in it ended in disorder.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,4
 * abi: limit 60
 */
#include "guest.h"

enum { ROUNDS = 48, FILE_BYTES = 1 << 20 };

static void must(int result, const char *what)
{
    if (result < 0) {
        printf("%s: %s\n", what, strerror(errno));
        _exit(1);
    }
}

static void fill(void)
{
    static char bytes[FILE_BYTES];
    int fd = open("file", O_CREAT | O_WRONLY, 0666);
    must(fd, "open");
    must(write(fd, bytes, sizeof bytes) == sizeof bytes ? 0 : -1, "write");
    close(fd);
}

static void *opener(void *nothing)
{
    for (;;) {
        close(open("file", O_RDONLY));
        close(open("work/absent", O_RDONLY));
    }
    return nothing;
}

/* Threads that are in the file system when the process is killed or ends. */
static void end_in_disorder(int killed)
{
    pid_t child = fork();
    must(child, "fork");
    if (child == 0) {
        pthread_t thread;
        must(chroot("."), "chroot");
        open("file", O_RDWR);
        open("work", O_PATH);
        for (int i = 0; i < 2; i++)
            pthread_create(&thread, NULL, opener, NULL);
        if (!killed)
            syscall(SYS_exit_group, 0);
        opener(NULL);
    }
    if (killed) {
        pause_ms(2);
        kill(child, SIGKILL);
    }
    must(waitpid(child, NULL, 0), "waitpid");
}

static void remove_a_directory(void)
{
    must(mkdir("removed", 0777), "mkdir");
    access("removed/absent", F_OK);
    must(rmdir("removed"), "rmdir");
}

static void replace_a_directory(void)
{
    must(mkdir("old", 0777), "mkdir");
    must(mkdir("new", 0777), "mkdir");
    access("new/absent", F_OK);
    must(rename("old", "new"), "rename");
}

static void look_around_in_a_removed_directory(void)
{
    int here = open(".", O_PATH | O_DIRECTORY);
    must(mkdir("work/removed", 0777), "mkdir");
    must(chdir("work/removed"), "chdir");
    must(rmdir("../removed"), "rmdir");
    access("absent", F_OK);
    must(fchdir(here), "fchdir");
    close(here);
}

static void be_killed(void)
{
    end_in_disorder(1);
}

static void end(void)
{
    end_in_disorder(0);
}

static void rounds(const char *what, void (*use)(void))
{
    long before = free_kib();
    progress("dropped mounts: %s", what);
    for (int i = 0; i < ROUNDS; i++) {
        must(mount("tmpfs", "/tmp/dropped", "tmpfs", 0, NULL), "mount");
        must(chdir("/tmp/dropped"), "chdir");
        must(mkdir("work", 0777), "mkdir");
        fill();
        use();
        must(chdir("/"), "chdir");
        must(umount2("/tmp/dropped", MNT_DETACH), "umount2");
    }
    memory_is_back(what, before);
}

int main(void)
{
    mkdir("/tmp/dropped", 0755);
    rounds("a removed directory", remove_a_directory);
    rounds("a replaced directory", replace_a_directory);
    rounds("a removed working directory", look_around_in_a_removed_directory);
    rounds("killed threads", be_killed);
    rounds("ended threads", end);
    rmdir("/tmp/dropped");
    return verdict_failed;
}
