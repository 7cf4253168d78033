/* The tools of private name spaces (user/spaces): the order of unions and where files are created in them, name spaces from profiles, those of other
 * processes, and what is refused with which message. */
#include "abi.h"

static void run(const char *script)
{
    printf("$ %s\n", script);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(1, 2);
        setenv("PATH", "/abi:/bin", 1);
        execl("/bin/sh", "sh", "-c", script, NULL);
        _exit(99);
    }
    int status;
    waitpid(child, &status, 0);
    printf("-> %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* As a normal user. */
static void run_as_user(const char *script)
{
    printf("as user 1000: ");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
            _exit(98);
        run(script);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    chmod(path, 0666);
}

static void prepare(void)
{
    static const char *const folders[] = { "t", "t/x", "t/y", "t/z", "t/work", "t/m" };
    umask(0);
    /* Unions want a file system that can be an upper layer. */
    mkdir("t", 0777);
    mount("none", "t", "tmpfs", 0, "mode=777");
    for (size_t index = 1; index < sizeof folders / sizeof *folders; index++)
        mkdir(folders[index], 0777);
    put("t/x/name", "x\n");
    put("t/y/name", "y\n");
    put("t/z/name", "z\n");
    put("t/x/in_x", "1\n");
    put("t/y/in_y", "2\n");
    put("t/z/in_z", "3\n");
    put("t/z/in_all_but_x", "z\n");
    put("t/y/in_all_but_x", "y\n");
    umask(022);
}

static void binds(void)
{
    run("newns sh -c 'bind t/x t/m; cat t/m/name; bind t/y/name t/m/name; cat t/m/name; cat t/x/name'; ls t/m");
    run("newns sh -c 'bind -o ro t/x t/m; echo new > t/m/name; echo new > t/x/other'; rm t/x/other");
    run("newns sh -c 'bind t/nosuch t/m; bind t/x t/nosuch; bind t/x; bind -q; bind -a -b t/x t/m; bind -o size=1 t/x t/m'");
    run_as_user("bind t/x t/m");
}

static void unions(void)
{
    run("newns sh -c 'bind -b t/y t/x; cat t/x/name t/x/in_all_but_x; ls t/x'; ls t/x");
    run("newns sh -c 'bind -a t/y t/x; cat t/x/name t/x/in_all_but_x; ls t/x'");
    run("newns sh -c 'bind -a t/y t/x; bind -b t/z t/x; cat t/x/name t/x/in_all_but_x; ls t/x'");
    run("newns sh -c 'bind -a t/y t/x; bind -a t/z t/x; cat t/x/name t/x/in_all_but_x'");
    run("newns sh -c 'bind -b t/y t/x; touch t/x/new'");
    run("newns sh -c 'bind -bc t/y t/x; touch t/x/new; bind -a t/z t/x; touch t/x/later; echo changed > t/x/in_x; ls t/x'; ls t/x t/y; cat t/x/in_x t/y/in_x; rm -r t/y/new t/y/later t/y/in_x t/.y-union");
    run("newns sh -c 'bind -bc -w t/work t/y t/x; touch t/x/new'; ls t/y; rm t/y/new");
    run("newns sh -c 'bind -ac t/y t/x; bind -bc t/y t/x; bind -b t/z t/x; cat t/x/name'; rm -rf t/.y-union");
    run("newns sh -c 'mkdir -p t/c:d; bind -a t/c:d t/x; bind -a t/y/name t/x; bind -aR t/y t/x; bind -a t/x/name t/y/name'");
    run_as_user("newns sh -c 'bind -bc t/y t/x; touch t/x/mine; bind -a t/z t/x; ls t/x'; ls t/y; rmdir t/.y-union/work t/.y-union; rm t/y/mine");
}

static void profiles(void)
{
    put("t/profile", "# what a program gets\nbind -R /bin /bin ro\nbind /abi /abi\n\nbind -R /proc /proc\nbind -b t/x t/m\n");
    run("newns -b -f t/profile sh -c true");
    put("t/profile", "# what a program gets\nbind -R /bin /bin ro\nbind /abi /abi\n\nbind -R /proc /proc\nmount tmpfs none /scratch size=64k,nodev\n"
                     "bind /etc/passwd /a/file\\040of/users nosuid,ro\n");
    run("newns -b -f t/profile sh -c 'ls / /scratch; head -n 1 \"/a/file of/users\"; cut -d\" \" -f5 /proc/self/mountinfo; echo x > \"/a/file of/users\"; mount -t tmpfs none /scratch && echo mounted'");
    run("newns -b -r -f t/profile sh -c 'mount -t tmpfs none /scratch; umount /scratch; bind /bin /scratch; newns true; unshare -U true; (echo forks)'");
    run_as_user("newns -b -f t/profile sh -c 'ls /; cut -d\" \" -f5 /proc/self/mountinfo; bind /bin /scratch && ls /scratch/sh; id -u'");
    run_as_user("newns -b -r -f t/profile sh -c 'bind /bin /scratch; ls /scratch'");
    run("newns -f t/profile sh -c true");
    run("newns nosuch; newns -b true; newns; newns -z true; newns -f t/nosuch true; newns -f t true");
}

/* What an enemy writes is refused with the line that is wrong, before anything is mounted; and what is below a new root stays there. */
static void hostile_profiles(void)
{
    static const char *const lines[] = {
        "bnid /bin /bin\n", "bind /bin\n", "bind -q /bin /bin\n", "bind -ab /bin /bin\n", "mount tmpfs none\n", "mount tmpfs none relative\n", "bind relative /bin\n",
        "bind /bin /bin size=1m\n", "bind 1 2 3 4 5 6 7 8 9 10\n", "mount nosuch none /bin\n", "bind /nosuch /bin\n", "bind /bin \n", "bind\n", "\n\n  bind /bin /bin ro extra\n",
    };
    for (size_t index = 0; index < sizeof lines / sizeof *lines; index++) {
        put("t/enemy", lines[index]);
        printf("%s", lines[index]);
        run("newns -f t/enemy echo reached");
    }
    FILE *file = fopen("t/enemy", "w");
    for (int line = 0; line < 300; line++)
        fputs("bind /bin /bin\n", file);
    fclose(file);
    run("newns -f t/enemy echo reached");
    run("head -c 70000 /dev/zero | tr '\\0' '#' > t/enemy; newns -f t/enemy echo reached; printf 'bind /bin\\0 /bin' > t/enemy; newns -f t/enemy echo reached");
    run("rm t/enemy; mkfifo t/enemy; newns -f t/enemy echo reached; rm t/enemy");
    put("t/enemy", "bind -R /bin /bin\nbind /abi /abi\nbind -R /proc /proc\nbind /etc ../../../../t\nbind /etc /../../../outside/../deep\n");
    run("newns -b -f t/enemy true");
    put("t/enemy", "bind -R /bin /bin\nbind /abi /abi\nbind -R /proc /proc\nbind /etc /../../../deep\nmount tmpfs none /proc/self/root/tmp\n");
    run("newns -b -f t/enemy true; ls -d /deep");
    put("t/enemy", "bind -R /bin /bin\nbind /abi /abi\nbind -R /proc /proc\nbind /etc /../../../deep\n");
    run("newns -b -f t/enemy ls / /deep/passwd; ls -d /deep");
}

static void copies(void)
{
    run("newns sh -c 'bind t/x t/m; bind -o ro t/y/name t/z/name; exec sleep 1000' & until grep -q z/name /proc/$!/mounts; do true; done; nsdup -p $! | sed \"s,$PWD,.,g\"; "
        "nsdup $! sh -c 'ls t/m; cat t/z/name; echo new > t/z/name'; nsdup -r $! sh -c 'ls t/m; bind t/y t/m'; kill $!; ls t/m");
    run("newns sh -c 'bind -a t/y t/x; mount -t tmpfs none t/m; exec sleep 1000' & until grep -q t/m /proc/$!/mounts; do true; done; nsdup $! sh -c 'ls t/x' 2>&1 | sed \"s,$PWD,.,g\"; kill $!");
    run("newns sh -c 'bind -bc t/y t/x; exec sleep 1000' & until grep -q t/x /proc/$!/mounts; do true; done; nsdup $! sh -c 'ls t/x' 2>&1 | sed \"s,$PWD,.,g\"; kill $!; rm -rf t/.y-union");
    run("nsdup 0 true; nsdup x true; nsdup 1x true; nsdup 999999999 true; nsdup; nsdup -p; nsdup 1");
}

int main(void)
{
    if (unshare(CLONE_NEWNS))
        return 1;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    prepare();
    binds();
    unions();
    profiles();
    hostile_profiles();
    copies();
    return 0;
}
