/* User and group ids, saved ids, supplementary groups, capabilities, what execution of set-id files does. */
#include "abi.h"
#include <linux/capability.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>

static void show(const char *what)
{
    uid_t user[3];
    gid_t group[3];
    getresuid(&user[0], &user[1], &user[2]);
    getresgid(&group[0], &group[1], &group[2]);
    printf("%s: uid %d %d %d gid %d %d %d\n", what, user[0], user[1], user[2], group[0], group[1], group[2]);
}

static void users(void)
{
    REAP(CHILD({ SHOW(setuid(1000)); show("setuid as root"); SHOW(setuid(0)); SHOW(seteuid(0)); }));
    REAP(CHILD({ SHOW(seteuid(1000)); show("seteuid"); SHOW(setuid(5)); SHOW(seteuid(0)); show("back"); }));
    REAP(CHILD({ SHOW(setreuid(1000, 2000)); show("setreuid"); SHOW(setreuid(2000, 1000)); show("swapped"); SHOW(setreuid(-1, 7)); }));
    REAP(CHILD({
        SHOW(setresuid(1, 2, 3));
        show("setresuid");
        SHOW(setresuid(3, 1, 2));
        show("permuted");
        SHOW(setresuid(-1, -1, 4));
        SHOW(setuid(2));
        show("setuid");
        SHOW(setresuid(-1, -1, -1));
    }));
    REAP(CHILD({ SHOW(setgid(50)); show("setgid"); SHOW(setegid(60)); show("setegid"); SHOW(setregid(70, 80)); show("setregid"); }));
    REAP(CHILD({ setresgid(1, 2, 3); setresuid(1, 1, 1); SHOW(setgid(3)); show("gid"); SHOW(setgid(9)); SHOW(setresgid(2, 1, -1)); show("gid"); }));
    REAP(CHILD({
        SHOW(setfsuid(1000));
        SHOW(setfsuid(-1));
        SHOW(setfsgid(1000));
        SHOW(setfsgid(-1));
        put_text("fs", "x");
        struct stat about;
        stat("fs", &about);
        printf("made as %d %d\n", about.st_uid, about.st_gid);
    }));
    SHOW(syscall(SYS_setuid, -1));
    SHOW(syscall(SYS_setresuid, -1, -1, -1));
    SHOW(getresuid((void *)8, (void *)8, (void *)8));
}

static void supplementary(void)
{
    gid_t list[40];
    REAP(CHILD({
        gid_t set[] = { 30, 10, 20 };
        SHOW(setgroups(3, set));
        SHOW(getgroups(0, NULL));
        SHOW(getgroups(2, list));
        SHOW(getgroups(40, list));
        printf("%d %d %d\n", list[0], list[1], list[2]);
        put_text("/tmp/credentials/g", "x");
        chown("/tmp/credentials/g", 0, 20);
        chmod("/tmp/credentials/g", 0040);
        setresuid(5, 5, 5);
        SHOW(access("/tmp/credentials/g", R_OK));
        SHOW(setgroups(0, NULL));
        SHOW(getgroups(-1, list));
    }));
    SHOW(setgroups(70000, list));
    SHOW(setgroups(-1, list));
    SHOW(setgroups(3, (void *)8));
}

static void capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { 0 };
    header.pid = 1;
    SHOW(syscall(SYS_capget, &header, data));
    header.pid = 0;
    SHOW(syscall(SYS_capget, &header, data));
    TRUE((data[0].effective & (1u << CAP_CHOWN)) != 0);
    header.version = 77;
    SHOW(syscall(SYS_capget, &header, data));
    TRUE(header.version == _LINUX_CAPABILITY_VERSION_3);
    header.pid = 0x3fffffff;
    SHOW(syscall(SYS_capget, &header, data));
    header.pid = 0;
    REAP(CHILD({
        syscall(SYS_capget, &header, data);
        data[0].effective &= ~(1u << CAP_CHOWN);
        SHOW(syscall(SYS_capset, &header, data));
        put_text("c", "x");
        SHOW(chown("c", 1, 1));
        data[0].effective |= 1u << CAP_CHOWN;
        SHOW(syscall(SYS_capset, &header, data));
        SHOW(chown("c", 1, 1));
        data[0].permitted &= ~(1u << CAP_KILL);
        data[0].effective &= ~(1u << CAP_KILL);
        SHOW(syscall(SYS_capset, &header, data));
        data[0].permitted |= 1u << CAP_KILL;
        SHOW(syscall(SYS_capset, &header, data));
    }));
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        syscall(SYS_capget, &header, data);
        printf("after leaving root: effective %#x permitted %#x\n", data[0].effective, data[0].permitted);
    }));
    REAP(CHILD({
        SHOW(prctl(PR_SET_KEEPCAPS, 1));
        setresuid(1000, 1000, 1000);
        syscall(SYS_capget, &header, data);
        printf("kept: effective %#x permitted some %d\n", data[0].effective, data[0].permitted != 0);
    }));
    REAP(CHILD({
        setresuid(-1, 1000, -1);
        syscall(SYS_capget, &header, data);
        printf("effective 1000: effective %#x\n", data[0].effective);
        setresuid(-1, 0, -1);
        syscall(SYS_capget, &header, data);
        printf("effective 0 again: some %d\n", data[0].effective != 0);
    }));
    SHOW(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    SHOW(prctl(PR_CAPBSET_READ, 99));
}

