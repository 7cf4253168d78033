/* Who asks to be traced gives the parent nothing that it may not do itself: one with privileges is refused to a parent without. */
#include "tracing.h"

/* The parent of a child that asks, both with the ids that they are to have by then. */
static void ask(const char *what, uid_t parent_id, uid_t child_id, int new_space)
{
    int ready[2];
    pid_t parent;
    if (pipe(ready) < 0)
        return;
    fflush(stdout);
    parent = fork();
    if (parent == 0) {
        pid_t child = fork();
        if (child == 0) {
            char byte;
            close(ready[1]);
            if (new_space && unshare(CLONE_NEWUSER) < 0)
                _exit(2);
            if (read(ready[0], &byte, 1) < 0 || (child_id && setresuid(child_id, child_id, child_id) < 0))
                _exit(3);
            _exit(request(TRACEME, 0, 0, 0) < 0 ? 100 + (errno == EPERM) : 0);
        }
        if (parent_id && setresuid(parent_id, parent_id, parent_id) < 0)
            _exit(4);
        close(ready[0]);
        close(ready[1]);
        int status;
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
    }
    close(ready[0]);
    close(ready[1]);
    int status;
    waitpid(parent, &status, 0);
    printf("%s: %s\n", what, WEXITSTATUS(status) == 0 ? "traced" : WEXITSTATUS(status) == 101 ? "EPERM" : how_ended(status));
}

int main(void)
{
    ask("both privileged", 0, 0, 0);
    ask("a privileged child", 1000, 0, 0);
    ask("a privileged parent", 0, 1000, 0);
    ask("neither", 1000, 1000, 0);
    ask("a child in a name space of users", 0, 0, 1);
    ask("the same of a parent without privileges", 1000, 0, 1);
    return 0;
}
