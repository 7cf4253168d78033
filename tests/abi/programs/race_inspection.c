/* Who may look into a program may not look into the set-user-ID program that it executes: neither its memory nor its files.
 * abi: limit 100
 */
#include "abi.h"

enum { ROUNDS = 200, NOBODY = 99, GIVEN = 77 };
static char *const PLACE = (char *)0x20000000;

static void map(const char *text)
{
    char *page = mmap(PLACE, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    strcpy(page, text);
}

/* What is executed: its owner is root. */
static int secret(void)
{
    if (geteuid() != 0)
        return 1;
    map("secret");
    dup2(open("key", O_RDONLY), GIVEN);
    for (volatile int i = 0; i < 300000; i++)
        ;
    return 0;
}

struct found {
    int memory, file, bytes, ends;
};

static void try(struct found *found, int how)
{
    int ready[2];
    pipe(ready);
    pid_t target = fork();
    if (target == 0) {
        map("public");
        dup2(open("/dev/null", O_RDONLY), GIVEN);
        tell(ready[1]);
        execl("./secret", "secret", "secret", NULL);
        _exit(2);
    }
    hear(ready[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", target);
    int process = (int)syscall(SYS_pidfd_open, target, 0), status = 0;
    while (waitpid(target, &status, WNOHANG) == 0) {
        char text[8] = "";
        struct iovec local = { text, 7 }, remote = { PLACE, 7 };
        if (how == 0) {
            process_vm_readv(target, &local, 1, &remote, 1, 0);
            found->memory += !strcmp(text, "secret");
        } else if (how == 1) {
            int file = (int)syscall(SYS_pidfd_getfd, process, GIVEN, 0);
            struct stat about;
            found->file += file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode);
            close(file);
        } else {
            int file = open(path, O_RDONLY);
            pread(file, text, 7, (off_t)PLACE);
            found->bytes += !strcmp(text, "secret");
            close(file);
        }
    }
    found->ends += status == 0;
    close(process);
    close(ready[0]);
    close(ready[1]);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "secret"))
        return secret();
    int from = open("/proc/self/exe", O_RDONLY), to = open("secret", O_CREAT | O_WRONLY, 0755), key = open("key", O_CREAT | O_WRONLY, 0600);
    while (sendfile(to, from, NULL, 1 << 20) > 0)
        ;
    fchmod(to, 04755);
    close(to);
    close(key);
    chmod(".", 0755);
    REAP(CHILD({
        setresuid(NOBODY, NOBODY, NOBODY);
        /* The file of the program that runs is everybody's, and so is this one. */
        prctl(PR_SET_DUMPABLE, 1);
        struct found found = { 0 };
        for (int round = 0; round < ROUNDS; round++)
            try(&found, round % 3);
        SHOW(found.ends);
        SHOW(found.memory);
        SHOW(found.file);
        SHOW(found.bytes);
    }));
    unlink("secret");
    unlink("key");
    return 0;
}
