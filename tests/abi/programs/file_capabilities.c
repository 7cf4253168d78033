/* Capabilities of program files: the attribute's form, who may set it, what takes it away, what execution gives. */
#include "abi.h"
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/auxv.h>

#define NAME "security.capability"
#define ME "/proc/self/exe"
#define BIT(number) (1u << (number))

struct value {
    uint32_t magic, permitted, inheritable, permitted_high, inheritable_high, root;
};

static char self[4096];

static void show_set(const char *what, uint32_t low, uint32_t high)
{
    printf(" %s %s", what, low == 0 && high == 0 ? "none" : low == BIT(CAP_NET_RAW) && high == 0 ? "net_raw" : low == BIT(CAP_CHOWN) && high == 0 ? "chown" : (low & BIT(CAP_SYS_ADMIN)) ? "many" : "others");
}

/* What a program finds that was executed. */
static int report(const char *what)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { 0 };
    syscall(SYS_capget, &header, data);
    printf("%s:", what);
    show_set("permitted", data[0].permitted, data[1].permitted);
    show_set("effective", data[0].effective, data[1].effective);
    printf(" ambient %d euid %d secure %ld dumpable %d\n", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0),
           (int)geteuid(), getauxval(AT_SECURE), prctl(PR_GET_DUMPABLE));
    return 0;
}

static void copy_self(const char *to)
{
    int in = open(ME, O_RDONLY);
    unlink(to);
    int out = open(to, O_CREAT | O_WRONLY | O_TRUNC, 0755);
    char buffer[65536];
    for (ssize_t got; (got = read(in, buffer, sizeof buffer)) > 0;)
        if (write(out, buffer, got) != got)
            abort();
    close(in);
    close(out);
    chmod(to, 0755);
}

static int give(const char *file, uint32_t magic, uint32_t permitted, uint32_t inheritable)
{
    struct value value = { magic, permitted, inheritable, 0, 0, 0 };
    return setxattr(file, NAME, &value, (magic & VFS_CAP_REVISION_MASK) == VFS_CAP_REVISION_3 ? 24 : 20, 0);
}

static void has(const char *file)
{
    struct value value = { 0 };
    int length = getxattr(file, NAME, &value, sizeof value);
    if (length < 0)
        printf("  %s: %s\n", file, ERRNO_NAME(errno));
    else
        printf("  %s: %d bytes, %08x %x %x root %u\n", file, length, value.magic, value.permitted, value.inheritable, length == 24 ? value.root : 0);
}

static void forms(void)
{
    struct value value = { VFS_CAP_REVISION_2, 1, 0, 0, 0, 0 };
    put_text("form", "x");
    SHOW(setxattr("form", NAME, &value, 19, 0));
    SHOW(setxattr("form", NAME, &value, 21, 0));
    SHOW(setxattr("form", NAME, &value, 24, 0));
    SHOW(setxattr("form", NAME, &value, 12, 0));
    value.magic = VFS_CAP_REVISION_1;
    SHOW(setxattr("form", NAME, &value, 12, 0));
    value.magic = VFS_CAP_REVISION_3;
    SHOW(setxattr("form", NAME, &value, 20, 0));
    value.magic = 0x04000000;
    SHOW(setxattr("form", NAME, &value, 24, 0));
    has("form");
    value.magic = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE;
    SHOW(setxattr("form", NAME, &value, 20, XATTR_REPLACE));
    SHOW(setxattr("form", NAME, &value, 20, XATTR_CREATE));
    SHOW(setxattr("form", NAME, &value, 20, XATTR_CREATE));
    has("form");
    SHOW(getxattr("form", NAME, NULL, 0));
    SHOW(getxattr("form", NAME, &value, 5));
    value = (struct value){ VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE, 1, 2, 0, 0, 0 };
    SHOW(setxattr("form", NAME, &value, 24, 0));
    has("form");
    value.root = 1000;
    SHOW(setxattr("form", NAME, &value, 24, 0));
    has("form");
    char list[200];
    SHOW(listxattr("form", list, sizeof list));
    SHOW(removexattr("form", NAME));
    SHOW(removexattr("form", NAME));
    has("form");
    chmod("form", 0666);
    chown("form", 1000, 1000);
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        SHOW(give("form", VFS_CAP_REVISION_2, 1, 0));
        SHOW(give("form", 0, 1, 0));
        SHOW(removexattr("form", NAME));
        has("form");
    }));
}

