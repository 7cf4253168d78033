/* A fuzzer of system calls: random numbers, pointers, lengths and flags, from several processes, as root and as nobody.
 *
 * Each worker starts one victim after another. A victim makes BATCH calls chosen by a generator whose seed is printed
 * on the progress channel before it starts, so `fuzz replay SEED` repeats the last batch of a machine that died.
 * What would end the machine or the harness on purpose is left out or turned on the victim itself: reboot, kexec,
 * signals and scheduling of others. Root's victims live in a chroot, so that what they unlink is theirs.
 *
 * usage: fuzz SECONDS [SEED] | fuzz replay SEED
 *
 * abi: guest
 * abi: alone
 * abi: cpus 2,4
 * abi: args 20
 * abi: limit 120
 * abi: long-args 600
 * abi: long-limit 900
 */
#include "guest.h"

enum { WORKERS = 6, BATCH = 1500, VICTIM_MS = 1500, CALLS_MAX = 470 };

static uint64_t state;
static char *arena; /* Some mapped memory, with a hole and a read-only page in it. */
static const char *const paths[] = { "", ".", "..", "/", "file", "dir", "dir/x", "link", "fifo", "/proc", "/proc/self/stat",
    "/proc/self/maps", "/proc/self/fd/0", "/proc/self/mem", "/dev/null", "/dev/zero", "/dev/ptmx", "/dev/tty", "/proc/self/exe",
    "/proc/meminfo", "absent", "dir/../file", "./././file", "/proc/1/status", "/proc/self/task", "tmpfs", "proc", "name" };

static const short left_out[] = { 15 /* rt_sigreturn: jumps anywhere */, 34, 60, 130, 167, 168, 169, 231, 246, 320, 153, 101, 219 };
static const short own_pid[] = { 62, 129, 200, 234, 297, 141, 142, 144, 203, 314, 302, 251, 310, 311, 109, 438, 424, 434, 440 };

static uint64_t draw(void)
{
    return next_random(&state);
}

static int is_in(const short *list, size_t count, long number)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == number)
            return 1;
    return 0;
}

/* An argument: something a careless or hostile program might pass. */
static uint64_t argument(void)
{
    uint64_t value = draw();
    switch (value % 17) {
    case 0: return 0;
    case 1: return 1;
    case 2: return (value >> 8) % 16;
    case 3: return (value >> 8) % 4096;
    case 4: return 1ull << ((value >> 8) % 64);
    case 5: return (1ull << ((value >> 8) % 64)) - 1;
    case 6: return ~0ull - (value >> 8) % 16;
    case 7: return value;
    case 8: return (uint64_t)(uint32_t)value;
    case 9: return (uintptr_t)arena + (value >> 8) % (16 * 4096);
    case 10: return (uintptr_t)arena + ((value >> 8) % 17) * 4096 - (value >> 40) % 16;
    case 11: return (uintptr_t)paths[(value >> 8) % (sizeof paths / sizeof *paths)];
    case 12: return (value >> 8) % 32;
    case 13: return 0xffff800000000000ull + (value >> 20);
    case 14: return (uintptr_t)arena + (value >> 8) % 4096;
    case 15: return 0x7ffffffff000ull - (value >> 8) % 8192;
    default: return (uintptr_t)paths[(value >> 8) % (sizeof paths / sizeof *paths)];
    }
}

/* A structure-like mess in the arena, so that pointers into it lead to plausible contents. */
static void fill_arena(void)
{
    for (int i = 0; i < 64; i++) {
        uint64_t value = argument();
        memcpy(arena + draw() % 4000, &value, sizeof value);
    }
}

static void nothing(int number)
{
    (void)number;
}

static void prepare(int nobody)
{
    arena = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(arena + 5 * 4096, 4096);
    mprotect(arena + 7 * 4096, 4096, PROT_READ);
    struct rlimit cpu = { 2, 2 }, space = { 256 << 20, 256 << 20 }, files = { 128, 128 }, core = { 0, 0 }, big = { 1 << 20, 1 << 20 };
    struct rlimit processes = { 40, 40 };
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_AS, &space);
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_CORE, &core);
    setrlimit(RLIMIT_FSIZE, &big);
    setrlimit(RLIMIT_NPROC, &processes);
    if (chroot("/tmp/fuzz/jail") < 0 || chdir("/work") < 0)
        _exit(1);
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) < 0)
        _exit(1);
    open("file", O_RDWR | O_CREAT, 0666);
    open(".", O_RDONLY);
    epoll_create1(0);
    eventfd(0, EFD_NONBLOCK);
    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    open("/dev/ptmx", O_RDWR | O_NONBLOCK);
    if (nobody)
        setresuid(65534, 65534, 65534);
    for (int number = 1; number < 32; number++)
        if (number != SIGSEGV && number != SIGBUS && number != SIGILL && number != SIGFPE)
            signal(number, nothing);
    struct sigaction action = { .sa_handler = nothing };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = { { 0, 5000 }, { 0, 5000 } };
    setitimer(ITIMER_REAL, &often, NULL);
}