static void execution(void)
{
    /* A copy of a program with the set-id bits, run by another user. */
    int in = open("/proc/self/exe", O_RDONLY), out = open("id", O_CREAT | O_WRONLY, 0755);
    static char buffer[65536];
    ssize_t count;
    while ((count = read(in, buffer, sizeof buffer)) > 0)
        write(out, buffer, (size_t)count);
    close(out);
    chmod(".", 0755);
    chown("id", 1234, 4321);
    chmod("id", 06755);
    REAP(CHILD({ setgroups(0, NULL); setresgid(7, 7, 7); setresuid(8, 8, 8); execl("./id", "credentials", "show", NULL); }));
    REAP(CHILD({ prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); setgroups(0, NULL); setresgid(7, 7, 7); setresuid(8, 8, 8); execl("./id", "credentials", "show", NULL); }));
    chmod("id", 02745);
    REAP(CHILD({ setgroups(0, NULL); setresgid(7, 7, 7); setresuid(8, 8, 8); execl("./id", "credentials", "show", NULL); _exit(errno == EACCES ? 13 : 1); }));
    chmod("id", 0700);
    REAP(CHILD({ setresuid(8, 8, 8); execl("./id", "credentials", "show", NULL); _exit(errno == EACCES ? 13 : 1); }));
}

/* What reboot(2) refuses: nothing here would end the machine. A container's root may not even ask. */
static void wrong_reboot(const char *what, unsigned magic, unsigned magic2, unsigned command)
{
    errno = 0;
    long result = syscall(SYS_reboot, magic, magic2, command, 0);
    int error = prctl(PR_CAPBSET_READ, CAP_SYS_BOOT) != 1 && errno == EPERM ? EINVAL : errno;
    printf("reboot with %s = %ld %s\n", what, result, ERRNO_NAME(error));
}

static void end_of_machine(void)
{
    REAP(CHILD({ setuid(1000); SHOW(syscall(SYS_reboot, 0xfee1dead, 672274793, 5, 0)); SHOW(syscall(SYS_reboot, 1, 2, 3, 0)); }));
    wrong_reboot("a wrong first number", 0xfee1deae, 672274793, 0x01234567);
    wrong_reboot("a wrong second number", 0xfee1dead, 672274794, 0x01234567);
    wrong_reboot("an unknown command", 0xfee1dead, 85072278, 5);
    wrong_reboot("another unknown command", 0xfee1dead, 369367448, 6);
    wrong_reboot("yet another unknown command", 0xfee1dead, 537993216, 7);
}

static void *changes(void *unused)
{
    setuid(1000);
    return unused;
}

int main(int count, char **words)
{
    if (count > 1) {
        show("set-id program");
        printf("secure %ld, dumpable %d, words %s\n", (long)getauxval(AT_SECURE), prctl(PR_GET_DUMPABLE), words[1]);
        return 0;
    }
    chmod(".", 0777);
    users();
    supplementary();
    end_of_machine();
    capabilities();
    execution();
    /* glibc makes setuid count for all threads. */
    REAP(CHILD({
        pthread_t thread;
        pthread_create(&thread, NULL, changes, NULL);
        pthread_join(thread, NULL);
        show("after a thread's setuid");
    }));
    return 0;
}
