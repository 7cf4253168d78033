/* Who may look into a process: the rule of ptrace(2) for calls that name one, and for its files below /proc. */
#include "abi.h"

enum { ONE = 101, OTHER = 102 };

static char *area;
static int given;

/* What the caller gets of a process. */
static void look(pid_t pid)
{
    char text[16] = "", path[64];
    struct iovec local = { text, 8 }, remote = { area, 8 };
    SHOW(process_vm_readv(pid, &local, 1, &remote, 1, 0));
    SHOW(process_vm_writev(pid, &local, 1, &remote, 1, 0));
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    OK(syscall(SYS_pidfd_getfd, process, given, 0));
    SHOW(syscall(SYS_pidfd_getfd, process, 900, 0));
    close(process);
    void *head;
    size_t size;
    SHOW(syscall(SYS_get_robust_list, pid, &head, &size));
    static const char *const files[] = { "mem", "maps", "environ", "auxv", "pagemap", "smaps", "status", "statm" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        int file = open(path, O_RDONLY);
        printf("%s: %s\n", files[i], file < 0 ? ERRNO_NAME(errno) : "open");
        close(file);
    }
    static const char *const read_later[] = { "io", "syscall", "wchan" };
    for (size_t i = 0; i < sizeof read_later / sizeof *read_later; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, read_later[i]);
        int file = open(path, O_RDONLY);
        char byte;
        if (file < 0)
            printf("%s: %s\n", read_later[i], ERRNO_NAME(errno));
        else
            printf("%s: open, %s\n", read_later[i], read(file, &byte, 1) == 1 ? byte == '0' ? "hidden" : "read" : ERRNO_NAME(errno));
        close(file);
    }
    static const char *const links[] = { "exe", "cwd", "root", "ns/uts", "fd/1", "task" };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char target[256];
        snprintf(path, sizeof path, "/proc/%d/%s", pid, links[i]);
        printf("%s: %s\n", links[i], readlink(path, target, sizeof target) < 0 ? ERRNO_NAME(errno) : "read");
    }
}

struct identity {
    uid_t real, effective, saved, files;
    gid_t group;
    int not_dumpable;
};

static void become(const struct identity *who)
{
    setgroups(0, NULL);
    setresgid(who->group, who->group, who->group);
    /* Keeps nothing of what the superuser may do, unless it stays the superuser. */
    setresuid(who->real, who->effective, who->saved);
    if (who->files != who->effective)
        setfsuid(who->files);
    prctl(PR_SET_DUMPABLE, !who->not_dumpable);
}

static void try(const char *name, struct identity target, struct identity looker)
{
    printf("-- %s\n", name);
    fflush(stdout);
    int ready[2];
    pipe(ready);
    pid_t pid = CHILD({
        become(&target);
        tell(ready[1]);
        for (;;)
            pause();
    });
    hear(ready[0]);
    wait_state(pid, "S");
    REAP(CHILD({
        become(&looker);
        look(pid);
    }));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

/* What a process that others may not look into sees of itself. */
static void itself(void)
{
    const struct identity hidden = { ONE, ONE, ONE, ONE, ONE, 1 };
    become(&hidden);
    char target[256];
    DIR *list = opendir("/proc/self/fd");
    TRUE(list != NULL && readdir(list) != NULL);
    list = opendir("/proc/thread-self/fdinfo");
    TRUE(list != NULL && readdir(list) != NULL);
    OK(readlink("/proc/self/fd/1", target, sizeof target));
    OK(open("/proc/self/fdinfo/1", O_RDONLY));
    OK(readlink("/proc/self/exe", target, sizeof target));
    OK(open("/proc/self/maps", O_RDONLY));
    OK(open("/proc/self/status", O_RDONLY));
    OK(open("/proc/self/mem", O_RDONLY));
    OK(open("/proc/self/environ", O_RDONLY));
    OK(open("/proc/self/comm", O_WRONLY));
}

int main(void)
{
    REAP(CHILD(itself()));
    area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    given = open("/", O_RDONLY);
    const struct identity one = { ONE, ONE, ONE, ONE, ONE, 0 }, other = { OTHER, OTHER, OTHER, OTHER, OTHER, 0 }, root = { 0 };
    struct identity hidden = one, saves = one, group = one, acts = one;
    hidden.not_dumpable = 1;
    saves.saved = OTHER;
    group.group = OTHER;
    acts.effective = OTHER;
    acts.files = OTHER;
    try("the same user", one, one);
    try("another user", other, one);
    try("one that does not let itself be looked into", hidden, one);
    try("one that may become another user again", saves, one);
    try("one of another group", group, one);
    try("the superuser", root, one);
    try("by the superuser", one, root);
    try("by the superuser, one that does not let itself be looked into", hidden, root);
    try("by one that acts for another user", one, acts);
    try("by one that acts for the user", other, acts);
    return 0;
}
