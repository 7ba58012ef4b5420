/* Wrong calls of libftbjob: each is refused with its reason, and nothing else happens. */
#include <ftb_job.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int refused(int64_t code, const char *words)
{
    if (code == FTB_JOB_INVALID && strstr(ftb_job_error(), words))
        return 0;
    printf("%lld is not refused with %s: %s\n", (long long)code, words, ftb_job_error());
    return 1;
}

int main(void)
{
    static char state[64];
    static const char fixed[64] = "constant";
    char name[80];
    int bad = ftb_protect("state", state, sizeof state) != FTB_JOB_OK;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    bad += refused(ftb_protect("state", state, 8), "protected already");
    bad += refused(ftb_protect(NULL, state, 8), "name is NULL");
    bad += refused(ftb_protect("", state, 8), "1 to 63 bytes");
    bad += refused(ftb_protect(name, state, 8), "1 to 63 bytes");
    bad += refused(ftb_protect("\xff", state, 8), "not UTF-8");
    bad += refused(ftb_protect("null", NULL, 8), "address is NULL");
    bad += refused(ftb_protect("empty", state, 0), "0 bytes");
    bad += refused(ftb_protect("huge", state, SIZE_MAX), "not writable memory");
    bad += refused(ftb_protect("large", state, (size_t)1 << 44), "not writable memory");
    bad += refused(ftb_protect("fixed", (void *)fixed, sizeof fixed), "not writable memory");
    bad += ftb_loop() != 0 || ftb_loop() != 1;
    bad += refused(ftb_protect("late", state, 8), "before the first ftb_loop");
    pid_t child = fork();
    if (child == 0)
        _exit(refused(ftb_loop(), "forked child"));
    int status;
    bad += waitpid(child, &status, 0) != child || status != 0;
    bad += ftb_loop() != 2;
    bad += ftb_progress() != FTB_JOB_FAILED || ftb_job_rank() != 0 || ftb_job_size() != 1;
    return bad != 0;
}