static void victim(uint64_t seed)
{
    state = seed;
    setpgid(0, 0);
    close(0);
    prepare((int)(seed & 1));
    pid_t self = getpid();
    for (int i = 0; i < BATCH; i++) {
        long number = (long)(draw() % 24 == 0 ? draw() % 0x1400 : draw() % CALLS_MAX);
        uint64_t a = argument(), b = argument(), c = argument(), d = argument(), e = argument(), f = argument();
        if (is_in(left_out, sizeof left_out / sizeof *left_out, number))
            continue;
        if (is_in(own_pid, sizeof own_pid / sizeof *own_pid, number))
            a = number == 141 || number == 251 ? a & 1 : (uint64_t)self;
        if (number == 141 || number == 251 || number == 200 || number == 234)
            b = (uint64_t)self;
        if ((number >= 56 && number <= 58) || number == 435)
            if (draw() % 16)
                continue;
        if (i % 16 == 0)
            fill_arena();
        syscall(number, a, b, c, d, e, f);
    }
    _exit(0);
}

static void worker(int me, uint64_t seed, long long until_ms)
{
    uint64_t own = seed + (uint64_t)me * 1000003;
    long batches = 0, killed = 0, faults = 0;
    while (now_ms() < until_ms) {
        uint64_t batch_seed = (next_random(&own) & ~1ull) | (uint64_t)(me & 1);
        if (batches % 16 == 0)
            progress("fuzz worker %d batch %ld seed %llu", me, batches, (unsigned long long)batch_seed);
        pid_t child = fork();
        if (child == 0)
            victim(batch_seed);
        if (child < 0) {
            pause_ms(10);
            continue;
        }
        long long limit = now_ms() + VICTIM_MS;
        int status = 0;
        pid_t found;
        while ((found = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < limit)
            pause_ms(2);
        kill(-child, SIGKILL);
        kill(child, SIGKILL);
        if (found == 0)
            waitpid(child, &status, 0);
        killed += found == 0;
        faults += WIFSIGNALED(status) && found != 0;
        batches++;
    }
    printf("worker %d as %s: %ld batches of %d calls, %ld stopped after %d ms, %ld ended by a signal\n", me,
           me & 1 ? "nobody" : "root", batches, BATCH, killed, VICTIM_MS, faults);
}

int main(int count, char **words)
{
    mkdir("/tmp/fuzz", 0755);
    mkdir("/tmp/fuzz/jail", 0755);
    const char *folders[] = { "work", "work/dir", "proc", "dev", "dev/pts" };
    for (int i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/fuzz/jail/%s", folders[i]);
        mkdir(path, 0777);
        chmod(path, 0777);
    }
    mount("proc", "/tmp/fuzz/jail/proc", "proc", 0, NULL);
    mount("devpts", "/tmp/fuzz/jail/dev/pts", "devpts", 0, NULL);
    mknod("/tmp/fuzz/jail/dev/null", S_IFCHR | 0666, makedev(1, 3));
    mknod("/tmp/fuzz/jail/dev/zero", S_IFCHR | 0666, makedev(1, 5));
    mknod("/tmp/fuzz/jail/dev/tty", S_IFCHR | 0666, makedev(5, 0));
    mknod("/tmp/fuzz/jail/dev/ptmx", S_IFCHR | 0666, makedev(5, 2));
    symlink("file", "/tmp/fuzz/jail/work/link");
    mkfifo("/tmp/fuzz/jail/work/fifo", 0666);
    if (count > 2 && !strcmp(words[1], "replay")) {
        pid_t child = CHILD(victim(strtoull(words[2], NULL, 0)));
        REAP(child);
        return 0;
    }
    long seconds = count > 1 ? atol(words[1]) : 10;
    uint64_t seed = count > 2 ? strtoull(words[2], NULL, 0) : 0;
    if (seed == 0)
        syscall(SYS_getrandom, &seed, sizeof seed, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    progress("fuzz seed %llu", (unsigned long long)seed);
    long before = free_kib();
    long long until = now_ms() + seconds * 1000;
    for (int me = 0; me < WORKERS; me++)
        CHILD(worker(me, seed, until));
    /* Children of victims come to whoever reaps; only the workers are waited for. */
    while (wait(NULL) > 0)
        ;
    kill_user(65534);
    REAP(CHILD(execl("/abi/hello", "hello", "alive", NULL)));
    printf("MemFree %ld KiB before, %ld KiB after\n", before, free_kib());
    return 0;
}
