/* A wall clock that is wrong: preloaded into an agent, CLOCK_REALTIME is FTB_TEST_CLOCK_APART seconds
   off, and as many seconds ahead as the file FTB_TEST_CLOCK_FILE has bytes. Everything else is as it
   is. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, now);
	const char *apart = getenv("FTB_TEST_CLOCK_APART");
	const char *file = getenv("FTB_TEST_CLOCK_FILE");
	struct stat ahead;

	if (!failed && clock == CLOCK_REALTIME && apart)
		now->tv_sec += atol(apart);
	if (!failed && clock == CLOCK_REALTIME && file && !stat(file, &ahead))
		now->tv_sec += ahead.st_size;
	return failed;
}
