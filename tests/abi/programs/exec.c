/* execve and execveat: arguments, environment, errors, scripts, what survives and what does not. */
#include "abi.h"

extern char **environ;

/* What the program prints when it has been executed again with "again". */
static int again(int count, char **words)
{
    printf("again %d:", count);
    for (int i = 1; i < count; i++)
        printf(" [%s]", words[i]);
    printf("\n");
    for (char **word = environ; *word; word++)
        printf("env %s\n", *word);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("mask USR1 %d USR2 %d\n", sigismember(&mask, SIGUSR1), sigismember(&mask, SIGUSR2));
    struct sigaction action;
    sigaction(SIGHUP, NULL, &action);
    printf("HUP %s\n", action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "?");
    sigaction(SIGINT, NULL, &action);
    printf("INT %s\n", action.sa_handler == SIG_DFL ? "default" : action.sa_handler == SIG_IGN ? "ignored" : "?");
    sigset_t pending;
    sigpending(&pending);
    printf("pending USR1 %d\n", sigismember(&pending, SIGUSR1));
    SHOW(fcntl(10, F_GETFD));
    SHOW(fcntl(11, F_GETFD));
    SHOW(fcntl(12, F_GETFD));
    SHOW(umask(0));
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    TRUE(timer.it_value.tv_sec > 100);
    stack_t stack;
    sigaltstack(NULL, &stack);
    TRUE(stack.ss_flags == SS_DISABLE);
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    return 9;
}

static void handler(int number)
{
    (void)number;
}

static void survives(void)
{
    REAP(CHILD({
        signal(SIGHUP, handler);
        signal(SIGINT, SIG_IGN);
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR1);
        sigprocmask(SIG_BLOCK, &mask, NULL);
        raise(SIGUSR1);
        int fd = open("/dev/null", O_RDONLY);
        dup2(fd, 10);
        dup3(fd, 11, O_CLOEXEC);
        dup2(fd, 12);
        fcntl(12, F_SETFD, FD_CLOEXEC);
        umask(0123);
        struct itimerval timer = { .it_value = { 1000, 0 } };
        setitimer(ITIMER_REAL, &timer, NULL);
        static char room[65536];
        stack_t stack = { .ss_sp = room, .ss_size = sizeof room };
        sigaltstack(&stack, NULL);
        prctl(PR_SET_NAME, "renamed");
        char *arguments[] = { "exec", "again", "", "two words", NULL };
        char *environment[] = { "A=1", "B=", NULL };
        execve("/abi/bin/exec", arguments, environment);
    }));
}

static void errors(void)
{
    char *words[] = { "x", NULL };
    put_text("plain", "nothing");
    put_text("script", "#!/bin/busybox sh\necho script \"$0\" \"$@\"\nexit 4\n");
    put_text("deep", "#!./script -x\n");
    put_text("no_interpreter", "#!/does/not/exist\n");
    put_text("empty_interpreter", "#!\n");
    put_text("empty", "");
    put_text("text", "echo without a first line\n");
    put_text("short_elf", "\177ELF");
    for (int i = 0; i < 7; i++)
        chmod((char *[]){ "script", "deep", "no_interpreter", "empty_interpreter", "empty", "text", "short_elf" }[i],
              0755);
    mkdir("folder", 0755);
    SHOW(execve("/does/not/exist", words, environ));
    SHOW(execve("plain", words, environ));
    SHOW(execve("plain/x", words, environ));
    SHOW(execve("folder", words, environ));
    SHOW(execve("", words, environ));
    SHOW(execve("no_interpreter", words, environ));
    SHOW(execve("empty_interpreter", words, environ));
    SHOW(execve("empty", words, environ));
    SHOW(execve("text", words, environ));
    SHOW(execve("short_elf", words, environ));
    SHOW(execve((char *)8, words, environ));
    SHOW(execve("/abi/hello", (char **)8, environ));
    SHOW(execve("/abi/hello", words, (char **)8));
    char *bad[] = { "x", (char *)8, NULL };
    SHOW(execve("/abi/hello", bad, environ));
    REAP(CHILD({ execl("./script", "zero", "one", "two", NULL); _exit(99); }));
    REAP(CHILD({ execl("./deep", "deep", "last", NULL); _exit(errno == ELOOP ? 98 : 99); }));
    REAP(CHILD({ execl("/abi/hello", "hello", "a", "b", NULL); }));
    REAP(CHILD({ execl("/abi/tiny", "tiny", NULL); }));
    int fd = open("/abi/hello", O_RDONLY | O_CLOEXEC);
    REAP(CHILD({ syscall(SYS_execveat, fd, "", (char *[]){ "h", "by descriptor", NULL }, environ, AT_EMPTY_PATH); }));
    int folder = open("/abi", O_RDONLY | O_DIRECTORY);
    REAP(CHILD({ syscall(SYS_execveat, folder, "hello", (char *[]){ "h", "by folder", NULL }, environ, 0); }));
    SHOW(syscall(SYS_execveat, fd, "", words, environ, 0));
    SHOW(syscall(SYS_execveat, 77, "hello", words, environ, 0));
    SHOW(syscall(SYS_execveat, folder, "hello", words, environ, 0x40));
    symlink("/abi/hello", "link");
    SHOW(syscall(SYS_execveat, AT_FDCWD, "link", words, environ, AT_SYMLINK_NOFOLLOW));
    int busy = open("script", O_WRONLY);
    OK(execve("./script", words, environ));
    close(busy);
    close(fd);
}

static void big_arguments(void)
{
    enum { EACH = 100000, COUNT = 8 };
    char *words[COUNT + 3] = { "exec", "count" };
    for (int i = 0; i < COUNT; i++) {
        words[i + 2] = malloc(EACH + 1);
        memset(words[i + 2], 'a' + i, EACH);
        words[i + 2][EACH] = 0;
    }
    REAP(CHILD(execve("/abi/bin/exec", words, environ)));
    char *huge = malloc(140000);
    memset(huge, 'x', 139999);
    huge[139999] = 0;
    SHOW(execve("/abi/bin/exec", (char *[]){ "exec", huge, NULL }, environ));
    char **many = malloc(sizeof(char *) * 30);
    for (int i = 0; i < 29; i++)
        many[i] = words[2];
    many[29] = NULL;
    SHOW(execve("/abi/bin/exec", many, environ));
    REAP(CHILD({ execve("/abi/bin/exec", (char *[]){ NULL }, environ); printf("%s\n", ERRNO_NAME(errno)); }));
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "again"))
        return again(count, words);
    if (count > 1 && !strcmp(words[1], "count")) {
        size_t bytes = 0;
        for (int i = 2; i < count; i++)
            bytes += strlen(words[i]);
        printf("%d words, %zu bytes, last %c\n", count - 2, bytes, words[count - 1][0]);
        return 0;
    }
    survives();
    errors();
    big_arguments();
    return 0;
}
