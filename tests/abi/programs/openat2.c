/* openat2: walks that stay below a directory, or have it as their root; without links, magic links and crossing mounts. */
#include "abi.h"
#include <linux/openat2.h>

static int top;

/* The path of what was opened, from the scratch directory on. */
static void look(int directory, const char *path, unsigned long resolve, unsigned long flags)
{
    char name[64], text[PATH_MAX], here[PATH_MAX];
    struct open_how how = { .flags = flags, .resolve = resolve };
    printf("%s %s %#lx: ", directory == AT_FDCWD ? "." : "top", path, resolve);
    int fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd < 0) {
        printf("%s\n", strerrorname_np(errno));
        return;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    if (!getcwd(here, sizeof here))
        return;
    printf("%s\n", strncmp(text, here, strlen(here)) ? text : text + strlen(here));
    close(fd);
}

int main(void)
{
    static const char *const paths[] = { "file",  "/file",     "d/file",   "/d/file",      "..",      "../..",        "/..",     "/../../d/../file", "/etc", "etc",
                                         "up",    "up/file",   "absolute", "/absolute",    "d/root",  "d/../d/../../file", "magic/", "/magic",           "",     "/",
                                         "mount", "/mount/in", "nosuch",   "/d/../nosuch", "loop" };
    static const unsigned long rules[] = { 0, RESOLVE_IN_ROOT, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_XDEV, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
                                           RESOLVE_IN_ROOT | RESOLVE_NO_XDEV };
    unshare(CLONE_NEWNS);
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    mkdir("top", 0755);
    mkdir("top/d", 0755);
    mkdir("top/etc", 0755);
    mkdir("top/mount", 0755);
    mount("none", "top/mount", "tmpfs", 0, NULL);
    close(open("top/mount/in", O_CREAT | O_WRONLY, 0644));
    close(open("top/file", O_CREAT | O_WRONLY, 0644));
    close(open("top/d/file", O_CREAT | O_WRONLY, 0644));
    close(open("file", O_CREAT | O_WRONLY, 0644));
    OK(symlink("../..", "top/up"));
    OK(symlink("/d/file", "top/absolute"));
    OK(symlink("/", "top/d/root"));
    OK(symlink("loop", "top/loop"));
    OK(symlink("/proc/self/cwd", "top/magic"));
    top = open("top", O_PATH | O_DIRECTORY);
    for (size_t rule = 0; rule < sizeof rules / sizeof *rules; rule++)
        for (size_t path = 0; path < sizeof paths / sizeof *paths; path++) {
            /* What leads out of the scratch directory without a rule is the machine's own. */
            int leads_out = rules[rule] == RESOLVE_NO_XDEV && (!strcmp(paths[path], "absolute") || !strcmp(paths[path], "d/root"));
            if (leads_out)
                continue;
            if (rules[rule] & (RESOLVE_IN_ROOT | RESOLVE_BENEATH) || (paths[path][0] != '/' && !strstr(paths[path], "..") && !strstr(paths[path], "up")))
                look(top, paths[path], rules[rule], O_PATH);
        }
    look(AT_FDCWD, "/file", RESOLVE_IN_ROOT, O_PATH);
    look(AT_FDCWD, "/file", RESOLVE_BENEATH, O_PATH);
    look(99, "/file", RESOLVE_IN_ROOT, O_PATH);
    look(99, "file", RESOLVE_BENEATH, O_PATH);
    look(top, "file", RESOLVE_IN_ROOT | RESOLVE_BENEATH, O_PATH);
    look(top, "file", 1 << 20, O_PATH);
    look(top, "/new", RESOLVE_IN_ROOT, O_CREAT | O_RDWR);
    SHOW(access("top/new", F_OK));
    SHOW(access("/new", F_OK));
    return 0;
}
