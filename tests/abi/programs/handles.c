/* File handles: their sizes, what is opened by them, files that are gone, other mounts, who may. */
#include "abi.h"

union handle {
    struct file_handle head;
    char bytes[sizeof(struct file_handle) + 128];
};

static union handle of(const char *path)
{
    union handle made = { .head.handle_bytes = 128 };
    int mount;
    if (name_to_handle_at(AT_FDCWD, path, &made.head, &mount, 0))
        printf("no handle of %s: %s\n", path, ERRNO_NAME(errno));
    return made;
}

static void show_text(union handle *handle)
{
    char text[32] = "";
    int fd = open_by_handle_at(AT_FDCWD, &handle->head, O_RDONLY);
    if (fd < 0) {
        printf("  %s\n", ERRNO_NAME(errno));
        return;
    }
    ssize_t count = read(fd, text, sizeof text - 1);
    printf("  %s\n", count < 0 ? ERRNO_NAME(errno) : text);
    close(fd);
}

/* Closed at once: who has a file open keeps it. */
#define OPENS(...)                                                                                                     \
    do {                                                                                                               \
        int opened_ = open_by_handle_at(__VA_ARGS__);                                                                  \
        printf("open_by_handle_at(%s): %s\n", #__VA_ARGS__, opened_ < 0 ? ERRNO_NAME(errno) : "ok");                   \
        if (opened_ >= 0)                                                                                              \
            close(opened_);                                                                                            \
    } while (0)

int main(void)
{
    int mount = -1, other = -1;
    union handle handle = { .head.handle_bytes = 128 };
    put_text("file", "text");
    mkdir("folder", 0755);
    mkdir("folder/below", 0755);
    put_text("folder/below/deep", "deep");
    symlink("file", "link");
    SHOW(name_to_handle_at(AT_FDCWD, "file", &handle.head, &mount, 0));
    TRUE(mount > 0 && handle.head.handle_bytes > 0);
    unsigned needed = handle.head.handle_bytes;
    union handle small = { .head.handle_bytes = 0 };
    SHOW(name_to_handle_at(AT_FDCWD, "file", &small.head, &other, 0));
    TRUE(small.head.handle_bytes == needed && other == mount);
    small.head.handle_bytes = needed - 1;
    SHOW(name_to_handle_at(AT_FDCWD, "file", &small.head, &other, 0));
    small.head.handle_bytes = 129;
    SHOW(name_to_handle_at(AT_FDCWD, "file", &small.head, &other, 0));
    small.head.handle_bytes = needed;
    SHOW(name_to_handle_at(AT_FDCWD, "file", &small.head, &other, 0x800000));
    SHOW(name_to_handle_at(AT_FDCWD, "missing", &small.head, &other, 0));
    SHOW(name_to_handle_at(AT_FDCWD, "", &small.head, &other, 0));
    SHOW(name_to_handle_at(77, "file", &small.head, &other, 0));
    SHOW(name_to_handle_at(AT_FDCWD, "file", NULL, &other, 0));
    SHOW(name_to_handle_at(AT_FDCWD, "file", &small.head, NULL, 0));
    SHOW(name_to_handle_at(AT_FDCWD, "/proc/self/status", &small.head, &other, 0));
    int fd = open("file", O_RDONLY);
    union handle same = { .head.handle_bytes = 128 };
    SHOW(name_to_handle_at(fd, "", &same.head, &other, AT_EMPTY_PATH));
    TRUE(!memcmp(&same, &handle, sizeof(struct file_handle) + needed));
    union handle link = of("link"), followed = { .head.handle_bytes = 128 };
    TRUE(memcmp(&link, &handle, sizeof(struct file_handle) + needed) != 0);
    SHOW(name_to_handle_at(AT_FDCWD, "link", &followed.head, &other, AT_SYMLINK_FOLLOW));
    TRUE(!memcmp(&followed, &handle, sizeof(struct file_handle) + needed));

    show_text(&handle);
    rename("file", "renamed");
    show_text(&handle);
    OPENS(AT_FDCWD, &link.head, O_RDONLY);
    OPENS(AT_FDCWD, &link.head, O_PATH);
    OPENS(AT_FDCWD, &handle.head, O_RDONLY | O_DIRECTORY);
    OPENS(AT_FDCWD, &handle.head, O_RDWR);
    OPENS(fd, &handle.head, O_RDONLY);
    OPENS(78, &handle.head, O_RDONLY);
    int proc = open("/proc/self/status", O_RDONLY);
    OPENS(proc, &handle.head, O_RDONLY);

    union handle folder = of("folder/below");
    int directory = open_by_handle_at(AT_FDCWD, &folder.head, O_RDONLY | O_DIRECTORY);
    TRUE(directory >= 0);
    TRUE(faccessat(directory, "deep", R_OK, 0) == 0);
    TRUE(faccessat(directory, "../below/deep", R_OK, 0) == 0);
    char path[64], place[256] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
    ssize_t count = readlink(path, place, sizeof place - 1);
    printf("ends in %s\n", count > 13 ? place + count - 13 : place);
    OPENS(AT_FDCWD, &folder.head, O_RDWR);
    union handle deep = of("folder/below/deep");
    show_text(&deep);

    union handle wrong = handle;
    wrong.head.handle_bytes = 0;
    OPENS(AT_FDCWD, &wrong.head, O_RDONLY);
    wrong.head.handle_bytes = 129;
    OPENS(AT_FDCWD, &wrong.head, O_RDONLY);
    wrong = handle;
    memset(wrong.head.f_handle, 0xff, needed);
    OPENS(AT_FDCWD, &wrong.head, O_RDONLY);
    OPENS(AT_FDCWD, NULL, O_RDONLY);

    close(fd);
    unlink("renamed");
    show_text(&handle);
    put_text("renamed", "another");
    show_text(&handle);
    unlink("folder/below/deep");
    rmdir("folder/below");
    close(directory);
    OPENS(AT_FDCWD, &folder.head, O_RDONLY);

    handle = of("renamed");
    REAP(CHILD({
        SHOW(setresuid(1000, 1000, 1000));
        SHOW(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY) >= 0);
    }));
    return 0;
}
