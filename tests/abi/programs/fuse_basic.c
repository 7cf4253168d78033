/* File systems of programs: names, attributes, reading, writing, directories, links, attributes with names, what the server hears of it. */
#include "fuse.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path)
{
    char *names[64];
    int number = 0;
    DIR *directory = opendir(path);
    if (!directory) {
        printf("%s: %s\n", path, ERRNO_NAME(errno));
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) && number < 64;) {
        char *text = malloc(300);
        snprintf(text, 300, "%s (%d)", entry->d_name, entry->d_type);
        names[number++] = text;
    }
    closedir(directory);
    qsort(names, number, sizeof names[0], by_name);
    printf("%s:", path);
    for (int index = 0; index < number; index++)
        printf(" %s", names[index]);
    printf("\n");
}

static void show_status(const char *path)
{
    struct stat found;
    if (lstat(path, &found) < 0) {
        printf("%s: %s\n", path, ERRNO_NAME(errno));
        return;
    }
    printf("%s: mode %o links %ld owner %d:%d size %ld blocks %ld times %ld %ld %ld\n", path, found.st_mode, (long)found.st_nlink,
           found.st_uid, found.st_gid, (long)found.st_size, (long)found.st_blocks, (long)found.st_atime, (long)found.st_mtime,
           (long)found.st_ctime);
}

static void show_mount(void)
{
    char text[512];
    FILE *file = fopen("/proc/self/mounts", "r");
    while (fgets(text, sizeof text, file))
        if (strstr(text, "fuse.hand"))
            printf("   %s", strstr(text, " fuse.hand"));
    fclose(file);
}

static void refused_mounts(void)
{
    char options[200];
    int device = open_device();
    SHOW(mount("x", "m", "fuse", 0, NULL));
    SHOW(mount("x", "m", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0"));
    SHOW(mount("x", "m", "fuse", 0, "fd=99,rootmode=40000,user_id=0,group_id=0"));
    snprintf(options, sizeof options, "fd=%d,rootmode=0,user_id=0,group_id=0", device);
    SHOW(mount("x", "m", "fuse", 0, options));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0", device);
    SHOW(mount("x", "m", "fuse", 0, options));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,nonsense", device);
    SHOW(mount("x", "m", "fuse", 0, options));
    SHOW(mount("x", "m", "tmpfs.x", 0, NULL));
    char byte[8192];
    SHOW(read(device, byte, sizeof byte));
    SHOW(write(device, byte, 16));
    struct pollfd wanted = { device, POLLIN | POLLOUT, 0 };
    SHOW(poll(&wanted, 1, 0));
    SHOW(wanted.revents);
    close(device);
}

static void reading(void)
{
    char text[100];
    list("m");
    show_status("m/file");
    show_status("m/dir");
    show_status("m/link");
    show_status("m/absent");
    int fd = open("m/file", O_RDONLY);
    SHOW(read(fd, text, sizeof text));
    SHOW(pread(fd, text, 3, 2));
    printf("   %.3s\n", text);
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(read(fd, text, 1));
    SHOW(lseek(fd, 3, SEEK_DATA));
    SHOW(lseek(fd, 3, SEEK_HOLE));
    struct stat found;
    SHOW(fstat(fd, &found));
    SHOW(found.st_size);
    close(fd);
    SHOW(readlink("m/link", text, sizeof text));
    fd = open("m/link", O_RDONLY);
    SHOW(read(fd, text, sizeof text));
    close(fd);
    SHOW(open("m/file/x", O_RDONLY));
    SHOW(open("m/dir", O_WRONLY));
    SHOW(open("m/absent", O_RDONLY));
    SHOW(mkdir("m/dir", 0755));
    SHOW(access("m/file", R_OK));
    SHOW(world->last_access);
    struct statfs status;
    SHOW(statfs("m", &status));
    printf("   %lx %ld %ld %ld %ld %ld %ld\n", (long)status.f_type, (long)status.f_blocks, (long)status.f_bfree, (long)status.f_bavail,
           (long)status.f_files, (long)status.f_ffree, (long)status.f_namelen);
    TRUE(world->last_uid == geteuid() && world->last_pid == (uint32_t)getpid());
}

static void writing(void)
{
    umask(027);
    int fd = open("m/new", O_RDWR | O_CREAT | O_EXCL, 0666);
    TRUE(fd >= 0);
    printf("   mode %o umask %o flags %o\n", world->last_mode, world->last_umask, world->last_flags);
    SHOW(asked(FUSE_CREATE));
    SHOW(asked(FUSE_MKNOD));
    SHOW(write(fd, "hello world", 11));
    SHOW(pwrite(fd, "HE", 2, 0));
    char text[30] = "";
    SHOW(pread(fd, text, sizeof text, 0));
    printf("   %s\n", text);
    printf("   server: %.11s\n", world->nodes[find_child(1, "new")].data);
    SHOW(fsync(fd));
    SHOW(fdatasync(fd));
    SHOW(ftruncate(fd, 5));
    struct stat found;
    fstat(fd, &found);
    SHOW(found.st_size);
    SHOW(fallocate(fd, 0, 0, 300));
    fstat(fd, &found);
    SHOW(found.st_size);
    SHOW(close(fd));
    SHOW(asked(FUSE_FLUSH) > 0);
    await(FUSE_RELEASE, 1);
    TRUE(asked(FUSE_RELEASE) > 0);
    SHOW(open("m/new", O_RDWR | O_CREAT | O_EXCL, 0666));
    fd = open("m/new", O_WRONLY | O_APPEND);
    SHOW(write(fd, "end", 3));
    fstat(fd, &found);
    SHOW(found.st_size);
    close(fd);
    fd = open("m/new", O_WRONLY | O_TRUNC);
    fstat(fd, &found);
    SHOW(found.st_size);
    close(fd);
    SHOW(chmod("m/new", 0600));
    printf("   valid %x\n", world->last_valid);
    SHOW(chown("m/new", 7, 8));
    printf("   valid %x\n", world->last_valid);
    struct timespec times[2] = { { 77, 0 }, { 88, 0 } };
    SHOW(utimensat(AT_FDCWD, "m/new", times, 0));
    show_status("m/new");
    SHOW(utimensat(AT_FDCWD, "m/new", NULL, 0));
    SHOW(truncate("m/new", 3));
    SHOW(truncate("m/dir", 3));
    SHOW(mkdir("m/made", 0777));
    printf("   mode %o umask %o\n", world->last_mode, world->last_umask);
    SHOW(mknod("m/pipe", S_IFIFO | 0666, 0));
    printf("   mode %o umask %o\n", world->last_mode, world->last_umask);
    SHOW(symlink("new", "m/other"));
    fd = open("m/other", O_RDONLY);
    TRUE(fd >= 0);
    close(fd);
    SHOW(link("m/new", "m/hard"));
    SHOW(rename("m/new", "m/made/moved"));
    show_status("m/made/moved");
    show_status("m/new");
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "m/file", AT_FDCWD, "m/made/moved", RENAME_NOREPLACE));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "m/file", AT_FDCWD, "m/made/moved", RENAME_EXCHANGE));
    list("m/made");
    SHOW(unlink("m/made/moved"));
    SHOW(unlink("m/made/moved"));
    SHOW(rmdir("m/made"));
    list("m");
    umask(022);
}

