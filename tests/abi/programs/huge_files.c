/* Files of huge pages: memfd_create(MFD_HUGETLB), shmget(SHM_HUGETLB), and the file system hugetlbfs.
 *
 * abi: alone
 * abi: limit 60
 */
#include "huge_pool.h"
#include <sys/shm.h>

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4
#endif

static unsigned char *map(int file, long pages, int flags)
{
    return mmap(NULL, pages * HUGE, ANY, flags, file, 0);
}

static void memory_files(void)
{
    char bytes[8];
    struct stat status;
    printf("memory files\n");
    int file = memfd_create("name", MFD_HUGETLB);
    SHOW(ftruncate(file, PAGE));
    SHOW(ftruncate(file, 2 * HUGE));
    SHOW(write(file, "a", 1));
    SHOW(pwrite(file, "a", 1, HUGE));
    SHOW(pread(file, bytes, 8, 0));
    SHOW(pread(file, bytes, 8, 2 * HUGE - 4));
    SHOW(pread(file, bytes, 8, 2 * HUGE));
    pool("read");
    unsigned char *place = map(file, 2, MAP_SHARED);
    pool("mapped");
    place[PAGE] = 4;
    SHOW(pread(file, bytes, 8, PAGE - 1));
    SHOW(bytes[0] * 100 + bytes[1] * 10 + bytes[2]);
    MAPS(mmap(NULL, HUGE, ANY, MAP_SHARED, file, PAGE));
    unsigned char *private = map(file, 1, MAP_PRIVATE);
    pool("private");
    SHOW(private[PAGE]);
    pool("read there");
    private[PAGE] = 5;
    pool("written there");
    SHOW(place[PAGE] * 10 + private[PAGE]);
    SHOW(madvise(private, HUGE, MADV_DONTNEED));
    SHOW(private[PAGE]);
    private[0] = 1;
    SHOW(fstat(file, &status));
    SHOW(status.st_size / PAGE);
    SHOW(status.st_blocks);
    SHOW(status.st_blksize);
    SHOW(ftruncate(file, HUGE));
    pool("cut");
    SHOW(reads(place + HUGE));
    SHOW(ftruncate(file, 3 * HUGE));
    SHOW(writes(place + HUGE));
    pool("longer");
    MAPS(mmap(NULL, 8 * HUGE, PROT_READ, MAP_SHARED, file, 0));
    SHOW(fallocate(file, 0, 0, HUGE));
    SHOW(fallocate(file, FALLOC_FL_KEEP_SIZE, 0, 3 * HUGE));
    pool("allocated");
    SHOW(fallocate(file, FALLOC_FL_ZERO_RANGE, 0, HUGE));
    munmap(private, HUGE);
    place[5] = 6;
    place[HUGE + 5] = 7;
    SHOW(fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, HUGE + PAGE));
    pool("punched");
    SHOW(place[5] * 10 + place[HUGE + 5]);
    SHOW(madvise(place + HUGE, HUGE, MADV_REMOVE));
    pool("removed");
    SHOW(lseek(file, 0, SEEK_DATA));
    SHOW(lseek(file, 0, SEEK_HOLE) / PAGE);
    SHOW(lseek(file, 0, SEEK_END) / PAGE);
    SHOW(fcntl(file, F_GET_SEALS));
    SHOW(fsync(file));
    pid_t child = CHILD(place[9] = 8);
    REAP(child);
    SHOW(place[9]);
    munmap(place, 2 * HUGE);
    close(file);
    pool("closed");
    file = memfd_create("sealed", MFD_HUGETLB | MFD_ALLOW_SEALING | 21 << 26);
    SHOW(ftruncate(file, HUGE));
    SHOW(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK));
    SHOW(ftruncate(file, 0));
    SHOW(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
    MAPS(map(file, 1, MAP_SHARED));
    SHOW(fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, HUGE));
    close(file);
    SHOW(memfd_create("size", MFD_HUGETLB | 22 << 26));
    SHOW(memfd_create("size", 21 << 26));
    pool("none");
}

static void segments(void)
{
    struct shmid_ds status;
    printf("segments\n");
    SHOW(shmget(IPC_PRIVATE, 9 * HUGE, IPC_CREAT | 0600 | SHM_HUGETLB));
    SHOW(shmget(IPC_PRIVATE, HUGE, IPC_CREAT | 0600 | SHM_HUGETLB | 22 << 26));
    int segment = shmget(IPC_PRIVATE, HUGE + 5, IPC_CREAT | 0600 | SHM_HUGETLB);
    pool("made");
    unsigned char *place = shmat(segment, NULL, 0);
    place[HUGE + 7] = 3;
    pool("touched");
    pid_t child = CHILD(place[HUGE + 7]++);
    REAP(child);
    SHOW(place[HUGE + 7]);
    smaps(place);
    SHOW(shmctl(segment, IPC_STAT, &status));
    SHOW(status.shm_segsz);
    SHOW(status.shm_nattch);
    SHOW((long)shmat(segment, place + 2 * HUGE + PAGE, 0));
    SHOW(shmdt(place));
    SHOW(shmctl(segment, IPC_RMID, NULL));
    pool("removed");
    child = CHILD({
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_MEMLOCK, &none);
        if (setgid(1000) || setuid(1000))
            _exit(1);
        SHOW(shmget(IPC_PRIVATE, HUGE, IPC_CREAT | 0600 | SHM_HUGETLB));
        place = mmap(NULL, HUGE, ANY, MAP_PRIVATE | POOLED, -1, 0);
        SHOW(writes(place));
        fflush(stdout);
    });
    REAP(child);
}

