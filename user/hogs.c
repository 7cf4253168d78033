/* Memory hogs: each takes one kind of memory until it is refused or killed; the machine lives and the memory comes back.
 *
 * abi: guest
 * abi: alone
 * abi: memory 256M
 * abi: limit 300
 */
#include "guest.h"

static void anonymous(void)
{
    for (;;) {
        char *area = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED)
            _exit(10);
        for (int i = 0; i < 16 << 20; i += 4096)
            area[i] = 1;
    }
}

/* One page in each 2 MiB, then in each GiB: nearly all the memory goes into page tables. */
static void page_tables(void)
{
    for (int i = 0; i < 64; i++) {
        char *area = mmap(NULL, 1ull << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (area == MAP_FAILED)
            _exit(10);
        for (uint64_t at = 0; at < 1ull << 40; at += i & 1 ? 1ull << 21 : 1ull << 30)
            area[at] = 1;
    }
    _exit(11);
}

static void table_readers(void)
{
    /* Reads only: no data page, just tables that lead to the zero page. */
    volatile char sum = 0;
    for (int i = 0; i < 64; i++) {
        char *area = mmap(NULL, 1ull << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (area == MAP_FAILED)
            _exit(10);
        for (uint64_t at = 0; at < 1ull << 40; at += 1ull << 21)
            sum += area[at];
    }
    _exit(11);
}

static void pipes(void)
{
    static char block[65536];
    struct rlimit many = { 4096, 4096 };
    setrlimit(RLIMIT_NOFILE, &many);
    for (int generation = 0; generation < 64; generation++) {
        int ends[2], made = 0;
        while (pipe2(ends, O_NONBLOCK) == 0) {
            if (fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0)
                write(ends[1], block, sizeof block);
            while (write(ends[1], block, sizeof block) > 0)
                ;
            made++;
        }
        pid_t child = fork();
        if (child < 0)
            _exit(10);
        if (child > 0)
            for (;;)
                pause();
        for (int fd = 0; fd < 4096; fd++)
            close(fd);
    }
    for (;;)
        pause();
}

static void open_files(void)
{
    for (int generation = 0; generation < 256; generation++) {
        while (open("/dev/null", O_RDONLY) >= 0 && eventfd(0, 0) >= 0 && epoll_create1(0) >= 0)
            ;
        pid_t child = fork();
        if (child < 0)
            _exit(10);
        if (child > 0) {
            waitpid(child, NULL, 0);
            _exit(13);
        }
    }
    _exit(11);
}

static void *sleeps(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void threads(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    pthread_attr_setguardsize(&attributes, 0);
    for (int made = 0; made < 200000; made++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, sleeps, NULL))
            _exit(10);
    }
    _exit(11);
}

static void files(void)
{
    static char block[1 << 20];
    for (int i = 0; i < 100000; i++) {
        char name[64];
        snprintf(name, sizeof name, "hog-%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0)
            _exit(10);
        for (int j = 0; j < 16; j++)
            if (write(fd, block, sizeof block) != sizeof block) {
                close(fd);
                _exit(12);
            }
        close(fd);
    }
}

static void small_files(void)
{
    for (int i = 0; i < 2000000; i++) {
        char name[64];
        snprintf(name, sizeof name, "hog-%d-with-a-rather-long-name-to-use-some-memory", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0)
            _exit(10);
        close(fd);
    }
}

static void mappings(void)
{
    for (int i = 0; i < 1000000; i++) {
        char *area = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED || mprotect(area, 4096, PROT_NONE) < 0)
            _exit(10);
    }
    _exit(11);
}

static void signals(void)
{
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct rlimit many = { RLIM_INFINITY, RLIM_INFINITY };
    setrlimit(RLIMIT_SIGPENDING, &many);
    while (sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 1 }) == 0)
        ;
    _exit(10);
}

static void locks(void)
{
    int fd = open("locked", O_CREAT | O_RDWR, 0600);
    for (long i = 0; i < 3000000; i++) {
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i * 2, .l_len = 1 };
        if (fcntl(fd, F_SETLK, &lock) < 0)
            _exit(10);
    }
    _exit(11);
}

static void watches(void)
{
    int set = epoll_create1(0);
    for (;;) {
        int fd = eventfd(0, 0);
        struct epoll_event event = { .events = EPOLLIN };
        if (fd < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) < 0)
            _exit(10);
    }
}

static void hog(const char *name, void (*body)(void), uid_t user)
{
    mkdir("place", 0777);
    chmod("place", 0777);
    long before = free_kib();
    progress("hog %s, MemFree %ld KiB", name, before);
    pid_t child = CHILD({
        if (chdir("place") < 0)
            _exit(20);
        put_text("/proc/self/oom_score_adj", "1000");
        setpgid(0, 0);
        /* It is memory that bounds them, not what an ordinary user may have. */
        struct rlimit many = { 1 << 20, 1 << 20 };
        setrlimit(RLIMIT_NOFILE, &many);
        setresgid(user, user, user);
        setresuid(user, user, user);
        body();
        _exit(0);
    });
    int status = 0;
    long long until = now_ms() + 25000;
    pid_t found;
    while ((found = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < until)
        pause_ms(20);
    long least = free_kib();
    kill(-child, SIGKILL);
    if (found == 0)
        waitpid(child, &status, 0);
    EXPECT(kill_user(user), "%s cannot be killed", name);
    printf("%s: %s, MemFree at the end %ld KiB\n", name, found ? how_ended(status) : "stopped after its time", least);
    /* What it left in the file system goes. */
    DIR *folder = opendir("place");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char path[300];
        snprintf(path, sizeof path, "place/%s", entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (folder)
        closedir(folder);
    rmdir("place");
    memory_is_back(name, before);
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*body)(void); } all[] = {
        { "anonymous", anonymous }, { "page_tables", page_tables }, { "table_readers", table_readers }, { "pipes", pipes },
        { "open_files", open_files }, { "threads", threads }, { "files", files }, { "small_files", small_files },
        { "mappings", mappings }, { "signals", signals }, { "locks", locks }, { "watches", watches },
    };
    chmod(".", 0777);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (count < 2 || !strcmp(words[1], all[i].name))
            hog(all[i].name, all[i].body, 2000 + i);
    REAP(CHILD(execl("/abi/hello", "hello", "alive", NULL)));
    return verdict_failed;
}
