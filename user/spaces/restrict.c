/* A name space that stays as it is: a filter refuses every call that changes what is mounted, and every way to another name space of mounts or users. */
#include "spaces.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, (value))
#define REFUSED (SECCOMP_RET_ERRNO | EPERM)
/* Goes over the next instruction unless the number is this one. */
#define UNLESS(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1)
#define REFUSE(number) UNLESS(number), ANSWER(REFUSED)

/* Where `clone` and `unshare` have their flags: the low half of the first argument. */
#define FLAGS args[0]
enum { SPACES = CLONE_NEWNS | CLONE_NEWUSER, X32_CALLS = 0x40000000 };

void restrict_mounts(void)
{
    struct sock_filter program[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 0, 1),
        ANSWER(REFUSED),
        REFUSE(SYS_mount),
        REFUSE(SYS_umount2),
        REFUSE(SYS_pivot_root),
        REFUSE(SYS_setns),
        REFUSE(SYS_open_tree),
        REFUSE(SYS_move_mount),
        REFUSE(SYS_fsopen),
        REFUSE(SYS_fsconfig),
        REFUSE(SYS_fsmount),
        REFUSE(SYS_fspick),
        REFUSE(SYS_mount_setattr),
        /* What has its flags in memory can't be looked at: the library makes do with the older call. */
        UNLESS(SYS_clone3),
        ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 3),
        LOAD(FLAGS),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, SPACES, 0, 1),
        ANSWER(REFUSED),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { .len = sizeof program / sizeof *program, .filter = program };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        fail_at(0, "keeping mounts as they are");
}
