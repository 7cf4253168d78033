/* What execution gives when somebody else has a hand in it: a tracer without privileges, who shares the root and the working directory, or
 * the promise to gain nothing. For programs of all kinds, executed by all kinds of users. */
#include "abi.h"
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/ptrace.h>

enum { USER = 1000, OTHER = 1001, OWNER = 2000, GROUP = 1500 };

static const struct program {
    const char *name;
    int owner, group, mode, magic;
} programs[] = {
    { "plain", 0, 0, 0755, 0 },
    { "set-user-root", 0, 0, 04755, 0 },
    { "set-user-other", OWNER, OWNER, 04755, 0 },
    { "set-group-other", 0, OWNER, 02755, 0 },
    { "set-group-known", 0, GROUP, 02755, 0 },
    { "set-both", OWNER, OWNER, 06755, 0 },
    { "capable", 0, 0, 0755, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE },
    { "capable-later", 0, 0, 0755, VFS_CAP_REVISION_2 },
};

static const struct caller {
    const char *name;
    int real, effective, file, drops;
} callers[] = {
    { "user", USER, USER, USER, 0 },
    { "two users", USER, OTHER, OTHER, 0 },
    { "careful root", 0, USER, USER, 0 },
    { "half root", USER, 0, 0, 0 },
    { "root", 0, 0, 0, 0 },
    { "poor root", 0, 0, 0, 1 },
    { "root with others' files", 0, 0, USER, 0 },
};

static const char *kind_of(uint32_t low)
{
    return low == 0 ? "none" : low == 1u << CAP_NET_RAW ? "net_raw" : (low & 1u << CAP_SYS_ADMIN) ? "many" : "others";
}

static int report(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { 0 };
    uid_t real, effective, saved;
    gid_t group, effective_group, saved_group;
    syscall(SYS_capget, &header, data);
    getresuid(&real, &effective, &saved);
    getresgid(&group, &effective_group, &saved_group);
    printf("users %d %d %d groups %d %d %d permitted %s effective %s secure %ld dumpable %d told %d %d %d %d\n", (int)real, (int)effective, (int)saved, (int)group,
           (int)effective_group, (int)saved_group, kind_of(data[0].permitted), kind_of(data[0].effective), getauxval(AT_SECURE),
           prctl(PR_GET_DUMPABLE), (int)getauxval(AT_UID), (int)getauxval(AT_EUID), (int)getauxval(AT_GID), (int)getauxval(AT_EGID));
    return 0;
}

static void make(const struct program *program)
{
    int in = open("/proc/self/exe", O_RDONLY), out = open(program->name, O_CREAT | O_WRONLY | O_TRUNC, 0755);
    while (sendfile(out, in, NULL, 1 << 20) > 0)
        ;
    close(in);
    close(out);
    if (chown(program->name, program->owner, program->group) != 0)
        abort();
    chmod(program->name, program->mode);
    uint32_t value[5] = { program->magic, 1u << CAP_NET_RAW };
    if (program->magic != 0)
        SHOW(setxattr(program->name, "security.capability", value, sizeof value, 0));
}

static void become(const struct caller *caller)
{
    gid_t group = GROUP;
    setgroups(1, &group);
    setresgid(caller->real, caller->effective, caller->effective);
    setresuid(caller->real, caller->effective, caller->effective);
    if (caller->file != caller->effective)
        setfsuid(caller->file);
    if (caller->drops) {
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct none[2] = { 0 };
        if (syscall(SYS_capset, &header, none) != 0)
            abort();
    }
}

static void execute(const char *program)
{
    execl(program, "unsafe_exec", "report", NULL);
    printf("%s\n", ERRNO_NAME(errno));
    fflush(stdout);
    _exit(1);
}

static void alone(const char *program) { execute(program); }

static void promised(const char *program)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    execute(program);
}

static void *sleeps(void *none)
{
    for (;;)
        pause();
    return none;
}

static void with_thread(const char *program)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, NULL);
    execute(program);
}

/* The parent shares its root and working directory with who executes. */
static void shared(const char *program)
{
    pid_t child = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0)
        execute(program);
    waitpid(child, NULL, 0);
    _exit(0);
}

/* As before, but who shared has ended. */
static void was_shared(const char *program)
{
    pid_t child = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    execute(program);
}

static void traced(const char *program)
{
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execute(program);
    }
    int status;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, child, NULL, NULL);
    _exit(0);
}

static const struct way {
    const char *name;
    void (*execute)(const char *);
} ways[] = {
    { "alone", alone },
    { "with a thread", with_thread },
    { "shared", shared },
    { "was shared", was_shared },
    { "promised", promised },
    { "traced", traced },
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1)
        return report();
    chmod(".", 0755);
    for (size_t i = 0; i < COUNT(programs); i++)
        make(&programs[i]);
    for (size_t way = 0; way < COUNT(ways); way++)
        for (size_t caller = 0; caller < COUNT(callers); caller++)
            for (size_t i = 0; i < COUNT(programs); i++) {
                printf("%s, %s, %s: ", ways[way].name, callers[caller].name, programs[i].name);
                fflush(stdout);
                pid_t child = fork();
                if (child == 0) {
                    become(&callers[caller]);
                    ways[way].execute(programs[i].name);
                }
                waitpid(child, NULL, 0);
            }
    return 0;
}
