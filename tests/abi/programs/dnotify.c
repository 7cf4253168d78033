/* F_NOTIFY: which calls tell the owner of a directory, how often, by which signal, and what ends it. */
#include "abi.h"

static volatile sig_atomic_t counts[2];
static volatile int descriptor;

static void on_signal(int number, siginfo_t *information, void *context)
{
    (void)context;
    counts[number == SIGIO ? 0 : 1]++;
    descriptor = number == SIGIO ? -1 : information->si_fd;
}

static int folder;

static void show(const char *what)
{
    printf("%s:%s%s%s\n", what, counts[0] || counts[1] ? " told" : " nothing", counts[0] ? " by SIGIO" : "",
           counts[1] && descriptor == folder ? " with the descriptor" : "");
    counts[0] = counts[1] = 0;
}

static void calls(int mask, const char *name)
{
    printf("-- %s\n", name);
    SHOW(fcntl(folder, F_NOTIFY, mask | DN_MULTISHOT));
    int fd = open("folder/file", O_RDWR | O_CREAT, 0644);
    show("create");
    write(fd, "text", 4);
    show("write");
    pread(fd, (char[4]){ 0 }, 4, 0);
    show("read");
    fchmod(fd, 0600);
    show("fchmod");
    ftruncate(fd, 1);
    show("ftruncate");
    close(fd);
    show("close");
    rename("folder/file", "folder/other");
    show("rename inside");
    rename("folder/other", "other");
    show("rename out");
    rename("other", "folder/file");
    show("rename in");
    mkdir("folder/below", 0755);
    show("mkdir");
    rmdir("folder/below");
    show("rmdir");
    chmod("folder", 0700);
    show("chmod of the directory");
    link("folder/file", "folder/second");
    show("link");
    unlink("folder/second");
    show("unlink");
    unlink("folder/file");
    show("the other unlink");
    SHOW(fcntl(folder, F_NOTIFY, 0));
    mkdir("folder/below", 0755);
    rmdir("folder/below");
    show("after it was taken back");
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
    sigaction(SIGIO, &action, NULL);
    sigaction(SIGRTMIN + 2, &action, NULL);
    mkdir("folder", 0755);
    folder = open("folder", O_RDONLY);
    put_text("plain", "");
    int plain = open("plain", O_RDONLY);
    SHOW(fcntl(plain, F_NOTIFY, DN_CREATE));
    SHOW(fcntl(plain, F_NOTIFY, 0));
    SHOW(fcntl(open("folder", O_PATH), F_NOTIFY, DN_CREATE));
    SHOW(fcntl(-1, F_NOTIFY, DN_CREATE));

    SHOW(fcntl(folder, F_NOTIFY, DN_CREATE));
    TRUE(fcntl(folder, F_GETOWN) == getpid());
    put_text("folder/first", "");
    show("once");
    put_text("folder/second", "");
    show("once more");
    SHOW(fcntl(folder, F_SETSIG, SIGRTMIN + 2));
    calls(DN_ACCESS, "access");
    calls(DN_MODIFY, "modify");
    calls(DN_CREATE, "create");
    calls(DN_DELETE, "delete");
    calls(DN_RENAME, "rename");
    calls(DN_ATTRIB, "attributes");
    calls(DN_CREATE | DN_DELETE, "create and delete");

    printf("-- ends\n");
    SHOW(fcntl(folder, F_NOTIFY, DN_DELETE | DN_MULTISHOT));
    REAP(CHILD(close(folder)));
    unlink("folder/first");
    show("a child closed it");
    int copy = dup(folder);
    close(copy);
    unlink("folder/second");
    show("a copy was closed");
    SHOW(fcntl(folder, F_NOTIFY, DN_DELETE | DN_MULTISHOT));
    close(folder);
    mkdir("folder/below", 0755);
    rmdir("folder/below");
    show("closed");

    /* Others are told only whom one may send a signal to. */
    int ends[2];
    pipe(ends);
    pid_t other = CHILD({
        setresuid(1000, 1000, 1000);
        folder = open("folder", O_RDONLY);
        fcntl(folder, F_SETOWN, getppid());
        SHOW(fcntl(folder, F_NOTIFY, DN_CREATE));
        tell(ends[1]);
        pause();
    });
    hear(ends[0]);
    chmod("folder", 0755);
    put_text("folder/third", "");
    show("in somebody else's name");
    kill(other, SIGKILL);
    REAP(other);
    return 0;
}