static void named_attributes(void)
{
    char value[100];
    SHOW(getxattr("m/dir", "user.a", value, sizeof value));
    SHOW(setxattr("m/dir", "user.a", "abc", 3, 0));
    SHOW(getxattr("m/dir", "user.a", value, sizeof value));
    SHOW(getxattr("m/dir", "user.a", value, 2));
    SHOW(getxattr("m/dir", "user.a", NULL, 0));
    SHOW(listxattr("m/dir", value, sizeof value));
    SHOW(listxattr("m/dir", NULL, 0));
    SHOW(removexattr("m/dir", "user.a"));
    SHOW(removexattr("m/dir", "user.a"));
    SHOW(listxattr("m/dir", value, sizeof value));
    SHOW(setxattr("m/dir", "system.x", "1", 1, 0));
    SHOW(getxattr("m/dir", "system.x", value, sizeof value));
    world->unknown = 1ull << FUSE_GETXATTR;
    SHOW(getxattr("m/dir", "user.a", value, sizeof value));
    world->unknown = 0;
    SHOW(getxattr("m/dir", "user.a", value, sizeof value));
}

static void refusals(void)
{
    world->refuse_opcode = FUSE_OPEN;
    world->refuse_errno = EBUSY;
    SHOW(open("m/some", O_RDONLY));
    world->refuse_opcode = FUSE_LOOKUP;
    world->refuse_errno = EIO;
    SHOW(open("m/others", O_RDONLY));
    world->refuse_opcode = FUSE_MKDIR;
    world->refuse_errno = EDQUOT;
    SHOW(mkdir("m/x", 0777));
    world->refuse_opcode = FUSE_ACCESS;
    world->refuse_errno = EACCES;
    SHOW(access("m/some", R_OK));
    SHOW(chdir("m/dir"));
    world->refuse_opcode = 0;
    world->unknown = 1ull << FUSE_ACCESS;
    SHOW(access("m/some", W_OK));
    world->unknown = 1ull << FUSE_CREATE;
    int fd = open("m/plain", O_RDWR | O_CREAT, 0640);
    TRUE(fd >= 0);
    printf("   mode %o\n", world->last_mode);
    SHOW(write(fd, "x", 1));
    world->unknown = 1ull << FUSE_FLUSH;
    SHOW(close(fd));
    world->unknown = 0;
}

static void the_end(void)
{
    int fd = open("m/some", O_RDONLY), dir = open("m", O_RDONLY | O_DIRECTORY);
    char text[10];
    struct stat found;
    struct statfs status;
    SHOW(umount("m"));
    end_server();
    SHOW(stat("m/some", &found));
    SHOW(stat("m", &found));
    SHOW(fstat(fd, &found));
    SHOW(pread(fd, text, 1, 5000));
    SHOW(statfs("m", &status));
    SHOW(open("m/some", O_RDONLY));
    SHOW(mkdir("m/x", 0700));
    SHOW(close(fd));
    SHOW(close(dir));
    SHOW(umount("m"));
    SHOW(stat("m", &found));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    refused_mounts();
    make_world();
    add_node(1, "file", S_IFREG | 0644, "0123456789");
    add_node(1, "some", S_IFREG | 0644, "some");
    add_node(1, "dir", S_IFDIR | 0755, NULL);
    add_node(1, "link", S_IFLNK | 0777, "file");
    SHOW(mount_world("m", 0, ""));
    show_mount();
    reading();
    writing();
    named_attributes();
    refusals();
    the_end();
    return 0;
}
