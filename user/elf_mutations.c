/* A megabyte of random mutations of static programs, executed: the kernel refuses them or the programs die.
 *
 * usage: elf_mutations RUNS [SEED]      each run changes 256 bytes
 *
 * abi: guest
 * abi: alone
 * abi: args 250
 * abi: limit 200
 * abi: long-args 4096
 * abi: long-limit 900
 */
#include "guest.h"

enum { CHANGES = 256 };

static char original[2][1 << 20], image[1 << 20];
static size_t sizes[2];

int main(int count, char **words)
{
    static const char *const names[2] = { "/abi/tiny", "/abi/hello" };
    for (int i = 0; i < 2; i++) {
        int fd = open(names[i], O_RDONLY);
        ssize_t got = read(fd, original[i], sizeof original[i]);
        sizes[i] = got > 0 ? (size_t)got : 1;
        close(fd);
    }
    long runs = count > 1 ? atol(words[1]) : 100;
    uint64_t state = count > 2 ? strtoull(words[2], NULL, 0) : 0;
    if (!state)
        syscall(SYS_getrandom, &state, sizeof state, 0);
    printf("seed %llu\n", (unsigned long long)state);
    progress("elf_mutations seed %llu", (unsigned long long)state);
    /* Its pages are this program's, not the mutants'. */
    memset(image, 0, sizeof image);
    long before = free_kib(), refused = 0, signalled = 0, exited = 0, stopped = 0;
    for (long run = 0; run < runs; run++) {
        int which = next_random(&state) % 8 == 0;
        size_t bytes = sizes[which];
        memcpy(image, original[which], bytes);
        /* Most changes go where the kernel looks: the headers. */
        uint64_t style = next_random(&state) % 4;
        for (int change = 0; change < CHANGES; change++) {
            uint64_t draw = next_random(&state);
            size_t reach = style == 0 ? 64 : style == 1 ? 64 + 56 * 6 : bytes;
            if (style < 2 && change >= 1 + (int)(style * 3) + (int)(run % 4))
                reach = bytes - 1024 > 0 ? bytes : 1;
            size_t at = (draw >> 8) % reach;
            if (style < 2 && reach == bytes && at < 512)
                at = 512 + at % (bytes > 1024 ? 512 : 1);
            if (at < bytes)
                image[at] = draw % 3 ? (char)(draw >> 40) : (char)(image[at] ^ (1 << (draw >> 40) % 8));
        }
        if (next_random(&state) % 4)
            memcpy(image, "\177ELF\2\1\1", 7);
        if (next_random(&state) % 16 == 0)
            bytes = next_random(&state) % bytes;
        unlink("mutant");
        int fd = open("mutant", O_CREAT | O_WRONLY, 0755);
        if (write(fd, image, bytes) != (ssize_t)bytes)
            printf("short write\n");
        close(fd);
        if (run % 64 == 0)
            progress("elf_mutations run %ld", run);
        pid_t child = fork();
        if (child == 0) {
            struct rlimit cpu = { 1, 1 }, space = { 512 << 20, 512 << 20 };
            setrlimit(RLIMIT_CPU, &cpu);
            setrlimit(RLIMIT_AS, &space);
            int null = open("/dev/null", O_RDWR);
            for (int i = 0; i < 3; i++)
                dup2(null, i);
            setresuid(65534, 65534, 65534);
            execl("./mutant", "mutant", NULL);
            _exit(126);
        }
        int status = 0;
        long long until = now_ms() + 1500;
        pid_t found;
        while ((found = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < until)
            pause_ms(1);
        if (found == 0) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            stopped++;
        } else if (WIFSIGNALED(status)) {
            signalled++;
        } else if (WEXITSTATUS(status) == 126) {
            refused++;
        } else {
            exited++;
        }
    }
    printf("%ld mutants of %d bytes: %ld refused, %ld ended by a signal, %ld exited, %ld stopped\n", runs, CHANGES, refused,
           signalled, exited, stopped);
    unlink("mutant");
    memory_is_back("elf_mutations", before);
    REAP(CHILD(execl("/abi/tiny", "tiny", NULL)));
    return verdict_failed;
}