static void space(const char *directory)
{
    struct statfs status;
    SHOW(statfs(directory, &status));
    printf("  %lx: %ld bytes, %ld blocks, %ld free, %ld files\n", (long)status.f_type, (long)status.f_bsize,
        (long)status.f_blocks, (long)status.f_bfree, (long)status.f_files);
}

static void options(void)
{
    FILE *file = fopen("/proc/self/mounts", "r");
    char line[500];
    while (fgets(line, sizeof line, file)) {
        char *found = strstr(line, "hugetlbfs");
        if (found && strstr(line, "/mounted "))
            printf("  %s", found);
    }
    fclose(file);
}

#define MOUNT(text) SHOW(mount("none", "mounted", "hugetlbfs", 0, text))

static void file_system(void)
{
    char bytes[8] = { 0 };
    struct stat status;
    printf("file system\n");
    SHOW(mkdir("mounted", 0755));
    MOUNT("size=4M,mode=700");
    options();
    space("mounted");
    SHOW(stat("mounted", &status));
    SHOW(status.st_mode);
    int file = open("mounted/file", O_RDWR | O_CREAT, 0640);
    SHOW(write(file, "a", 1));
    SHOW(ftruncate(file, 6 * HUGE));
    MAPS(map(file, 3, MAP_SHARED));
    unsigned char *place = map(file, 2, MAP_SHARED);
    place[0] = 'x';
    space("mounted");
    pool("mapped");
    munmap(place, 2 * HUGE);
    close(file);
    pool("closed");
    SHOW(rename("mounted/file", "mounted/other"));
    file = open("mounted/other", O_RDONLY);
    SHOW(read(file, bytes, 4));
    SHOW(bytes[0]);
    MAPS(map(file, 1, MAP_SHARED));
    place = mmap(NULL, HUGE, PROT_READ, MAP_SHARED, file, 0);
    SHOW(place[0]);
    munmap(place, HUGE);
    close(file);
    SHOW(truncate("mounted/other", 0));
    pool("cut");
    SHOW(unlink("mounted/other"));
    pool("unlinked");
    SHOW(mkdir("mounted/directory", 0755));
    SHOW(symlink("x", "mounted/link"));
    SHOW(mkfifo("mounted/fifo", 0600));
    file = open("mounted/directory/new", O_RDWR | O_CREAT | O_EXCL, 0600);
    place = map(file, 1, MAP_SHARED);
    SHOW(fstat(file, &status));
    SHOW(status.st_size / PAGE);
    place[1] = 9;
    SHOW(pread(file, bytes, 8, 0));
    SHOW(bytes[1]);
    close(file);
    SHOW(umount("mounted"));
    SHOW(unlink("mounted/directory/new"));
    munmap(place, HUGE);
    SHOW(umount("mounted"));
    pool("unmounted");
    MOUNT("size=8M");
    file = open("mounted/file", O_RDWR | O_CREAT, 0600);
    place = map(file, 2, MAP_SHARED);
    place[0] = place[HUGE] = 1;
    close(file);
    munmap(place, 2 * HUGE);
    SHOW(umount("mounted"));
    pool("unmounted with a file");
    MOUNT("pagesize=4M");
    MOUNT("foo=1");
    MOUNT("size=4M,min_size=8M");
    MOUNT("min_size=40M");
    MOUNT("min_size=4M");
    options();
    pool("least");
    MAPS(mmap(NULL, 3 * HUGE, ANY, MAP_PRIVATE | POOLED, -1, 0));
    file = open("mounted/file", O_RDWR | O_CREAT, 0600);
    place = map(file, 3, MAP_SHARED | MAP_POPULATE);
    pool("more than the least");
    munmap(place, 3 * HUGE);
    SHOW(ftruncate(file, 0));
    pool("the least");
    close(file);
    SHOW(unlink("mounted/file"));
    SHOW(umount("mounted"));
    pool("unmounted");
    MOUNT("nr_inodes=2,uid=5,gid=6,pagesize=2M");
    options();
    space("mounted");
    SHOW(stat("mounted", &status));
    SHOW(status.st_uid * 10 + status.st_gid);
    file = open("mounted/1", O_CREAT | O_RDWR, 0600);
    SHOW(open("mounted/2", O_CREAT, 0600));
    close(file);
    SHOW(umount("mounted"));
    MOUNT("size=50%");
    space("mounted");
    SHOW(umount("mounted"));
}

int main(void)
{
    catch_signals();
    set(SIZE, 4);
    pool("begin");
    memory_files();
    segments();
    file_system();
    set(SIZE, 0);
    pool("end");
    return 0;
}