static void losses(void)
{
    put_text("lost", "some text");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    chmod("lost", 0644);
    has("lost");
    int file = open("lost", O_RDWR);
    has("lost");
    SHOW(pwrite(file, "S", 1, 0));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(pwrite(file, "more than there was", 19, 3));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(ftruncate(file, 4));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(fallocate(file, 0, 0, 100));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(chown("lost", 0, 0));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(chown("lost", -1, 7));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(chown("lost", -1, -1));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    close(open("lost", O_WRONLY | O_TRUNC));
    has("lost");
    SHOW(give("lost", VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    SHOW(rename("lost", "found"));
    SHOW(link("found", "lost"));
    SHOW(utimensat(AT_FDCWD, "lost", NULL, 0));
    has("found");
    close(file);
}

static void run(const char *file, const char *what, int user)
{
    fflush(stdout);
    pid_t child = CHILD({
        if (user != 0) {
            setgroups(0, NULL);
            setresgid(user, user, user);
            setresuid(user, user, user);
        }
        execl(file, "file_capabilities", "report", what, NULL);
        printf("%s: %s\n", what, ERRNO_NAME(errno));
    });
    REAP(child);
}

static void executions(void)
{
    const char *program = "/tmp/file_capabilities/program";
    copy_self(program);
    run(program, "none, user", 1000);
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_NET_RAW), 0));
    run(program, "effective, user", 1000);
    SHOW(give(program, VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    run(program, "permitted, user", 1000);
    SHOW(give(program, VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_NET_RAW), 0));
    run(program, "revision 3, user", 1000);
    struct value others = { VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_NET_RAW), 0, 0, 0, 1000 };
    SHOW(setxattr(program, NAME, &others, 24, 0));
    run(program, "another root's, user", 1000);
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, 0, BIT(CAP_CHOWN)));
    run(program, "inheritable, user", 1000);
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_NET_RAW), 0));
    REAP(CHILD({
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        execl(program, "file_capabilities", "report", "no new privileges", NULL);
    }));
    REAP(CHILD({
        prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        SHOW(execl(program, "file_capabilities", "report", "beyond the bound", NULL));
        SHOW(execl("/nothing", "nothing", NULL));
    }));
    SHOW(give(program, VFS_CAP_REVISION_2, BIT(CAP_NET_RAW), 0));
    REAP(CHILD({
        prctl(PR_CAPBSET_DROP, CAP_NET_RAW, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        execl(program, "file_capabilities", "report", "beyond the bound, not effective", NULL);
    }));
    REAP(CHILD({
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct data[2] = { 0 };
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        data[0].permitted = data[0].inheritable = BIT(CAP_CHOWN);
        SHOW(syscall(SYS_capset, &header, data));
        SHOW(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
        fflush(stdout);
        if (fork() == 0)
            execl(program, "file_capabilities", "report", "ambient goes", NULL);
        wait(NULL);
        SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, 0, BIT(CAP_CHOWN)));
        execl(self, "file_capabilities", "report", "ambient stays", NULL);
    }));
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, 0, BIT(CAP_CHOWN)));
    REAP(CHILD({
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct data[2] = { 0 };
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        data[0].permitted = data[0].inheritable = BIT(CAP_CHOWN);
        SHOW(syscall(SYS_capset, &header, data));
        execl(program, "file_capabilities", "report", "inherited", NULL);
    }));
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_CHOWN), 0));
    REAP(CHILD({
        /* What it has already it keeps by its file, although it may gain nothing. */
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct data[2] = { 0 };
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        setresuid(1000, 1000, 1000);
        data[0].permitted = BIT(CAP_CHOWN);
        SHOW(syscall(SYS_capset, &header, data));
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        execl(program, "file_capabilities", "report", "kept with no new privileges", NULL);
    }));
    SHOW(give(program, VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, BIT(CAP_NET_RAW), 0));
    chmod(program, 04755);
    run(program, "with set-user-id, user", 1000);
    REAP(CHILD({
        prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0);
        execl(program, "file_capabilities", "report", "root is nobody special", NULL);
    }));
    removexattr(program, NAME);
    run(program, "set-user-id only, user", 1000);
}

int main(int count, char **words)
{
    if (count > 2)
        return report(words[2]);
    realpath(ME, self);
    chmod(".", 0777);
    forms();
    losses();
    executions();
    return 0;
}
