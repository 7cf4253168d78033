/* The devices every program expects: null, zero, full, random, tty, fd. */
#include "abi.h"

int main(void)
{
    char text[64];
    memset(text, 'x', sizeof text);
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
    int random = open("/dev/random", O_RDWR), urandom = open("/dev/urandom", O_RDWR);
    SHOW(read(null, text, 10));
    SHOW(write(null, text, 10));
    SHOW(lseek(null, 100, SEEK_SET));
    SHOW(read(zero, text, 10));
    SHOW(text[9]);
    SHOW(text[10]);
    SHOW(write(zero, text, 10));
    SHOW(read(full, text, 20));
    SHOW(text[19]);
    SHOW(write(full, text, 10));
    SHOW(write(full, text, 0));
    SHOW(read(random, text, 32));
    SHOW(read(urandom, text, 64));
    SHOW(write(urandom, text, 64));
    int different = 0;
    for (int i = 1; i < 64; i++)
        different += text[i] != text[0];
    TRUE(different > 32);
    SHOW(pread(zero, text, 10, 12345));
    SHOW(ftruncate(null, 0));
    SHOW(fsync(null));
    SHOW(ioctl(null, TCGETS, text));
    OK(open("/dev/tty", O_RDWR));
    OK(open("/dev/absent", O_RDWR));
    OK(open("/dev/null/x", O_RDWR));
    OK(open("/dev/null", O_RDONLY | O_DIRECTORY));
    OK(open("/dev/null", O_RDWR | O_CREAT | O_TRUNC, 0600));
    OK(open("/dev/null", O_RDWR | O_CREAT | O_EXCL, 0600));
    const char *names[] = { "null", "zero", "full", "random", "urandom", "tty", "ptmx" };
    for (int i = 0; i < 7; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", names[i]);
        struct stat about;
        if (stat(path, &about) == 0)
            printf("%s: %o %d:%d\n", names[i], about.st_mode, major(about.st_rdev), minor(about.st_rdev));
        else
            printf("%s: %s\n", names[i], ERRNO_NAME(errno));
    }
    int ends[2];
    pipe(ends);
    write(ends[1], "through", 7);
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    int again = open(path, O_RDONLY);
    SHOW(read(again, text, 7));
    printf("%.7s\n", text);
    REAP(CHILD({ setresuid(1, 1, 1); OK(open("/dev/null", O_RDWR)); OK(open("/dev/zero", O_RDWR)); OK(open("/dev/urandom", O_RDWR)); }));
    struct stat about;
    SHOW(stat("/dev/pts", &about));
    SHOW(statfs("/dev/pts", (struct statfs[1]){ 0 }));
    SHOW(access("/dev/shm", W_OK));
    return 0;
}
