/* Nearly always waits in vfork for a child that has not run a program yet, until the file that it is called with is there. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int children = 0;
    if (argc != 2)
        return 2;
    while (access(argv[1], F_OK) != 0) {
        pid_t child = vfork();
        if (child < 0)
            return 1;
        if (child == 0) {
            usleep(200 * 1000);
            _exit(0);
        }
        if (waitpid(child, NULL, 0) != child)
            return 1;
        children++;
    }
    printf("result children %s\n", children > 0 ? "all collected" : "none");
    return 0;
}
